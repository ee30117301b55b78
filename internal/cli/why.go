package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
	"github.com/serin-dev/serin/internal/release"
)

func newWhyCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	format := ""
	cmd := &cobra.Command{
		Use: "why NAME", Short: "Explain why a release is waiting", Args: asUsageErrors(cobra.ExactArgs(1)),
		Long: `Explains the progress of a release, what it waits for with value, limit and query, since when, who can open that and how,
and the next step. It reads the cluster with your permissions, calls no webhook and queries no metrics provider, and also
works without a running controller.

` + exitCodesHelp + `
For why, 0 means that the release is in progress, or idle after a success; 1 that the last release failed or is being rolled
back; 3 that user action is required.`,
		Example: "  serin why cart -n shop\n  serin why rollout/cart -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{formatTable, formatJSON, formatYAML}, format) {
				return withExitCode(ExitUsage, fmt.Errorf("--output %q is invalid: use json or yaml", format))
			}
			session, sel, err := c.openSession(nil, args)
			if err != nil {
				return err
			}
			observations, err := session.Observe(cmd.Context(), sel)
			if err != nil {
				return err
			}
			now := session.Clock.Now()
			r := observations.Releases[0].Describe(now)
			explanation := Explanation{Controller: observations.Controller, Sentences: explain.Why(r, now), Release: r}
			if note := observations.Controller.Note(); note != "" {
				explanation.Sentences = append([]string{note}, explanation.Sentences...)
			}
			if err := printExplanation(cmd.OutOrStdout(), format, explanation); err != nil {
				return err
			}
			return exitErrorOf(&r)
		},
	}
	c.register(cmd, false)
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml; default: text")
	return cmd
}

// unlimitedColumns is wider than any terminal, so that lines in a file or a pipe are not wrapped.
const unlimitedColumns = 1 << 20

func printExplanation(out io.Writer, format string, explanation Explanation) error {
	if format != formatTable {
		return printDocument(out, format, explanation)
	}
	columns := unlimitedColumns
	if width, ok := terminalWidth(out); ok {
		columns = width
	}
	_, err := fmt.Fprint(out, view.WrapParagraphs(explanation.Sentences, columns, paintFor(out)))
	return err
}

// exitErrorOf returns an error with the exit code for the state of a release; nil: the code is 0.
func exitErrorOf(r *explain.Release) error {
	switch {
	case r.State == release.WaitsForUser:
		return withExitCode(ExitUserAction, fmt.Errorf("%s waits for user action", r.FullName()))
	case r.State == release.RollingBack:
		return withExitCode(ExitFailed, fmt.Errorf("%s is being rolled back", r.FullName()))
	case r.State == release.Idle && r.Result == release.RolledBack:
		return withExitCode(ExitFailed, fmt.Errorf("the last release of %s failed", r.FullName()))
	default:
		return nil
	}
}
