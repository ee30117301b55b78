package rollout

import (
	"fmt"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Next decides what follows from a snapshot: the effects, the status, the events, the gates that explain why the
// release does not advance, and when to reconcile again. It is total: it also returns a decision for a snapshot that no
// healthy cluster produces.
//
// Effects come before the status, and each describes a desired state. The process may therefore die between any two of
// them: the next decision sees a cluster that is ahead of the status, and asks for the same again.
func Next(s Snapshot) Decision {
	f := observe(s)
	unreadable := reportUnreadable(f)
	switch {
	case f.Problem != "":
		return refuseSpec(f, unreadable)
	case f.Spec.Strategy.Canary == nil && f.Spec.Strategy.BlueGreen == nil:
		return decide(f, f.stored, join(unreadable, gated(release.Fails("spec", release.ByPerson, textNoStrategy))))
	case waitsInQueue(f):
		return waitInQueue(f)
	}
	f.Status.Serin = withQueue(f.Status.Serin, nil)
	if !f.new.exists() {
		return createReplicaSet(f, unreadable)
	}
	if status, changed := NotePause(f.Now, f.Generation, f.Spec, f.Status); changed {
		return decide(f, status, unreadable)
	}
	if f.Spec.Strategy.Canary != nil {
		return decideCanary(f, unreadable)
	}
	return decideBlueGreen(f, unreadable)
}

// refuseSpec reports what is wrong with the spec, and changes nothing.
func refuseSpec(f facts, unreadable outcome) Decision {
	status := f.stored.DeepCopy()
	set, all := invalid(f.Name, f.Problem), conditions(status.Conditions)
	if old := all.of(set.Type); old != nil && old.Message != set.Message {
		all = all.without(set.Type)
	}
	status.Conditions = all.with(set, f.Now)
	status.ObservedGeneration = f.generation()
	status.Phase, status.Message = PhaseOf(f.Spec, *status)
	return decide(f, *status, join(unreadable, gated(release.Fails("spec", release.ByPerson, f.Problem))))
}

// createReplicaSet creates the ReplicaSet of the template, without pods.
func createReplicaSet(f facts, unreadable outcome) Decision {
	if f.Hash == "" {
		return decide(f, f.stored, join(unreadable, gated(release.Fails("spec", release.ByPerson, "the template has no name: correct spec.template"))))
	}
	revision, name := f.revision(), f.Name+"-"+f.Hash
	create := outcome{
		always: []release.Effect{Revised{Revision: revision}, ReplicaSetExists{
			Name: name, Hash: f.Hash, Revision: revision, Avoids: avoidedHash(f), Metadata: initialMetadata(f),
		}},
		gates: release.Gates{release.WaitsFor("pods", release.ByCluster, name+" is being created")},
	}
	status := f.stored.DeepCopy()
	status.Serin = f.Status.Serin
	created := progressing(truth(true), reasonCreated, fmt.Sprintf("Created new replica set %q", name))
	status.Conditions = conditions(status.Conditions).with(created, f.Now)
	return decide(f, *status, join(unreadable, ensureRolloutMetadata(f), create))
}

// conclude completes the decision about a release: the rest of the status, and the gates.
func conclude(f facts, t transition, r traffic, a analyses, stages ...outcome) Decision {
	t = completeStatus(f, t)
	all := join(stages...)
	all.events = append(all.events, t.events...)
	all = explain(f, t, r, a, all)
	return decide(f, t.status, all)
}

// transition is a status in progress, with the events that it brings.
type transition struct {
	status argov1.RolloutStatus
	events []release.Event
	// abortCause is why the release was aborted automatically; empty: it was not.
	abortCause string
}

func (t transition) with(kind release.EventType, reason, message string) transition {
	t.events = append(slices.Clip(t.events), release.Event{Type: kind, Reason: reason, Message: message})
	return t
}
