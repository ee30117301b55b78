package canary

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// ReadinessTrack contains the observations of the readiness of a workload by one process. It is lost on a restart, so it may only
// delay a deadline; the status contains what must survive a restart, see flaggerv1.UnreadyWorkload.
type ReadinessTrack struct {
	// UnreadySince is the time since which the process has continuously observed the workload as not ready or not reachable; zero:
	// the workload is ready and reachable.
	UnreadySince time.Time
	// LastProgress is the time at which the process last observed that the workload lost its readiness or made progress; zero:
	// never.
	LastProgress time.Time

	// State, ID, Updated, Ready and Available are the values of the last observation.
	State                     Readiness
	ID                        string
	Updated, Ready, Available int32
}

// Readiness is the state of a workload with regard to its deadline.
type Readiness string

// The states.
const (
	readinessUnknown Readiness = ""
	notReady         Readiness = "not ready"
	notReachable     Readiness = "not reached" // ready, but Kubernetes has published no endpoint
	readyToServe     Readiness = "ready"
)

func (w WorkloadState) readiness() Readiness {
	switch {
	case !w.Found || !w.Ready || w.Replicas == 0:
		return notReady
	case !w.Endpoints.AtLeast(1):
		return notReachable
	default:
		return readyToServe
	}
}

// Observe returns the track after another observation. Progress is defined as Kubernetes defines it for Deployments: more
// updated, ready or available pods than at the previous observation.
func (t ReadinessTrack) Observe(w WorkloadState, now time.Time) ReadinessTrack {
	notInFuture := func(at time.Time) time.Time { // the clock may have been set back
		if at.After(now) {
			return now
		}
		return at
	}
	next := ReadinessTrack{
		UnreadySince: notInFuture(t.UnreadySince), LastProgress: notInFuture(t.LastProgress),
		State: w.readiness(), ID: w.ID, Updated: w.Updated, Ready: w.ReadyPods, Available: w.Available,
	}
	progressed := t.State != readinessUnknown && (w.Updated > t.Updated || w.ReadyPods > t.Ready || w.Available > t.Available)
	switch {
	case next.State == readyToServe:
		next.UnreadySince = time.Time{}
	case next.State != t.State:
		next.UnreadySince = now
	}
	// A copied template is a requested change, even if the response to the copy was lost and the status does not record it.
	templateChanged := w.ID != t.ID
	if progressed || t.State != readinessUnknown && (t.State != next.State || templateChanged) {
		next.LastProgress = now
	}
	return next
}

// unreadyRecordDelay is the time without progress after which the status records that a workload is not ready. Most workloads
// are ready or make progress sooner and cost no write. It equals the delay after which the status explains a waiting gate, so
// that one write reports both.
const unreadyRecordDelay = 30 * time.Second

// lastProgress returns the time at which a workload was last ready or reachable, was changed, or made progress. Its deadline
// counts from then.
func (s *Snapshot) lastProgress(w WorkloadState, recorded *flaggerv1.UnreadyWorkload) time.Time {
	at := w.Track.LastProgress
	if since := s.serin().Since; since != nil {
		at = release.LaterOf(at, since.Time)
	}
	switch {
	case recorded != nil && w.readiness() == notReady && !madeProgress(w, recorded):
		at = release.LaterOf(at, recorded.Since.Time)
	case w.Track.UnreadySince.IsZero():
		at = s.Now // it was not observed before
	default:
		// The time before the first observation of this process is unknown, so the first observation counts.
		at = release.LaterOf(at, w.Track.UnreadySince)
	}
	return s.clampToNow(at)
}

// madeProgress reports whether the workload has made progress since the record, also while another process observed it.
func madeProgress(w WorkloadState, recorded *flaggerv1.UnreadyWorkload) bool {
	return w.Updated > recorded.Updated || w.ReadyPods > recorded.Ready || w.Available > recorded.Available
}

// canaryDeadline returns the time by which the canary has to be ready, unless it makes progress before.
func (s *Snapshot) canaryDeadline() time.Time {
	return s.lastProgress(s.Workload.Target, s.serin().CanaryUnready).Add(s.Plan.Deadline)
}

// primaryDeadline is the same for the primary.
func (s *Snapshot) primaryDeadline() time.Time {
	return s.lastProgress(s.Workload.Primary, s.serin().PrimaryUnready).Add(s.Plan.Deadline)
}

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
		return !s.primaryHasTemplate(), s.primaryHasTemplate()
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
	since := s.lastProgress(w, recorded)
	if due := since.Add(min(unreadyRecordDelay, s.Plan.Deadline/2)); s.Now.Before(due) {
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

// hasDeadline reports whether a deadline may be running in a phase.
func hasDeadline(phase flaggerv1.CanaryPhase) bool {
	switch phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		return true
	default:
		return false
	}
}

// pauseDeadline stops the deadline while the release is suspended or blocked: Serin changes nothing in that time, so the
// workload may not be able to make progress.
func pauseDeadline(s Snapshot, d Decision) Decision {
	if d.Status.Serin == nil || d.Status.Serin.Since == nil || !hasDeadline(d.Status.Phase) {
		return d
	}
	serin := *d.Status.Serin
	serin.Since, d.Status.Serin, d.Wake = nil, &serin, s.Now
	return d
}

// resumedAfterPause reports whether pauseDeadline stopped the deadline and the release continues now, so that the deadline
// restarts.
func (s *Snapshot) resumedAfterPause() bool {
	return s.serin().Since == nil && hasDeadline(s.Status.Phase) && !s.statusFromOtherController()
}
