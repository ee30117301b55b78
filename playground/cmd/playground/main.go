//go:build linux

// Command playground runs a real Kubernetes cluster on a Linux machine that
// has only Go: for the demo, for tests, and for experiments.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/podroot"
)

func main() {
	podroot.BecomePod()
	root := &cobra.Command{
		Use: "playground", Short: "A real Kubernetes cluster on a Linux machine that has only Go",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(demoCommand(), upCommand(), buildCommand(), bundleCommand(), pathCommand(), kubectlCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// logProgress reports long operations to the user, on stderr, so that the output of a command can be processed.
func logProgress(text string) { fmt.Fprintln(os.Stderr, text) }

// progressTerminal returns the terminal on stderr, or nil if stderr is not a terminal.
func progressTerminal() *os.File {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return os.Stderr
	}
	return nil
}

func newBuilder() (*build.Builder, error) {
	builder, err := build.New(logProgress)
	if err != nil {
		return nil, err
	}
	builder.ShowProgressOn(progressTerminal())
	return builder, nil
}

// untilInterrupted returns a context that ends on SIGINT, SIGTERM or SIGHUP.
func untilInterrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

func upCommand() *cobra.Command {
	var folder string
	var verbose bool
	command := &cobra.Command{
		Use: "up", Short: "Start a cluster with gateway and Prometheus that runs until Ctrl-C", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			options := cluster.Options{Folder: folder, Gateway: true, Prometheus: true, Autoscaling: true, Log: newLogger(verbose), Terminal: progressTerminal()}
			if err := cluster.Enter(&options, logProgress, nil); err != nil {
				return err
			}
			if folder == "" {
				options.Folder = options.Builder.Folder("cluster")
			}
			ctx, stop := untilInterrupted()
			defer stop()
			return startCluster(ctx, os.Stdout, options)
		},
	}
	command.Flags().StringVar(&folder, "folder", "", "folder for logs and data (default: cluster in the playground's cache folder)")
	command.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what the playground does")
	return command
}

func newLogger(verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func startCluster(ctx context.Context, out io.Writer, options cluster.Options) error {
	began := time.Now()
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The cluster runs, started in %.1f s. Press Ctrl-C to stop it.\n\n%s", time.Since(began).Seconds(), formatAddresses(c))
	select {
	case <-ctx.Done():
	case <-c.Done():
	}
	err = c.Err()
	if stopped := c.Stop(); err == nil {
		err = stopped
	}
	return err
}

// programs are the programs that the playground builds or downloads. A cluster does not need the optional ones.
var programs = []struct {
	name     string
	path     func(*build.Builder, context.Context) (string, error)
	optional bool
}{
	{name: "controlplane", path: (*build.Builder).ControlPlane},
	{name: "prometheus", path: (*build.Builder).Prometheus},
	{name: "traefik", path: (*build.Builder).Traefik},
	{name: "demo-app", path: (*build.Builder).DemoApp},
	{name: "nginx", path: (*build.Builder).NGINX, optional: true},
}

func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use: "build", Short: "Build all programs that a cluster needs and print their paths", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := untilInterrupted()
			defer stop()
			builder, err := newBuilder()
			if err != nil {
				return err
			}
			if err := builder.Prepare(ctx, true, true); err != nil {
				return err
			}
			for _, program := range programs {
				if program.optional {
					continue
				}
				path, err := program.path(builder, ctx)
				if err != nil {
					return err
				}
				fmt.Fprintln(command.OutOrStdout(), path)
			}
			return nil
		},
	}
}

func bundleCommand() *cobra.Command {
	return &cobra.Command{
		Use: "bundle FOLDER", Short: "Write all that the demo needs into a new folder, for " + build.BundleVariable, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := untilInterrupted()
			defer stop()
			builder, err := newBuilder()
			if err != nil {
				return err
			}
			return builder.WriteBundle(ctx, args[0])
		},
	}
}

func pathCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "path PROGRAM", Short: "Print the path of a program, after building it if necessary", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			ctx, stop := untilInterrupted()
			defer stop()
			builder, err := newBuilder()
			if err != nil {
				return err
			}
			for _, program := range programs {
				if program.name == args[0] {
					path, err := program.path(builder, ctx)
					if err == nil {
						fmt.Fprintln(command.OutOrStdout(), path)
					}
					return err
				}
			}
			return fmt.Errorf("program %q does not exist: choose one of %v", args[0], command.ValidArgs)
		},
	}
	for _, program := range programs {
		command.ValidArgs = append(command.ValidArgs, program.name)
	}
	return command
}

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl ...", Short: "Run kubectl with the cluster of up or demo, or that of KUBECONFIG",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := untilInterrupted()
			defer stop()
			builder, err := newBuilder()
			if err != nil {
				return err
			}
			program, err := builder.ControlPlane(ctx)
			if err != nil {
				return err
			}
			env := os.Environ()
			if os.Getenv("KUBECONFIG") == "" {
				folder := builder.Folder("cluster")
				if !cluster.IsRunning(folder) {
					return errors.New("no cluster runs: start one with `playground up`, or set KUBECONFIG")
				}
				env = append(env, "KUBECONFIG="+filepath.Join(folder, "kubeconfig"))
			}
			path, err := exec.LookPath(program)
			if err != nil {
				return fmt.Errorf("run kubectl: %w", err)
			}
			// kubectl replaces this process, so that it owns the terminal and the exit code.
			return syscall.Exec(path, append([]string{"controlplane", "kubectl"}, args...), env)
		},
	}
}
