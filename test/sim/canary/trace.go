package canary

import (
	"fmt"
	"strings"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// describeWrite describes the content of a write for the trace.
func describeWrite(e *store.Event) string {
	spec, status := nested(e.New.Content(), "spec"), nested(e.New.Content(), "status")
	switch e.Kind {
	case canaryKind:
		if e.Subresource == "" {
			return fmt.Sprintf(" finalizers=%v", e.New.Meta().Finalizers)
		}
		serin := nested(status, "serin")
		return fmt.Sprintf(" %v weight=%v iterations=%v failed=%v run=%.6s intent=%v", status["phase"], status["canaryWeight"], status["iterations"],
			status["failedChecks"], fmt.Sprint(serin["run"]), serin["intent"])
	case actors.DeploymentKind:
		return fmt.Sprintf(" replicas=%v version=%s", spec["replicas"], actors.Labels(nested(spec, "template"))["version"])
	case actors.DaemonSetKind:
		return fmt.Sprintf(" version=%s nodes=%v", actors.Labels(nested(spec, "template"))["version"], nested(spec, "template", "spec")["nodeSelector"])
	case actors.ServiceKind:
		return fmt.Sprintf(" selector=%v", spec["selector"])
	case cluster.UpstreamKind:
		return fmt.Sprintf(" service=%v", nested(spec, "kube")["serviceName"])
	case cluster.VirtualServiceKind, cluster.HTTPRouteKind, cluster.HTTPProxyKind, cluster.RouteTableKind:
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
