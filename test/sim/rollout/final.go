package rollout

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// finalKinds are what a run leaves behind.
var finalKinds = []schema.GroupKind{rolloutKind, actors.ReplicaSetKind, actors.DeploymentKind, actors.ServiceKind, runKind, experimentKind, actors.AutoscalerKind, actors.VirtualServiceKind, actors.DestinationRuleKind, actors.HTTPRouteKind}

// Final implements sim.Kind: all objects, without identities, versions and moments. Of Jobs it is those that go on: how many
// there were of a analysis that lasts as long as the release is a matter of time.
func (k *Rollouts) Final(w *sim.World) string {
	var running strings.Builder
	for _, v := range w.Server.All(actors.JobKind) {
		if jobGoesOn(w, v) {
			fmt.Fprintf(&running, "Job of %s is running\n", v.Meta().Annotations[measure.RunNameAnnotation])
		}
	}
	return running.String() + actors.Final(w, finalKinds, func(kind schema.GroupKind, version *store.Version) map[string]any {
		object := actors.WithoutVolatile(version, volatile)
		if r := actors.Typed[*argov1.Rollout](w, version); kind == rolloutKind && r != nil {
			if _, v := k.versionOf(r.Status.StableRS); v != nil {
				object["serves"] = v.Name
			}
		}
		if kind == actors.ReplicaSetKind { // which of those of a Deployment had been its newest while it was marked is a matter of time
			unstructured.RemoveNestedField(object, "metadata", "annotations", argov1.ManagedByAnnotation)
			unstructured.RemoveNestedField(object, "metadata", "annotations", argov1.ReplicasBeforeAnnotation)
		}
		return object
	})
}

// volatile are more keys, at any depth, whose values depend on when something happened.
var volatile = []string{
	"startTime", "startedAt", "finishedAt", "completedAt", "resumeAt", "abortedAt", "availableAt",
	"restartedAt", "restartAt", "duration", "conditions", "measurements", "serin", "clusterIP", "clusterIPs", "scale-down-deadline",
	argov1.WorkloadGenerationAnnotation, "workloadObservedGeneration",
	"count", "successful", "consecutiveSuccess", // of a analysis that lasts as long as the release
	"error", // of a measurement that is repeated
}
