// Command serin runs the controller, the load tester and the commands for users.
//
// It must not do more than combine the packages below internal.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/cli"
	"github.com/serin-dev/serin/internal/loadtester"
	"github.com/serin-dev/serin/internal/loadtester/load"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/plugin"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == plugin.LaunchArgument { // the controller starts a plugin
		_, _ = fmt.Fprintln(os.Stderr, plugin.Launch(os.Args[2:]))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := command(os.Args[0])
	os.Exit(cli.Run(ctx, root, arguments(root, os.Args), os.Stderr))
}

func command(program string) *cobra.Command {
	root := cli.NewRoot(program)
	root.AddCommand(controllerCommand(), loadtesterCommand(), demoAppCommand())
	return root
}

// arguments accepts the flags of the controller and the load tester with one dash, as Flagger does. A process that is called by the
// name of a built-in program is that program.
func arguments(root *cobra.Command, argv []string) []string {
	args := cli.Arguments(argv)
	if name := filepath.Base(argv[0]); load.HasProgram(name) {
		return append([]string{"loadtester", "run", name}, args...)
	}
	if len(args) == 0 || args[0] != "controller" && (args[0] != "loadtester" || len(args) > 1 && args[1] == "run") {
		return args
	}
	sub, _, err := root.Find(args[:1])
	if err != nil {
		return args
	}
	return operator.NormalizeArguments(sub.Flags(), args)
}

func controllerCommand() *cobra.Command {
	var flags operator.Flags
	c := &cobra.Command{
		Use: "controller", Short: "Run the controller", Args: cobra.NoArgs,
		Long: "Runs the controller. Flags have the names and defaults of Flagger's, with one dash or two.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, revision := cli.BuildInfo()
			if flags.Version {
				operator.WriteVersion(cmd.OutOrStdout(), version, revision)
				return nil
			}
			flags.FromEnvironment(os.Getenv)
			flags.Announced = operator.AnnouncedArguments(cmd.Flags())
			return operator.Run(cmd.Context(), flags, version, cmd.ErrOrStderr())
		},
	}
	flags.Register(c.Flags())
	return c
}

func loadtesterCommand() *cobra.Command {
	var flags loadtester.Flags
	c := &cobra.Command{
		Use: "loadtester", Short: "Run the load tester", Args: cobra.NoArgs,
		Long: "Runs tests and generates load for webhooks, and serves gates. Flags have the names and defaults of Flagger's load tester, with one dash or two.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags.FromEnvironment(os.Getenv)
			return loadtester.Run(cmd.Context(), flags, cmd.ErrOrStderr())
		},
	}
	flags.Register(c.Flags())
	c.AddCommand(&cobra.Command{
		Use: "run PROGRAM [ARGUMENT...]", Short: "Run a built-in program of the load tester",
		Long:               "Runs a built-in program of the load tester, as a webhook does: " + strings.Join(load.Programs(), ", ") + ".",
		Example:            "  serin loadtester run hey -z 10s -q 10 -c 2 http://cart-canary.shop:8080/",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "-h" || args[0] == "--help" {
				return cmd.Help()
			}
			// The user of a command may call any reachable address; the restrictions of a load tester do not apply.
			policy := outbound.Policy{AllowLoopback: true}
			return load.Run(cmd.Context(), load.Options{Out: cmd.OutOrStdout(), Clock: clock.RealClock{}, Policy: policy}, args)
		},
	})
	return c
}
