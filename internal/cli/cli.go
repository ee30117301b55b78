// Package cli contains the commands of users: get, top, watch, wait, why, history, dashboard, plan, check, init, demo, migrate,
// eject, promote, abort, retry, pause, resume, approve, deny, restart, set image, undo, terminate, create, list, lint, crds, version.
//
// They act with the permissions of the user. The commands that control a release only change a field or an annotation of a
// Canary, of a Rollout, of its workload or of one of its analyses, and the controller does the rest; create creates the objects of
// manifests, and AnalysisRuns from templates; demo creates and deletes its own objects; eject also changes the objects that remain;
// all others change nothing. The package must not know how a release decides or how a screen is drawn: package cluster reads,
// package explain describes, package view draws.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/config/crd"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
)

func newCommands(connect connector) []*cobra.Command {
	all := []*cobra.Command{
		newGetCommand(connect), newTopCommand(connect), newWhyCommand(connect), newWatchCommand(connect), newHistoryCommand(connect),
		newPlanCommand(connect), newCheckCommand(connect), newInitCommand(connect), newMigrateCommand(connect), newEjectCommand(connect), newLintCommand(),
		newCRDsCommand(), newVersionCommand(),
	}
	all = append(all, newWaitCommand(connect), newDashboardCommand(connect), newDemoCommand(connect), newOptionsCommand())
	for _, o := range releaseCommands {
		all = append(all, newReleaseCommand(connect, o))
	}
	for _, o := range answerCommands {
		all = append(all, newAnswerCommand(connect, o))
	}
	return append(all, newRestartCommand(connect), newSetCommand(connect), newUndoCommand(connect), newTerminateCommand(connect),
		newCreateCommand(connect), newListCommand(connect), newNotifyCommand(connect))
}

// Run executes a root command that silences its errors, and returns the exit code. Errors are written to stderr.
func Run(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		_, _ = fmt.Fprintln(plainWriter{stderr}, "serin: "+strings.ReplaceAll(err.Error(), "\n", "\n  ")) // no line begins like another message
	}
	return ExitCode(err)
}

// connector creates a session for the selected cluster, and returns it with the namespace of the context.
type connector func(selected *connection, controllerFlags controllerFlags) (session *cluster.Session, namespace string, err error)

func connect(selected *connection, controllerFlags controllerFlags) (*cluster.Session, string, error) {
	config, namespace, err := selected.load()
	if err != nil {
		return nil, "", err
	}
	session, err := cluster.Connect(config, clock.RealClock{})
	if err != nil {
		return nil, "", err
	}
	session.ControllerFlags = controllerFlags
	return session, namespace, nil
}

// controllerFlags are the arguments of the controller that a user specified; nil: none.
type controllerFlags []string

// Set parses the arguments strictly: a flag that is ignored would silently give the results of another configuration.
func (f *controllerFlags) Set(text string) error {
	*f = nil
	if args := strings.Fields(text); len(args) > 0 {
		*f = args
	}
	return cluster.CheckFlags(*f)
}

func (f *controllerFlags) String() string { return strings.Join(*f, " ") }

// Type is the placeholder of the value in the usage.
func (f *controllerFlags) Type() string { return "string" }

// commonFlags contains the flags of all commands for releases.
type commonFlags struct {
	connection      connection
	connect         connector
	allNamespaces   bool
	selector        string
	controllerFlags controllerFlags
}

func (c *commonFlags) register(cmd *cobra.Command, selectsMany bool) {
	c.registerConnection(cmd)
	cmd.ValidArgsFunction = c.completeNames(selectsMany)
	cmd.Flags().Var(&c.controllerFlags, "controller-flags",
		"flags of the controller, such as '-mesh-provider=istio'; only required if neither its Deployment nor its Lease can be read")
	if selectsMany {
		c.registerSelection(cmd, "releases")
	}
}

// registerConnection registers the flags that select a cluster and a namespace.
func (c *commonFlags) registerConnection(cmd *cobra.Command) {
	c.connection.addTo(cmd)
	completeFlag(cmd, "namespace", c.completeNamespaces)
	completeFlag(cmd, "context", c.completeContexts)
}

// registerSelection registers the flags that select several objects.
func (c *commonFlags) registerSelection(cmd *cobra.Command, objects string) {
	cmd.Flags().BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, objects+" in all namespaces")
	cmd.Flags().StringVarP(&c.selector, "selector", "l", "", "label selector for "+objects+", such as team=shop")
}

// openSession connects to the cluster, and returns the session with the selection of releases.
func (c *commonFlags) openSession(kinds []explain.Kind, args []string) (*cluster.Session, cluster.Selection, error) {
	sel := cluster.Selection{Kinds: kinds}
	for _, arg := range args {
		name, err := parseName(arg)
		if err != nil {
			return nil, sel, withExitCode(ExitUsage, err)
		}
		switch {
		case len(kinds) == 0:
		case name.Kind == "":
			name.Kind = kinds[0]
		case name.Kind != kinds[0]:
			return nil, sel, withExitCode(ExitUsage, fmt.Errorf("%q is not a %s: omit the kind before the names", arg, kinds[0]))
		}
		sel.Names = append(sel.Names, name)
	}
	if len(sel.Names) > 0 && c.allNamespaces {
		return nil, sel, withExitCode(ExitUsage, errors.New("names and --all-namespaces exclude each other: use --namespace"))
	}
	if len(sel.Names) > 0 && c.selector != "" {
		return nil, sel, withExitCode(ExitUsage, errors.New("names and --selector exclude each other"))
	}
	if c.selector != "" {
		var err error
		if sel.Labels, err = labels.Parse(c.selector); err != nil {
			return nil, sel, withExitCode(ExitUsage, fmt.Errorf("read --selector: %w", err))
		}
	}
	session, namespace, err := c.connect(&c.connection, c.controllerFlags)
	if err != nil {
		return nil, sel, err
	}
	if !c.allNamespaces {
		sel.Namespace = namespace
	}
	return session, sel, nil
}

// kindWords contains the words for each kind in arguments. Without names after it, only a plural is a kind, because a Canary may
// be named canary.
var kindWords = map[explain.Kind]struct{ singular, plural []string }{
	explain.KindCanary:  {[]string{"canary", "cn", "canary.flagger.app"}, []string{"canaries", "canaries.flagger.app"}},
	explain.KindRollout: {[]string{"rollout", "ro", "rollout.argoproj.io"}, []string{"rollouts", "rollouts.argoproj.io"}},
}

// splitKind splits the kind from the arguments: rollouts, or rollout before names. It returns no kind if the arguments begin with
// none.
func splitKind(args []string) ([]explain.Kind, []string) {
	if len(args) == 0 {
		return nil, args
	}
	first := strings.ToLower(args[0])
	for kind, words := range kindWords {
		if slices.Contains(words.plural, first) || len(args) > 1 && slices.Contains(words.singular, first) {
			return []explain.Kind{kind}, args[1:]
		}
	}
	return nil, args
}

// acceptKind makes a command of one release accept the kind as a separate word before the name, as kubectl does.
func acceptKind(cmd *cobra.Command) *cobra.Command {
	check, run := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, args []string) error { return check(cmd, joinKind(args)) }
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd, joinKind(args)) }
	return cmd
}

// joinKind joins a kind and the name after it to KIND/NAME. An argument with a slash or an equal sign is no name, but a gate or an
// image, because a Canary may be named canary.
func joinKind(args []string) []string {
	kinds, names := splitKind(args)
	if len(kinds) == 0 || len(names) == 0 || strings.ContainsAny(names[0], "/=") {
		return args
	}
	return append([]string{strings.ToLower(string(kinds[0])) + "/" + names[0]}, names[1:]...)
}

// parseName parses NAME, canary/NAME or rollout/NAME.
func parseName(arg string) (cluster.Name, error) {
	word, name, ok := strings.Cut(arg, "/")
	if !ok {
		word, name = "", arg
	}
	if name == "" || strings.Contains(name, "/") {
		return cluster.Name{}, fmt.Errorf("%q is not the name of a release: use canary/NAME, rollout/NAME or NAME", arg)
	}
	if word == "" && ok {
		return cluster.Name{}, fmt.Errorf("%q has no kind before the slash: use canary/NAME, rollout/NAME or NAME", arg)
	}
	for kind, words := range kindWords {
		if slices.Contains(slices.Concat(words.singular, words.plural), strings.ToLower(word)) {
			return cluster.Name{Kind: kind, Name: name}, nil
		}
	}
	if ok {
		return cluster.Name{}, fmt.Errorf("%q has the kind %s, but Serin releases Canaries and Rollouts: use canary/NAME, rollout/NAME or NAME", arg, word)
	}
	return cluster.Name{Name: name}, nil
}

// asUsageErrors wraps a check of arguments, so that its errors have the exit code of usage errors.
func asUsageErrors(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil && cmd.HasAvailableSubCommands() {
			return withExitCode(ExitUsage, fmt.Errorf("%s has no command %q: see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath()))
		} else if err != nil {
			return withExitCode(ExitUsage, fmt.Errorf("got %d arguments: use %s: see %s --help", len(args), cmd.UseLine(), cmd.CommandPath()))
		}
		return nil
	}
}

// terminalWidth returns the width of the terminal that a stream writes to; ok is false for a file or a pipe.
func terminalWidth(stream any) (columns int, ok bool) {
	file, isFile := stream.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil || columns <= 0 {
		columns = 80
	}
	return columns, true
}

// paintFor enables colours if the stream is a terminal, unless the environment disables them.
func paintFor(stream any) view.Paint {
	_, terminal := terminalWidth(stream)
	return view.Paint{Colours: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func newCRDsCommand() *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use: "crds", Short: "Print the definitions of the resources", Args: asUsageErrors(cobra.NoArgs),
		Long:    "Prints the CustomResourceDefinitions of Canaries and Rollouts and their kinds, or of one API group, as YAML.",
		Example: "  serin crds | kubectl apply --server-side -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			groups := crd.Groups()
			if group != "" {
				groups = []string{group}
			}
			for _, group := range groups {
				text, err := crd.YAML(group)
				if err != nil {
					return withExitCode(ExitUsage, fmt.Errorf("read --group: %w", err))
				}
				if _, err := cmd.OutOrStdout().Write(text); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&group, "group", "", "one API group: "+strings.Join(crd.Groups(), " or ")+" (default: both)")
	return cmd
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print version and build information", Args: asUsageErrors(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}
