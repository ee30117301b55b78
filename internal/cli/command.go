package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/release"
)

// releaseCommand is a command with which the user controls a release.
type releaseCommand struct {
	command           cluster.Command
	verb, short, long string
}

// releaseCommands lists the commands that change a field or an annotation of the release.
var releaseCommands = []releaseCommand{
	{
		cluster.Promote, "promote", "Continue a release, or promote it",
		"For a Canary, starts a release that waits in the queue or for approval, or approves the step that a webhook has not approved; the\n" +
			"checks of that step must still pass. Under analysis, it is refused unless --full skips the remaining analysis.\n" +
			"For a Rollout, ends the pause, or accepts an inconclusive analysis. At any other step, it is refused unless --full skips all\n" +
			"remaining steps.",
	},
	{
		cluster.Abort, "abort", "Roll a release back",
		"Routes all requests to the previous version, removes the new pods and ends the release as failed.",
	},
	{
		cluster.Retry, "retry", "Release the failed revision again",
		"Releases the failed revision again, unchanged.",
	},
	{
		cluster.Pause, "pause", "Pause a release",
		"Sets spec.suspend of a Canary, or spec.paused of a Rollout: the release is frozen until resume, including its traffic.",
	},
	{
		cluster.Resume, "resume", "Resume a paused release",
		"Clears spec.suspend or spec.paused. A window that has elapsed is evaluated immediately. A pause step is ended with promote.",
	},
}

// commandFlags are the flags of a command that controls a release.
type commandFlags struct {
	full, yes, wait, dryRun bool
	timeout                 time.Duration
	reason                  string
}

// register registers the flags of all commands.
func (f *commandFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "let the API server validate the command, and change nothing")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the Event that records the command, such as 'hotfix 42'")
}

func (f *commandFlags) registerWait(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until a controller has carried out the command")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "maximum duration of --wait, such as 10m; 0: unlimited")
}

func (f *commandFlags) validate() error {
	switch {
	case f.timeout < 0:
		return withExitCode(ExitUsage, fmt.Errorf("--timeout %s is negative: use a duration such as 10m", f.timeout))
	case f.dryRun && f.wait:
		return withExitCode(ExitUsage, errors.New("--dry-run changes nothing that --wait could wait for: omit one of them"))
	case f.timeout > 0 && !f.wait:
		return withExitCode(ExitUsage, errors.New("--timeout requires --wait"))
	default:
		return nil
	}
}

func newReleaseCommand(connect connector, o releaseCommand) *cobra.Command {
	c, flags := commonFlags{connect: connect}, commandFlags{}
	cmd := &cobra.Command{
		Use: o.verb + " NAME", Short: o.short, Args: oneRelease,
		Long: o.long + " Requires permission to patch the release; the controller does the rest. The command and --reason are recorded\n" +
			"in an Event of the release.\n\n" + exitCodesHelp,
		Example: "  serin " + o.verb + " cart -n shop && serin watch cart -n shop --until done",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.validate(); err != nil {
				return err
			}
			session, sel, err := c.openSession(nil, args)
			if err != nil {
				return err
			}
			command := o.command
			if flags.full {
				command = cluster.PromoteFull
			}
			planned, err := session.PlanCommand(cmd.Context(), command, sel.Namespace, sel.Names[0])
			if err != nil {
				return err
			}
			if planned.Skips != "" && !flags.yes && !flags.dryRun && isTerminal(cmd.InOrStdin()) {
				if err := confirm(cmd.InOrStdin(), plainErr(cmd), planned.Skips+". Continue?"); err != nil {
					return err
				}
			}
			return sendCommand(cmd, session, planned, flags)
		},
	}
	c.register(cmd, false)
	flags.register(cmd)
	if o.command == cluster.Promote {
		cmd.Flags().BoolVar(&flags.full, "full", false, "skip the remaining analysis of a Canary, or all remaining steps, pauses and analyses of a Rollout")
		cmd.Flags().BoolVarP(&flags.yes, "yes", "y", false, "do not ask before --full; without a terminal, it never asks")
	}
	if o.command != cluster.Pause && o.command != cluster.Resume {
		flags.registerWait(cmd)
	}
	if o.command == cluster.Retry {
		cmd.AddCommand(newRetryExperimentCommand(connect))
	}
	return acceptKind(cmd)
}

// oneRelease checks that the arguments name one release.
func oneRelease(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return withExitCode(ExitUsage, fmt.Errorf("the name of the release is missing: %s NAME", cmd.CommandPath()))
	case 1:
		return nil
	default:
		return withExitCode(ExitUsage, fmt.Errorf("%s controls one release, but %d were named: %s", cmd.CommandPath(), len(args), strings.Join(args, ", ")))
	}
}

// confirm asks a question, and returns an error unless the answer is yes.
func confirm(in io.Reader, out io.Writer, question string) error {
	if _, err := fmt.Fprint(out, question+" [y/N] "); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return withExitCode(ExitUsage, errors.New("cancelled: nothing was changed"))
	}
}

// sendCommand sends a command, prints and records it, and waits for it with --wait. Problems after the command was sent are
// warnings. With --dry-run, the API server only validates it.
func sendCommand(cmd *cobra.Command, session *cluster.Session, planned *cluster.PlannedCommand, flags commandFlags) error {
	ctx, name := cmd.Context(), planned.Key.Kind.Resource()+"/"+planned.Key.Name
	planned.DryRun = flags.dryRun
	if !planned.DryRun {
		session.SignCommand(ctx, planned, flags.reason)
	}
	if err := session.SendCommand(ctx, planned); err != nil {
		return err
	}
	if planned.DryRun && planned.Skips != "" {
		_, _ = fmt.Fprintln(plainErr(cmd), planned.Skips+".")
	}
	effect := planned.Effect
	if planned.Paused {
		effect += " after it is resumed with: " + planned.ResumeHint()
	}
	if planned.DryRun {
		effect += dryRunMark
	}
	if _, err := fmt.Fprintln(plainOut(cmd), name, effect); err != nil {
		return err
	}
	if !planned.DryRun {
		if err := session.RecordCommand(ctx, planned); err != nil {
			printWarning(cmd, err.Error())
		}
	}
	if planned.Warning != "" {
		printWarning(cmd, planned.Warning)
	}
	if warning := session.ControllerWarning(ctx, planned); warning != "" {
		printWarning(cmd, warning)
	}
	if !flags.wait {
		return nil
	}
	if planned.Paused {
		return withExitCode(ExitUserAction, fmt.Errorf("%s is carried out after the release is resumed", planned.Command))
	}
	return awaitCommand(cmd, session, planned, flags.timeout)
}

// dryRunMark ends the description of a change that was not made.
const dryRunMark = " (dry run)"

func printWarning(cmd *cobra.Command, text string) {
	_, _ = fmt.Fprintln(plainErr(cmd), "warning: "+text)
}

// awaitCommand waits until a controller has carried out a command, and prints the phase of the release then.
func awaitCommand(cmd *cobra.Command, session *cluster.Session, planned *cluster.PlannedCommand, timeout time.Duration) error {
	ctx, until := cmd.Context(), "the end of the wait"
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
		until = "the timeout of " + timeout.String()
	}
	if planned.Command == cluster.Terminate {
		return awaitTermination(ctx, cmd, session, planned, until)
	}
	r, isCarriedOut, err := session.AwaitCommand(ctx, planned)
	switch {
	case err != nil:
		return err
	case isCarriedOut:
		_, err := fmt.Fprintf(plainOut(cmd), "%s/%s is %s\n", planned.Key.Kind.Resource(), planned.Key.Name, r.Phase)
		return err
	case r.State == release.Idle && r.Result == release.RolledBack && ctx.Err() == nil:
		return withExitCode(ExitFailed, fmt.Errorf("the release of %s failed before %s was carried out", r.FullName(), planned.Command))
	case r.State == release.WaitsForUser:
		return withExitCode(ExitUserAction, fmt.Errorf("%s was not carried out before %s: %s waits for user action: see serin why %s -n %s",
			planned.Command, until, r.FullName(), r.Argument(), r.Namespace))
	default:
		return withExitCode(ExitTimeout, fmt.Errorf("%s was not carried out before %s", planned.Command, until))
	}
}

// awaitTermination waits until an AnalysisRun or Experiment has ended, and prints its phase then. Any result means that the command
// was carried out, as for abort.
func awaitTermination(ctx context.Context, cmd *cobra.Command, session *cluster.Session, planned *cluster.PlannedCommand, until string) error {
	phase, err := session.AwaitTermination(ctx, planned)
	switch {
	case err != nil:
		return err
	case !phase.Completed():
		return withExitCode(ExitTimeout, fmt.Errorf("%s was not carried out before %s", planned.Command, until))
	default:
		_, err := fmt.Fprintf(plainOut(cmd), "%s/%s is %s\n", planned.Key.Kind.Resource(), planned.Key.Name, phase)
		return err
	}
}
