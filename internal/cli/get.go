package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
)

func getCommand(connect connector) *cobra.Command {
	c := common{connect: connect}
	format := ""
	cmd := &cobra.Command{
		Use: "get [NAME...]", Short: "List releases and what they wait for", Args: checked(cobra.ArbitraryArgs),
		Long: `Lists releases: how far each has come, how many checks failed of how many allowed, and the first gate that it waits
for. It looks at the cluster with your rights and works without a running controller too.

` + codes + `
get ends with 0 whatever state the releases are in; 2, 5 and 6 as above.`,
		Example: "  serin get -A\n  serin get cart -o yaml\n  serin get -l team=shop -o wide",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{formatTable, formatWide, formatJSON, formatYAML, formatName}, format) {
				return exit(ExitUsage, fmt.Errorf("--output is %q: give wide, json, yaml or name", format))
			}
			session, sel, err := c.open(args)
			if err != nil {
				return err
			}
			seen, controller, err := session.Look(cmd.Context(), sel)
			if err != nil {
				return err
			}
			now := session.Clock.Now()
			list := List{Controller: controller, Releases: make([]explain.Release, 0, len(seen))}
			for _, one := range seen {
				list.Releases = append(list.Releases, explain.Of(one, now))
			}
			out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
			if format == formatJSON || format == formatYAML {
				return document(out, format, list)
			}
			if note := controller.Note(); note != "" && len(seen) > 0 {
				_, _ = fmt.Fprintln(notes, note)
			}
			if format == formatName {
				for _, r := range list.Releases {
					_, _ = fmt.Fprintln(out, "canary.flagger.app/"+r.Name)
				}
				return nil
			}
			if len(seen) == 0 {
				_, _ = fmt.Fprintln(notes, "No releases were found. Those of other namespaces are listed with -A.")
				return nil
			}
			_, err = fmt.Fprint(out, view.Table(list.Releases, now, view.TableOptions{
				Namespaces: c.allNamespaces, Wide: format == formatWide, Paint: paintFor(out),
			}))
			for _, unread := range unreadOf(list.Releases) {
				_, _ = fmt.Fprintln(notes, unread)
			}
			return err
		},
	}
	c.register(cmd, true)
	cmd.Flags().StringVarP(&format, "output", "o", "", "wide, json, yaml or name")
	return cmd
}

// unreadOf says each sentence once.
func unreadOf(releases []explain.Release) []string {
	var out []string
	for _, r := range releases {
		for _, unread := range r.Unread {
			if !slices.Contains(out, unread) {
				out = append(out, unread)
			}
		}
	}
	return out
}
