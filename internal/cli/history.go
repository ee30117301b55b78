package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/view"
)

func newHistoryCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	format := ""
	cmd := &cobra.Command{
		Use: "history NAME", Short: "List the last releases and why they failed", Args: asUsageErrors(cobra.ExactArgs(1)),
		Long: `Lists the last ten releases of a Canary, newest first, with their images, result, highest weight and the cause of a failure. They
are in its status, also after Kubernetes has deleted the events. For a Rollout, lists the revisions whose ReplicaSets remain.

` + exitCodesHelp,
		Example: "  serin history cart -n shop\n  serin history rollout/web -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{formatTable, formatJSON, formatYAML}, format) {
				return withExitCode(ExitUsage, fmt.Errorf("--output %q is invalid: use json or yaml", format))
			}
			session, sel, err := c.openSession(nil, args)
			if err != nil {
				return err
			}
			history, err := session.History(cmd.Context(), sel.Namespace, sel.Names[0])
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if format != formatTable {
				return printDocument(out, format, history)
			}
			if len(history.Releases) == 0 {
				_, err := fmt.Fprintf(plainErr(cmd), "No release of %s/%s is recorded yet.\n", history.Kind.Resource(), history.Name)
				return err
			}
			_, err = fmt.Fprint(out, view.HistoryTable(history, paintFor(out)))
			return err
		},
	}
	c.register(cmd, false)
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml")
	return acceptKind(cmd)
}
