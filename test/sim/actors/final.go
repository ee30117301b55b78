package actors

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

// Final is what a run leaves behind of these kinds, an object in a line, as bare makes it.
func Final(w *sim.World, left []schema.GroupKind, bare func(schema.GroupKind, *store.Version) map[string]any) string {
	var out strings.Builder
	for _, kind := range left {
		for _, version := range w.Server.All(kind) {
			content, err := json.Marshal(bare(kind, version))
			if err != nil {
				panic(err) // content of the store is JSON by its nature
			}
			fmt.Fprintf(&out, "%s %s\n", kind.Kind, content)
		}
	}
	return out.String()
}

// volatile are keys, at any depth, whose values depend on when something happened.
var volatile = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "observedGeneration",
	"lastTransitionTime", "lastUpdateTime",
}

// WithoutVolatile is an object without identities, versions and moments, and without what is as volatile in its kind.
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
