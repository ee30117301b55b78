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
	// kedaPausedPrefix is the prefix of the annotations that pause KEDA, such as kedaPausedReplicas: while that one is set, KEDA
	// scales the workload to that number of replicas. Otherwise it would scale up even a workload without pods.
	kedaPausedPrefix   = "autoscaling.keda.sh/paused"
	kedaPausedReplicas = kedaPausedPrefix + "-replicas"
	// kedaOwnPrefix is the prefix of the keys that KEDA itself sets on a ScaledObject, such as its name.
	kedaOwnPrefix = "scaledobject.keda.sh/"
)

// none is the number of replicas at which the target is paused.
const none = "0"

// PauseScaler prevents the target's autoscaler from adding pods. The HorizontalPodAutoscaler ignores a workload without
// replicas; KEDA does not.
func (d templateWorkload) PauseScaler(ctx context.Context, c *flaggerv1.Canary) error {
	return d.setScalerPaused(ctx, c, func(annotations map[string]string) { annotations[kedaPausedReplicas] = none })
}

// ResumeScaler resumes the target's autoscaler, unless another user or tool paused it.
func (d templateWorkload) ResumeScaler(ctx context.Context, c *flaggerv1.Canary) error {
	return d.setScalerPaused(ctx, c, func(annotations map[string]string) {
		if annotations[kedaPausedReplicas] == none {
			delete(annotations, kedaPausedReplicas)
		}
	})
}

// setScalerPaused changes the annotations of the target's ScaledObject, if it exists.
func (d templateWorkload) setScalerPaused(ctx context.Context, c *flaggerv1.Canary, change func(annotations map[string]string)) error {
	if of, _ := scalerOf(c); of.kind != scaledObject.kind {
		return nil
	}
	existing, err := d.readCached(ctx, c, scaledObject.kind, c.Spec.AutoscalerRef.Name)
	switch {
	case errors.Is(err, ErrNotInstalled), err == nil && existing == nil:
		return nil
	case err != nil:
		return err
	}
	annotations := withoutKeys(existing.GetAnnotations(), func(string) bool { return false })
	change(annotations)
	wanted, _ := shallowCopy(existing)
	wanted.SetAnnotations(nilIfEmpty(annotations))
	if err := d.updateObject(ctx, existing, wanted); err != nil {
		return fmt.Errorf("updating %s %s.%s failed: %w", scaledObject.writeName, existing.GetName(), c.Namespace, err)
	}
	return nil
}

// renameTriggerQueries changes the triggers of a ScaledObject to count the primary's traffic: with the queries that the Canary
// has for triggers of that name, or, without any, by replacing the names of target and canary with the primary's.
func renameTriggerQueries(c *flaggerv1.Canary, spec map[string]any) {
	target := c.Spec.TargetRef.Name
	primary := target + primarySuffix
	renamed := strings.NewReplacer(target+"-canary", primary, primary, primary, target, primary)
	given := c.Spec.AutoscalerRef.PrimaryScalerQueries
	for _, trigger := range jsonObjects(spec["triggers"]) {
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

// renameGeneratedAutoscaler gives a unique name to the autoscaler that KEDA creates for the primary, if the source names its own.
func renameGeneratedAutoscaler(spec map[string]any) {
	path := []string{"advanced", "horizontalPodAutoscalerConfig", "name"}
	if name, found, _ := unstructured.NestedString(spec, path...); found && name != "" {
		_ = unstructured.SetNestedField(spec, name+primarySuffix, path...) // its parents are objects, otherwise the value would not exist
	}
}
