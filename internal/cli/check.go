package cli

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/check"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/view"
)

func newCheckCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	format, prometheus, before := "", "", false
	formats := []string{formatTable, formatJSON, formatYAML, formatJSONPath}
	cmd := &cobra.Command{
		Use: "check [NAME]", Short: "Check a cluster and a release before anything fails", Args: asUsageErrors(cobra.MaximumNArgs(1)),
		Long: `Checks the cluster: its definitions, the controller and other controllers, your permissions and those of the controller. With
NAME, also the release: its spec, target, primary, Services, autoscaler, route and its Gateway, references, disruption budgets,
webhooks, and each metric, whose query is sent once for the version that serves users. Queries are sent to Services of the
cluster through the API server, with your permissions (get on services/proxy), and to no other address; webhooks are not
called. Nothing is changed.

With --pre, before the installation: whether you may install Serin, and which other controllers run.

Exit codes: 0 nothing failed, 2 usage error, 5 not found, 6 cluster unreachable or access denied, 7 a check failed. Warnings
and skipped checks do not change the exit code.`,
		Example: "  serin check --pre\n  serin check cart -n shop\n  serin check cart --prometheus http://localhost:9090",
		RunE: func(cmd *cobra.Command, args []string) error {
			output, err := parseOutput(format, formats)
			if err != nil {
				return err
			}
			request := cluster.CheckRequest{Before: before}
			if before && len(args) > 0 {
				return withExitCode(ExitUsage, errors.New("--pre checks a cluster without Serin: omit the name of the release"))
			}
			if prometheus != "" {
				if request.Prometheus, err = parseServer(prometheus); err != nil {
					return withExitCode(ExitUsage, fmt.Errorf("read --prometheus: %w", err))
				}
			}
			session, sel, err := c.openSession(nil, args)
			if err != nil {
				return err
			}
			request.Namespace = sel.Namespace
			if len(sel.Names) > 0 {
				request.Release = &sel.Names[0]
			}
			report, err := session.Check(cmd.Context(), request)
			if err != nil {
				return err
			}
			if output.isDocument() {
				err = output.printDocument(cmd.OutOrStdout(), report)
			} else {
				columns := unlimitedColumns
				if width, ok := terminalWidth(cmd.OutOrStdout()); ok {
					columns = width
				}
				_, err = fmt.Fprint(cmd.OutOrStdout(), view.Check(report, columns, paintFor(cmd.OutOrStdout())))
			}
			if failed := report.Count(check.Failed); failed > 0 && err == nil {
				return withExitCode(ExitCheck, fmt.Errorf("checks failed: %d", failed))
			}
			return err
		},
	}
	c.register(cmd, false)
	cmd.Flags().BoolVar(&before, "pre", false, "check a cluster before the installation of Serin")
	cmd.Flags().StringVar(&prometheus, "prometheus", "", "URL of a Prometheus that answers all queries, in place of the servers that they name")
	registerOutput(cmd, &format, formats)
	return acceptKind(cmd)
}

// parseServer parses the URL of a server.
func parseServer(text string) (*url.URL, error) {
	address, err := url.Parse(text)
	if err != nil || address.Scheme != "http" && address.Scheme != "https" || address.Host == "" {
		return nil, fmt.Errorf("%q is not the URL of a server: use for example http://localhost:9090", text)
	}
	return address, nil
}
