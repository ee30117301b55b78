package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// order is a command by which a person steers a release.
type order struct {
	order                   cluster.Order
	verb, short, long, done string
}

// orders are the commands that change something: a field or an annotation of the release. It is never changed.
var orders = []order{
	{
		cluster.Promote, "promote", "Let a release go on",
		"A Canary that waits is started, and one that is observed is promoted, without asking further checks or webhooks. Of a Rollout\n" +
			"the pause ends, or where there is none the current step; with --full all that is left is skipped.", "is to be promoted",
	},
	{
		cluster.Abort, "abort", "Take a release back",
		"Sends all requests back to the version before, takes the new pods away and ends the release as failed.", "is to be taken back",
	},
	{
		cluster.Retry, "retry", "Release the revision that failed once more",
		"Starts the release of a revision that failed once more, without a change of it.", "is to be released again",
	},
	{
		cluster.Pause, "pause", "Stop where the release stands",
		"Sets spec.suspend of a Canary, spec.paused of a Rollout: nothing moves until resume, the traffic included.", "is paused",
	},
	{
		cluster.Resume, "resume", "Go on after a pause",
		"Takes spec.suspend or spec.paused back. What is over by then is judged at once. A pause that is a step ends with promote.", "goes on",
	},
}

// said is what becomes of a release that got the order.
func (o order) said(kind explain.Kind, full bool) string {
	if o.order == cluster.Promote && kind == explain.KindRollout && !full {
		return "goes on"
	}
	return o.done
}

func orderCommand(connect connector, o order) *cobra.Command {
	c, full := common{connect: connect}, false
	cmd := &cobra.Command{
		Use: o.verb + " NAME", Short: o.short, Args: checked(cobra.ExactArgs(1)),
		Long:    o.long + " It needs the right to patch the release, and the controller acts on it.\n\n" + codes,
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
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/%s %s\n", key.Kind.Resource(), key.Name, o.said(key.Kind, full))
			return err
		},
	}
	c.register(cmd, false)
	if o.order == cluster.Promote {
		cmd.Flags().BoolVar(&full, "full", false, "of a Rollout: skip all steps, pauses and analyses that are left")
	}
	return cmd
}
