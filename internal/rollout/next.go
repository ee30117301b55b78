package rollout

import (
	"fmt"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Next decides what a Rollout needs now: the effects, the status, the events, the gates that explain why the release
// does not advance, and the time of the next reconciliation. It is total: it also returns a decision for a snapshot
// that no healthy cluster produces.
//
// Effects are applied before the status is written, and each describes a desired state. The process may therefore stop
// between any two of them: the next decision observes a cluster that is ahead of the status, and returns the remaining
// effects.
func Next(s Snapshot) Decision {
	f := observeFacts(s)
	unreadable := reportUnreadableFields(f)
	switch {
	case f.ValidationError != "":
		return rejectSpec(f, unreadable)
	case f.Spec.Strategy.Canary == nil && f.Spec.Strategy.BlueGreen == nil:
		return newDecision(f, f.storedStatus, joinOutcomes(unreadable, gateOutcome(release.NewFailedGate("spec", release.ByUser, textNoStrategy))))
	case mustAwaitTemplates(f):
		return awaitTemplates(f)
	case mustWaitInQueue(f):
		return waitInQueue(f)
	}
	f.Status.Serin = withQueue(f.Status.Serin, nil)
	if !f.new.exists() {
		return createReplicaSet(f, unreadable)
	}
	if status, changed := recordPause(f.Now, f.Generation, f.Spec, f.Status); changed {
		return newDecision(f, status, unreadable)
	}
	if f.Spec.Strategy.Canary != nil {
		return decideCanaryStrategy(f, unreadable)
	}
	return decideBlueGreenStrategy(f, unreadable)
}

// rejectSpec reports the error in the spec, and changes nothing else.
func rejectSpec(f facts, unreadable outcome) Decision {
	status := f.storedStatus.DeepCopy()
	set, all := invalidSpecCondition(f.Name, f.ValidationError), conditions(status.Conditions)
	if old := all.find(set.Type); old != nil && old.Message != set.Message {
		all = all.withoutCondition(set.Type)
	}
	status.Conditions = all.withCondition(set, f.Now)
	status.ObservedGeneration = f.observedGeneration()
	status.Phase, status.Message = phaseOf(f.Spec, *status)
	return newDecision(f, *status, joinOutcomes(unreadable, gateOutcome(release.NewFailedGate("spec", release.ByUser, f.ValidationError))))
}

// createReplicaSet creates the ReplicaSet of the template, without pods.
func createReplicaSet(f facts, unreadable outcome) Decision {
	if f.Hash == "" {
		return newDecision(f, f.storedStatus, joinOutcomes(unreadable, gateOutcome(release.NewFailedGate("spec", release.ByUser, "cannot compute the hash of the template: correct spec.template"))))
	}
	revision, name := f.nextRevision(), f.Name+"-"+f.Hash
	create := outcome{
		upkeepEffects: []release.Effect{RevisionAnnotated{Revision: revision}, ReplicaSetExists{
			Name: name, Hash: f.Hash, Revision: revision, AvoidedHash: avoidedHash(f), Metadata: initialEphemeralMetadata(f),
		}},
		gates: release.Gates{release.NewWaitingGate("pods", release.ByCluster, name+" is being created")},
	}
	status := f.storedStatus.DeepCopy()
	status.Serin = f.Status.Serin
	created := progressingCondition(conditionStatus(true), reasonCreated, fmt.Sprintf("Created new replica set %q", name))
	status.Conditions = conditions(status.Conditions).withCondition(created, f.Now)
	return newDecision(f, *status, joinOutcomes(unreadable, ensureRolloutMetadata(f), create))
}

// fillInDecision fills in the decision about a release: the abort at its deadline, the rest of the status, and the gates.
func fillInDecision(f facts, t transition, in stepInputs, stages ...outcome) Decision {
	t = fillInStatus(f, abortAfterDeadline(f, t), in.plugins)
	all := joinOutcomes(stages...)
	all.events = append(all.events, t.events...)
	all = orderGates(f, t, in, all)
	return newDecision(f, t.status, all)
}

// transition is a status under construction, with its events.
type transition struct {
	status argov1.RolloutStatus
	events []release.Event
	// abortCause is the cause of an automatic abort; empty: the release was not aborted automatically.
	abortCause string
	// scalesOnly is true if only numbers of pods were decided, so that the end of a pause by the user is still to be evaluated.
	scalesOnly bool
}

// scaleOnly returns the transition of a reconciliation that only changes numbers of pods.
func scaleOnly(status argov1.RolloutStatus) transition {
	return transition{status: status, scalesOnly: true}
}

func (t transition) withEvent(kind release.EventType, reason, message string) transition {
	t.events = append(slices.Clip(t.events), release.Event{Type: kind, Reason: reason, Message: message, StartsSeries: startsSeries(reason)})
	return t
}

// withStatusEvent adds an event about a change that the status shows too.
func (t transition) withStatusEvent(reason, message string) transition {
	t.events = append(slices.Clip(t.events), StatusEvent(reason, message))
	return t
}
