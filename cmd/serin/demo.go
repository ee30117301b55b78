package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/cli"
	"github.com/serin-dev/serin/internal/demoapp"
)

// demoAppCommand runs in the pods of serin demo, which have no image of their own. Users do not call it.
func demoAppCommand() *cobra.Command {
	app := &cobra.Command{
		Use: "demo-app", Short: "Run the application of serin demo", Args: cobra.NoArgs, Hidden: true,
		Long: "Runs the demo application. Environment variables configure it, such as VERSION, ERROR_PERCENT, LATENCY and PORT.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := demoapp.FromEnvironment(os.Getenv, nil)
			if err != nil {
				return err
			}
			listener, err := listen(cmd.Context(), config.Port)
			if err != nil {
				return err
			}
			return exitOf(demoapp.New(config, clock.RealClock{}).Serve(cmd.Context(), listener))
		},
	}
	var config demoapp.LoadConfig
	var port int
	load := &cobra.Command{
		Use: "load", Short: "Send the requests of users to the demo application", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Validate(); err != nil {
				return err
			}
			listener, err := listen(cmd.Context(), port)
			if err != nil {
				return err
			}
			return exitOf(demoapp.NewLoad(config, clock.RealClock{}, cmd.OutOrStdout()).Serve(cmd.Context(), listener))
		},
	}
	load.Flags().StringVar(&config.URL, "url", "", "address that users call")
	load.Flags().StringVar(&config.Host, "host", "", "Host header of the requests of users (default: the host of --url)")
	load.Flags().StringVar(&config.CanaryURL, "canary-url", "", "address that only the new version answers")
	load.Flags().Float64Var(&config.Rate, "rate", 10, "requests of users a second")
	load.Flags().IntVar(&port, "port", 8080, "port of the checks")
	app.AddCommand(load)
	return app
}

func listen(ctx context.Context, port int) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, exitOf(fmt.Errorf("listen on port %d: %w", port, err))
	}
	return listener, nil
}

// exitOf gives an error of a running program the exit code of a failure; without it, it would be a usage error.
func exitOf(err error) error {
	if err == nil {
		return nil
	}
	return &cli.ExitError{Code: cli.ExitFailed, Err: err}
}
