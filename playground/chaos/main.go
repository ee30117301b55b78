//go:build linux

// Command chaos releases versions on a real API server while faults are injected into Serin's processes, their connections, the API
// server and etcd, and checks that no release and no request of a user is lost.
//
// It observes objects, requests to the API server and responses to clients, and draws faults and versions from a seed. It must not
// know the implementation of Serin. It finds what the simulator cannot: defects of real processes, connections and watches.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/cluster"
)

func main() {
	becomeProgram()
	options := newClusterOptions()
	if err := enter(&options); err != nil {
		exit(err)
	}
	var s settings
	flag.IntVar(&s.releases, "releases", 50, "minimum number of releases of each API")
	flag.DurationVar(&s.duration, "duration", 0, "minimum time for which faults are injected")
	flag.Uint64Var(&s.seed, "seed", uint64(clock.RealClock{}.Now().Unix()), "seed of the faults and versions")
	flag.IntVar(&s.served, "served", 2, "applications of each API with processes and clients")
	flag.IntVar(&s.simulated, "simulated", 6, "applications of each API whose pods exist as objects only")
	only := flag.String("faults", "", "kinds of faults to inject, separated by commas (default: all)")
	flag.Parse()
	if *only != "" {
		s.faults = strings.Split(*only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) //nolint:forbidigo // a command is where contexts come from
	defer stop()
	options.Folder = options.Builder.Folder("chaos")
	if err := runOnce(ctx, options, s); err != nil {
		exit(err)
	}
}

func exit(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func logProgress(text string) { fmt.Fprintln(os.Stderr, text) }

func newClusterOptions() cluster.Options {
	return cluster.Options{Gateway: true, Prometheus: true, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
}

// enter moves the program into a sandbox. Builds need the network of the machine, so they happen outside.
func enter(options *cluster.Options) error {
	return cluster.Enter(options, logProgress, func(ctx context.Context, b *build.Builder) error {
		_, err := buildVersions(ctx, b)
		return err
	})
}

// start starts a cluster for stages, and returns the versions under test.
func start(ctx context.Context, options cluster.Options) (c *cluster.Cluster, v versions, err error) {
	if v, err = buildVersions(ctx, options.Builder); err != nil {
		return nil, v, err
	}
	if c, err = cluster.Start(ctx, options); err != nil {
		return nil, v, err
	}
	if err := prepareCluster(ctx, c, options.Builder.Repository(), options.Log); err != nil {
		return nil, v, errors.Join(err, c.Stop())
	}
	return c, v, nil
}

// runOnce runs one stage on a cluster of its own.
func runOnce(ctx context.Context, options cluster.Options, s settings) (err error) {
	logProgress("starting the cluster ...")
	c, v, err := start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	return runStage(ctx, newStage(ctx, c, v, "chaos", s, logProgress), os.Stdout)
}

// runStage runs a stage, and prints its report to w even if it failed.
func runStage(ctx context.Context, s *stage, w io.Writer) error {
	began := s.clock.Now()
	err := s.run(ctx)
	err = errors.Join(err, s.close())
	return errors.Join(err, s.report(w, s.clock.Since(began)))
}
