package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/eject"
)

// ejectInterval is the time between two observations of a release that is being ejected.
const ejectInterval = time.Second

func newEjectCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	confirmed, dryRun, timeout := false, false, time.Duration(0)
	cmd := &cobra.Command{
		Use: "eject NAME", Short: "Remove a release from Serin without an outage", Args: asUsageErrors(cobra.ExactArgs(1)),
		Long: `Deletes a Canary or a Rollout such that its workload serves the same version afterwards, without Serin and without a lost
request. The command prepares the deletion with your permissions; Serin, which must be running, moves the traffic.

Every intermediate state serves: the command can be interrupted, and continues when it is run again. It refuses while a
release is in progress. Without --yes, it asks for confirmation on a terminal.

Exit codes: 0 ejected, 2 usage error or not confirmed, 3 the user must act first, 4 timeout, 5 not found, 6 cluster
unreachable or access denied.`,
		Example: "  serin eject cart -n shop --dry-run\n  serin eject cart -n shop --yes --timeout 10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return withExitCode(ExitUsage, fmt.Errorf("--timeout %s is negative: use a duration such as 10m", timeout))
			}
			in := cmd.InOrStdin()
			if !confirmed && !dryRun && !isTerminal(in) {
				return withExitCode(ExitUsage, errors.New("--yes is required if the input is not a terminal; --dry-run shows the steps"))
			}
			session, sel, err := c.openSession(nil, args)
			if err != nil {
				return err
			}
			ejection, err := session.Eject(cmd.Context(), sel.Namespace, sel.Names[0])
			if err != nil {
				return err
			}
			e := ejectCommand{ejection: ejection, session: session, out: plainOut(cmd)}
			proceed, err := e.confirm(cmd.Context(), in, confirmed, dryRun)
			if err != nil || !proceed {
				return err
			}
			return e.run(cmd.Context(), timeout)
		},
	}
	c.register(cmd, false)
	cmd.Flags().BoolVar(&confirmed, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the steps, change nothing")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "maximum duration, such as 10m; 0: unlimited")
	return acceptKind(cmd)
}

// ejectCommand performs one ejection, and prints its progress.
type ejectCommand struct {
	ejection *cluster.Ejection
	session  *cluster.Session
	out      io.Writer
}

// confirm prints the steps, and asks whether to perform them.
func (e *ejectCommand) confirm(ctx context.Context, in io.Reader, confirmed, dryRun bool) (proceed bool, err error) {
	release, err := e.ejection.Observe(ctx)
	if err != nil {
		return false, err
	}
	steps, err := eject.Plan(release)
	if err != nil {
		return false, withExitCode(ExitUserAction, err)
	}
	key := release.Key()
	lines := []string{fmt.Sprintf("The ejection of %s %s in namespace %s has these steps:", key.Kind, key.Name, key.Namespace)}
	actions := eject.Actions(steps)
	if len(actions) == 0 {
		lines = append(lines, "  - "+steps[0].Text)
	}
	for i, step := range actions {
		lines = append(lines, fmt.Sprintf("  %d. %s", i+1, step.Text))
	}
	if dryRun {
		lines = append(lines, "Nothing was changed.")
	}
	if err := e.print(lines...); err != nil || confirmed || dryRun {
		return confirmed && !dryRun, err
	}
	err = confirm(in, e.out, "Continue?")
	return err == nil, err
}

// run performs the steps until the release is gone.
func (e *ejectCommand) run(ctx context.Context, timeout time.Duration) error {
	startedAt := e.session.Clock.Now()
	ticker := e.session.Clock.NewTicker(ejectInterval)
	defer ticker.Stop()
	var last eject.Release
	printed, performed := "", eject.Action("")
	for {
		release, err := e.ejection.Observe(ctx)
		if errors.Is(err, cluster.ErrNotFound) && last != nil {
			return e.print(append([]string{fmt.Sprintf("%s %s is gone.", last.Key().Kind, last.Key().Name)}, last.Summary()...)...)
		}
		if err != nil {
			return ejectError(err, last)
		}
		last = release
		step, err := release.Next()
		if err != nil {
			return ejectError(err, last)
		}
		if step.Text != printed {
			printed = step.Text
			if err := e.print(strings.ToUpper(printed[:1]) + printed[1:] + "."); err != nil {
				return err
			}
		}
		if timeout > 0 && e.session.Clock.Since(startedAt) >= timeout {
			return withExitCode(ExitTimeout, interruptedError(fmt.Errorf("timed out after %s", timeout), last))
		}
		if !step.Waits {
			if err := e.ejection.Perform(ctx, step); err != nil {
				return interruptedError(err, last)
			}
			if step.Action != performed { // otherwise something reverts it, or changes the release at the same time
				performed = step.Action
				continue
			}
		}
		select {
		case <-ctx.Done():
			return interruptedError(ctx.Err(), last)
		case <-ticker.C():
		}
	}
}

func (e *ejectCommand) print(lines ...string) error {
	_, err := fmt.Fprintln(e.out, strings.Join(lines, "\n"))
	return err
}

// interruptedError returns an error that ended the ejection, after which it can be continued. last is the last observation; nil: there is
// none.
func interruptedError(err error, last eject.Release) error {
	serves := "the application still serves"
	if r, ok := last.(*eject.Rollout); ok {
		if available, desired := r.AvailablePods(); available < desired {
			serves = fmt.Sprintf("%d of %d pods of the application are available", available, desired)
		}
	}
	return fmt.Errorf("%w: the ejection is not complete, and %s; run the command again to continue", err, serves)
}

// ejectError returns an error during the ejection with its exit code.
func ejectError(err error, last eject.Release) error {
	if refused, ok := errors.AsType[*eject.RefusedError](err); ok {
		return withExitCode(ExitUserAction, refused)
	}
	return interruptedError(err, last)
}
