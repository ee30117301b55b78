package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// Keys of KEDA.
const (
	// kedaPaused begins the annotations that stop KEDA, pausedReplicas among them: as long as it is there, KEDA keeps the
	// workload at that number of replicas, from which it would otherwise take even a workload without any.
	kedaPaused     = "autoscaling.keda.sh/paused"
	pausedReplicas = kedaPaused + "-replicas"
	// kedaOwn begins what KEDA itself keeps on a ScaledObject, its name for one.
	kedaOwn = "scaledobject.keda.sh/"
)

// none is the number of replicas at which the target is held.
const none = "0"

// PauseScaler keeps the target's autoscaler from giving it pods. Kubernetes' own leaves a workload alone that has no
// replicas; KEDA does not.
func (d templated) PauseScaler(ctx context.Context, c *flaggerv1.Canary) error {
	return d.pause(ctx, c, func(annotations map[string]string) { annotations[pausedReplicas] = none })
}

// ResumeScaler lets the target's autoscaler work again. What somebody else paused stays so.
func (d templated) ResumeScaler(ctx context.Context, c *flaggerv1.Canary) error {
	return d.pause(ctx, c, func(annotations map[string]string) {
		if annotations[pausedReplicas] == none {
			delete(annotations, pausedReplicas)
		}
	})
}

// pause changes the annotations of the target's ScaledObject. One that is not there has nothing to pause.
func (d templated) pause(ctx context.Context, c *flaggerv1.Canary, change func(annotations map[string]string)) error {
	if of, _ := scalerOf(c); of.kind != kedaScaler.kind {
		return nil
	}
	existing, err := d.read(ctx, c, kedaScaler.kind, c.Spec.AutoscalerRef.Name)
	switch {
	case errors.Is(err, ErrNotInstalled), err == nil && existing == nil:
		return nil
	case err != nil:
		return err
	}
	annotations := without(existing.GetAnnotations(), func(string) bool { return false })
	change(annotations)
	wanted, _ := edited(existing)
	wanted.SetAnnotations(orNil(annotations))
	if err := d.update(ctx, existing, wanted); err != nil {
		return fmt.Errorf("updating %s %s.%s failed: %w", kedaScaler.written, existing.GetName(), c.Namespace, err)
	}
	return nil
}

// renameQueries makes the triggers of a ScaledObject count what the primary gets: by the queries that the Canary gives
// for triggers of that name, or, without any, by putting its name where the target's or the canary's stands.
func renameQueries(c *flaggerv1.Canary, spec map[string]any) {
	target := c.Spec.TargetRef.Name
	primary := target + suffix
	renamed := strings.NewReplacer(target+"-canary", primary, primary, primary, target, primary)
	given := c.Spec.AutoscalerRef.PrimaryScalerQueries
	for _, trigger := range objects(spec["triggers"]) {
		metadata, ok := trigger["metadata"].(map[string]any)
		if !ok {
			continue
		}
		name, _ := trigger["name"].(string)
		query, asks := metadata["query"].(string)
		switch replacement, found := given[name]; {
		case len(given) > 0 && found && name != "":
			metadata["query"] = replacement
		case len(given) == 0 && asks:
			metadata["query"] = renamed.Replace(query)
		}
	}
}

// renameScaler gives the autoscaler that KEDA makes for the primary a name of its own, where the source names its.
func renameScaler(spec map[string]any) {
	path := []string{"advanced", "horizontalPodAutoscalerConfig", "name"}
	if name, found, _ := unstructured.NestedString(spec, path...); found && name != "" {
		_ = unstructured.SetNestedField(spec, name+suffix, path...) // its holders are objects, else it would not be there
	}
}
