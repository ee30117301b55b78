package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/migrate"
	"github.com/serin-dev/serin/internal/cli/view"
)

func newMigrateCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	format, check := "", false
	cmd := &cobra.Command{
		Use: "migrate --check", Short: "Report what would happen if Serin took over from Flagger and Argo Rollouts", Args: asUsageErrors(cobra.NoArgs),
		Long: `Reports for every Canary and every Rollout what would happen if Serin took over from Flagger and Argo Rollouts now: whether
it would be adopted while idle, continue a release in progress, start one, or require user action first, and which objects
would be changed. It reads with your permissions and changes nothing: the report contains the decisions of Serin's first
reconciliations of these objects, rehearsed without writing.

Exit codes: 0 no findings, 7 a release requires attention first, 2 usage error, 6 cluster unreachable or access denied. A
running Flagger or Argo Rollouts is reported, and is no finding: you stop it when you are ready.`,
		Example: "  serin migrate --check -A\n  serin migrate --check -n shop -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !check {
				return withExitCode(ExitUsage, errors.New("--check is required: this version only reports"))
			}
			if !slices.Contains([]string{formatTable, formatJSON, formatYAML}, format) {
				return withExitCode(ExitUsage, fmt.Errorf("--output %q is invalid: use json or yaml", format))
			}
			session, sel, err := c.openSession(nil, args)
			if err != nil {
				return err
			}
			survey, err := session.Survey(cmd.Context(), sel)
			if err != nil {
				return err
			}
			report := migrate.NewReport(survey, session.Clock.Now())
			if err := printReport(cmd, format, report); err != nil {
				return err
			}
			if !report.Ready {
				return withExitCode(ExitCheck, errors.New("some releases require attention before Serin takes over"))
			}
			return nil
		},
	}
	c.register(cmd, true)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().BoolVar(&check, "check", false, "report only, change nothing")
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml; default: text")
	return cmd
}

func printReport(cmd *cobra.Command, format string, report migrate.Report) error {
	out := cmd.OutOrStdout()
	if format != formatTable {
		return printDocument(out, format, report)
	}
	columns := unlimitedColumns
	if width, ok := terminalWidth(out); ok {
		columns = width
	}
	_, err := fmt.Fprint(out, view.WrapParagraphs(report.Paragraphs(), columns, paintFor(out)))
	return err
}
