package canary

import (
	"strconv"
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// CommandAnnotation is the annotation with which users send a command to a release: <verb>@<run>, and promote@<run>/<step> during
// the analysis. The command about one gate ends with :<gate>, which the history names.
const CommandAnnotation = "serin.dev/command"

// CommandByAnnotation is the annotation that names the user of a command and the reason, for the history: the command, a space, and
// USER: REASON. It has no effect on the release. It contains the command, so that it never names the user of another one.
const CommandByAnnotation = "serin.dev/command-by"

// SignCommand returns the value of CommandByAnnotation for a command; empty: neither user nor reason is known.
func SignCommand(command, user, reason string) string {
	switch {
	case user == "" && reason == "":
		return ""
	case user == "":
		return command + " " + reason
	case reason == "":
		return command + " " + user
	default:
		return command + " " + user + ": " + reason
	}
}

// CommandBy returns the user and the reason of the command in the annotations of a Canary; empty: they name none.
func CommandBy(annotations map[string]string) string {
	by, signed := strings.CutPrefix(annotations[CommandByAnnotation], annotations[CommandAnnotation]+" ")
	if !signed {
		return ""
	}
	return by
}

// The verbs of commands.
const (
	CommandPromote     = "promote"      // take one step without the approvals that it waits for; the analysis continues
	CommandPromoteFull = "promote-full" // skip the approvals and the remaining analysis
	CommandAbort       = "abort"        // roll the release back
	CommandRetry       = "retry"        // release the failed revision again
)

// NewCommand returns a command for the observed run. An approval also names the observed step, so that it approves no other step.
func NewCommand(verb, uid string, status flaggerv1.CanaryStatus) string {
	command := verb + "@" + RunOf(uid, status)
	if verb == CommandPromote && (status.Phase == flaggerv1.CanaryPhaseProgressing || status.Phase == flaggerv1.CanaryPhaseWaitingPromotion) {
		command += "/" + strconv.Itoa(stepOf(status))
	}
	return command
}

// NewAnswer returns the command that answers one gate: a promotion approves it, an abort denies it.
func NewAnswer(command, gate string) string { return command + ":" + gate }

// IsExecuted reports whether a command was executed, whether or not it named a gate.
func IsExecuted(command string, status flaggerv1.CanaryStatus) bool {
	if status.Serin == nil {
		return false
	}
	sent, _, _ := strings.Cut(command, ":")
	executed, _, _ := strings.Cut(status.Serin.Command, ":")
	return sent == executed
}

// describeCommand returns a command in the words of the user: its verb, or the answer to a gate.
func describeCommand(command string) string {
	verb, _, _ := parseCommand(command)
	switch gate := answeredGate(command); {
	case gate == "":
		return verb
	case verb == CommandPromote:
		return "approve " + gate
	case verb == CommandAbort:
		return "deny " + gate
	default: // written by a user
		return verb
	}
}

// answeredGate returns the gate that a command answers; empty: none.
func answeredGate(command string) string {
	_, gate, _ := strings.Cut(command, ":")
	return gate
}

// stepOf identifies the current step of a run: by its iteration, or by its weight.
func stepOf(status flaggerv1.CanaryStatus) int {
	if status.Iterations > 0 {
		return status.Iterations
	}
	return status.CanaryWeight
}

// parseCommand splits a command. The step is empty for a command that names none.
func parseCommand(command string) (verb, run, step string) {
	command, _, _ = strings.Cut(command, ":")
	verb, run, _ = strings.Cut(command, "@")
	run, step, _ = strings.Cut(run, "/")
	return verb, run, step
}

// hasCommand reports whether the user sent that command to this run and it was not executed yet.
func (s *Snapshot) hasCommand(verb string) bool {
	commandVerb, run, _ := parseCommand(s.Command)
	return commandVerb == verb && run == s.run() && !IsExecuted(s.Command, s.Status)
}

// AwaitsApproval reports whether a release waits for an approval that a webhook has not granted.
func AwaitsApproval(status flaggerv1.CanaryStatus) bool {
	switch status.Phase {
	case flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseWaitingPromotion:
		return true
	case flaggerv1.CanaryPhaseProgressing:
		return status.Serin != nil && status.Serin.Held != ""
	default:
		return false
	}
}

// approvedByCommand reports whether the user approved the end of the current step by command. In blue/green, the approval of the
// promotion includes the last window, in which the new revision has all traffic.
func (s *Snapshot) approvedByCommand() bool {
	verb, run, step := parseCommand(s.Command)
	switch {
	case verb != CommandPromote || run != s.run():
		return false
	case s.Plan.Strategy == BlueGreen && s.Status.Iterations > s.Plan.Iterations && step == strconv.Itoa(s.Plan.Iterations):
		return true
	default:
		return step == strconv.Itoa(stepOf(s.Status)) && !IsExecuted(s.Command, s.Status)
	}
}

// shipsUnanalyzed reports whether the user promotes the waiting revision without any analysis. Before the phase Waiting, a command
// names the previous run, so that it could ship a revision that the user never saw.
func shipsUnanalyzed(s Snapshot) bool {
	return s.Status.Phase == flaggerv1.CanaryPhaseWaiting && s.hasCommand(CommandPromoteFull)
}
