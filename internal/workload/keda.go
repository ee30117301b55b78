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
	// kedaPausedPrefix is the prefix of the annotations that pause KEDA, such as kedaPausedReplicas. With that one, KEDA scales the
	// workload to the given number of replicas. Without it, KEDA would scale up even a workload without pods.
	kedaPausedPrefix   = "autoscaling.keda.sh/paused"
	kedaPausedReplicas = kedaPausedPrefix + "-replicas"
	// kedaOwnPrefix is the prefix of the keys that KEDA itself sets on a ScaledObject, such as its name.
	kedaOwnPrefix = "scaledobject.keda.sh/"
)

// pausedAtZero is the value of kedaPausedReplicas that Serin sets.
const pausedAtZero = "0"

// PauseScaler prevents the target's autoscaler from adding pods. The HorizontalPodAutoscaler ignores a workload without
// replicas; KEDA does not.
func (d podScaling) PauseScaler(ctx context.Context, c *flaggerv1.Canary) error {
	return d.setScalerPaused(ctx, c, func(annotations map[string]string) { annotations[kedaPausedReplicas] = pausedAtZero })
}

// ResumeScaler resumes the target's autoscaler, unless another user or tool paused it.
func (d podScaling) ResumeScaler(ctx context.Context, c *flaggerv1.Canary) error {
	return d.setScalerPaused(ctx, c, func(annotations map[string]string) {
		if annotations[kedaPausedReplicas] == pausedAtZero {
			delete(annotations, kedaPausedReplicas)
		}
	})
}

// setScalerPaused changes the annotations of the target's ScaledObject, if it exists.
func (d podScaling) setScalerPaused(ctx context.Context, c *flaggerv1.Canary, change func(annotations map[string]string)) error {
	if scaler, _ := scalerOf(c); scaler.kind != scaledObject.kind {
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

// renameTriggerQueries changes the triggers of a ScaledObject to count the primary's traffic. It uses the queries that the Canary
// has for the names of the triggers; if it has none, it replaces the names of target and canary by the primary's.
func renameTriggerQueries(c *flaggerv1.Canary, spec map[string]any) {
	target := c.Spec.TargetRef.Name
	primary := target + primarySuffix
	renamed := strings.NewReplacer(target+"-canary", primary, primary, primary, target, primary)
	configured := c.Spec.AutoscalerRef.PrimaryScalerQueries
	for _, trigger := range jsonObjects(spec["triggers"]) {
		metadata, ok := trigger["metadata"].(map[string]any)
		if !ok {
			continue
		}
		name, _ := trigger["name"].(string)
		query, hasQuery := metadata["query"].(string)
		switch replacement, found := configured[name]; {
		case len(configured) > 0 && found && name != "":
			metadata["query"] = replacement
		case len(configured) == 0 && hasQuery:
			metadata["query"] = renamed.Replace(query)
		}
	}
}

// renameGeneratedAutoscaler sets a unique name for the autoscaler that KEDA creates for the primary, if the source sets a name.
func renameGeneratedAutoscaler(spec map[string]any) {
	path := []string{"advanced", "horizontalPodAutoscalerConfig", "name"}
	if name, found, _ := unstructured.NestedString(spec, path...); found && name != "" {
		_ = unstructured.SetNestedField(spec, name+primarySuffix, path...) // its parents are objects, otherwise the value would not exist
	}
}
