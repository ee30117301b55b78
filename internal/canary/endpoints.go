package canary

import (
	"fmt"

	"github.com/serin-dev/serin/internal/release"
)

// awaitingReadyPods is the message of an endpoint gate while there are no ready pods.
const awaitingReadyPods = "evaluated when the pods are ready"

// missingEndpoints is the message of a gate that waits for n endpoints of a Service.
func missingEndpoints(e release.Endpoints, service string, n int32) string {
	if e.Ready == 0 {
		return fmt.Sprintf("Kubernetes has not published any endpoints for Service %s yet, so routers cannot reach its pods", service)
	}
	return fmt.Sprintf("Kubernetes has published %d of %d endpoints for Service %s so far", e.Ready, n, service)
}

// canaryEndpoints delays the first request to the new revision until the revision is reachable. Before that the deadline for
// readiness also applies to reachability.
func canaryEndpoints(s Snapshot) release.Gate {
	endpoints := s.Workload.Target.Endpoints
	if endpoints.AtLeast(1) {
		return release.NewPassingGate(canaryEndpointsGate, endpoints.Message())
	}
	if target := s.Workload.Target; !target.Ready || target.Replicas == 0 {
		return release.NewWaitingGate(canaryEndpointsGate, release.ByCluster, awaitingReadyPods)
	}
	g := release.NewWaitingGate(canaryEndpointsGate, release.ByCluster, missingEndpoints(endpoints, s.Plan.serviceName("canary"), 1))
	if s.currentWindow().open {
		return g
	}
	if endpoints.NoService {
		return g
	}
	// The Service may be new because something deleted the previous one, so the deadline also counts from its creation.
	return failsAtDeadline(s, g, release.LaterOf(canaryDeadline(s), endpoints.ServiceCreated.Add(s.Plan.Deadline)), rolledBack)
}

// primaryEndpoints delays traffic to the primary until the primary is reachable: with as many pods as it requires, or with one
// pod where no other workload can serve.
func primaryEndpoints(s Snapshot) release.Gate {
	primary, enough := s.Workload.Primary, int32(1)
	if s.Workload.Target.canServe() {
		enough = max(primary.RequiredPods, 1)
	}
	return primaryEndpointsAtLeast(s, enough)
}

// primaryEndpointsForReturn is primaryEndpoints for traffic that returns from the canary after the analysis.
func primaryEndpointsForReturn(s Snapshot) release.Gate {
	if !s.canaryHasTraffic() {
		return release.NewPassingGate("primary-endpoints", "")
	}
	return primaryEndpoints(s)
}

// primaryEndpointsForRollback is primaryEndpoints for traffic that must leave the canary: one reachable pod is enough, unless
// the primary itself has just changed. If the canary cannot serve requests, there is nothing to wait for.
func primaryEndpointsForRollback(s Snapshot) release.Gate {
	switch {
	case !s.canaryHasTraffic() || s.drainStarted() || !s.Workload.Target.isReachable():
		return release.NewPassingGate("primary-endpoints", "")
	case s.primaryHasRolledBackTemplate():
		return primaryEndpoints(s)
	default:
		return primaryEndpointsAtLeast(s, 1)
	}
}

// apexEndpoints delays the removal of the target's pods until the endpoints of the apex Service, which selects the primary by now,
// no longer contain them. Kubernetes updates endpoints some time after a selector, and in a busy cluster later than the drain.
func apexEndpoints(s Snapshot) release.Gate { return formerEndpoints(s, s.Plan.targetName()) }

// apexEndpointsAfterRestoration delays the removal of the primary's pods until the endpoints of the restored apex Service, which
// selects the target by now, no longer contain them, for at most the progress deadline after the drain: a deletion must end. An
// apex Service that was created for the Canary selects the primary until both are garbage-collected.
func apexEndpointsAfterRestoration(s Snapshot) release.Gate {
	if !s.Workload.ApexSelectsTarget {
		return release.NewPassingGate("apex-endpoints", "")
	}
	g := formerEndpoints(s, s.Plan.primaryName())
	if g.Verdict == release.Pass || s.serin().DrainUntil == nil {
		return g
	}
	if g.Until = s.serin().DrainUntil.Add(s.Plan.Deadline); !s.Now.Before(g.Until) {
		return release.NewPassingGate("apex-endpoints", g.Message)
	}
	return g
}

// formerEndpoints is the gate that waits until the apex Service publishes no pod of a workload that it no longer selects.
func formerEndpoints(s Snapshot, workload string) release.Gate {
	if s.ApexFormerEndpoints == 0 {
		return release.NewPassingGate("apex-endpoints", "")
	}
	return release.NewWaitingGate("apex-endpoints", release.ByCluster, fmt.Sprintf("Kubernetes still publishes %s of %s as endpoints of Service %s",
		release.Count(int(s.ApexFormerEndpoints), "pod"), workload, s.Plan.Apex))
}

func primaryEndpointsAtLeast(s Snapshot, enough int32) release.Gate {
	endpoints := s.Workload.Primary.Endpoints
	if endpoints.AtLeast(enough) || s.Workload.Primary.Replicas == 0 && !s.Workload.Target.canServe() {
		return release.NewPassingGate("primary-endpoints", endpoints.Message())
	}
	if !s.Workload.Primary.canServe() {
		return release.NewWaitingGate("primary-endpoints", release.ByCluster, awaitingReadyPods)
	}
	return release.NewWaitingGate("primary-endpoints", release.ByCluster, missingEndpoints(endpoints, s.Plan.serviceName("primary"), enough))
}
