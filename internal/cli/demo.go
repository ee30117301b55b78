package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/demo"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// demoFlags are the flags of serin demo.
type demoFlags struct {
	kind, provider, gateway, image string
	isBroken, isDeletion, isPlain  bool
	timeout                        time.Duration
}

// creationFlags are the flags that select what is created. They have no effect on a demo that exists.
var creationFlags = []string{"provider", "gateway", "image"}

func newDemoCommand(connect connector) *cobra.Command {
	c, flags := commonFlags{connect: connect}, demoFlags{}
	cmd := &cobra.Command{
		Use: "demo --namespace NAMESPACE", Short: "Release a demo application on your cluster", Args: asUsageErrors(cobra.NoArgs),
		Long: `Creates a demo application in a namespace, sends requests to it, releases a new version, and shows the release as serin watch does.
In that view, b breaks the version under release, n releases the next one, and q quits. Without a terminal, or with --plain, it
prints one line for each change and exits at the end of the release. If the demo exists, it releases the next version.

The namespace must not exist, or be empty. All objects have the label ` + demo.Label + `. They remain until --delete, which deletes
them, and the namespace if the demo created it.

The checks need no Prometheus: a Deployment sends the requests of users, and tests the new version during its release. Without a
gateway, a Canary tests the new version before users reach it, and a Rollout splits requests by the number of pods.

` + exitCodesHelp,
		Example: "  serin demo --namespace serin-demo\n  serin demo --namespace serin-demo --break --plain\n  serin demo --namespace serin-demo --delete",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.validate(cmd); err != nil {
				return err
			}
			session, namespace, err := c.connect(&c.connection, c.controllerFlags)
			if err != nil {
				return err
			}
			run := &demoRun{cmd: cmd, flags: flags, session: session, namespace: namespace, deletion: c.deletionCommand(cmd, namespace)}
			if flags.isDeletion {
				return run.delete(cmd.Context())
			}
			return run.start()
		},
	}
	c.register(cmd, false)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().StringVar(&flags.kind, "kind", initCanary, "kind of the release: canary or rollout")
	cmd.Flags().StringVar(&flags.provider, "provider", demo.ProviderKubernetes, "traffic provider: "+strings.Join(demo.Providers(), " or ")+", which requires --gateway")
	cmd.Flags().StringVar(&flags.gateway, "gateway", "", "Gateway that routes the requests, as NAMESPACE/NAME")
	cmd.Flags().StringVar(&flags.image, "image", "", "image of Serin for the pods (default: that of the version of this binary)")
	cmd.Flags().BoolVar(&flags.isBroken, "break", false, "release a version that fails half of its requests")
	cmd.Flags().BoolVar(&flags.isDeletion, "delete", false, "delete the demo")
	cmd.Flags().BoolVar(&flags.isPlain, "plain", false, "print lines, even on a terminal")
	cmd.Flags().DurationVar(&flags.timeout, "timeout", 10*time.Minute, "maximum duration of each wait for the release, without the view; 0: unlimited")
	completeFlag(cmd, "kind", completeWords([]string{initCanary, initRollout}))
	completeFlag(cmd, "provider", completeWords(demo.Providers()))
	return cmd
}

// deletionCommand returns the command that deletes the demo, for messages.
func (c *commonFlags) deletionCommand(cmd *cobra.Command, namespace string) string {
	args := []string{cmd.CommandPath(), "--namespace", namespace}
	for _, name := range []string{"context", "kubeconfig"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed {
			args = append(args, "--"+name, flag.Value.String())
		}
	}
	return strings.Join(append(args, "--delete"), " ")
}

func (f demoFlags) validate(cmd *cobra.Command) error {
	namespace := cmd.Flags().Lookup("namespace")
	problems := validation.IsDNS1123Label(namespace.Value.String())
	var err error
	switch {
	case !namespace.Changed:
		err = errors.New("name the namespace of the demo with --namespace, such as --namespace serin-demo: it must be empty or not exist")
	case len(problems) > 0:
		err = fmt.Errorf("--namespace %q is invalid: %s", namespace.Value, problems[0])
	case f.isDeletion && f.isBroken:
		err = errors.New("--delete and --break exclude each other")
	case !slices.Contains([]string{initCanary, initRollout}, f.kind):
		err = fmt.Errorf("--kind %q is invalid: use canary or rollout", f.kind)
	case !slices.Contains(demo.Providers(), f.provider):
		err = fmt.Errorf("--provider %q is invalid: use %s", f.provider, strings.Join(demo.Providers(), " or "))
	case f.provider == demo.ProviderGatewayAPI && f.gateway == "":
		err = errors.New("--provider gatewayapi requires --gateway NAMESPACE/NAME: list all with: kubectl get gateways -A")
	case f.provider != demo.ProviderGatewayAPI && f.gateway != "":
		err = errors.New("--gateway requires --provider gatewayapi")
	case f.timeout < 0:
		err = fmt.Errorf("--timeout %s is negative: use a duration such as 10m", f.timeout)
	}
	if err == nil && f.gateway != "" {
		if ns, name, ok := strings.Cut(f.gateway, "/"); !ok || ns == "" || name == "" || strings.Contains(name, "/") {
			err = fmt.Errorf("--gateway %q is invalid: use NAMESPACE/NAME", f.gateway)
		}
	}
	if err != nil {
		return withExitCode(ExitUsage, err)
	}
	return nil
}

// releaseKind returns the kind of the release.
func (f demoFlags) releaseKind() explain.Kind {
	if f.kind == initRollout {
		return explain.KindRollout
	}
	return explain.KindCanary
}

// demoRun is one run of serin demo.
type demoRun struct {
	cmd       *cobra.Command
	flags     demoFlags
	session   *cluster.Session
	namespace string
	// deletion is the command that deletes the demo.
	deletion string
}

// printf prints a line.
func (d *demoRun) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(plainOut(d.cmd), format+"\n", args...)
}

func (d *demoRun) delete(ctx context.Context) error {
	d.printf("Reading namespace %s ...", d.namespace)
	found, err := d.session.InspectDemo(ctx, d.namespace)
	if err != nil {
		return err
	}
	if found.IsEmpty() {
		return withExitCode(ExitNotFound, fmt.Errorf("there is no demo in namespace %s", d.namespace))
	}
	if err := d.session.DeleteDemo(ctx, found, func(text string) { d.printf("%s", text) }); err != nil {
		return err
	}
	d.printf("The demo is deleted.")
	return nil
}

// start creates what is missing, releases a version and shows it. From the first object on, it prints how to delete the demo,
// whatever happens.
func (d *demoRun) start() error {
	ctx := d.cmd.Context()
	d.printf("Checking the cluster ...")
	found, err := d.session.InspectDemo(ctx, d.namespace)
	if err != nil {
		return err
	}
	if kind := found.Kind(); kind != "" && !d.cmd.Flags().Changed("kind") {
		d.flags.kind = strings.ToLower(string(kind))
	}
	objects, err := d.objects(ctx, found)
	if err != nil {
		return err
	}
	if err := d.session.CheckDemo(ctx, found, objects, d.flags.releaseKind()); err != nil {
		return err
	}
	defer d.printf("The demo remains in namespace %s. Delete it with: %s", d.namespace, d.deletion)
	if err := d.session.CreateDemo(ctx, found, objects, func(object string) { d.printf("created %s", object) }); err != nil {
		return err
	}
	d.printf("Waiting until the current version serves ...")
	if err := d.watch(goalIdle, false).run(d.cmd, true); err != nil {
		return err
	}
	version, err := d.session.ReleaseDemo(ctx, d.flags.releaseKind(), d.namespace, func(v demo.Version) demo.Version { return v.Next(d.flags.isBroken) })
	if err != nil {
		return err
	}
	d.printf("Releasing %s", describeVersion(version))
	if canShowView(d.cmd.InOrStdin(), d.cmd.OutOrStdout()) && !d.flags.isPlain {
		return d.watch("", true).run(d.cmd, false)
	}
	return d.expected(d.watch(goalDone, false).run(d.cmd, true))
}

// objects returns the objects to create; none if the demo exists.
func (d *demoRun) objects(ctx context.Context, found cluster.Demo) ([]*unstructured.Unstructured, error) {
	if found.Kind() != "" {
		for _, name := range creationFlags {
			if d.cmd.Flags().Changed(name) {
				return nil, withExitCode(ExitUsage, fmt.Errorf("the demo exists in namespace %s, so --%s has no effect: omit it, or delete the demo first with: %s", d.namespace, name, d.deletion))
			}
		}
		return nil, nil
	}
	options := demo.Options{Namespace: d.namespace, Image: d.flags.image, Kind: d.flags.releaseKind()}
	if options.Image == "" {
		version, _ := BuildInfo()
		image, err := demo.Image(version)
		if err != nil {
			return nil, withExitCode(ExitUsage, err)
		}
		options.Image = image
	}
	if namespace, name, ok := strings.Cut(d.flags.gateway, "/"); ok {
		gateway, err := d.session.DemoGateway(ctx, namespace, name)
		if err != nil {
			return nil, err
		}
		options.Gateway = &gateway
	}
	return demo.Objects(options)
}

// describeVersion describes a version for users.
func describeVersion(v demo.Version) string {
	if v.IsBroken {
		return v.String() + ", which fails half of its requests"
	}
	return v.String()
}

// watch returns a watch of the release; with actions, its keys control the demo.
func (d *demoRun) watch(until goalKind, hasActions bool) *releaseWatch {
	kind := d.flags.releaseKind()
	w := &releaseWatch{
		session: d.session, sel: cluster.Selection{Namespace: d.namespace, Names: []cluster.Name{{Kind: kind, Name: demo.Name}}},
		goal: goal{kind: until}, goalText: "the end of the release", timeout: d.flags.timeout,
	}
	if hasActions {
		w.actions = []keyAction{
			{key: "b", help: "break the new version", run: d.releaseAction(demo.Version.Broken)},
			{key: "n", help: "next version", run: d.releaseAction(func(v demo.Version, _ bool) demo.Version { return v.Next(false) })},
		}
	}
	return w
}

// releaseAction returns an action that releases the version that choose returns.
func (d *demoRun) releaseAction(choose func(current demo.Version, inProgress bool) demo.Version) func(context.Context, []explain.Release) (string, error) {
	return func(ctx context.Context, releases []explain.Release) (string, error) {
		inProgress := slices.ContainsFunc(releases, func(r explain.Release) bool { return r.State != release.Idle })
		version, err := d.session.ReleaseDemo(ctx, d.flags.releaseKind(), d.namespace, func(v demo.Version) demo.Version { return choose(v, inProgress) })
		if err != nil {
			return "", err
		}
		return "releasing " + describeVersion(version), nil
	}
}

// expected converts the result of a release: a broken version has to be rolled back.
func (d *demoRun) expected(err error) error {
	if !d.flags.isBroken {
		return err
	}
	switch {
	case err == nil:
		return withExitCode(ExitFailed, errors.New("the broken version was promoted: see serin why "+demo.Name+" -n "+d.namespace))
	case ExitCode(err) == ExitFailed:
		d.printf("The broken version was rolled back, as expected.")
		return nil
	default:
		return err
	}
}
