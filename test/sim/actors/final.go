package actors

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// commonKinds are the kinds whose objects belong to the final state for every API.
var commonKinds = slices.Concat([]schema.GroupKind{
	DeploymentKind, DaemonSetKind, ServiceKind, ConfigMapKind, SecretKind, AutoscalerKind,
}, cluster.RouterKinds)

// FinalState returns the objects of these kinds that exist at the end of a run, one per line, as normalize returns them.
func FinalState(w *sim.World, kinds []schema.GroupKind, normalize func(schema.GroupKind, *store.Version) map[string]any) string {
	var out strings.Builder
	for _, kind := range kinds {
		for _, version := range w.Server.All(kind) {
			content, err := json.Marshal(normalize(kind, version))
			if err != nil {
				panic(err) // objects in the store can always be encoded as JSON
			}
			fmt.Fprintf(&out, "%s %s\n", kind.Kind, content)
		}
	}
	return out.String()
}

// volatile are keys, at any depth, whose values depend on the time at which something happened.
var volatile = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "observedGeneration",
	"lastTransitionTime", "lastUpdateTime",
}

// WithoutVolatile returns a copy of an object without identities, versions and timestamps, and without more keys that are
// volatile in its kind.
func WithoutVolatile(version *store.Version, more []string) map[string]any {
	object := runtime.DeepCopyJSON(version.Content())
	strip(object, slices.Concat(volatile, more))
	return object
}

func strip(value any, keys []string) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if slices.Contains(keys, key) {
				delete(value, key)
				continue
			}
			strip(inner, keys)
		}
	case []any:
		for _, inner := range value {
			strip(inner, keys)
		}
	}
}
