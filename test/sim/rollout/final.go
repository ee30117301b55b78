package rollout

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// addRunningJobs adds the running Jobs to the final state. It contains no others, because the number of Jobs of a background
// analysis depends on timing.
func (k *Rollouts) addRunningJobs(final string) string {
	var running strings.Builder
	for _, v := range k.World.Server.All(actors.JobKind) {
		if jobIsRunning(k.World, v) {
			fmt.Fprintf(&running, "Job of %s is running\n", v.Meta().Annotations[measure.RunNameAnnotation])
		}
	}
	return running.String() + final
}

// normalizeFinal removes the volatile parts of an object, and adds to a Rollout which version serves users.
func (k *Rollouts) normalizeFinal(kind schema.GroupKind, version *store.Version) map[string]any {
	object := actors.WithoutVolatile(version, volatile)
	if r := actors.Typed[*argov1.Rollout](k.World, version); kind == rolloutKind && r != nil {
		if _, v := k.versionOf(r.Status.StableRS); v != nil {
			object["serves"] = v.Name
		}
	}
	if kind == actors.ReplicaSetKind { // which ReplicaSet of a Deployment was the newest while the Deployment was annotated depends on timing
		unstructured.RemoveNestedField(object, "metadata", "annotations", argov1.ManagedByAnnotation)
		unstructured.RemoveNestedField(object, "metadata", "annotations", argov1.ReplicasBeforeAnnotation)
	}
	return object
}

// volatile are further keys, at any depth, whose values depend on the time at which something happened.
var volatile = []string{
	"startTime", "startedAt", "finishedAt", "completedAt", "resumeAt", "abortedAt", "availableAt",
	"restartedAt", "restartAt", "duration", "conditions", "measurements", "serin", "clusterIP", "clusterIPs", "scale-down-deadline",
	argov1.WorkloadGenerationAnnotation, "workloadObservedGeneration",
	"count", "successful", "consecutiveSuccess", // of a background analysis
	"error", // of a repeated measurement
}
