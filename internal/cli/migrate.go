package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/migrate"
	"github.com/serin-dev/serin/internal/cli/view"
)

func migrateCommand(connect connector) *cobra.Command {
	c := common{connect: connect}
	format, check := "", false
	cmd := &cobra.Command{
		Use: "migrate --check", Short: "Say what would happen if Serin took over from Flagger and Argo Rollouts", Args: checked(cobra.NoArgs),
		Long: `Says of every Canary and every Rollout what would happen if Serin took over from Flagger and Argo Rollouts now: whether
it would be taken over at rest, go on in the middle of a release, start one, or need you first, and which objects would be
changed. It reads with your rights
and changes nothing: what it says is what Serin's own first passes over these objects decide, played without writing.

Exit codes: 0 nothing stands in the way, 7 something has to be looked at first, 2 wrong usage, 6 cluster unreachable or
forbidden. A living Flagger or Argo Rollouts is said, and does not count: it is stopped when you are ready.`,
		Example: "  serin migrate --check -A\n  serin migrate --check -n shop -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !check {
				return exit(ExitUsage, errors.New("give --check: this version looks, and changes nothing"))
			}
			if !slices.Contains([]string{formatTable, formatJSON, formatYAML}, format) {
				return exit(ExitUsage, fmt.Errorf("--output is %q: give json or yaml", format))
			}
			session, sel, err := c.open(nil, args)
			if err != nil {
				return err
			}
			survey, err := session.Survey(cmd.Context(), sel)
			if err != nil {
				return err
			}
			report := migrate.Of(survey, session.Clock.Now())
			if err := printReport(cmd, format, report); err != nil {
				return err
			}
			if !report.Ready {
				return exit(ExitCheck, errors.New("some releases have to be looked at before Serin takes over"))
			}
			return nil
		},
	}
	c.register(cmd, true)
	cmd.Flags().BoolVar(&check, "check", false, "look, and change nothing")
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml; without it, sentences")
	return cmd
}

func printReport(cmd *cobra.Command, format string, report migrate.Report) error {
	out := cmd.OutOrStdout()
	if format != formatTable {
		return document(out, format, report)
	}
	columns := unwrapped
	if width, ok := screenOf(out); ok {
		columns = width
	}
	_, err := fmt.Fprint(out, view.Sentences(report.Paragraphs(), columns, paintFor(out)))
	return err
}
