package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// releaseCommand is a command with which the user controls a release.
type releaseCommand struct {
	command           cluster.Command
	verb, short, long string
	// result describes the effect on the release, for the output.
	result string
}

// releaseCommands lists the commands that change a field or an annotation of the release.
var releaseCommands = []releaseCommand{
	{
		cluster.Promote, "promote", "Continue a release, or promote it",
		"Starts a waiting release of a Canary, or promotes one under analysis, without further checks or webhooks. For a Rollout, ends the\n" +
			"pause, or without one the current step; --full skips all remaining steps.", "will be promoted",
	},
	{
		cluster.Abort, "abort", "Roll a release back",
		"Routes all requests to the previous version, removes the new pods and ends the release as failed.", "will be rolled back",
	},
	{
		cluster.Retry, "retry", "Release the failed revision again",
		"Releases the failed revision again, unchanged.", "will be released again",
	},
	{
		cluster.Pause, "pause", "Pause a release",
		"Sets spec.suspend of a Canary, or spec.paused of a Rollout: the release is frozen until resume, including its traffic.", "is paused",
	},
	{
		cluster.Resume, "resume", "Resume a paused release",
		"Clears spec.suspend or spec.paused. A window that has elapsed is evaluated immediately. A pause step is ended with promote.", "is resumed",
	},
}

// resultText describes the effect of the command on a release of a kind. full is true for promote --full.
func (o releaseCommand) resultText(kind explain.Kind, full bool) string {
	if o.command == cluster.Promote && kind == explain.KindRollout && !full {
		return "is continued"
	}
	return o.result
}

func newReleaseCommand(connect connector, o releaseCommand) *cobra.Command {
	c, full := commonFlags{connect: connect}, false
	cmd := &cobra.Command{
		Use: o.verb + " NAME", Short: o.short, Args: asUsageErrors(cobra.ExactArgs(1)),
		Long:    o.long + " Requires permission to patch the release; the controller does the rest.\n\n" + exitCodesHelp,
		Example: "  serin " + o.verb + " cart -n shop && serin watch cart -n shop --until done",
		RunE: func(cmd *cobra.Command, args []string) error {
			session, sel, err := c.openSession(nil, args)
			if err != nil {
				return err
			}
			command := o.command
			if full {
				command = cluster.PromoteFull
			}
			key, err := session.SendCommand(cmd.Context(), command, sel.Namespace, sel.Names[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/%s %s\n", key.Kind.Resource(), key.Name, o.resultText(key.Kind, full))
			return err
		},
	}
	c.register(cmd, false)
	if o.command == cluster.Promote {
		cmd.Flags().BoolVar(&full, "full", false, "for a Rollout: skip all remaining steps, pauses and analyses")
	}
	return cmd
}
