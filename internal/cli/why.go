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

func whyCommand(connect connector) *cobra.Command {
	c := common{connect: connect}
	format := ""
	cmd := &cobra.Command{
		Use: "why NAME", Short: "Explain why a release is waiting", Args: checked(cobra.ExactArgs(1)),
		Long: `Explains the progress of a release, what it waits for with value, limit and query, since when, who can open that and how,
and the next step. It reads the cluster with your permissions, calls no webhook and queries no metrics provider, and also
works without a running controller.

` + codes + `
For why, 0 means that the release is in progress, or idle after a success; 1 that the last release failed or is being rolled
back; 3 that user action is required.`,
		Example: "  serin why cart -n shop\n  serin why rollout/cart -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{formatTable, formatJSON, formatYAML}, format) {
				return exit(ExitUsage, fmt.Errorf("--output %q is invalid: use json or yaml", format))
			}
			session, sel, err := c.open(nil, args)
			if err != nil {
				return err
			}
			seen, err := session.Observe(cmd.Context(), sel)
			if err != nil {
				return err
			}
			now := session.Clock.Now()
			r := seen.Releases[0].Describe(now)
			answer := Answer{Controller: seen.Controller, Sentences: explain.Why(r, now), Release: r}
			if note := seen.Controller.Note(); note != "" {
				answer.Sentences = append([]string{note}, answer.Sentences...)
			}
			if err := printAnswer(cmd.OutOrStdout(), format, answer); err != nil {
				return err
			}
			return outcome(&r)
		},
	}
	c.register(cmd, false)
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml; default: text")
	return cmd
}

// unwrapped is wider than any terminal: lines in a file or a pipe are not wrapped.
const unwrapped = 1 << 20

func printAnswer(out io.Writer, format string, answer Answer) error {
	if format != formatTable {
		return document(out, format, answer)
	}
	columns := unwrapped
	if width, ok := screenOf(out); ok {
		columns = width
	}
	_, err := fmt.Fprint(out, view.Sentences(answer.Sentences, columns, paintFor(out)))
	return err
}

// outcome is the state of a release as an exit code.
func outcome(r *explain.Release) error {
	switch {
	case r.State == release.WaitsForUser:
		return exit(ExitPerson, fmt.Errorf("%s waits for user action", r.FullName()))
	case r.State == release.RollingBack:
		return exit(ExitFailed, fmt.Errorf("%s is being rolled back", r.FullName()))
	case r.State == release.Idle && r.Result == release.RolledBack:
		return exit(ExitFailed, fmt.Errorf("the last release of %s failed", r.FullName()))
	default:
		return nil
	}
}
