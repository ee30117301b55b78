package canary

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// releaseHistory are the records of releases in statuses, for I41.
type releaseHistory struct{ *ledger }

// recordedResults are the results with which a release may be recorded when it ends in a phase.
var recordedResults = map[flaggerv1.CanaryPhase][]string{
	flaggerv1.CanaryPhaseSucceeded:   {"promoted", "unanalyzed", "canceled"},
	flaggerv1.CanaryPhaseFailed:      {"failed"},
	flaggerv1.CanaryPhaseInitialized: {"canceled"}, // it waited for its start when its target was replaced by an earlier one
}

// recordsEachRelease checks a write of a status by Serin.
func (c *releaseHistory) recordsEachRelease(event any) {
	h, ok := event.(canaryWritten)
	if !ok || !h.StatusReported() || h.After.Status.Serin == nil || !h.Record.statusBySerin() {
		return
	}
	var before flaggerv1.SerinStatus
	if h.Before.Status.Serin != nil {
		before = *h.Before.Status.Serin
	}
	name, from, to, after := h.Record.Name(), h.Before.Status.Phase, h.After.Status.Phase, *h.After.Status.Serin
	if releasing := isActive(to); releasing != (after.Release != nil) {
		c.Violate("I41", name, "in phase %q a release in progress is recorded: %t", to, after.Release != nil)
	}
	added := !equality.Semantic.DeepEqual(before.History, after.History)
	if added {
		c.checkAddedRecord(h, before.History, after)
	}
	if isActive(from) && isEnded(to) {
		switch {
		case !added:
			c.Violate("I41", name, "the release ended in phase %s without a record", to)
		case !slices.Contains(recordedResults[to], after.History[0].Result):
			c.Violate("I41", name, "the release ended in phase %s and is recorded as %q", to, after.History[0].Result)
		}
	}
}

// checkAddedRecord checks that one complete record was added, and that the others are unchanged.
func (c *releaseHistory) checkAddedRecord(h canaryWritten, before []flaggerv1.ReleaseRecord, status flaggerv1.SerinStatus) {
	name, after := h.Record.Name(), status.History
	if len(after) == 0 || len(after) != min(len(before)+1, 10) || !equality.Semantic.DeepEqual(after[1:], before[:len(after)-1]) {
		c.Violate("I41", name, "the history of releases changed from %v to %v", before, after)
		return
	}
	record := after[0]
	switch {
	case record.End == nil || record.Result == "" || record.Revision == "":
		c.Violate("I41", name, "the record of a release is incomplete: %v", record)
	case (record.Cause != nil) != (record.Result == "failed") || record.Cause != nil && record.Cause.Message == "":
		c.Violate("I41", name, "a release is recorded as %s with the cause %v", record.Result, record.Cause)
	case record.Result == "superseded" && status.Release != nil && status.Release.Revision == status.Promoted:
		c.Violate("I41", name, "a release is recorded as superseded by the promoted revision %s", status.Promoted)
	}
}
