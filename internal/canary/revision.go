package canary

import (
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// pinnedRevision is the revision whose release began last. A status that another controller wrote, or that lost Serin's part, has a
// hash of another form: then the same hash, or the same content, is the same revision, and a different hash alone is never a
// new one.
func (s *Snapshot) pinnedRevision() string {
	if revision := s.serin().Revision; revision != "" {
		return revision
	}
	target := s.Workload.Target
	same := target.FlaggerHash == s.Status.LastAppliedSpec && sameConfigs(s.Workload.FlaggerConfigs, s.Status.TrackedConfigs)
	switch phase := s.Status.Phase; {
	case phase == flaggerv1.CanaryPhaseInitialized, phase == flaggerv1.CanaryPhaseSucceeded, s.primaryHasTemplate():
		same = same || s.Workload.SameTemplate
	default: // in the middle of a run, or after one that failed, the primary says nothing about the target
		same = same || s.Status.LastAppliedSpec != "" && !s.Workload.NewestTemplate.After(s.Status.LastTransitionTime.Time)
	}
	if same {
		return target.Revision
	}
	return flaggerRevisionPrefix + s.Status.LastAppliedSpec
}

// promotedRevision is the revision that the primary runs. While that is known only by the hash of another controller, the content
// of the primary decides whether the target has returned to it.
func (s *Snapshot) promotedRevision() string {
	if promoted := s.serin().Promoted; promoted != "" && !strings.HasPrefix(promoted, flaggerRevisionPrefix) {
		return promoted
	}
	target := s.Workload.Target
	// The configuration that such a status tracks is that of the revision taken up, which says nothing about another one. One
	// that differs in its configuration alone has the same hash, so that only a release that succeeded tells.
	succeeded := s.Status.Phase == flaggerv1.CanaryPhaseInitialized || s.Status.Phase == flaggerv1.CanaryPhaseSucceeded
	tracked := succeeded && s.Status.LastAppliedSpec == s.Status.LastPromotedSpec || len(s.Status.TrackedConfigs) == 0
	byHash := target.FlaggerHash == s.Status.LastPromotedSpec && s.Status.LastPromotedSpec != "" && tracked
	if s.Workload.SameTemplate || byHash && sameConfigs(s.Workload.FlaggerConfigs, s.Status.TrackedConfigs) {
		return target.Revision
	}
	return flaggerRevisionPrefix + s.Status.LastPromotedSpec
}

func sameConfigs(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// statusFromOtherController reports whether a status has no revision in Serin's form: another controller wrote it, or it lost that part.
func (s *Snapshot) statusFromOtherController() bool { return s.serin().Revision == "" }

// adoptOtherStatus records in our form what a status of another controller says.
func (e *statusEdit) adoptOtherStatus() *statusEdit {
	e.serin.Revision, e.serin.Promoted, e.serin.Configs = e.snapshot.pinnedRevision(), e.snapshot.promotedRevision(), e.snapshot.Workload.Configs
	if e.snapshot.Status.Phase == flaggerv1.CanaryPhasePromoting || e.snapshot.Status.Phase == flaggerv1.CanaryPhaseFinalising {
		e.serin.Promoted = flaggerRevisionPrefix + e.snapshot.Status.LastPromotedSpec // the primary already has what is not promoted yet
	}
	return e
}
