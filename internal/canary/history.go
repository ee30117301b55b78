package canary

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Bounds of the history in a status, which is stored with every Canary and in all caches.
const (
	maxHistory      = 10
	maxImages       = 10
	maxRecordedText = 512
)

// withHistory records in the status of a decision what remains of a release when it has ended: events expire after an hour. It
// depends only on how the status changes, so that no transition of the state machine can forget it.
func withHistory(s Snapshot, d Decision) Decision {
	current, ended := nextHistory(s, d)
	var recorded flaggerv1.SerinStatus
	if d.Status.Serin != nil {
		recorded = *d.Status.Serin
	}
	if equality.Semantic.DeepEqual(current, recorded.Release) && equality.Semantic.DeepEqual(ended, recorded.History) {
		return d
	}
	recorded.Release, recorded.History = current, ended
	d.Status.Serin = &recorded
	if !equality.Semantic.DeepEqual(s.Status.Serin, d.Status.Serin) {
		d.Wake = s.Now
	}
	return d
}

// nextHistory returns the record of the release in progress after a decision, nil if there is none, and those of the releases that
// have ended.
func nextHistory(s Snapshot, d Decision) (current *flaggerv1.ReleaseRecord, ended []flaggerv1.ReleaseRecord) {
	current, ended = s.serin().Release.DeepCopy(), s.serin().History
	revision, releasing := releasedRevision(s, d)
	if current != nil && releasing && revision != "" && revision != current.Revision && !isCancelled(s, d) {
		current, ended = nil, endRecord(s, *current, release.EndingSuperseded, ended)
	}
	if current == nil && (releasing || d.Ending != "") {
		current = startRecord(s, revision)
	}
	if current == nil {
		return nil, ended
	}
	updateRecord(s, d, current)
	if !releasing {
		return nil, endRecord(s, *current, endingOf(d), ended)
	}
	return current, ended
}

// releasedRevision returns the revision that is released, empty if it is unknown, and whether its release continues after a
// decision.
func releasedRevision(s Snapshot, d Decision) (revision string, releasing bool) {
	switch d.Status.Phase {
	case flaggerv1.CanaryPhaseWaiting:
		return s.Workload.Target.Revision, true // it is recorded when the release starts
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		releasing = true
	default: // idle, or no release
	}
	if d.Status.Serin != nil {
		revision = d.Status.Serin.Revision
	}
	return revision, releasing
}

// isCancelled reports whether a decision cancels the release, or leaves that to a later one: the target has the promoted revision
// again while the release waits.
func isCancelled(s Snapshot, d Decision) bool {
	if d.Status.Serin != nil && d.Status.Serin.Intent == intentCancel {
		return true
	}
	return d.Status.Phase == flaggerv1.CanaryPhaseWaiting && s.Workload.Target.Revision == s.promotedRevision()
}

// endingOf returns how a release ended. Without an ending, it was cancelled, or something else wrote the phase.
func endingOf(d Decision) release.Ending {
	switch {
	case d.Ending != "":
		return d.Ending
	case d.Status.Phase == flaggerv1.CanaryPhaseFailed:
		return release.EndingFailed
	default:
		return release.EndingCanceled
	}
}

// startRecord starts the record of a release. The target may have the next revision already when the promotion of a failed release
// is completed: its images are those of the earlier record then.
func startRecord(s Snapshot, revision string) *flaggerv1.ReleaseRecord {
	record := &flaggerv1.ReleaseRecord{Revision: revision, Start: metav1.NewTime(s.Now.Truncate(time.Second))}
	if revision != "" && revision != s.Workload.Target.Revision {
		for _, earlier := range s.serin().History { // the newest is first
			if earlier.Revision == revision {
				record.Images = slices.Clone(earlier.Images)
				break
			}
		}
		return record
	}
	for _, image := range s.Workload.Images[:min(len(s.Workload.Images), maxImages)] {
		record.Images = append(record.Images, release.Truncate(image, maxRecordedText))
	}
	return record
}

// updateRecord records the highest weight, the last cause of a failure, and the last command.
func updateRecord(s Snapshot, d Decision, record *flaggerv1.ReleaseRecord) {
	record.MaxWeight = max(record.MaxWeight, d.Status.CanaryWeight)
	if cause := causeOf(s, d); cause != nil {
		record.Cause = cause
	}
	if serin := d.Status.Serin; serin != nil && serin.Command != s.serin().Command {
		record.Command, record.CommandBy = release.Truncate(describeCommand(serin.Command), maxRecordedText), ""
		if serin.Command == s.Command {
			record.CommandBy = release.Truncate(s.CommandBy, maxRecordedText)
		}
	}
}

// causeOf returns the cause that a decision adds to the record of a release; nil: none. Gates are evaluated repeatedly: only the
// decision that counts a failed check, or with which a rollback begins or the release ends, has a new cause.
func causeOf(s Snapshot, d Decision) *flaggerv1.ReleaseCause {
	var after flaggerv1.SerinStatus
	if d.Status.Serin != nil {
		after = *d.Status.Serin
	}
	rollback := after.Intent == intentRollback && s.serin().Intent != intentRollback
	failed := d.Status.FailedChecks > s.Status.FailedChecks
	if !rollback && !failed && d.EndingReason == "" {
		return nil
	}
	if i := slices.IndexFunc(d.Gates, func(g release.Gate) bool { return g.Verdict == release.Fail }); i >= 0 && (rollback || failed) {
		gate := d.Gates[i]
		return &flaggerv1.ReleaseCause{
			Gate: gate.Name, Message: release.Truncate(gate.Message, maxRecordedText),
			Value: gate.Value, Limit: gate.Limit, Query: release.Truncate(gate.Query, maxRecordedText),
		}
	}
	if gate := release.Truncate(answeredGate(s.Command), maxRecordedText); gate != "" && cmp.Or(d.EndingReason, after.Reason) == reasonAbort && after.Command == s.Command {
		return &flaggerv1.ReleaseCause{Gate: gate, Message: gate + " was denied by command"}
	}
	recorded := s.serin().Release != nil && s.serin().Release.Cause != nil
	switch {
	case recorded && (after.Reason == reasonChecks || !rollback && s.isReverting()):
		return nil // the check that failed last, or the cause with which the rollback began
	case rollback:
		return &flaggerv1.ReleaseCause{Message: after.Reason}
	default:
		return &flaggerv1.ReleaseCause{Message: release.Truncate(cmp.Or(d.EndingReason, reasonChecks), maxRecordedText)}
	}
}

// endRecord adds the record of a release that ended to the history.
func endRecord(s Snapshot, record flaggerv1.ReleaseRecord, ending release.Ending, history []flaggerv1.ReleaseRecord) []flaggerv1.ReleaseRecord {
	record.End, record.Result = new(metav1.NewTime(s.Now.Truncate(time.Second))), string(ending)
	if ending != release.EndingFailed {
		record.Cause = nil
	}
	ended := slices.Concat([]flaggerv1.ReleaseRecord{record}, history)
	return ended[:min(len(ended), maxHistory)]
}
