package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
)

// Top is the document of top -o json and -o yaml. Fields are added to it, never renamed or removed.
type Top struct {
	// Controller reports whether a controller acts on the releases.
	Controller explain.Controller `json:"controller"`

	explain.Top

	// Unread has one sentence for each kind of release that the user has no permission to list.
	Unread []string `json:"unread,omitempty"`
}

func newTopCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	format, watches := "", false
	formats := []string{formatTable, formatJSON, formatYAML, formatName, formatJSONPath}
	cmd := &cobra.Command{
		Use: "top [KIND]", Short: "List the releases in progress, those that need you first", Args: asUsageErrors(cobra.MaximumNArgs(1)),
		Long: `Lists the releases in progress by urgency: those that wait for user action, those that roll back, those that advance, and those
in the queue. Within each of them, the one that has waited longest is first. Idle releases are only counted. OVERDUE is the time
for which the next step has been due without a reaction of the controller. It reads the cluster with your permissions, and also works without a running controller.

` + exitCodesHelp + `
top exits with 0 regardless of the state of the releases; 2, 5 and 6 as above.`,
		Example: "  serin top -A\n  serin top -A -w\n  serin top rollouts -l team=shop\n  serin top -A -o jsonpath='{.summary.needUser}'",
		RunE: func(cmd *cobra.Command, args []string) error {
			output, err := parseOutput(format, formats)
			if err != nil {
				return err
			}
			if watches && format != formatTable {
				return withExitCode(ExitUsage, errors.New("--watch and --output exclude each other"))
			}
			kinds, names := splitKind(args)
			if len(names) > 0 {
				return withExitCode(ExitUsage, fmt.Errorf("%q is not a kind of release: use canaries or rollouts: to show one release, use serin get NAME", names[0]))
			}
			session, sel, err := c.openSession(kinds, nil)
			if err != nil {
				return err
			}
			if watches {
				return (&releaseWatch{session: session, sel: sel, byUrgency: true}).run(cmd, false)
			}
			observations, err := session.Observe(cmd.Context(), sel)
			if err != nil {
				return err
			}
			now := session.Clock.Now()
			top := Top{Controller: observations.Controller, Top: explain.NewTop(observations.Releases, now), Unread: observations.Unread}
			out := cmd.OutOrStdout()
			switch {
			case output.isDocument():
				return output.printDocument(out, top)
			case format == formatName:
				return printTopNames(out, top)
			}
			notes := plainErr(cmd)
			if note := top.Controller.Note(); note != "" && len(observations.Releases) > 0 {
				_, _ = fmt.Fprintln(notes, note)
			}
			if len(observations.Releases) == 0 {
				_, _ = fmt.Fprintln(notes, c.noneFound("releases"))
				return nil
			}
			_, err = fmt.Fprint(out, view.Top(top.Top, now, view.TopOptions{Namespaces: c.allNamespaces, Paint: paintFor(out)}))
			for _, unread := range unreadMessages(newList(observations, now)) {
				_, _ = fmt.Fprintln(notes, unread)
			}
			return err
		},
	}
	c.register(cmd, true)
	cmd.ValidArgsFunction = completeWords([]string{"canaries", "rollouts"})
	registerOutput(cmd, &format, formats)
	cmd.Flags().BoolVarP(&watches, "watch", "w", false, "follow the releases live in this order, as serin watch does")
	return cmd
}

func printTopNames(out io.Writer, top Top) error {
	for i := range top.Releases {
		if _, err := fmt.Fprintln(out, top.Releases[i].Kind.Resource()+"/"+top.Releases[i].Name); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}
