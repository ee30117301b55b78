package cli

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
)

func getCommand(connect connector) *cobra.Command {
	c := common{connect: connect}
	format := ""
	cmd := &cobra.Command{
		Use: "get [KIND] [NAME...]", Short: "List releases and what they wait for", Args: checked(cobra.ArbitraryArgs),
		Long: `Lists releases by Canaries and Rollouts: their progress, the number of failed checks and the limit, and the first gate that
each waits for. It reads the cluster with your permissions, and also works without a running controller.

` + codes + `
get exits with 0 regardless of the state of the releases; 2, 5 and 6 as above.`,
		Example: "  serin get -A\n  serin get rollouts\n  serin get rollout/cart -o yaml\n  serin get -l team=shop -o wide",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{formatTable, formatWide, formatJSON, formatYAML, formatName}, format) {
				return exit(ExitUsage, fmt.Errorf("--output %q is invalid: use wide, json, yaml or name", format))
			}
			kinds, names := kindsOf(args)
			session, sel, err := c.open(kinds, names)
			if err != nil {
				return err
			}
			seen, err := session.Observe(cmd.Context(), sel)
			if err != nil {
				return err
			}
			list := listOf(seen, session.Clock.Now())
			out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
			if format == formatJSON || format == formatYAML {
				return document(out, format, list)
			}
			if note := list.Controller.Note(); note != "" && len(list.Releases) > 0 {
				_, _ = fmt.Fprintln(notes, note)
			}
			if format == formatName {
				for _, r := range list.Releases {
					_, _ = fmt.Fprintln(out, r.Kind.Resource()+"/"+r.Name)
				}
				return nil
			}
			return c.table(out, notes, list, format == formatWide, session.Clock.Now())
		},
	}
	c.register(cmd, true)
	cmd.Flags().StringVarP(&format, "output", "o", "", "wide, json, yaml or name")
	return cmd
}

// table prints releases as a table, and to notes what could not be read.
func (c *common) table(out, notes io.Writer, list List, wide bool, now time.Time) error {
	if len(list.Releases) == 0 {
		_, _ = fmt.Fprintln(notes, "No releases were found. Use -A to list those in all namespaces.")
		return nil
	}
	_, err := fmt.Fprint(out, view.Table(list.Releases, now, view.TableOptions{Namespaces: c.allNamespaces, Wide: wide, Paint: paintFor(out)}))
	for _, unread := range unreadOf(list) {
		_, _ = fmt.Fprintln(notes, unread)
	}
	return err
}

// listOf is the document of an observation.
func listOf(seen cluster.Observations, now time.Time) List {
	list := List{Controller: seen.Controller, Unread: seen.Unread, Releases: make([]explain.Release, 0, len(seen.Releases))}
	for _, one := range seen.Releases {
		list.Releases = append(list.Releases, one.Describe(now))
	}
	return list
}

// unreadOf contains each sentence once.
func unreadOf(list List) []string {
	out := slices.Clone(list.Unread)
	for _, r := range list.Releases {
		for _, unread := range r.Unread {
			if !slices.Contains(out, unread) {
				out = append(out, unread)
			}
		}
	}
	return out
}
