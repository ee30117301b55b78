package rollout

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// orderGates puts the gates of a release in the order in which users read them: gates that the user opens, gates of the
// current step or of the switch, gates of other stages, and the deadline. It adds the events of the gates.
func orderGates(f facts, t transition, in stepInputs, o outcome) outcome {
	s := t.status
	warning := warnOfImbalance(f, s)
	gates := slices.Concat(templateGates(f), userGates(f, s), warning.gates)
	if f.Spec.Strategy.BlueGreen != nil {
		gates = append(gates, switchGates(f, in.runs, s)...)
	} else {
		gates = append(gates, canaryGates(f, in, s)...)
	}
	gates = slices.Concat(mergeGates(gates, o.gates), deadlineGates(f, s))
	o.gates = gates
	o.events = slices.Concat(o.events, warning.events, gates.Events())
	return o
}

// mergeGates adds the gates of the stages to those of the step or of the switch, which describe the release after this decision. A
// gate that both contain is shown once: a query that a stage sends now is not deferred by the step, and otherwise a stage may describe
// what an abort has just ended. A stage may have several gates of one name, such as those of two Services.
func mergeGates(gates, ofStages release.Gates) release.Gates {
	merged := slices.Clone(gates)
	for _, gate := range ofStages {
		i := slices.IndexFunc(gates, func(g release.Gate) bool { return g.Name == gate.Name })
		switch {
		case i < 0:
			merged = append(merged, gate)
		case gates[i].NotYetQueried:
			merged[i] = gate
		}
	}
	return merged
}

// userGates returns the gates that the user opens.
func userGates(f facts, s argov1.RolloutStatus) release.Gates {
	var gates release.Gates
	if s.Abort {
		gates = append(gates, release.NewFailedGate("aborted", release.ByUser, "retry the rollout, or change spec.template"))
	}
	if f.Spec.Paused {
		gates = append(gates, release.NewWaitingGate("paused", release.ByUser, "spec.paused is true"))
	}
	for _, c := range s.PauseConditions {
		switch {
		case isPromoted(s): // a user wrote it: a completed release is not paused otherwise
			gates = append(gates, release.NewWaitingGate("paused", release.ByUser, "promote the rollout: "+string(c.Reason)))
		case c.Reason == argov1.PauseReasonInconclusiveAnalysis || c.Reason == argov1.PauseReasonInconclusiveExperiment:
			gates = append(gates, release.NewWaitingGate("inconclusive", release.ByUser, "promote or abort the rollout: "+string(c.Reason)))
		}
	}
	return gates
}

// canaryGates returns the gates of the current step, or of the pods if there is none, and of the background analysis.
func canaryGates(f facts, in stepInputs, s argov1.RolloutStatus) release.Gates {
	var gates release.Gates
	_, stepping := pods.StepAt(f.steps(), f.Status.CurrentStepIndex)
	switch {
	case s.Abort, isPromoted(s), f.Status.PromoteFull, !stepping:
		gates = append(gates, servingPodsAvailable(f, s))
		if in.plugins.gate != nil && s.Abort == f.Status.Abort { // an abort begins with the next decision
			gates = append(gates, *in.plugins.gate)
		}
	default:
		gates = append(gates, evaluateStepGates(newStepState(f, in))...)
	}
	a := in.runs
	if a.background == nil || s.Abort {
		return gates
	}
	gate := a.background.evaluateGate(release.NewPassingGate("background", ""))
	if gate.Verdict == release.Wait && gate.Opener == release.ByCluster {
		gate = release.NewPassingGate("background", gate.Message) // it does not delay the steps
	}
	return append(gates, gate)
}

// servingPodsAvailable waits for the pods of the revision that is to serve.
func servingPodsAvailable(f facts, s argov1.RolloutStatus) release.Gate {
	rs, side := f.new, "new"
	if s.Abort && f.hasDistinctStable() {
		rs, side = f.stable, "stable"
	}
	message := fmt.Sprintf("%d of %d %s pods available", rs.Available, f.replicas(), side)
	if rs.Available < f.replicas() {
		return release.NewWaitingGate("pods", release.ByCluster, message)
	}
	var others int32
	for _, other := range f.others {
		others += other.SpecReplicas
	}
	if others > 0 && !f.usesRouter() && f.Spec.Strategy.BlueGreen == nil {
		return release.NewWaitingGate("pods", release.ByCluster, release.Count(int(others), "pod")+" of other revisions must end first")
	}
	return release.NewPassingGate("pods", message)
}

// switchGates returns the gates of a blue-green release.
func switchGates(f facts, a analyses, s argov1.RolloutStatus) release.Gates {
	switch {
	case s.Abort, isPromoted(s):
		return release.Gates{servingPodsAvailable(f, s)}
	case s.BlueGreen.ActiveSelector != f.Hash:
		gates := release.Gates{prePromotionSuccessful(f, a), switchPauseEnded(f)}
		switch {
		case previewReady(f) && f.Spec.Strategy.BlueGreen.PreviewService != "":
			return append(release.Gates{previewEndpointsPublished(f)}, gates...)
		case previewReady(f):
			return gates
		}
		missing := fmt.Sprintf("%d of %d new pods available", f.new.Available, desiredPreviewPods(f))
		return append(release.Gates{release.NewWaitingGate("pods", release.ByCluster, missing)}, gates...)
	case f.Spec.Strategy.BlueGreen.PostPromotionAnalysis != nil:
		return release.Gates{servingPodsAvailable(f, s), a.post.evaluateGate(release.NewPassingGate("post-promotion", ""))}
	default:
		return release.Gates{servingPodsAvailable(f, s)}
	}
}

// deadlineGates returns the gate with the progress deadline, or the failed gate if the release has timed out.
func deadlineGates(f facts, s argov1.RolloutStatus) release.Gates {
	progress := conditions(s.Conditions).find(argov1.RolloutProgressing)
	switch at := newProgressDeadline(f, s).Time(); {
	case progress != nil && progress.Reason == reasonDeadlineExceeded && progress.Status == corev1.ConditionFalse:
		return release.Gates{release.NewFailedGate("deadline", release.ByCluster, progress.Message)}
	case at.IsZero() || isInDesiredState(f.Spec, s, f.observedGeneration()) || f.Now.After(at):
		return nil
	default:
		return release.Gates{release.NewTimedGate("deadline", at.Add(time.Nanosecond), "progress deadline at "+at.UTC().Format(time.TimeOnly))}
	}
}
