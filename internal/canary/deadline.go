package canary

import (
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// deadline is by when the workload that was asked to change must be ready. It counts from when it was asked, or from
// when it was last seen ready, which the start of a window and every question of the run prove.
func (s *Snapshot) deadline() (time.Time, bool) {
	var from time.Time
	if since := s.serin().Since; since != nil {
		from = since.Time
	}
	if start, ok := s.start(); ok {
		from = release.Later(from, start)
	}
	if asked, ok := s.asked(); ok {
		from = release.Later(from, asked)
	}
	run := s.run()
	for id, answer := range s.Answers {
		if strings.Contains(id, run) {
			from = release.Later(from, answer.Began)
		}
	}
	if from.IsZero() {
		if s.Status.LastTransitionTime.IsZero() {
			return time.Time{}, false
		}
		from = s.Status.LastTransitionTime.Time
	}
	return s.past(from).Add(s.Plan.Deadline), true
}

// timed is true of the phases in which a deadline may be running.
func timed(phase flaggerv1.CanaryPhase) bool {
	switch phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		return true
	default:
		return false
	}
}

// stopped lets no deadline run while a person holds the release: what is missing when that ends could not be mended
// before. A pruned status has no room for that.
func stopped(s Snapshot, d Decision) Decision {
	if d.Status.Serin == nil || d.Status.Serin.Since == nil || !timed(d.Status.Phase) {
		return d
	}
	serin := *d.Status.Serin
	serin.Since, d.Status.Serin, d.Wake = nil, &serin, s.Now
	return d
}

// held is true of a release that a person held until now, so that its deadline begins anew.
func (s *Snapshot) held() bool {
	return s.serin().Since == nil && timed(s.Status.Phase) && !s.Pruned && !s.foreign()
}
