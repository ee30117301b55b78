package rollout

import (
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// sectionRollouts is the anchor of the heading in docs/gates.md below which all gates of Rollouts are described.
const sectionRollouts = "rollouts"

// The gates of the weight that the router has applied, and of the pods that load balancers have registered. Both may be outside the
// cluster, where users cannot inspect them.
const (
	GateRouteConfirmed = "route-confirmed"
	GateTargets        = "targets"
)

// gateKind describes a gate with its openers.
func gateKind(name string, openers ...release.Opener) release.GateKind {
	return release.GateKind{Name: name, Openers: openers, Sections: []string{sectionRollouts}}
}

// withCommand returns the kind of a gate that a serin command opens.
func withCommand(command string, kind release.GateKind) release.GateKind {
	kind.Command = command
	return kind
}

// asInformational returns the kind of a gate that delays no step.
func asInformational(kind release.GateKind) release.GateKind {
	kind.Informational = true
	return kind
}

// GateKinds lists all gates of a Rollout, including those that only its reconciler sets.
func GateKinds() release.GateKinds {
	const (
		byTime, byCluster, byAnswer, byUser = release.ByTime, release.ByCluster, release.ByAnswer, release.ByUser
	)
	return release.GateKinds{
		gateKind("peer", byUser),
		gateKind("spec", byUser),
		withCommand("retry", gateKind("aborted", byUser)),
		withCommand("resume", gateKind("paused", byUser)),
		gateKind("fault", byUser),
		gateKind("refused", byUser),
		withCommand("promote", gateKind("inconclusive", byUser)),
		gateKind("turn", byCluster),
		gateKind("pods", byCluster),
		gateKind("canary-capacity", byCluster),
		gateKind("stable-capacity", byCluster),
		gateKind(GateRouteConfirmed, byCluster, byUser),
		gateKind("route", byCluster),
		gateKind("canary-endpoints", byCluster),
		gateKind("stable-endpoints", byCluster),
		gateKind("router", byCluster),
		gateKind(GateRouterPlugin, byTime, byAnswer, byUser),
		gateKind(GateTargets, byCluster),
		gateKind("services", byCluster),
		withCommand("promote", gateKind("pause", byTime, byUser, byCluster)),
		gateKind("analysis", byCluster, byUser),
		gateKind("background", byUser),
		gateKind("experiment", byCluster, byUser),
		gateKind("pre-promotion", byCluster, byUser),
		gateKind("post-promotion", byCluster, byUser),
		gateKind(StepPluginGate, byTime, byAnswer, byUser, byCluster),
		gateKind("step", byUser),
		asInformational(gateKind("imbalance")),
		asInformational(gateKind("restart", byTime, byCluster)),
		asInformational(gateKind("scale-down-delay", byTime)),
		asInformational(gateKind("deadline", byTime, byCluster)),
	}
}

// approvalGates returns the names of the gates that wait for an approval in a release with this spec. A pause with a duration
// needs none.
func approvalGates(spec argov1.RolloutSpec) []string {
	pauses, analyzes := false, false
	if c := spec.Strategy.Canary; c != nil {
		pauses = slices.ContainsFunc(c.Steps, func(step argov1.CanaryStep) bool { return step.Pause != nil && isIndefinite(*step.Pause) })
		analyzes = c.Analysis != nil || slices.ContainsFunc(c.Steps, func(step argov1.CanaryStep) bool { return step.Analysis != nil || step.Experiment != nil })
	}
	if b := spec.Strategy.BlueGreen; b != nil {
		pauses = !valueOr(b.AutoPromotionEnabled, true)
		analyzes = b.PrePromotionAnalysis != nil || b.PostPromotionAnalysis != nil
	}
	var out []string
	if pauses {
		out = append(out, "pause")
	}
	if analyzes { // a result that is inconclusive
		out = append(out, "inconclusive")
	}
	return out
}
