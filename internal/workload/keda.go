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
	// kedaPaused is the prefix of the annotations that pause KEDA, such as pausedReplicas: while that one is set, KEDA
	// scales the workload to that number of replicas. Otherwise it would scale up even a workload without pods.
	kedaPaused     = "autoscaling.keda.sh/paused"
	pausedReplicas = kedaPaused + "-replicas"
	// kedaOwn is the prefix of the keys that KEDA itself sets on a ScaledObject, such as its name.
	kedaOwn = "scaledobject.keda.sh/"
)

// none is the number of replicas at which the target is paused.
const none = "0"

// PauseScaler prevents the target's autoscaler from adding pods. The HorizontalPodAutoscaler ignores a workload without
// replicas; KEDA does not.
func (d templated) PauseScaler(ctx context.Context, c *flaggerv1.Canary) error {
	return d.pause(ctx, c, func(annotations map[string]string) { annotations[pausedReplicas] = none })
}

// ResumeScaler resumes the target's autoscaler, unless another user or tool paused it.
func (d templated) ResumeScaler(ctx context.Context, c *flaggerv1.Canary) error {
	return d.pause(ctx, c, func(annotations map[string]string) {
		if annotations[pausedReplicas] == none {
			delete(annotations, pausedReplicas)
		}
	})
}

// pause changes the annotations of the target's ScaledObject, if it exists.
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

// renameQueries changes the triggers of a ScaledObject to count the primary's traffic: with the queries that the Canary
// has for triggers of that name, or, without any, by replacing the names of target and canary with the primary's.
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

// renameScaler gives a unique name to the autoscaler that KEDA creates for the primary, if the source names its own.
func renameScaler(spec map[string]any) {
	path := []string{"advanced", "horizontalPodAutoscalerConfig", "name"}
	if name, found, _ := unstructured.NestedString(spec, path...); found && name != "" {
		_ = unstructured.SetNestedField(spec, name+suffix, path...) // its parents are objects, otherwise the value would not exist
	}
}
