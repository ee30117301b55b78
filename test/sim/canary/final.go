package canary

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

// finalKinds are what a history leaves behind.
var finalKinds = []schema.GroupKind{
	canaryKind, deploymentKind, daemonSetKind,
	{Kind: "Service"},
	{Kind: "ConfigMap"},
	{Kind: "Secret"},
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"},
	{Group: "networking.istio.io", Kind: "VirtualService"},
	{Group: "networking.istio.io", Kind: "DestinationRule"},
	{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"},
}

// Final implements sim.Kind: all objects, without identities, versions and moments.
func (k *Canaries) Final(w *sim.World) string {
	var out strings.Builder
	for _, kind := range finalKinds {
		for _, version := range w.Server.All(kind) {
			content, err := json.Marshal(bare(kind, version))
			if err != nil {
				panic(err) // content of the store is JSON by its nature
			}
			fmt.Fprintf(&out, "%s %s\n", kind.Kind, content)
		}
	}
	return k.withoutCookies(w, out.String())
}

// withoutCookies hides the values of cookies, which follow from the moment at which a run began.
func (k *Canaries) withoutCookies(w *sim.World, final string) string {
	for _, version := range w.Server.All(canaryKind) {
		status := within(version.Content(), "status")
		for _, field := range []string{"sessionAffinityCookie", "primarySessionAffinityCookie", "previousSessionAffinityCookie"} {
			cookie, _ := status[field].(string)
			if _, value, found := strings.Cut(cookie, "="); found && value != "" {
				final = strings.ReplaceAll(final, value, "…")
			}
		}
	}
	return final
}

// volatile are keys, wherever they stand, whose values depend on when something happened.
var volatile = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "observedGeneration",
	"lastTransitionTime", "lastUpdateTime", "flagger-id", "kubectl.kubernetes.io/restartedAt",
}

// bare is an object without what is volatile; of a Canary's status what Flagger's API promises.
func bare(kind schema.GroupKind, version *store.Version) map[string]any {
	object := runtime.DeepCopyJSON(version.Content())
	strip(object)
	status, _ := object["status"].(map[string]any)
	switch kind {
	case canaryKind:
		delete(status, "serin")
		delete(status, "conditions") // their texts tell moments
		for _, count := range []string{"canaryWeight", "failedChecks", "iterations"} {
			if status[count] == int64(0) {
				delete(status, count) // the same as one that was never written
			}
		}
	case deploymentKind, daemonSetKind, scalerKind: // what others make of them is under way all the time
		delete(object, "status")
	}
	return object
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
