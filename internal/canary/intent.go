package canary

import (
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// CommandAnnotation is the annotation with which users send a command to a release: <verb>@<run>.
const CommandAnnotation = "serin.dev/command"

// The intents: what was decided and is in progress.
const (
	intentRollback  = "rollback"  // return the traffic, scale the target to zero, then Failed
	intentCancel    = "cancel"    // the user reverted the target to the promoted revision
	intentSkip      = "skip"      // promote without analysis
	intentCompleted = "completed" // Succeeded; post-rollout hooks are pending
	intentSkipped   = "skipped"   // the same after a skipped analysis
	intentFailed    = "failed"    // Failed; post-rollout hooks are pending
)

// The reasons of rollbacks. The reason of a missed deadline is the message of its gate.
const (
	reasonHook   = "a webhook requested the rollback"
	reasonAbort  = "the release was aborted by command"
	reasonChecks = "too many checks failed"
)

// hasCommand reports whether the user sent that command to this run and it was not executed yet.
func (s *Snapshot) hasCommand(verb string) bool {
	commandVerb, run, ok := strings.Cut(s.Command, "@")
	return ok && commandVerb == verb && run == s.run() && s.Command != s.serin().Command
}

// mustRollBack reports whether traffic returns to the previous revision, or the release is cancelled.
func (s *Snapshot) mustRollBack() bool {
	intent := s.serin().Intent
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
		failed := intent == "" && s.Status.FailedChecks >= s.Plan.Threshold
		return failed || intent == intentRollback || intent == intentCancel
	case flaggerv1.CanaryPhasePromoting:
		return intent == intentRollback
	default: // idle, or no release
		return false
	}
}

// requestedByUser reports whether a webhook or a command, not the state of the canary, requested the rollback.
func requestedByUser(s Snapshot) bool {
	switch s.serin().Reason {
	case reasonHook, reasonAbort:
		return true
	default:
		return false
	}
}
