package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/lint"
	"github.com/serin-dev/serin/internal/cli/manifest"
	"github.com/serin-dev/serin/internal/operator"
)

// lintFlags are the flags of lint.
type lintFlags struct {
	files                    []string
	recursive, strict, rules bool
	format, namespace        string
	controllerFlags          controllerFlags
}

func newLintCommand() *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use: "lint -f FILE...", Short: "Check manifests without a cluster", Args: asUsageErrors(cobra.NoArgs),
		Long: `Checks manifests of Canaries, Rollouts and their kinds with the schemas of the API and with the rules of the controller. Objects of
other kinds are only used to resolve references. No cluster is contacted.

Exit codes: 0 no errors, 2 usage error, 7 errors; with --strict also warnings.`,
		Example: "  serin lint -f deploy/ -R\n  helm template . | serin lint -f - -o github",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.rules {
				return printRules(cmd.OutOrStdout())
			}
			return f.run(cmd)
		},
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.files, "filename", "f", nil, "files or directories with manifests; - reads the standard input")
	flags.BoolVarP(&f.recursive, "recursive", "R", false, "read directories recursively")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of manifests without one")
	flags.StringVarP(&f.format, "output", "o", "text", strings.Join(lint.Formats(), ", "))
	flags.BoolVar(&f.strict, "strict", false, "fail on warnings as well")
	flags.BoolVar(&f.rules, "rules", false, "list the rules")
	flags.Var(&f.controllerFlags, "controller-flags", "flags of the controller, such as '-mesh-provider=istio'")
	return cmd
}

func printRules(out io.Writer) error {
	for _, rule := range lint.Rules() {
		if _, err := fmt.Fprintf(out, "%-21s %-8s %s\n", rule.Name, rule.Severity, rule.Summary); err != nil {
			return err
		}
	}
	return nil
}

func (f *lintFlags) run(cmd *cobra.Command) error {
	if !slices.Contains(lint.Formats(), f.format) {
		return withExitCode(ExitUsage, fmt.Errorf("--output %q is invalid: use %s", f.format, strings.Join(lint.Formats(), ", ")))
	}
	if len(f.files) == 0 {
		return withExitCode(ExitUsage, errors.New("no manifests: name files or directories with -f, or use -f - for the standard input"))
	}
	var inputs []lint.Input
	for _, name := range f.files {
		read, err := readManifests(name, f.recursive, cmd.InOrStdin())
		if err != nil {
			return withExitCode(ExitUsage, err)
		}
		inputs = append(inputs, read...)
	}
	if !slices.ContainsFunc(inputs, hasObject) {
		return withExitCode(ExitUsage, fmt.Errorf("there is no object in %s: check the command or the file that should contain it", strings.Join(f.files, ", ")))
	}
	findings, err := lint.Lint(cmd.Context(), inputs, f.options())
	if err != nil {
		return err
	}
	text, err := lint.Format(f.format, findings)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(cmd.OutOrStdout(), text); err != nil {
		return err
	}
	if failures, warnings := lint.Summary(findings); failures > 0 || f.strict && warnings > 0 {
		return withExitCode(ExitCheck, fmt.Errorf("errors: %d, warnings: %d", failures, warnings))
	}
	return nil
}

// options returns the settings of a controller with the given flags.
func (f *lintFlags) options() lint.Options {
	settings, routers := cluster.SettingsFor(f.controllerFlags)
	return lint.Options{
		Namespace: f.namespace, Settings: settings, MetricTypes: operator.MetricTypes(),
		Features: func(c *flaggerv1.Canary, provider string) canary.Features {
			return controller.Features(routers, c, provider)
		},
		CheckRoute: routers.CheckRoute, CheckRouting: routers.CheckRouting, ExternalPlugins: routers.ExternalPlugins,
	}
}

// hasObject reports whether an input contains something besides comments. Otherwise a failed command in front of a pipe would be taken
// for valid manifests.
func hasObject(input lint.Input) bool {
	return slices.ContainsFunc(manifest.Read(input.Text), func(d manifest.Document) bool { return d.Err != nil || d.Node != nil })
}

// readManifests reads a file, all manifests of a directory, or the standard input.
func readManifests(name string, recursive bool, stdin io.Reader) ([]lint.Input, error) {
	if name == "-" {
		text, err := io.ReadAll(stdin)
		return []lint.Input{{Name: "<stdin>", Text: text}}, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read -f: %w", err)
	}
	names := []string{name}
	if info.IsDir() {
		if names, err = manifestsIn(name, recursive); err != nil {
			return nil, err
		}
	}
	var inputs []lint.Input
	for _, name := range names {
		text, err := os.ReadFile(name) //nolint:gosec // the user names the file
		if err != nil {
			return nil, fmt.Errorf("read -f: %w", err)
		}
		inputs = append(inputs, lint.Input{Name: filepath.ToSlash(name), Text: text})
	}
	return inputs, nil
}

// manifestsIn returns the files of a directory that kubectl would read.
func manifestsIn(directory string, recursive bool) ([]string, error) {
	var names []string
	err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != directory && !recursive:
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read -f: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("directory %s has no .yaml, .yml or .json files: name another one, or use -R for its subdirectories", directory)
	}
	return names, nil
}
