package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// goal is the state of releases that a command waits for. The zero value is no goal.
type goal struct {
	kind goalKind
	// number is the weight in percent, or the step.
	number int
	// gate is the name of the gate.
	gate string
}

// goalKind is the part of a goal before its number.
type goalKind string

// The kinds of goals.
const (
	goalPromoted goalKind = "promoted"
	goalFailed   goalKind = "failed"
	goalIdle     goalKind = "rest"
	goalDone     goalKind = "done"
	goalPaused   goalKind = "paused"
	goalWeight   goalKind = "weight"
	goalStep     goalKind = "step"
	goalGate     goalKind = "gate"
)

// goalForms lists the goals in messages and in the descriptions of flags.
const goalForms = "promoted, failed, rest, done, paused, weight=N, step=N or gate=GATE"

// goalsHelp is the part of the help that lists the goals.
const goalsHelp = `  promoted  all releases are idle and promoted: 0; one failed: 1
  failed    all releases are idle and failed: 0
  rest      all releases are idle, regardless of the result: 0
  done      all releases are idle: 0 if all were promoted, 1 if one failed
  paused    all releases wait for user action: 0; one ended before that: 1
  weight=N  the new revisions receive at least N% of the traffic, or were promoted: 0; one failed: 1
  step=N    all releases have reached step N (or iteration N), or were promoted: 0; one failed: 1
  gate=GATE all releases wait for the approval of this gate: 0; one ended before that: 1`

// goalWords are the goals as users type them, for completion.
var goalWords = []string{"promoted", "failed", "rest", "done", "paused", "weight=", "step=", gateGoalPrefix}

// gateGoalPrefix is the beginning of the goal that names a gate.
const gateGoalPrefix = string(goalGate) + "="

// parseGoal parses the value of a flag.
func parseGoal(flag, text string) (goal, error) {
	word, number, hasNumber := strings.Cut(text, "=")
	g := goal{kind: goalKind(word)}
	switch {
	case g.kind == goalWeight || g.kind == goalStep:
		var err error
		if g.number, err = strconv.Atoi(strings.TrimSuffix(number, "%")); err != nil || g.number < 1 {
			return goal{}, fmt.Errorf("%s %s is invalid: use %s=N with a number of at least 1", flag, text, word)
		}
		if g.kind == goalWeight && g.number > 100 {
			return goal{}, fmt.Errorf("%s %s is invalid: a weight is at most 100", flag, text)
		}
		return g, nil
	case g.kind == goalGate:
		if g.gate = number; g.gate == "" {
			return goal{}, fmt.Errorf("%s %s is invalid: use gate=GATE with the name of a gate, such as gate=confirm-promotion/sign-off or gate=pause", flag, text)
		}
		return g, nil
	case !hasNumber && slices.Contains([]goalKind{goalPromoted, goalFailed, goalIdle, goalDone, goalPaused}, g.kind):
		return g, nil
	default:
		return goal{}, fmt.Errorf("%s %q is invalid: use "+goalForms, flag, text)
	}
}

// check reports whether all releases have reached the goal. It returns an error if one of them has ended without reaching it.
func (g goal) check(releases []explain.Release) (bool, error) {
	for i := range releases { // before a release that never reaches it delays the message
		if r := &releases[i]; g.kind == goalGate && !r.AwaitsApprovalOf(g.gate) && !slices.Contains(r.ApprovalGates(), g.gate) {
			return true, unknownGateError(r, g.gate)
		}
	}
	var firstErr error
	for i := range releases {
		reached, err := g.checkRelease(&releases[i])
		if !reached {
			return false, nil
		}
		if firstErr == nil {
			firstErr = err
		}
	}
	return true, firstErr
}

func (g goal) checkRelease(r *explain.Release) (bool, error) {
	idle := r.State == release.Idle
	failed := r.HasFailed()
	switch {
	case g.kind == goalIdle:
		return idle || failed, nil
	case g.kind == goalFailed:
		return failed, nil
	case r.TimedOut:
		return true, withExitCode(ExitFailed, timedOutError(r))
	case failed:
		return true, withExitCode(ExitFailed, fmt.Errorf("the release of %s failed", r.FullName()))
	case g.kind == goalPaused && idle:
		return true, withExitCode(ExitFailed, fmt.Errorf("the release of %s ended without waiting for user action", r.FullName()))
	case g.kind == goalPaused:
		return r.State == release.WaitsForUser, nil
	case g.kind == goalGate && idle:
		return true, withExitCode(ExitFailed, fmt.Errorf("the release of %s ended without waiting for the gate %s", r.FullName(), g.gate))
	case g.kind == goalGate:
		return r.AwaitsApprovalOf(g.gate), nil
	case idle:
		return true, nil // promoted
	case r.State == release.RollingBack:
		return false, nil
	case g.kind == goalWeight:
		return r.Weight >= g.number, nil
	case g.kind == goalStep:
		return max(r.Step, r.Iterations) >= g.number, nil
	default:
		return false, nil
	}
}

// timedOutError describes a Rollout that exceeded its progress deadline.
func timedOutError(r *explain.Release) error {
	return fmt.Errorf("%s exceeded its progress deadline: see serin why %s -n %s", r.FullName(), r.Argument(), r.Namespace)
}

// unknownGateError describes a gate for which a release never waits.
func unknownGateError(r *explain.Release, gate string) error {
	hint := "none of its gates waits for an approval"
	if known := r.ApprovalGates(); len(known) > 0 {
		hint = "use " + strings.Join(known, " or ")
	}
	return withExitCode(ExitUsage, fmt.Errorf("%s has no gate %q that waits for an approval: %s", r.FullName(), gate, hint))
}

// goalOptions are the flags of a command that waits for a goal.
type goalOptions struct {
	// flag is the name of the flag of the goal, with its dashes.
	flag    string
	text    string
	timeout time.Duration
}

func (o *goalOptions) register(cmd *cobra.Command, c *commonFlags) {
	name := strings.TrimPrefix(o.flag, "--")
	cmd.Flags().StringVar(&o.text, name, "", "the state to wait for: "+goalForms+"; rest is idle")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "maximum duration of "+o.flag+", such as 30m; 0: unlimited")
	completeFlag(cmd, name, c.completeGoals)
}

// set sets the goal and the timeout of a watch.
func (o *goalOptions) set(w *releaseWatch) error {
	switch {
	case o.timeout < 0:
		return withExitCode(ExitUsage, fmt.Errorf("--timeout %s is negative: use a duration such as 30m", o.timeout))
	case o.timeout > 0 && o.text == "":
		return withExitCode(ExitUsage, errors.New("--timeout requires "+o.flag))
	case o.text == "":
		return nil
	}
	var err error
	if w.goal, err = parseGoal(o.flag, o.text); err != nil {
		return withExitCode(ExitUsage, err)
	}
	w.goalText, w.timeout = o.flag+" "+o.text, o.timeout
	return nil
}
