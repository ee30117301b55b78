package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/scaffold"
)

// initFlags are the flags of init.
type initFlags struct {
	kind, provider string
	port           int32
}

// The values of --kind.
const (
	initCanary  = "canary"
	initRollout = "rollout"
)

func newInitCommand(connect connector) *cobra.Command {
	c, flags := commonFlags{connect: connect}, initFlags{}
	cmd := &cobra.Command{
		Use: "init WORKLOAD", Short: "Print a manifest for a workload", Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return withExitCode(ExitUsage, fmt.Errorf("got %d arguments: use %s: see %s --help", len(args), cmd.UseLine(), cmd.CommandPath()))
			}
			_, err := parseWorkload(args[0])
			return err
		},
		Long: `Prints a Canary or a Rollout for a Deployment or a DaemonSet, with comments that explain each choice. The command reads the workload,
its autoscalers, Services and routes, and changes nothing. WORKLOAD is NAME, deployment/NAME or daemonset/NAME; NAME alone is
a Deployment. A Rollout requires a Deployment.

Exit codes: 0 success, 2 usage error or no manifest is possible, such as for a workload that already has a release, 5 not
found, 6 cluster unreachable or access denied.`,
		Example: "  serin init web -n shop > web.yaml\n  serin init deployment/web --kind rollout\n  serin init web --provider linkerd --port 8080",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.printScaffold(cmd, args[0], flags)
		},
	}
	c.register(cmd, false)
	cmd.ValidArgsFunction = c.completeWorkloads
	cmd.Flags().StringVar(&flags.kind, "kind", initCanary, "kind of the release: canary or rollout")
	cmd.Flags().StringVar(&flags.provider, "provider", "", "provider that routes the traffic, such as nginx (default: that of the existing route)")
	cmd.Flags().Int32Var(&flags.port, "port", 0, "port of the Service (default: that of the existing Service or of the containers)")
	completeFlag(cmd, "kind", completeWords([]string{initCanary, initRollout}))
	completeFlag(cmd, "provider", func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		kind, _ := flags.releaseKind()
		return completeWords(scaffold.Providers(kind))(cmd, args, toComplete)
	})
	return cmd
}

// releaseKind returns the kind of the release.
func (f initFlags) releaseKind() (string, error) {
	switch strings.ToLower(f.kind) {
	case initCanary:
		return flaggerv1.CanaryKind, nil
	case initRollout:
		return argov1.RolloutKind, nil
	default:
		return "", withExitCode(ExitUsage, fmt.Errorf("--kind %q is invalid: use canary or rollout", f.kind))
	}
}

// printScaffold prints a manifest for a workload.
func (c *commonFlags) printScaffold(cmd *cobra.Command, arg string, flags initFlags) error {
	kind, err := flags.releaseKind()
	if err != nil {
		return err
	}
	if flags.port < 0 || flags.port > 65535 {
		return withExitCode(ExitUsage, fmt.Errorf("--port %d is invalid: use a number from 1 to 65535", flags.port))
	}
	workload, err := parseWorkload(arg)
	if err != nil {
		return err
	}
	session, namespace, err := c.connect(&c.connection, c.controllerFlags)
	if err != nil {
		return err
	}
	in, err := session.ScaffoldInput(cmd.Context(), namespace, workload)
	if err != nil {
		return err
	}
	in.Kind, in.Provider, in.Port = kind, flags.provider, flags.port
	text, err := scaffold.Manifest(in)
	if err != nil {
		if refused, ok := errors.AsType[*scaffold.RefusedError](err); ok {
			return withExitCode(ExitUsage, refused)
		}
		return err
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}

// workloadWords contains the words for each kind of workload in arguments, the preferred one first.
var workloadWords = []struct {
	kind  string
	words []string
}{
	{"Deployment", []string{"deployment", "deployments", "deploy", "deployment.apps", "deployments.apps"}},
	{"DaemonSet", []string{"daemonset", "daemonsets", "ds", "daemonset.apps", "daemonsets.apps"}},
}

// parseWorkload parses NAME, deployment/NAME or daemonset/NAME.
func parseWorkload(arg string) (cluster.Workload, error) {
	word, name, ok := strings.Cut(arg, "/")
	if !ok {
		word, name = workloadWords[0].words[0], arg
	}
	if name == "" || strings.Contains(name, "/") {
		return cluster.Workload{}, withExitCode(ExitUsage, fmt.Errorf("%q is not the name of a workload: use NAME, deployment/NAME or daemonset/NAME", arg))
	}
	for _, kind := range workloadWords {
		if slices.Contains(kind.words, strings.ToLower(word)) {
			return cluster.Workload{Kind: kind.kind, Name: name}, nil
		}
	}
	return cluster.Workload{}, withExitCode(ExitUsage, fmt.Errorf("%q has the kind %s, but init supports Deployments and DaemonSets: use NAME, deployment/NAME or daemonset/NAME", arg, word))
}

// completeWorkloads completes the names of workloads. Without a kind, these are Deployments.
func (c *commonFlags) completeWorkloads(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	prefix, kind := "", workloadWords[0].kind
	if word, _, ok := strings.Cut(toComplete, "/"); ok {
		workload, err := parseWorkload(word + "/x")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		prefix, kind = word+"/", workload.Kind
	}
	found := askCluster(cmd.Context(), c, func(ctx context.Context, session *cluster.Session, namespace string) ([]string, error) {
		return session.Workloads(ctx, namespace, kind)
	})
	var out []cobra.Completion
	for _, name := range found {
		if text := prefix + name; strings.HasPrefix(text, toComplete) {
			out = append(out, cobra.CompletionWithDesc(text, kind))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
