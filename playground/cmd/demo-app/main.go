// Command demo-app is the demo application of the playground; see package demoapp.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/demoapp"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := demoapp.FromEnvironment(os.Getenv, os.Args[1:])
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(config.Port))
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", config.Port, err)
	}
	fmt.Printf("version %s listens on %s\n", config.Version, listener.Addr())
	return demoapp.New(config, clock.RealClock{}).Serve(ctx, listener)
}
