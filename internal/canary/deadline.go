package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// unreadyRecordDelay is the time without progress after which the status records that a workload is not ready. Most workloads
// are ready or make progress sooner and cost no write. It equals the delay after which the status explains a waiting gate, so
// that one write reports both.
const unreadyRecordDelay = 30 * time.Second

// unreadinessDelay is unreadyRecordDelay; with a short deadline, half of the deadline.
func unreadinessDelay(s Snapshot) time.Duration { return min(unreadyRecordDelay, s.Plan.Deadline/2) }

// canaryDeadline returns the time by which the canary has to be ready, unless it makes progress before.
func canaryDeadline(s Snapshot) time.Time {
	return lastProgress(s, s.Workload.Target, s.serin().CanaryUnready).Add(s.Plan.Deadline)
}

// primaryDeadline is the same for the primary.
func primaryDeadline(s Snapshot) time.Time {
	return lastProgress(s, s.Workload.Primary, s.serin().PrimaryUnready).Add(s.Plan.Deadline)
}

// lastProgress returns the time at which a workload was last ready or reachable, was changed, or made progress. Its deadline
// counts from then.
func lastProgress(s Snapshot, w WorkloadState, recorded *flaggerv1.UnreadyWorkload) time.Time {
	at := w.Track.LastProgress
	if since := s.serin().Since; since != nil {
		at = release.LaterOf(at, since.Time)
	}
	switch {
	case recorded != nil && w.readiness() == notReady && !madeProgress(w, recorded):
		at = release.LaterOf(at, recorded.Since.Time)
	case w.Track.UnreadySince.IsZero() && s.Now.Sub(at) >= unreadinessDelay(s):
		at = s.Now // a view, which has not observed it before, and the status would record it if nothing had happened since then
	case w.Track.UnreadySince.IsZero(): // shortly after the start, which is the last progress that a view knows
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
