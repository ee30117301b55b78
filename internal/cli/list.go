package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
)

func newListCommand(connect connector) *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List Experiments", Args: asUsageErrors(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if kinds, _ := splitKind(args); len(kinds) > 0 {
				return withExitCode(ExitUsage, fmt.Errorf("releases are listed by: serin get %s", args[0]))
			}
			return withExitCode(ExitUsage, fmt.Errorf("use %s experiments; serin get lists releases", cmd.CommandPath()))
		},
	}
	list.AddCommand(newListExperimentsCommand(connect))
	return list
}

func newListExperimentsCommand(connect connector) *cobra.Command {
	c, format := commonFlags{connect: connect}, ""
	formats := []string{formatTable, formatJSON, formatYAML, formatName, formatJSONPath}
	cmd := &cobra.Command{
		Use: "experiments", Aliases: []string{"experiment", "exp"}, Short: "List Experiments with their progress", Args: asUsageErrors(cobra.NoArgs),
		Long: "Lists Experiments: their phase, spec.duration, and what remains of it since all pods have been available.\n\n" + exitCodesHelp + `
list experiments exits with 0 regardless of the state of the Experiments; 2, 5 and 6 as above.`,
		Example: "  serin list experiments -n shop\n  serin list experiments -A -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			output, err := parseOutput(format, formats)
			if err != nil {
				return err
			}
			session, sel, err := c.openSession(nil, nil)
			if err != nil {
				return err
			}
			found, err := session.Experiments(cmd.Context(), sel)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			switch {
			case output.isDocument():
				return output.printDocument(out, found)
			case len(found.Experiments) == 0:
				_, err = fmt.Fprintln(plainErr(cmd), c.noneFound("Experiments"))
			case output.format == formatName:
				var errs []error
				for _, e := range found.Experiments {
					_, err := fmt.Fprintln(out, explain.KindExperiment.Resource()+"/"+e.Name)
					errs = append(errs, err)
				}
				err = errors.Join(errs...)
			default:
				_, err = fmt.Fprint(out, view.ExperimentTable(found, session.Clock.Now(), c.allNamespaces, paintFor(out)))
			}
			return err
		},
	}
	c.registerConnection(cmd)
	c.registerSelection(cmd, "Experiments")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	registerOutput(cmd, &format, formats)
	return cmd
}
