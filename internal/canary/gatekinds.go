package canary

import (
	"slices"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Anchors of the headings in docs/gates.md.
const (
	sectionUserAction     = "user-action-required"
	sectionNotices        = "notices"
	sectionInitialization = "initialization"
	sectionStart          = "before-a-release-starts"
	sectionRelease        = "during-a-release"
	sectionEnd            = "promotion-and-rollback"
)

// gateKind describes a gate with that opener, documented in these sections.
func gateKind(name string, opener release.Opener, sections ...string) release.GateKind {
	return release.GateKind{Name: name, Openers: []release.Opener{opener}, Sections: sections}
}

// ofWorkload marks a gate that observes the pods of target and primary.
func ofWorkload(kind release.GateKind) release.GateKind {
	kind.Observes = release.WorkloadPart
	return kind
}

// ofRoute marks a gate that observes the route.
func ofRoute(kind release.GateKind) release.GateKind {
	kind.Observes = release.RoutePart
	return kind
}

// perWindow marks a gate with a query that is sent again in every window.
func perWindow(kind release.GateKind) release.GateKind {
	kind.Queries = true
	return kind
}

// perRun marks a gate with a query whose approval is valid until the end of the release.
func perRun(kind release.GateKind) release.GateKind {
	kind.Queries, kind.OncePerRun = true, true
	return kind
}

// confirmation is the gate of a webhook that must approve, in whose place the user can promote.
func confirmation(name, section string) release.GateKind {
	kind := gateKind(name, release.ByUser, section)
	kind.Command = CommandPromote
	return kind
}

// GateKinds lists all gates of a Canary, including those that only its reconciler sets.
func GateKinds() release.GateKinds {
	suspended := gateKind("suspended", release.ByUser, sectionUserAction)
	suspended.Command = "resume"
	drained := gateKind("drained", release.ByTime, sectionInitialization, sectionEnd)
	drained.Openers = append(drained.Openers, release.ByCluster) // a router that still reports the previous route
	route, confirmed := gateKind("route", release.ByCluster, sectionNotices, sectionStart), gateKind(routeConfirmedGate, release.ByCluster, sectionRelease)
	route.Openers, confirmed.Openers = append(route.Openers, release.ByUser), append(confirmed.Openers, release.ByUser) // a Gateway without a report
	return release.GateKinds{
		suspended,
		gateKind("peer", release.ByUser, sectionUserAction),
		gateKind("obstacle", release.ByUser, sectionUserAction),
		gateKind("plan", release.ByUser, sectionUserAction, sectionNotices),
		ofWorkload(gateKind("target", release.ByUser, sectionUserAction)),
		gateKind("autoscaler", release.ByUser, sectionUserAction),
		gateKind("references", release.ByUser, sectionNotices),
		ofWorkload(gateKind("former-target", release.ByUser, sectionUserAction, sectionNotices)),
		gateKind("refused", release.ByUser, sectionUserAction),
		gateKind("refused-step", release.ByUser, sectionUserAction),
		gateKind("fault", release.ByUser, sectionUserAction),

		perRun(gateKind("metrics-available", release.ByAnswer, sectionNotices, sectionInitialization)),
		ofWorkload(gateKind(primaryReadyGate, release.ByCluster, sectionInitialization, sectionStart, sectionRelease, sectionEnd)),
		ofWorkload(gateKind("primary-endpoints", release.ByCluster, sectionInitialization, sectionEnd)),
		drained,
		ofWorkload(gateKind("apex-endpoints", release.ByCluster, sectionInitialization, sectionEnd)),

		ofRoute(route),
		gateKind(turnGate, release.ByCluster, sectionStart),
		perRun(confirmation("confirm-rollout/HOOK", sectionStart)),

		ofWorkload(gateKind(canaryReadyGate, release.ByCluster, sectionRelease)),
		ofWorkload(gateKind(canaryEndpointsGate, release.ByCluster, sectionRelease)),
		perRun(gateKind("pre-rollout/HOOK", release.ByTime, sectionRelease)),
		perWindow(confirmation("confirm-traffic-increase/HOOK", sectionRelease)),
		perWindow(gateKind("rollout-asked/HOOK", release.ByAnswer, sectionRelease)),
		gateKind("window", release.ByTime, sectionRelease),
		ofRoute(confirmed),
		perWindow(gateKind("rollback/HOOK", release.ByUser, sectionRelease)),
		perWindow(gateKind("rollout/HOOK", release.ByTime, sectionRelease)),
		gateKind("old-samples", release.ByTime, sectionRelease),
		perWindow(gateKind("METRIC", release.ByTime, sectionRelease)),
		perWindow(gateKind(providerUnreachableGate, release.ByAnswer, sectionRelease)),
		perWindow(confirmation("confirm-promotion/HOOK", sectionRelease)),

		ofWorkload(gateKind("primary-restored", release.ByCluster, sectionEnd)),
		ofWorkload(gateKind("primary-serves", release.ByCluster, sectionEnd)),
		perRun(gateKind("post-rollout/HOOK", release.ByAnswer, sectionEnd)),
		ofWorkload(gateKind("target-ready", release.ByCluster, sectionEnd)),
		ofWorkload(gateKind("target-endpoints", release.ByCluster, sectionEnd)),
	}
}

// kindOf returns the kind of a gate of this plan: a gate without a kind of its own may be named after a metric.
func (p *Plan) kindOf(gate string, kinds release.GateKinds) release.GateKind {
	kind := kinds.Of(gate)
	named := func(check Check) bool { return check.Metric.Name == gate }
	if kind.Name == "" && slices.ContainsFunc(p.Checks, named) {
		return kinds.OfMetric()
	}
	return kind
}

// approvalGates returns the names of the gates that wait for an approval, in the order of the webhooks.
func (p *Plan) approvalGates() []string {
	kinds := GateKinds()
	var out []string
	for _, hook := range p.Hooks {
		if name := hookGateName(hook); kinds.Of(name).Command == CommandPromote {
			out = append(out, name)
		}
	}
	return out
}

// queryOf returns the query of a gate; nil: it has none.
func (p *Plan) queryOf(gate string) any {
	for _, hook := range p.Hooks {
		if gate == hookGateName(hook) || hook.Type == flaggerv1.RolloutHook && gate == rolloutAskedGate+hook.Name {
			return HookQuery{Hook: hook}
		}
	}
	for _, check := range p.Checks {
		if check.Metric.Name == gate {
			return MetricQuery{Check: check}
		}
	}
	if gate == sourcesGate {
		return SourcesQuery{Checks: p.Checks}
	}
	return nil
}
