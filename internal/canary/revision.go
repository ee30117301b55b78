package canary

import (
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// flaggerRevisionPrefix marks a revision of which only Flagger's hash is known. No revision of Serin has it.
const flaggerRevisionPrefix = "peer-"

// pinnedRevision is the revision whose release started last. A status without status.serin, because another controller wrote it
// or because it was lost, has only Flagger's hash: then the same hash or the same content is the same revision, but a different
// hash alone is not a new revision.
func (s *Snapshot) pinnedRevision() string {
	if revision := s.serin().Revision; revision != "" {
		return revision
	}
	target := s.Workload.Target
	same := target.FlaggerHash == s.Status.LastAppliedSpec && sameConfigs(s.Workload.FlaggerConfigs, s.Status.TrackedConfigs)
	switch phase := s.Status.Phase; {
	case phase == flaggerv1.CanaryPhaseInitialized, phase == flaggerv1.CanaryPhaseSucceeded, s.primaryHasNewTemplate():
		same = same || s.Workload.SameTemplate
	default: // during a run, and after a failed one, the template of the primary is that of an earlier revision
		same = same || s.Status.LastAppliedSpec != "" && !s.Workload.NewestTemplateTime.After(s.Status.LastTransitionTime.Time)
	}
	if same {
		return target.Revision
	}
	return flaggerRevisionPrefix + s.Status.LastAppliedSpec
}

// promotedRevision is the revision that the primary runs. While only Flagger's hash of it is known, the content of the primary
// decides whether the target has been reverted to it.
func (s *Snapshot) promotedRevision() string {
	if promoted := s.serin().Promoted; promoted != "" && !strings.HasPrefix(promoted, flaggerRevisionPrefix) {
		return promoted
	}
	target := s.Workload.Target
	// Such a status has the checksums of the last applied revision, not of the promoted one. Two revisions that differ only in their
	// configuration have the same hash, so the checksums are used only after a successful release.
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

// statusFromOtherController reports whether a status has no revision in Serin's form: another controller wrote it, or
// status.serin was lost.
func (s *Snapshot) statusFromOtherController() bool { return s.serin().Revision == "" }
