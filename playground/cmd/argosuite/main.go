//go:build linux

// Command argosuite runs an end-to-end suite that was written for Argo Rollouts against a controller in the playground.
// The suite is a prebuilt test binary; it is not part of this repository.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/node"
	"github.com/serin-dev/serin/playground/podroot"
)

type options struct {
	suite, folder, run, controller, stepPlugin, data string
	definitions                                      []string
	keep                                             bool
}

func main() {
	podroot.BecomePod()
	var o options
	command := &cobra.Command{
		Use: "argosuite --suite BINARY --folder FOLDER", Short: "Run a suite written for Argo Rollouts against Serin", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error { return runSuite(o) },
	}
	flags := command.Flags()
	flags.StringVar(&o.suite, "suite", "", "test binary of the suite")
	flags.StringVar(&o.folder, "folder", "", "folder in which the suite runs: the folder of its sources, which contains its manifests")
	flags.StringVar(&o.run, "run", "", "regular expression that selects tests, as for go test")
	flags.StringVar(&o.controller, "controller", "", "controller under test (default: Serin, built from this repository)")
	flags.StringVar(&o.stepPlugin, "step-plugin", "", "program that the suite calls as a step plugin (default: its tests of step plugins are skipped)")
	flags.StringVar(&o.data, "data", "", "folder for logs and data (default: suite in the playground's cache folder)")
	flags.StringArrayVar(&o.definitions, "definitions", nil, "additional CRDs: a folder or a file")
	flags.BoolVar(&o.keep, "keep", false, "keep the cluster running after the suite until Ctrl-C")
	if err := command.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runSuite(o options) error {
	clusterOptions := cluster.Options{Autoscaling: true, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	err := cluster.Enter(&clusterOptions, func(text string) { fmt.Fprintln(os.Stderr, text) }, func(ctx context.Context, b *build.Builder) error {
		_, err := buildStandIn(ctx, b)
		if err == nil && o.controller == "" {
			_, err = b.Serin(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if clusterOptions.Folder = o.data; o.data == "" {
		clusterOptions.Folder = clusterOptions.Builder.Folder("suite")
	}
	program, err := buildStandIn(ctx, clusterOptions.Builder)
	if err != nil {
		return err
	}
	image := node.Image{Program: program, Commands: []string{"sh", "/bin/sh", "sleep", "exit"}}
	// Some tests require tags of these images that do not exist.
	nginx, demo := image, image
	nginx.Tags, demo.Tags = []string{"1.19-alpine"}, []string{"red", "yellow", "green", "blue"}
	clusterOptions.Images = map[string]node.Image{"nginx": nginx, "alpine": image, "argoproj/rollouts-demo": demo, "argoproj/load-tester": image}
	c, err := cluster.Start(ctx, clusterOptions)
	if err != nil {
		return err
	}
	err = startController(ctx, c, clusterOptions.Builder, o)
	if err == nil {
		err = runTests(ctx, c, o)
	}
	if o.keep {
		fmt.Fprintf(os.Stderr, "the cluster runs until Ctrl-C: KUBECONFIG=%s\n", c.OutsideKubeconfig)
		<-ctx.Done()
	}
	return errors.Join(err, c.Stop())
}

func buildStandIn(ctx context.Context, b *build.Builder) (string, error) {
	return b.BuildStatic(ctx, "stand-in", filepath.Join(b.Repository(), "playground"), "./cmd/stand-in")
}

// instanceID is the instance ID in the labels of the suite's objects.
const instanceID = "argo-rollouts-e2e"

// startController installs the CRDs and starts the controller.
func startController(ctx context.Context, c *cluster.Cluster, b *build.Builder, o options) error {
	crds := append([]string{filepath.Join(b.Repository(), "config", "crd", "argoproj")}, o.definitions...)
	for _, path := range crds {
		if err := c.ApplyFolder(ctx, path); err != nil {
			return err
		}
	}
	if o.stepPlugin != "" {
		if err := c.Apply(ctx, stepPluginConfig(o.stepPlugin)); err != nil {
			return fmt.Errorf("configure the step plugin: %w", err)
		}
	}
	argv := []string{o.controller, "--kubeconfig", c.Kubeconfig, "--instance-id", instanceID}
	if o.controller == "" {
		serin, err := b.Serin(ctx)
		if err != nil {
			return err
		}
		argv = []string{serin, "controller", "-apis", "rollout", "-kubeconfig", c.Kubeconfig, "-instance-id", instanceID, "-allow-loopback-hooks", "-allow-plugins", "-metricsPort", "8090"}
	}
	_, err := c.StartProcess("controller", argv, []string{"POD_NAMESPACE=default"})
	return err
}

// stepPluginConfig configures a program under both names that the suite looks for.
func stepPluginConfig(program string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: argo-rollouts-config, namespace: default}
data:
  stepPlugins: |
    - {name: step/e2e-test, location: "file://%[1]s"}
    - {name: step/e2e-test-disabled, location: "file://%[1]s", disabled: true}
`, program)
}

// runTests runs the suite with kubectl in its PATH; its output is that of this command.
func runTests(ctx context.Context, c *cluster.Cluster, o options) error {
	bin, err := os.MkdirTemp("", "suite-")
	if err != nil {
		return fmt.Errorf("create a folder for kubectl: %w", err)
	}
	defer os.RemoveAll(bin)
	kubectl := fmt.Sprintf("#!/bin/sh\nexec %s kubectl \"$@\"\n", c.ControlPlane())
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(kubectl), 0o755); err != nil {
		return fmt.Errorf("create kubectl: %w", err)
	}
	command := exec.CommandContext(ctx, o.suite, "-test.v", "-test.timeout", "4h", "-test.run", o.run)
	command.Dir = o.folder
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"), "E2E_INSTANCE_ID="+instanceID)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	err = command.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		return errors.New("tests of the suite failed")
	}
	return err
}
