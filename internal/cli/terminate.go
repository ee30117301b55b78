package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// analysisKindWords contains the words for the kinds of objects that measure a release, in arguments.
var analysisKindWords = map[explain.Kind][]string{
	explain.KindAnalysisRun: {"analysisrun", "ar", "analysisruns", "analysisrun.argoproj.io", "analysisruns.argoproj.io"},
	explain.KindExperiment:  {"experiment", "exp", "experiments", "experiment.argoproj.io", "experiments.argoproj.io"},
}

// parseAnalysisName parses NAME, KIND/NAME or KIND NAME.
func parseAnalysisName(args []string) (cluster.Name, error) {
	word, name, hasKind := strings.Cut(args[0], "/")
	if len(args) == 2 && !hasKind {
		word, name, hasKind = args[0], args[1], true
	} else if len(args) == 2 {
		return cluster.Name{}, fmt.Errorf("%q and %q are two names: use one of them", args[0], args[1])
	}
	if !hasKind {
		word, name = "", args[0]
	}
	if name == "" || strings.Contains(name, "/") {
		return cluster.Name{}, fmt.Errorf("%q is not the name of an AnalysisRun or an Experiment: use analysisrun/NAME, experiment/NAME or NAME", strings.Join(args, " "))
	}
	if !hasKind {
		return cluster.Name{Name: name}, nil
	}
	for kind, words := range analysisKindWords {
		if slices.Contains(words, strings.ToLower(word)) {
			return cluster.Name{Kind: kind, Name: name}, nil
		}
	}
	return cluster.Name{}, fmt.Errorf("%q is not the kind of an AnalysisRun or an Experiment: use analysisrun/NAME or experiment/NAME; serin abort ends a release", word)
}

func newTerminateCommand(connect connector) *cobra.Command {
	c, flags := commonFlags{connect: connect}, commandFlags{}
	cmd := &cobra.Command{
		Use: "terminate [KIND] NAME", Short: "End a running AnalysisRun or Experiment", Args: asUsageErrors(cobra.RangeArgs(1, 2)),
		Long: "Ends a running AnalysisRun or Experiment: its measurements in progress end, and its result is that of the measurements so far. A\n" +
			"run without failures is successful, so a Rollout that waits for it continues. KIND is analysisrun or experiment. Requires\n" +
			"permission to patch the object, and for --wait to watch it. The command and --reason are recorded in an Event of it.\n\n" + exitCodesHelp,
		Example: "  serin terminate web-7d4b9-2-2 -n shop\n  serin terminate experiment/baseline --reason 'enough data' --wait --timeout 5m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.validate(); err != nil {
				return err
			}
			name, err := parseAnalysisName(args)
			if err != nil {
				return withExitCode(ExitUsage, err)
			}
			session, sel, err := c.openSession(nil, nil)
			if err != nil {
				return err
			}
			planned, err := session.PlanTerminate(cmd.Context(), sel.Namespace, name)
			if err != nil {
				return err
			}
			return sendCommand(cmd, session, planned, flags)
		},
	}
	c.register(cmd, false)
	flags.register(cmd)
	flags.registerWait(cmd)
	cmd.ValidArgsFunction = c.completeAnalyses(cluster.AnalysisKinds, func(a cluster.Analysis) bool { return !a.Phase.Completed() })
	return cmd
}

func newRetryExperimentCommand(connect connector) *cobra.Command {
	c, flags := commonFlags{connect: connect}, commandFlags{}
	cmd := &cobra.Command{
		Use: "experiment NAME", Short: "Run an Experiment again that has ended", Args: asUsageErrors(cobra.ExactArgs(1)),
		Long: "Clears the status of an Experiment that has ended, and spec.terminate: its pods and analyses start again. Requires permission to\n" +
			"patch the Experiment. The command and --reason are recorded in an Event of it.\n\n" + exitCodesHelp,
		Example: "  serin retry experiment baseline -n shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := parseAnalysisName(args)
			if err == nil && name.Kind != "" && name.Kind != explain.KindExperiment {
				err = fmt.Errorf("%q is not an Experiment: only Experiments and releases can be retried", args[0])
			}
			if err != nil {
				return withExitCode(ExitUsage, err)
			}
			session, sel, err := c.openSession(nil, nil)
			if err != nil {
				return err
			}
			planned, err := session.PlanRetryExperiment(cmd.Context(), sel.Namespace, name.Name)
			if err != nil {
				return err
			}
			return sendCommand(cmd, session, planned, flags)
		},
	}
	c.register(cmd, false)
	flags.register(cmd)
	cmd.ValidArgsFunction = c.completeAnalyses([]explain.Kind{explain.KindExperiment}, func(a cluster.Analysis) bool { return a.Phase.Completed() })
	return cmd
}

// completeAnalyses completes the names of AnalysisRuns and Experiments, with kind and phase as their description.
func (c *commonFlags) completeAnalyses(kinds []explain.Kind, include func(cluster.Analysis) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		wanted := kinds
		if len(args) == 1 {
			name, err := parseAnalysisName([]string{args[0], "x"})
			if err != nil || len(kinds) == 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			wanted = []explain.Kind{name.Kind}
		}
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found := askCluster(cmd.Context(), c, func(ctx context.Context, session *cluster.Session, namespace string) ([]cluster.Analysis, error) {
			return session.Analyses(ctx, namespace, wanted)
		})
		var out []cobra.Completion
		for _, one := range found {
			text := one.Name
			if strings.Contains(toComplete, "/") || slices.ContainsFunc(found, func(other cluster.Analysis) bool { return other.Name == one.Name && other.Kind != one.Kind }) {
				text = one.Argument()
			}
			if include(one) && strings.HasPrefix(text, toComplete) {
				out = append(out, cobra.CompletionWithDesc(text, strings.TrimSpace(string(one.Kind)+" "+string(one.Phase))))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
