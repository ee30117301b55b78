package canary

import (
	"fmt"
	"strings"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// content is what a write is about.
func (k *Canaries) content(e *store.Event) string {
	spec, status := within(e.New.Content(), "spec"), within(e.New.Content(), "status")
	switch e.Kind {
	case canaryKind:
		if e.Subresource == "" {
			return fmt.Sprintf(" finalizers=%v", e.New.Meta().Finalizers)
		}
		serin := within(status, "serin")
		return fmt.Sprintf(" %v weight=%v iterations=%v failed=%v run=%.6s intent=%v", status["phase"], status["canaryWeight"], status["iterations"],
			status["failedChecks"], fmt.Sprint(serin["run"]), serin["intent"])
	case actors.DeploymentKind:
		return fmt.Sprintf(" replicas=%v version=%s", spec["replicas"], actors.Labels(within(spec, "template"))["version"])
	case actors.DaemonSetKind:
		return fmt.Sprintf(" version=%s nodes=%v", actors.Labels(within(spec, "template"))["version"], within(spec, "template", "spec")["nodeSelector"])
	case actors.ServiceKind:
		return fmt.Sprintf(" selector=%v", spec["selector"])
	case actors.VirtualServiceKind, actors.HTTPRouteKind:
		var weights []string
		for _, destinations := range actors.Destinations(e.New.Content()) {
			for _, to := range destinations {
				weights = append(weights, fmt.Sprint(to["weight"]))
			}
		}
		return " weights=" + strings.Join(weights, "/")
	default:
		return ""
	}
}
