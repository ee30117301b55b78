package canary

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// withUnreadiness records in the status of a decision since when a workload with a deadline is not ready and makes no progress,
// so that a restart neither extends nor shortens the deadline. A record that no longer applies is removed at once.
func withUnreadiness(s Snapshot, d Decision) Decision {
	if s.Deleting || d.Status.Serin == nil {
		return d
	}
	canaryRuns, primaryRuns := runningDeadlines(s, d)
	canary, due := unreadinessRecord(s, s.Workload.Target, canaryRuns, s.serin().CanaryUnready)
	primary, primaryDue := unreadinessRecord(s, s.Workload.Primary, primaryRuns, s.serin().PrimaryUnready)
	d = wakeNoLaterThan(wakeNoLaterThan(d, due), primaryDue)
	if equalUnreadiness(canary, d.Status.Serin.CanaryUnready) && equalUnreadiness(primary, d.Status.Serin.PrimaryUnready) {
		return d
	}
	serin := *d.Status.Serin
	serin.CanaryUnready, serin.PrimaryUnready = canary, primary
	d.Status.Serin, d.Wake = &serin, s.Now
	return d
}

// runningDeadlines reports for which workload a readiness deadline is running after a decision.
func runningDeadlines(s Snapshot, d Decision) (canary, primary bool) {
	serin := d.Status.Serin
	if serin.Since == nil || slices.Contains(d.Stamp, release.StampSince) {
		return false, false // the user paused the release, or the workloads have just been changed
	}
	switch serin.Intent {
	case intentRollback, intentCancel:
		return false, false
	}
	switch d.Status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
		return !s.primaryHasNewTemplate(), s.primaryHasNewTemplate()
	case flaggerv1.CanaryPhasePromoting:
		return true, true
	case flaggerv1.CanaryPhaseFinalising:
		return false, true
	default: // idle
		return false, false
	}
}

// unreadinessRecord returns the record that the status must contain about a workload; nil: none. due is the time from which there
// will be one; zero: never.
func unreadinessRecord(s Snapshot, w WorkloadState, deadlineRuns bool, recorded *flaggerv1.UnreadyWorkload) (record *flaggerv1.UnreadyWorkload, due time.Time) {
	if !deadlineRuns || w.readiness() != notReady {
		return nil, time.Time{}
	}
	since := lastProgress(s, w, recorded)
	if due := since.Add(unreadinessDelay(s)); s.Now.Before(due) {
		return nil, due
	}
	return &flaggerv1.UnreadyWorkload{
		Since: metav1.NewMicroTime(since.Truncate(time.Microsecond)), Updated: w.Updated, Ready: w.ReadyPods, Available: w.Available,
	}, time.Time{}
}

func equalUnreadiness(a, b *flaggerv1.UnreadyWorkload) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Since.Equal(&b.Since) && a.Updated == b.Updated && a.Ready == b.Ready && a.Available == b.Available
}

// stopDeadline stops the deadline while the release is suspended or blocked: Serin changes nothing in that time, so the
// workload may not be able to make progress.
func stopDeadline(s Snapshot, d Decision) Decision {
	if d.Status.Serin == nil || d.Status.Serin.Since == nil || !hasDeadline(d.Status.Phase) {
		return d
	}
	serin := *d.Status.Serin
	serin.Since, d.Status.Serin, d.Wake = nil, &serin, s.Now
	return d
}

// deadlineMustRestart reports whether stopDeadline stopped the deadline and the release continues now, so that the deadline
// restarts.
func deadlineMustRestart(s Snapshot) bool {
	return s.serin().Since == nil && hasDeadline(s.Status.Phase) && !s.statusFromOtherController()
}
