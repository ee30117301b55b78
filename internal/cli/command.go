package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
)

// order is a command by which a person steers a release.
type order struct {
	verb, short, long, done string
	give                    func(s *cluster.Session, ctx context.Context, namespace, name string) error
}

// orders are the commands that change something: one field or one annotation of the Canary. It is never changed.
var orders = []order{
	{
		"promote", "Let a release go on to its promotion, without further checks",
		"Starts a release that waits, or promotes one that is being observed, without asking further checks or webhooks.", "is to be promoted",
		(*cluster.Session).Promote,
	},
	{
		"abort", "Take a release back",
		"Sends all requests back to the version before, takes the new pods away and ends the release as failed.", "is to be taken back",
		(*cluster.Session).Abort,
	},
	{
		"retry", "Release the revision that failed once more",
		"Starts the release of a revision that failed once more, without a change of it.", "is to be released again",
		(*cluster.Session).Retry,
	},
	{"pause", "Stop where the release stands", "Sets spec.suspend: nothing moves until resume, the traffic included.", "is paused", (*cluster.Session).Pause},
	{"resume", "Go on after a pause", "Takes spec.suspend back. A window that is over by then is judged at once.", "goes on", (*cluster.Session).Resume},
}

func orderCommand(connect connector, o order) *cobra.Command {
	c := common{connect: connect}
	cmd := &cobra.Command{
		Use: o.verb + " NAME", Short: o.short, Args: checked(cobra.ExactArgs(1)),
		Long:    o.long + " It needs the right to patch Canaries, and the controller acts on it.\n\n" + codes,
		Example: "  serin " + o.verb + " cart -n shop && serin watch cart -n shop --until done",
		RunE: func(cmd *cobra.Command, args []string) error {
			session, sel, err := c.open(args)
			if err != nil {
				return err
			}
			err = o.give(session, cmd.Context(), sel.Namespace, sel.Names[0])
			switch {
			case errors.Is(err, cluster.ErrPointless):
				return exit(ExitUsage, err)
			case err != nil:
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "canary.flagger.app/%s %s\n", sel.Names[0], o.done)
			return err
		},
	}
	c.register(cmd, false)
	return cmd
}
