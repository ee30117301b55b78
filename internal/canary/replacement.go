package canary

import (
	"fmt"
	"path"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// This file contains the steps from one target to another after a change of spec.targetRef: a release in progress ends, then the
// next target is initialised as for a new Canary, while the former primary serves.

// rollBackFormerTarget rolls back a release whose target the spec no longer names.
func rollBackFormerTarget(s Snapshot) Decision {
	e := s.edit()
	return e.recordIntent(intentRollback, reasonTarget).addEvents(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Rolling back %s: spec.targetRef was changed to %s during the release", s.Plan.qualifiedName(), s.NextTarget),
	}).decision(nil)
}

// abandonFormerTarget ends a release whose target the spec no longer names, and which was deleted: there are no pods whose requests
// must end first.
func abandonFormerTarget(s Snapshot) Decision {
	e := s.edit()
	if s.canaryHasTraffic() {
		e.addEffects(trafficEnded(s)...)
	}
	if hasDeadline(s.Status.Phase) {
		return failRelease(e, reasonTarget).decision(nil)
	}
	return beginReplacement(e, s.Plan.target(), s.NextTarget).decision(nil)
}

// awaitFormerTarget waits while the former target serves, because its promotion failed.
func awaitFormerTarget(s Snapshot) Decision {
	return keepStatus(s, release.Gates{release.NewWaitingGate("former-target", release.ByUser, fmt.Sprintf(
		"%s is initialized when %s can serve, because requests go to %s, whose promotion failed: repair the primary, or delete %s %s to accept that its requests fail",
		s.NextTarget, s.Plan.primaryName(), s.Plan.targetName(), s.Plan.Kind, s.Plan.targetName(),
	))}, steadyStateEffects(s)...)
}

// replaceTarget starts with the target that the spec names now. One that was the target before, and whose primary is ready, needs no
// initialisation: its primary serves what it served before, and must not receive a template that was not analysed.
func replaceTarget(s Snapshot) Decision {
	e := s.edit()
	former := s.recordedTarget()
	if s.canaryHasTraffic() && s.Workload.ServicesSelectOther && s.Workload.Primary.Endpoints.AtLeast(1) {
		e.addEffects(TrafficWeight{}) // a user routed it to the former target; the Services still select the former primary
	}
	primary := s.Workload.Primary
	if isReady := primary.Ready && primary.canServe(); !isReady && !s.primaryInService() {
		return beginReplacement(e, former, s.Plan.target()).decision(nil)
	}
	e.enterPhase(flaggerv1.CanaryPhaseInitialized).clearRunState().leaveQueue()
	e.resetCounters()
	e.serin.Shape, e.serin.Unfinished = s.Plan.runShape().String(), nil
	if s.Workload.SameTemplate {
		e.recordAppliedRevision()
		e.status.LastPromotedSpec, e.serin.Promoted = e.status.LastAppliedSpec, e.serin.Revision
	} else { // the difference is a new revision
		e.status.LastAppliedSpec, e.status.LastPromotedSpec = "", ""
		e.serin.Revision, e.serin.Promoted = flaggerRevisionPrefix, flaggerRevisionPrefix
	}
	return e.addEvents(replacedEvent(s, former, s.Plan.target(), "continues with it")).decision(nil)
}

// beginReplacement begins the initialisation of the next target. The status retains the revisions of the former one, for the case that
// the user restores spec.targetRef before the initialisation has ended.
func beginReplacement(e *statusEdit, former, next string) *statusEdit {
	e.enterPhase(flaggerv1.CanaryPhaseInitializing).clearRunState().leaveQueue()
	e.resetCounters()
	return e.addEvents(replacedEvent(e.snapshot, former, next, "initializes it"))
}

// replacedEvent reports what remains of the former target.
func replacedEvent(s Snapshot, former, next, serin string) release.Event {
	name := path.Base(former)
	message := fmt.Sprintf("spec.targetRef of %s was changed from %s to %s: Serin %s. %s, which Serin may have scaled to zero, %s-primary and their other objects remain",
		s.Plan.qualifiedName(), former, next, serin, former, name)
	if nextName := path.Base(next); nextName == name {
		message += fmt.Sprintf(". The pods of the former primary have the labels of the new one, and continue to receive requests: when %s-primary is ready, delete the former %s-primary", name, name)
	} else {
		message += fmt.Sprintf(": when %s-primary serves, delete what you no longer use, or scale %s up to use it without Serin", nextName, former)
	}
	return release.Event{Type: release.Warning, Message: message}
}

// targetRestored reports whether the user restored spec.targetRef while another target was being initialised.
func targetRestored(s Snapshot) bool {
	serin := s.serin()
	return s.recordedTarget() == s.Plan.target() && serin.Promoted != "" && serin.Promoted != noRevision && serin.Window == nil && !serin.Started
}

// restoreTarget restores the state before the change of spec.targetRef. A revision that failed is not released again. If the Services
// select the next primary already, the former one must be ready to receive the requests.
func restoreTarget(s Snapshot) Decision {
	primary := s.Workload.Primary
	if isReady := primary.Ready && primary.canServe(); !primary.Found || s.Workload.ServicesSelectOther && !isReady {
		return initialiseAgain(s)
	}
	phase := flaggerv1.CanaryPhaseInitialized
	if s.serin().Revision != s.serin().Promoted {
		phase = flaggerv1.CanaryPhaseFailed
	}
	serves := "which continues with its primary"
	if s.primaryInService() {
		serves = "whose primary still serves"
	}
	return s.edit().enterPhase(phase).clearRunState().addEvents(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("spec.targetRef of %s was restored to %s, %s", s.Plan.qualifiedName(), s.Plan.target(), serves),
	}).decision(nil)
}

// initialiseAgain forgets what the primary was promoted to, because it is about to receive the template of the target.
func initialiseAgain(s Snapshot) Decision {
	e := s.edit()
	e.serin.Promoted = ""
	return e.decision(nil)
}
