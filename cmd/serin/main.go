// Command serin is the controller, and the commands that a person types.
//
// It must not do more than put the packages below internal together.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli"
	"github.com/serin-dev/serin/internal/operator"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := command()
	err := root.ExecuteContext(ctx)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "serin: "+err.Error())
	}
	os.Exit(cli.ExitCode(err))
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "serin", Short: "Progressive delivery for Kubernetes",
		Long:         "Serin ships a new version a little at a time, watches what that does to real traffic, and takes it back when it hurts.",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(controllerCommand())
	root.AddCommand(cli.Commands()...)
	root.SetArgs(arguments(root, os.Args[1:]))
	return root
}

// arguments lets the controller's flags have one dash, as Flagger's have.
func arguments(root *cobra.Command, args []string) []string {
	if len(args) == 0 || args[0] != "controller" {
		return args
	}
	sub, _, err := root.Find(args[:1])
	if err != nil {
		return args
	}
	return operator.Normalise(sub.Flags(), args)
}

func controllerCommand() *cobra.Command {
	var flags operator.Flags
	c := &cobra.Command{
		Use: "controller", Short: "Run the controller", Args: cobra.NoArgs,
		Long: "Runs the controller. Flags have the names and defaults of Flagger's, with one dash or two.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, revision := built()
			if flags.Version {
				operator.Version(cmd.OutOrStdout(), version, revision)
				return nil
			}
			flags.FromEnvironment(os.Getenv)
			return operator.Run(cmd.Context(), flags, version, cmd.ErrOrStderr())
		},
	}
	flags.Register(c.Flags())
	return c
}

// built is what the Go toolchain knows of this binary.
func built() (version, revision string) {
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
