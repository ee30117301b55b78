package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/serin-dev/serin/internal/cli/similar"
)

// The names under which kubectl calls the program as its plugin: for a command, and for completions of it.
const (
	kubectlPlugin     = "kubectl-serin"
	kubectlCompletion = "kubectl_complete-serin"
)

// NewRoot returns the root command with all commands of this package. Their errors contain their exit codes; see ExitCode. program
// is the path by which the process was called: a plugin of kubectl names itself kubectl serin.
func NewRoot(program string) *cobra.Command { return newRoot(program, connect) }

func newRoot(program string, connect connector) *cobra.Command {
	root := &cobra.Command{
		Use: "serin", Short: "Progressive delivery for Kubernetes",
		Long:    "Serin shifts traffic to a new version of a workload step by step, measures the effect, and rolls back automatically.",
		Version: versionText(), SilenceUsage: true, SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newCommands(connect)...)
	for _, cmd := range root.Commands() {
		cmd.SuggestFor = otherNames[cmd.Name()]
	}
	if name := programName(program); name == kubectlPlugin || name == kubectlCompletion {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl serin"}
		for _, cmd := range root.Commands() {
			cmd.Example = strings.ReplaceAll(cmd.Example, "serin ", "kubectl serin ")
		}
	}
	return root
}

// otherNames are the names that users of kubectl and other tools type for a command, which the error message then suggests.
var otherNames = map[string][]string{
	"get": {"describe", "show", "status", "tree"}, "why": {"describe", "explain", "status", "events"}, "wait": {"status"}, "watch": {"follow", "logs"},
	"history": {"revisions", "log"}, "undo": {"rollback", "revert"}, "abort": {"rollback", "cancel", "stop"}, "pause": {"suspend", "stop"},
	"resume": {"continue", "unpause"}, "promote": {"continue", "skip"}, "lint": {"validate", "verify"}, "check": {"doctor", "preflight", "test"},
	"eject": {"delete", "remove", "uninstall"}, "init": {"generate", "scaffold", "new"}, "crds": {"install"}, "set": {"edit", "deploy", "update"},
	"plan": {"diff", "preview", "simulate"}, "dashboard": {"ui", "web"},
}

// flagError describes an invalid flag, and suggests a similar one. Commands inherit it.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && invalid.GetFlag().Value.Type() == "bool" {
		name := "--" + invalid.GetFlag().Name
		return withExitCode(ExitUsage, fmt.Errorf("%s=%s is invalid: use %s without a value", name, invalid.GetValue(), name))
	}
	if invalid != nil {
		if _, ok := invalid.GetFlag().Value.(*controllerFlags); ok { // the value, which may contain a password, is not repeated
			return withExitCode(ExitUsage, fmt.Errorf("read --controller-flags: %w", invalid.Unwrap()))
		}
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return withExitCode(ExitUsage, err)
	}
	dashes, name := "--", unknown.GetSpecifiedName()
	if shorthands := unknown.GetSpecifiedShortnames(); shorthands != "" { // also of a long flag with one dash
		dashes = "-"
		name, _, _ = strings.Cut(shorthands, "=")
	}
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	hint := "see " + cmd.CommandPath() + " --help"
	if nearest := similar.To(name, names); nearest != "" && len(name) > 1 {
		hint = "did you mean --" + nearest + "?"
	}
	return withExitCode(ExitUsage, fmt.Errorf("unknown flag %s%s: %s", dashes, name, hint))
}

// Arguments returns the arguments of the root command for a process. kubectl calls a plugin for completions with the arguments
// only.
func Arguments(argv []string) []string {
	if programName(argv[0]) == kubectlCompletion {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}

func programName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".exe") }

// BuildInfo returns the version and the revision that the Go toolchain recorded in the binary.
func BuildInfo() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", "unknown"
	}
	revision = "unknown"
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			revision = setting.Value
		}
	}
	return info.Main.Version, revision
}

func versionText() string {
	version, revision := BuildInfo()
	toolchain := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		toolchain = info.GoVersion
	}
	return fmt.Sprintf("Serin version %s revision %s built with %s", version, revision, toolchain)
}

// shownConnectionFlags are the flags of the connection that every help shows; serin options shows all.
var shownConnectionFlags = map[string]bool{"namespace": true, "context": true, "kubeconfig": true}

// addTo adds the flags of the connection to a command, and hides the rarely used ones from its help.
func (c *connection) addTo(cmd *cobra.Command) {
	own := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	c.register(own)
	own.VisitAll(func(flag *pflag.Flag) { flag.Hidden = !shownConnectionFlags[flag.Name] })
	cmd.Flags().AddFlagSet(own)
	cmd.SetUsageTemplate(cmd.UsageTemplate() + "\nUse \"{{.Root.DisplayName}} options\" for all flags that select a cluster and a user.\n")
}

func newOptionsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "options", Short: "List the connection flags of all commands", Args: asUsageErrors(cobra.NoArgs),
		Long: "Lists the flags with which all commands for releases select a cluster and a user. They are those of kubectl.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var selected connection
			flags := pflag.NewFlagSet("options", pflag.ContinueOnError)
			selected.register(flags)
			_, err := fmt.Fprint(cmd.OutOrStdout(), "The following flags can be passed to any command for releases:\n\n"+flags.FlagUsages())
			return err
		},
	}
}
