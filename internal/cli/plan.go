package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/plan"
	"github.com/serin-dev/serin/internal/cli/view"
)

func newPlanCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	format, file := "", ""
	formats := []string{formatTable, formatJSON, formatYAML, formatJSONPath}
	cmd := &cobra.Command{
		Use: "plan NAME | -f FILE", Short: "Show what a release would do", Args: asUsageErrors(cobra.MaximumNArgs(1)),
		Long: `Plays a release in memory, with the state machine of the controller, and shows its steps with weights, pods and earliest times,
its shortest and longest duration, and the queries and webhooks that it calls, with the number of requests that a verdict needs. In the plan, pods are ready at once, checks pass
and webhooks approve. Nothing is changed, called or queried.

With -f, the command reads manifests and needs no cluster; - is the standard input. Deployments, MetricTemplates,
AnalysisTemplates and the ConfigMap of plugins in the same file are used. With NAME, it reads the release and these objects from the cluster.

Exit codes: 0 success, 2 usage error, 5 not found, 6 cluster unreachable or access denied, 7 the spec is invalid, or the release
never ends.`,
		Example: "  serin plan -f canary.yaml\n  kustomize build | serin plan -f -\n  serin plan cart -n shop -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			output, err := parseOutput(format, formats)
			if err != nil {
				return err
			}
			if (file == "") == (len(args) == 0) {
				return withExitCode(ExitUsage, errors.New("use either the name of a release in the cluster or -f FILE"))
			}
			var inputs []plan.Input
			if file != "" {
				inputs, err = c.readPlanInputs(cmd.InOrStdin(), file)
			} else {
				inputs, err = c.observePlanInput(cmd.Context(), args)
			}
			if err != nil {
				return planError(err)
			}
			return printPlans(cmd.OutOrStdout(), output, inputs)
		},
	}
	c.register(cmd, false)
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file with manifests; -: standard input")
	registerOutput(cmd, &format, formats)
	return acceptKind(cmd)
}

// defaultNamespace is the namespace of manifests without one, as in kubectl without a context.
const defaultNamespace = "default"

// readPlanInputs reads the releases of a file.
func (c *commonFlags) readPlanInputs(stdin io.Reader, file string) ([]plan.Input, error) {
	in, source := stdin, "the standard input"
	if file != "-" {
		opened, err := os.Open(file) //nolint:gosec // the user names the file
		if err != nil {
			return nil, withExitCode(ExitUsage, fmt.Errorf("read --filename: %w", err))
		}
		defer opened.Close()
		in, source = opened, file
	}
	namespace := c.connection.overrides.Context.Namespace
	if namespace == "" {
		namespace = defaultNamespace
	}
	manifests, err := plan.ReadManifests(in, namespace)
	if err != nil {
		return nil, withExitCode(ExitUsage, fmt.Errorf("read %s: %w", source, err))
	}
	return manifests.Inputs(cluster.PlanController(c.controllerFlags)), nil
}

// observePlanInput reads one release of the cluster.
func (c *commonFlags) observePlanInput(ctx context.Context, args []string) ([]plan.Input, error) {
	session, sel, err := c.openSession(nil, args)
	if err != nil {
		return nil, err
	}
	input, err := session.PlanInput(ctx, sel.Namespace, sel.Names[0])
	return []plan.Input{input}, err
}

// planError returns an error about an invalid spec with its exit code.
func planError(err error) error {
	if invalid, ok := errors.AsType[*plan.InvalidError](err); ok {
		return withExitCode(ExitCheck, invalid)
	}
	return err
}

// printPlans prints the plans of all releases. Those of valid ones are printed although others are invalid.
func printPlans(out io.Writer, output output, inputs []plan.Input) error {
	document := plan.Document{Plans: []plan.Plan{}}
	var failures []error
	for _, input := range inputs {
		p, err := plan.New(input)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		document.Plans = append(document.Plans, p)
	}
	if output.isDocument() {
		if err := output.printDocument(out, document); err != nil {
			return err
		}
	} else {
		columns := unlimitedColumns
		if width, ok := terminalWidth(out); ok {
			columns = width
		}
		for i := range document.Plans {
			text := view.Plan(&document.Plans[i], columns, paintFor(out))
			if i > 0 {
				text = "\n" + text
			}
			if _, err := fmt.Fprint(out, text); err != nil {
				return err
			}
		}
	}
	if len(failures) > 0 {
		return withExitCode(ExitCheck, errors.Join(failures...))
	}
	return nil
}
