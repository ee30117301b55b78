//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/demo"
	"github.com/serin-dev/serin/playground/node"
)

// serinImage is the image in the manifests of config, which a kustomization replaces elsewhere. Users of the demo can therefore apply
// config/loadtester unchanged.
const serinImage = "serin"

func demoCommand() *cobra.Command {
	var keep, asJSON bool
	var folder string
	command := &cobra.Command{
		Use: "demo", Short: "Ship a good, a failing and a slow version on real traffic",
		Long: "Starts a cluster with two applications, and runs four releases under steady load. Of the application with a Canary, a good\n" +
			"version is promoted, a version that fails 10 % of its requests is rolled back, and a slow version is rolled back. Of the\n" +
			"application with a Rollout, a good version is promoted. The exit code is 0 only if all releases ended as expected and no\n" +
			"request was lost.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			options := cluster.Options{Gateway: true, Prometheus: true, Autoscaling: true, Folder: folder, Log: newLogger(false), Terminal: progressTerminal()}
			var serin string
			buildSerin := func(ctx context.Context, b *build.Builder) (err error) {
				serin, err = b.Serin(ctx)
				return err
			}
			if err := cluster.Enter(&options, logProgress, func(ctx context.Context, b *build.Builder) error {
				if os.Getenv(build.BundleVariable) == "" {
					logProgress("building Serin ...")
				}
				return buildSerin(ctx, b)
			}); err != nil {
				return err
			}
			if folder == "" {
				options.Folder = options.Builder.Folder("cluster")
			}
			ctx, stop := untilInterrupted()
			defer stop()
			if err := buildSerin(ctx, options.Builder); err != nil {
				return err
			}
			options.Images = map[string]node.Image{serinImage: {Program: serin}}
			err := runDemo(ctx, options, serin, keep, asJSON)
			if errors.Is(err, context.Canceled) && ctx.Err() != nil {
				return errors.New("interrupted: the cluster was stopped")
			}
			return err
		},
	}
	command.Flags().BoolVar(&keep, "keep", false, "keep the cluster running after the last release until Ctrl-C")
	command.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per release, and nothing else, to stdout")
	command.Flags().StringVar(&folder, "folder", "", "folder for logs and data (default: cluster in the playground's cache folder)")
	return command
}

func runDemo(ctx context.Context, options cluster.Options, serin string, keep, asJSON bool) (err error) {
	logProgress("starting the control plane, the gateway and Prometheus ...")
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		logProgress("stopping the cluster ...")
		err = errors.Join(err, c.Stop())
	}()
	logProgress(formatAddresses(c))
	o := demo.Options{
		Cluster: c, Serin: serin, CRDs: filepath.Join(options.Builder.Repository(), "config", "crd"),
		Viewer: selectViewer(ctx, os.Stdout, c, serin, asJSON), Clock: clock.RealClock{}, Log: logProgress,
	}
	controller, err := demo.Run(ctx, o)
	if ctx.Err() != nil {
		return err
	}
	if err == nil {
		logProgress("all releases ended as expected, no request was lost")
	}
	if keep {
		if err != nil {
			logProgress(err.Error())
		}
		logProgress("\nthe cluster runs until Ctrl-C\n\n" + formatAddresses(c))
		err = errors.Join(err, demo.Keep(ctx, o, controller))
	}
	return err
}

func formatAddresses(c *cluster.Cluster) string {
	return fmt.Sprintf("  export KUBECONFIG=%s\n  gateway     %s\n  Prometheus  %s\n  logs        %s\n",
		c.OutsideKubeconfig, c.OutsideGatewayURL, c.OutsidePrometheusURL, filepath.Join(c.Folder, "logs"))
}

// selectViewer returns the viewer for the requested format and the kind of output.
func selectViewer(ctx context.Context, out *os.File, c *cluster.Cluster, serin string, asJSON bool) demo.Viewer {
	switch {
	case asJSON:
		return demo.JSONViewer{Out: io.Writer(out)}
	case term.IsTerminal(int(out.Fd())):
		view := func(target *demo.Target) *exec.Cmd {
			watch := exec.CommandContext(ctx, serin, demo.WatchArgs(target)...)
			watch.Env = []string{"KUBECONFIG=" + c.Kubeconfig}
			return watch
		}
		return &demo.TerminalViewer{Terminal: out, View: view, Addresses: "KUBECONFIG=" + c.OutsideKubeconfig + "  Prometheus " + c.OutsidePrometheusURL}
	default:
		return &demo.LineViewer{Out: out}
	}
}
