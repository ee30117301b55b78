package canary

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// maskCookies masks the values of cookies, which depend on the time at which a run of the Canary began.
func (k *Canaries) maskCookies(final string) string {
	for _, version := range k.World.Server.All(canaryKind) {
		status := nested(version.Content(), "status")
		for _, field := range []string{"sessionAffinityCookie", "primarySessionAffinityCookie", "previousSessionAffinityCookie"} {
			cookie, _ := status[field].(string)
			if _, value, found := strings.Cut(cookie, "="); found && value != "" {
				final = strings.ReplaceAll(final, value, "…")
			}
		}
	}
	return final
}

// normalizeFinal removes the volatile parts of an object, and the parts of a Canary's status that Flagger's API does not
// define.
func normalizeFinal(kind schema.GroupKind, version *store.Version) map[string]any {
	object := actors.WithoutVolatile(version, []string{"flagger-id", "kubectl.kubernetes.io/restartedAt", canary.CommandAnnotation})
	status, _ := object["status"].(map[string]any)
	switch kind {
	case canaryKind:
		delete(status, "serin")
		delete(status, "conditions") // their texts contain times
		for _, count := range []string{"canaryWeight", "failedChecks", "iterations"} {
			if status[count] == int64(0) {
				delete(status, count) // equivalent to an absent field
			}
		}
	case actors.DeploymentKind, actors.DaemonSetKind, actors.AutoscalerKind: // other controllers update it continuously
		delete(object, "status")
	}
	return object
}
