package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
)

// finalKinds are what a history leaves behind.
var finalKinds = []schema.GroupKind{rolloutKind, replicaSetKind, deploymentKind, serviceKind, runKind, experimentKind, scalerKind, virtualService, httpRoute, jobKind}

// Final implements sim.Kind: all objects, without identities, versions and moments.
func (k *Rollouts) Final(w *sim.World) string {
	var out strings.Builder
	for _, kind := range finalKinds {
		for _, version := range w.Server.All(kind) {
			object := runtime.DeepCopyJSON(version.Content())
			strip(object)
			if r := typed[*argov1.Rollout](w, version); kind == rolloutKind && r != nil {
				if _, v := k.versionOf(r.Status.StableRS); v != nil {
					object["serves"] = v.name
				}
			}
			content, err := json.Marshal(object)
			if err != nil {
				panic(err) // content of the store is JSON by its nature
			}
			fmt.Fprintf(&out, "%s %s\n", kind.Kind, content)
		}
	}
	return out.String()
}

// volatile are keys, wherever they stand, whose values depend on when something happened.
var volatile = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "observedGeneration",
	"lastTransitionTime", "lastUpdateTime", "startTime", "startedAt", "finishedAt", "completedAt", "resumeAt", "abortedAt", "availableAt",
	"restartedAt", "restartAt", "duration", "conditions", "measurements", "serin", "clusterIP", "clusterIPs", "scale-down-deadline",
	argov1.WorkloadGenerationAnnotation, "workloadObservedGeneration",
	"count", "successful", "consecutiveSuccess", // of a judgement that lasts as long as the release
}

func strip(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if slices.Contains(volatile, key) {
				delete(value, key)
				continue
			}
			strip(inner)
		}
	case []any:
		for _, inner := range value {
			strip(inner)
		}
	}
}
