package canary

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// finalKinds are what a run leaves behind.
var finalKinds = []schema.GroupKind{
	canaryKind, actors.DeploymentKind, actors.DaemonSetKind,
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
	return k.withoutCookies(w, actors.Final(w, finalKinds, bare))
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

// bare is an object without what is volatile; of a Canary's status what Flagger's API promises.
func bare(kind schema.GroupKind, version *store.Version) map[string]any {
	object := actors.WithoutVolatile(version, []string{"flagger-id", "kubectl.kubernetes.io/restartedAt"})
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
	case actors.DeploymentKind, actors.DaemonSetKind, actors.AutoscalerKind: // what others make of them is under way all the time
		delete(object, "status")
	}
	return object
}
