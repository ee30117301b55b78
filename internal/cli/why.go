package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
	"github.com/serin-dev/serin/internal/release"
)

func newWhyCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	format := ""
	formats := []string{formatTable, formatJSON, formatYAML, formatName, formatJSONPath}
	cmd := &cobra.Command{
		Use: "why [KIND] NAME", Short: "Explain why a release is waiting", Args: asUsageErrors(cobra.RangeArgs(1, 2)),
		Long: `Explains the progress of a release, what it waits for with value, limit and query, since when, who can open that and how,
and the next step. It reads the cluster with your permissions, calls no webhook and queries no metrics provider, and also
works without a running controller.

` + exitCodesHelp + `
For why, 0 means that the release is in progress, or idle after a success; 1 that the last release failed, exceeded its progress
deadline or is being rolled back; 3 that user action is required.`,
		Example: "  serin why cart -n shop\n  serin why rollout/cart -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			output, err := parseOutput(format, formats)
			if err != nil {
				return err
			}
			kinds, names := splitKind(args)
			if len(names) != 1 {
				return withExitCode(ExitUsage, fmt.Errorf("got %d names: why explains one release: see %s --help", len(names), cmd.CommandPath()))
			}
			session, sel, err := c.openSession(kinds, names)
			if err != nil {
				return err
			}
			observations, err := session.Observe(cmd.Context(), sel)
			if err != nil {
				return err
			}
			now := session.Clock.Now()
			r := observations.Releases[0].Describe(now)
			explanation := explain.Explanation{Controller: observations.Controller, Sentences: explain.Why(r, now), Release: r}
			if note := observations.Controller.Note(); note != "" {
				explanation.Sentences = append([]string{note}, explanation.Sentences...)
			}
			if err := printExplanation(cmd.OutOrStdout(), output, explanation); err != nil {
				return err
			}
			return exitErrorOf(&r)
		},
	}
	c.register(cmd, false)
	registerOutput(cmd, &format, formats)
	return cmd
}

// unlimitedColumns is wider than any terminal, so that lines in a file or a pipe are not wrapped.
const unlimitedColumns = 1 << 20

func printExplanation(out io.Writer, output output, explanation explain.Explanation) error {
	if output.isDocument() {
		return output.printDocument(out, explanation)
	}
	if output.format == formatName {
		_, err := fmt.Fprintln(out, explanation.Release.Kind.Resource()+"/"+explanation.Release.Name)
		return err
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
	case r.TimedOut:
		return withExitCode(ExitFailed, fmt.Errorf("%s exceeded its progress deadline", r.FullName()))
	case r.State == release.WaitsForUser:
		return withExitCode(ExitUserAction, fmt.Errorf("%s waits for user action", r.FullName()))
	case r.State == release.RollingBack:
		return withExitCode(ExitFailed, fmt.Errorf("%s is being rolled back", r.FullName()))
	case r.HasFailed():
		return withExitCode(ExitFailed, fmt.Errorf("the last release of %s failed", r.FullName()))
	default:
		return nil
	}
}
