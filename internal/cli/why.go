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
		Use: "why NAME", Short: "Say why a release does not move", Args: checked(cobra.ExactArgs(1)),
		Long: `Says in sentences where a release stands, what it waits for with value, limit and query, since when, who opens that
and how, and what happens next. It looks at the cluster with your rights, asks no webhook and no metrics provider, and
works without a running controller too.

` + codes + `
For why, 0 means that the release moves by itself or is at rest after a success; 1 that the last one failed or that it
is being taken back; 3 that it goes on when a person does what is said.`,
		Example: "  serin why cart -n shop\n  serin why rollout/cart -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{formatTable, formatJSON, formatYAML}, format) {
				return exit(ExitUsage, fmt.Errorf("--output is %q: give json or yaml", format))
			}
			session, sel, err := c.open(nil, args)
			if err != nil {
				return err
			}
			seen, err := session.Look(cmd.Context(), sel)
			if err != nil {
				return err
			}
			now := session.Clock.Now()
			r := seen.Releases[0].At(now)
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
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml; without it, sentences")
	return cmd
}

// unwrapped is wider than any terminal: who reads a file or a pipe breaks lines alone.
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
		return exit(ExitPerson, fmt.Errorf("%s waits for a person", r.FullName()))
	case r.State == release.RollingBack:
		return exit(ExitFailed, fmt.Errorf("%s is being taken back", r.FullName()))
	case r.State == release.Idle && r.Result == release.RolledBack:
		return exit(ExitFailed, fmt.Errorf("the last release of %s failed", r.FullName()))
	default:
		return nil
	}
}
