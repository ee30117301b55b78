package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// order is a command by which the user controls a release.
type order struct {
	order             cluster.Order
	verb, short, long string
	// result is what happens to the release, for the output.
	result string
}

// orders are the commands that change a field or an annotation of the release.
var orders = []order{
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

// resultFor is what happens to a release of that kind.
func (o order) resultFor(kind explain.Kind, full bool) string {
	if o.order == cluster.Promote && kind == explain.KindRollout && !full {
		return "is continued"
	}
	return o.result
}

func orderCommand(connect connector, o order) *cobra.Command {
	c, full := common{connect: connect}, false
	cmd := &cobra.Command{
		Use: o.verb + " NAME", Short: o.short, Args: checked(cobra.ExactArgs(1)),
		Long:    o.long + " Requires permission to patch the release; the controller does the rest.\n\n" + codes,
		Example: "  serin " + o.verb + " cart -n shop && serin watch cart -n shop --until done",
		RunE: func(cmd *cobra.Command, args []string) error {
			session, sel, err := c.open(nil, args)
			if err != nil {
				return err
			}
			wanted := o.order
			if full {
				wanted = cluster.PromoteFull
			}
			key, err := session.Give(cmd.Context(), wanted, sel.Namespace, sel.Names[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/%s %s\n", key.Kind.Resource(), key.Name, o.resultFor(key.Kind, full))
			return err
		},
	}
	c.register(cmd, false)
	if o.order == cluster.Promote {
		cmd.Flags().BoolVar(&full, "full", false, "for a Rollout: skip all remaining steps, pauses and analyses")
	}
	return cmd
}
