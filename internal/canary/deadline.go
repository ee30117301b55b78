package canary

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// ReadinessTrack is what one process has observed of the readiness of a workload. It is lost on a restart, so it may only delay a
// deadline: what must survive a restart is in the status, see UnreadyWorkload there.
type ReadinessTrack struct {
	// Unready is since when the process has continuously observed the workload as not ready or not reachable. Zero: it is ready and
	// reachable.
	Unready time.Time
	// Progressed is when the process last observed the workload lose its readiness or make progress; zero: never.
	Progressed time.Time

	// State, ID, Updated, Ready and Available are what the process observed last.
	State                     Readiness
	ID                        string
	Updated, Ready, Available int32
}

// Readiness of a workload as a deadline sees it.
type Readiness string

// The states that it can be in; empty: it has not been observed.
const (
	notSeen      Readiness = ""
	isUnready    Readiness = "not ready"
	notReached   Readiness = "not reached" // ready, but Kubernetes has published no endpoint
	readyToServe Readiness = "ready"
)

func (c WorkloadState) readiness() Readiness {
	switch {
	case !c.Found || !c.Ready || c.Replicas == 0:
		return isUnready
	case !c.Endpoints.AtLeast(1):
		return notReached
	default:
		return readyToServe
	}
}

// Observe returns the track after another observation. Progress is defined as Kubernetes defines it for Deployments: more updated,
// ready or available pods than at the previous observation.
func (t ReadinessTrack) Observe(c WorkloadState, now time.Time) ReadinessTrack {
	earlier := func(at time.Time) time.Time { // the clock may have been set back
		if at.After(now) {
			return now
		}
		return at
	}
	next := ReadinessTrack{
		Unready: earlier(t.Unready), Progressed: earlier(t.Progressed),
		State: c.readiness(), ID: c.ID, Updated: c.Updated, Ready: c.ReadyPods, Available: c.Available,
	}
	rises := t.State != notSeen && (c.Updated > t.Updated || c.ReadyPods > t.Ready || c.Available > t.Available)
	switch {
	case next.State == readyToServe:
		next.Unready = time.Time{}
	case next.State != t.State:
		next.Unready = now
	}
	// A copied template is a requested change, even if the response to the copy was lost and the status does not record it.
	asked := c.ID != t.ID
	if rises || t.State != notSeen && (t.State != next.State || asked) {
		next.Progressed = now
	}
	return next
}

// recordAfter is how long a workload makes no progress before the status records it. Most workloads are ready or make progress
// sooner and cost no write. It equals the delay after which the status explains a waiting gate, so that one write reports both.
const recordAfter = 30 * time.Second

// lastProgress is when a workload was last ready or reachable, was changed, or made progress. Its deadline counts from then.
func (s *Snapshot) lastProgress(c WorkloadState, recorded *flaggerv1.UnreadyWorkload) time.Time {
	at := c.Track.Progressed
	if since := s.serin().Since; since != nil {
		at = release.LaterOf(at, since.Time)
	}
	switch {
	case recorded != nil && c.readiness() == isUnready && !madeProgress(c, recorded):
		at = release.LaterOf(at, recorded.Since.Time)
	case c.Track.Unready.IsZero():
		at = s.Now // it was not observed before
	default:
		// The time before the first observation of this process is unknown, so the first observation counts.
		at = release.LaterOf(at, c.Track.Unready)
	}
	return s.clampToNow(at)
}

// madeProgress reports whether the workload has made progress since the record, also while another process observed it.
func madeProgress(c WorkloadState, recorded *flaggerv1.UnreadyWorkload) bool {
	return c.Updated > recorded.Updated || c.ReadyPods > recorded.Ready || c.Available > recorded.Available
}

// canaryDeadline and primaryDeadline are the times by which the workload has to be ready, unless it makes progress before.
func (s *Snapshot) canaryDeadline() time.Time {
	return s.lastProgress(s.Workload.Target, s.serin().CanaryUnready).Add(s.Plan.Deadline)
}

func (s *Snapshot) primaryDeadline() time.Time {
	return s.lastProgress(s.Workload.Primary, s.serin().PrimaryUnready).Add(s.Plan.Deadline)
}

// withProgress records in the status of a decision since when a workload with a deadline is not ready and makes no progress, so that
// a restart neither extends nor shortens the deadline. A record that no longer applies is removed at once.
func withProgress(s Snapshot, d Decision) Decision {
	if s.Deleting || d.Status.Serin == nil {
		return d
	}
	canaryAsked, primaryAsked := deadlinesAfter(s, d)
	canary, due := unreadiness(s, s.Workload.Target, canaryAsked, s.serin().CanaryUnready)
	primary, primaryDue := unreadiness(s, s.Workload.Primary, primaryAsked, s.serin().PrimaryUnready)
	d = wakeNoLaterThan(wakeNoLaterThan(d, due), primaryDue)
	if sameUnreadiness(canary, d.Status.Serin.CanaryUnready) && sameUnreadiness(primary, d.Status.Serin.PrimaryUnready) {
		return d
	}
	serin := *d.Status.Serin
	serin.CanaryUnready, serin.PrimaryUnready = canary, primary
	d.Status.Serin, d.Wake = &serin, s.Now
	return d
}

// deadlinesAfter reports for which workload a readiness deadline is running after a decision.
func deadlinesAfter(s Snapshot, d Decision) (canary, primary bool) {
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

// unreadiness is what the status must record about a workload. If that is only due later, due is the time; zero: never.
func unreadiness(s Snapshot, c WorkloadState, asked bool, recorded *flaggerv1.UnreadyWorkload) (record *flaggerv1.UnreadyWorkload, due time.Time) {
	if !asked || c.readiness() != isUnready {
		return nil, time.Time{}
	}
	since := s.lastProgress(c, recorded)
	if due := since.Add(min(recordAfter, s.Plan.Deadline/2)); s.Now.Before(due) {
		return nil, due
	}
	return &flaggerv1.UnreadyWorkload{
		Since: metav1.NewMicroTime(since.Truncate(time.Microsecond)), Updated: c.Updated, Ready: c.ReadyPods, Available: c.Available,
	}, time.Time{}
}

func sameUnreadiness(a, b *flaggerv1.UnreadyWorkload) bool {
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

// pauseDeadline stops the deadline while the release is suspended or blocked: Serin could not fix anything in that time.
func pauseDeadline(s Snapshot, d Decision) Decision {
	if d.Status.Serin == nil || d.Status.Serin.Since == nil || !hasDeadline(d.Status.Phase) {
		return d
	}
	serin := *d.Status.Serin
	serin.Since, d.Status.Serin, d.Wake = nil, &serin, s.Now
	return d
}

// resumedAfterHold reports whether the release was suspended or blocked until now, so that its deadline restarts.
func (s *Snapshot) resumedAfterHold() bool {
	return s.serin().Since == nil && hasDeadline(s.Status.Phase) && !s.statusFromOtherController()
}
