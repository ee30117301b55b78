package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

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
