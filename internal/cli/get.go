package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
)

func newGetCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	format, watches, tree := "", false, false
	formats := []string{formatTable, formatWide, formatJSON, formatYAML, formatName, formatJSONPath}
	cmd := &cobra.Command{
		Use: "get [KIND] [NAME...]", Short: "List releases and what they wait for", Args: asUsageErrors(cobra.ArbitraryArgs),
		Long: `Lists releases by Canaries and Rollouts: their progress, the number of failed checks and the limit, and the first gate that
each waits for. For one name it then prints the tree of the release: its revisions with their images and weights, their
ReplicaSets and pods, and the closed gates. It reads the cluster with your permissions, and also works without a running
controller.

` + exitCodesHelp + `
get exits with 0 regardless of the state of the releases; 2, 5 and 6 as above.`,
		Example: "  serin get -A\n  serin get rollouts\n  serin get cart\n  serin get rollout/cart -o yaml\n  serin get -l team=shop -o wide\n  serin get -o jsonpath='{.releases[*].phase}'",
		RunE: func(cmd *cobra.Command, args []string) error {
			output, err := parseOutput(format, formats)
			if err != nil {
				return err
			}
			switch {
			case watches && format != formatTable:
				return withExitCode(ExitUsage, errors.New("--watch and --output exclude each other: --watch is the same as serin watch"))
			case tree && watches:
				return withExitCode(ExitUsage, errors.New("--watch and --tree exclude each other"))
			case tree && format == formatName:
				return withExitCode(ExitUsage, errors.New("--output name and --tree exclude each other"))
			}
			kinds, names := splitKind(args)
			session, sel, err := c.openSession(kinds, names)
			if err != nil {
				return err
			}
			if watches {
				return (&releaseWatch{session: session, sel: sel}).run(cmd, false)
			}
			observations, err := session.Observe(cmd.Context(), sel)
			if err != nil {
				return err
			}
			list := newList(observations, session.Clock.Now())
			if !cmd.Flags().Changed("tree") {
				tree = format == formatTable && len(sel.Names) == 1
			}
			if tree {
				if err := readTrees(cmd.Context(), session, observations, list.Releases); err != nil {
					return err
				}
			}
			out, notes := cmd.OutOrStdout(), plainErr(cmd)
			if output.isDocument() {
				return output.printDocument(out, list)
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
			return c.printTable(out, notes, list, format == formatWide, session.Clock.Now())
		},
	}
	c.register(cmd, true)
	registerOutput(cmd, &format, formats)
	cmd.Flags().BoolVar(&tree, "tree", false, "print each release with its revisions, ReplicaSets, pods and closed gates (default: true for the table of one name)")
	cmd.Flags().BoolVarP(&watches, "watch", "w", false, "follow the releases live, as serin watch does")
	return cmd
}

// noneFound is the message of a list without objects.
func (c *commonFlags) noneFound(kind string) string {
	if c.allNamespaces {
		return "No " + kind + " were found."
	}
	return "No " + kind + " were found. Use -A to list those in all namespaces."
}

// printTable prints releases as a table, and the messages about unread objects to notes.
func (c *commonFlags) printTable(out, notes io.Writer, list explain.List, wide bool, now time.Time) error {
	if len(list.Releases) == 0 {
		_, _ = fmt.Fprintln(notes, c.noneFound("releases"))
		return nil
	}
	_, err := fmt.Fprint(out, view.Table(list.Releases, now, view.TableOptions{Namespaces: c.allNamespaces, Wide: wide, Paint: paintFor(out)}))
	if err == nil {
		err = printTrees(out, list.Releases, now)
	}
	for _, unread := range unreadMessages(list) {
		_, _ = fmt.Fprintln(notes, unread)
	}
	return err
}

// readTrees adds the trees to the descriptions of the observed releases.
func readTrees(ctx context.Context, session *cluster.Session, observations cluster.Observations, releases []explain.Release) error {
	for i, one := range observations.Releases {
		tree, err := session.Tree(ctx, one, session.Clock.Now())
		if err != nil {
			return err
		}
		releases[i].Tree = &tree
	}
	return nil
}

// printTrees prints the trees that were read, each after an empty line.
func printTrees(out io.Writer, releases []explain.Release, now time.Time) error {
	options := view.TreeOptions{Paint: paintFor(out)}
	if columns, ok := terminalWidth(out); ok {
		options.Columns = columns
	}
	for i := range releases {
		if releases[i].Tree == nil {
			continue
		}
		if _, err := fmt.Fprint(out, "\n"+view.Tree(&releases[i], now, options)); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// newList describes the observed releases at that time.
func newList(observations cluster.Observations, now time.Time) explain.List {
	list := explain.List{Controller: observations.Controller, Unread: observations.Unread, Releases: make([]explain.Release, 0, len(observations.Releases))}
	for _, one := range observations.Releases {
		list.Releases = append(list.Releases, one.Describe(now))
	}
	return list
}

// unreadMessages returns the messages about unread objects, each of them once.
func unreadMessages(list explain.List) []string {
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
