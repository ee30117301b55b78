package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
)

// answerCommand is a command with which the user answers one gate.
type answerCommand struct {
	answer      cluster.Answer
	short, long string
}

// answerCommands lists the answers to a gate that waits for an approval.
var answerCommands = []answerCommand{
	{
		cluster.Approve, "Approve the gate that a release waits for",
		"Approves one gate, in place of the webhook of a Canary or of the user who ends a pause of a Rollout: the release takes the next\n" +
			"step when its checks pass.",
	},
	{
		cluster.Deny, "Deny the gate that a release waits for",
		"Denies one gate: the release ends as failed, and all requests are routed to the previous version.",
	},
}

func newAnswerCommand(connect connector, o answerCommand) *cobra.Command {
	c, flags := commonFlags{connect: connect}, commandFlags{}
	verb := string(o.answer)
	cmd := &cobra.Command{
		Use: verb + " NAME GATE", Short: o.short, Args: releaseAndGate,
		Long: o.long + " If the release does not wait for that gate,\nnothing is changed. serin why shows the command, and completion offers the gate. " +
			"Requires permission to patch the release. The\ncommand, the gate and --reason are recorded in an Event of the release.\n\n" + exitCodesHelp,
		Example: "  serin " + verb + " cart confirm-promotion/sign-off -n shop --reason 'tested by QA'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.validate(); err != nil {
				return err
			}
			session, sel, err := c.openSession(nil, args[:1])
			if err != nil {
				return err
			}
			planned, err := session.PlanAnswer(cmd.Context(), o.answer, sel.Namespace, sel.Names[0], args[1])
			if err != nil {
				return err
			}
			return sendCommand(cmd, session, planned, flags)
		},
	}
	c.register(cmd, false)
	cmd.ValidArgsFunction = c.completeGates
	flags.register(cmd)
	flags.registerWait(cmd)
	return acceptKind(cmd)
}

// releaseAndGate checks that the arguments name a release and a gate.
func releaseAndGate(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return withExitCode(ExitUsage, fmt.Errorf("the names of the release and of the gate are missing: %s NAME GATE", cmd.CommandPath()))
	case 1:
		return withExitCode(ExitUsage, fmt.Errorf("the name of the gate is missing: see %s", whyHint(cmd, args[0])))
	case 2:
		return nil
	default:
		return withExitCode(ExitUsage, errors.New("one release and one gate are answered at a time: "+cmd.CommandPath()+" NAME GATE"))
	}
}

// whyHint returns the command that shows the gates of a release, in the namespace that the user has named.
func whyHint(cmd *cobra.Command, name string) string {
	hint := "serin why " + name
	if namespace := cmd.Flag("namespace"); namespace != nil && namespace.Changed {
		hint += " -n " + namespace.Value.String()
	}
	return hint
}

// completeGates completes the name of a release, and then the gates for whose approval it waits.
func (c *commonFlags) completeGates(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if args = joinKind(args); len(args) == 0 {
		return c.completeNames(false)(cmd, args, toComplete)
	}
	name, err := parseName(args[0])
	if len(args) > 1 || err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	gates := askCluster(cmd.Context(), c, func(ctx context.Context, session *cluster.Session, namespace string) ([]string, error) {
		return session.ApprovalGates(ctx, namespace, name)
	})
	return slices.DeleteFunc(gates, func(gate string) bool { return !strings.HasPrefix(gate, toComplete) }), cobra.ShellCompDirectiveNoFileComp
}
