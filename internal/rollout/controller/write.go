package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// statusWriter writes the statuses of Rollouts.
type statusWriter struct {
	frame    *reconciler.Frame[*argov1.Rollout, argov1.RolloutStatus]
	memory   *memory
	newest   *readyourwrites.NewestVersions
	reporter reporter
}

// write stores the decision if the status changes, or if forced, and reports whether that created a new version, whose
// event requeues the release.
func (w statusWriter) write(ctx context.Context, s *observation, d rollout.Decision, explanation reconciler.Explanation, forced bool) (written bool, err error) {
	if pruned := w.memory.prunesStatus(); !forced && rollout.SameStatus(decisiveStatus(d.Status, pruned), decisiveStatus(s.snapshot.Status, pruned)) {
		return false, nil
	}
	status := *d.Status.DeepCopy()
	status.Serin = newSerinStatus(status, explanation, s.routedStatuses())
	stored, err := w.frame.PatchStatus(ctx, s.object, &s.snapshot.Status, &status)
	if err != nil {
		if !apierrors.IsConflict(err) {
			w.newest.Forget(s.key())
		}
		return false, err
	}
	written = stored.ResourceVersion != s.object.ResourceVersion
	if w.memory.recordLostPlace(status.Serin, stored.Status.Serin) {
		s.retryAt = reconciler.Earliest(s.retryAt, s.snapshot.Now) // the status cannot contain the place, so the queue must store it
	}
	s.object = stored
	w.newest.RecordVersion(s.key(), stored)
	if w.memory.recordPruning(status.Serin, stored.Status.Serin) {
		w.reporter.record(ctx, stored, release.Event{Type: release.Warning, Reason: "StatusPruned", Message: textPruned})
	}
	return written, nil
}

// textPruned is the message of the event StatusPruned.
const textPruned = "The installed definition of rollouts.argoproj.io drops status.serin: releases work, but with less precision after a restart, and their status does not show what they wait for; apply Serin's definitions with: serin crds --group argoproj.io | kubectl apply --server-side -f -"

// newSerinStatus returns the part of a status that Serin adds: the gates, the start of a pause, the release that Serin started,
// and the routers.
func newSerinStatus(status argov1.RolloutStatus, explanation reconciler.Explanation, routed []argov1.RoutedStatus) *argov1.SerinStatus {
	serin := argov1.SerinStatus{Gates: gatesOf(explanation), Routed: routed}
	if status.Serin != nil {
		serin.Queue = status.Serin.Queue
	}
	if status.Serin != nil && len(status.PauseConditions) > 0 {
		serin.PausedAt = status.Serin.PausedAt
	}
	if status.Serin != nil {
		serin.CarriedBy, serin.RouterPlugins = status.Serin.CarriedBy, status.Serin.RouterPlugins
	}
	if status.CurrentPodHash != status.StableRS {
		serin.Release = status.CurrentPodHash
	}
	if equality.Semantic.DeepEqual(serin, argov1.SerinStatus{}) {
		return nil
	}
	return &serin
}

// decisiveStatus returns the part of a status whose change requires a write: neither the gates, nor what an installed definition
// that prunes status.serin would drop.
func decisiveStatus(status argov1.RolloutStatus, pruned bool) argov1.RolloutStatus {
	var serin *argov1.SerinStatus
	if status.Serin != nil && !pruned && (status.Serin.Queue != nil || status.Serin.RouterPlugins != nil) {
		serin = &argov1.SerinStatus{Queue: status.Serin.Queue, RouterPlugins: status.Serin.RouterPlugins}
	}
	status.Serin = serin
	return status
}
