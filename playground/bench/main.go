//go:build linux

// Command bench measures the cost of releases: requests to the API server, time, and processor time and memory of Serin, on a
// separate control plane.
//
// It changes many Deployments or Rollouts at once, and reads public data only: the objects, a proxy that counts requests, and the
// process table. It knows nothing of the implementation of Serin, and does not evaluate its numbers. It can measure Flagger and Argo
// Rollouts, the peers, in the same way.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/podroot"
)

// settings are the options of a benchmark run.
type settings struct {
	releases, steps int
	interval, idle  time.Duration
	// scale lists growing numbers of releases to measure; empty: one number, releases, which all move at once.
	scale string
	// ballast is the share of the full ballast that exists next to the releases of scale.
	ballast float64
	// busy is the number of releases of scale that are shipped so that they are in progress at the same time; 0: none.
	busy int
	// days is the number of days of a soak test; 0: none.
	days int
	// restarts is true if Serin is restarted on each of the days.
	restarts bool
	// apis are the APIs to measure, one after the other.
	apis string
	// prometheus is the address of the stub while it serves.
	prometheus string
	// serin is the binary to measure; empty: it is built from this repository.
	serin string
	// peers are the programs of Flagger and Argo Rollouts that are measured after Serin, each on a separate cluster.
	peers peerPrograms
	// profiles is the folder for profiles of Serin; empty: none are written.
	profiles string
	// output is the file for the results; empty: bench.json in the repository.
	output string
}

// windows is how long a release without failures observes.
func (s settings) windows() time.Duration { return time.Duration(s.steps) * s.interval }

// stepWeight is the weight of the first step, and the increase with each further step.
const stepWeight = 10

// maxReleases is the maximum number of releases.
const maxReleases = 10_000

func (s settings) validate() error {
	switch {
	case s.scale != "" && s.days != 0:
		return errors.New("-scale and -days are two benchmarks: choose one")
	case s.busy < 0 || s.busy > 0 && s.scale == "":
		return fmt.Errorf("-busy is %d: choose a number of releases, together with -scale", s.busy)
	case s.days < 0 || s.days*dailyReleases > s.releases:
		return fmt.Errorf("-days is %d: choose 1 to %d for %d releases, of which %d are shipped a day", s.days, s.releases/dailyReleases, s.releases, dailyReleases)
	case len(s.peers) > 0 && (s.scale != "" || s.days != 0):
		return errors.New("-peer is not available with -scale and -days, which measure Serin alone")
	case s.ballast < 0 || s.ballast > 1:
		return fmt.Errorf("-ballast is %g: choose 0 to 1", s.ballast)
	case s.releases < 1 || s.releases > maxReleases:
		return fmt.Errorf("-releases is %d: choose 1 to %d", s.releases, maxReleases)
	case s.steps < 1 || s.steps > 100/stepWeight:
		return fmt.Errorf("-steps is %d: choose 1 to %d, each adds a weight of %d", s.steps, 100/stepWeight, stepWeight)
	case s.interval < time.Second:
		return fmt.Errorf("-interval is %s: choose 1s or more", s.interval)
	case s.idle < time.Second:
		return fmt.Errorf("-idle is %s: choose 1s or more", s.idle)
	}
	if s.scale != "" {
		if _, err := parseSizes(s.scale); err != nil {
			return err
		}
	}
	apis, err := selectAPIs(s.apis)
	if err != nil {
		return err
	}
	for name := range s.peers {
		if !slices.ContainsFunc(apis, func(api benchmarkedAPI) bool { return api.api == name }) {
			return fmt.Errorf("-peer is for API %s, but -apis is %q: add it there", name, s.apis)
		}
	}
	return nil
}

func main() {
	podroot.BecomePod()
	s := settings{peers: peerPrograms{}}
	flag.IntVar(&s.releases, "releases", 100, "how many releases there are, and move at once")
	flag.IntVar(&s.steps, "steps", 5, "how many weights a release goes through: 10, 20, …")
	flag.StringVar(&s.apis, "apis", "canary,rollout", "the APIs to measure, one after the other")
	flag.DurationVar(&s.interval, "interval", 10*time.Second, "window of each weight")
	flag.DurationVar(&s.idle, "idle", time.Minute, "for how long nothing happens while the idle requests are counted")
	flag.StringVar(&s.scale, "scale", "", "growing numbers of releases to measure instead, of which a few are shipped one after the other, such as 100,1000,10000")
	flag.IntVar(&s.busy, "busy", 0, "with -scale: how many further releases to ship so that they are in progress at the same time (0: do not measure that)")
	flag.Float64Var(&s.ballast, "ballast", 1, "with -scale: share of 50,000 pods, 20,000 ReplicaSets, 10 MB of configuration, 6,600 AnalysisRuns and 100,000 events next to the releases")
	flag.IntVar(&s.days, "days", 0, "days of a soak test instead: what a process keeps after each, with ten releases a day")
	flag.BoolVar(&s.restarts, "restarts", false, "with -days: restart Serin each day")
	flag.StringVar(&s.serin, "serin", "", "program to measure (default: built from this repository)")
	flag.Var(s.peers, "peer", "canary=PROGRAM or rollout=PROGRAM: a program that starts Flagger or Argo Rollouts, to measure it in the same way; may be repeated")
	flag.StringVar(&s.profiles, "profiles", "", "folder for profiles of Serin's processor time and memory, which cost a little of both (default: none)")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bench [flags] [FILE]\n\nMeasures what releases cost, prints a table and writes FILE (default: bench.json, bench-scale.json or bench-days.json in the repository).")
		flag.PrintDefaults()
	}
	flag.Parse()
	s.output = flag.Arg(0)
	if err := runBenchmark(s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// logProgress reports progress on stderr, so that stdout contains only the table.
func logProgress(text string) { fmt.Fprintln(os.Stderr, text) }

func runBenchmark(s settings) error {
	if err := s.validate(); err != nil {
		return err
	}
	if flag.NArg() > 1 {
		return fmt.Errorf("one file is enough for the numbers, there are %d: name one", flag.NArg())
	}
	for _, path := range []*string{&s.serin, &s.profiles, &s.output} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("find %s: %w", *path, err)
		}
		*path = absolute
	}
	for api, program := range s.peers {
		absolute, err := filepath.Abs(program)
		if err == nil {
			absolute, err = exec.LookPath(absolute) // an error that would otherwise occur after Serin was measured
		}
		if err != nil {
			return fmt.Errorf("find the program of -peer %s: %w", api, err)
		}
		s.peers[api] = absolute
	}
	options := cluster.Options{ObjectsOnly: true, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	// Builds need the network of the machine, so they happen outside the network namespace.
	err := cluster.Enter(&options, logProgress, func(ctx context.Context, b *build.Builder) error {
		if _, err := b.IstioCRDs(ctx); err != nil || s.serin != "" {
			return err
		}
		logProgress("building Serin ...")
		_, err := b.Serin(ctx)
		return err
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) //nolint:forbidigo // a command is where contexts come from
	defer stop()
	if s.serin == "" {
		if s.serin, err = options.Builder.Serin(ctx); err != nil {
			return err
		}
	}
	name, measure := "bench.json", measureAPIs
	switch {
	case s.scale != "":
		name, measure = "bench-scale.json", measureScale
	case s.days > 0:
		name, measure = "bench-days.json", measureDays
	}
	if s.output == "" {
		s.output = filepath.Join(options.Builder.Repository(), name)
	}
	options.Folder = options.Builder.Folder("bench")
	r, err := measure(ctx, s, options)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = errors.New("interrupted: the cluster is gone")
	}
	// An API takes up to half an hour: a failure of the second one does not discard the first.
	if r.measuredAPIs() > 0 {
		err = errors.Join(err, publish(s.output, r))
	}
	return err
}

// printable is the result of a benchmark, as a file and as a table.
type printable interface {
	print(w io.Writer) error
	// measuredAPIs is the number of APIs with results.
	measuredAPIs() int
}

// publish writes a result to its file, and prints it.
func publish(path string, r printable) error {
	if err := writeReport(path, r); err != nil {
		return err
	}
	if err := r.print(os.Stdout); err != nil {
		return err
	}
	logProgress("\nwrote " + path)
	return nil
}

// measureAPIs measures each API on a separate cluster, with all releases at once.
func measureAPIs(ctx context.Context, s settings, options cluster.Options) (printable, error) {
	var r report
	var err error
	r.Date = clock.RealClock{}.Now().UTC().Truncate(time.Second)
	r.Plan = plan{Releases: s.releases, Steps: s.steps, WindowSeconds: s.interval.Seconds(), DrainSeconds: drainDelay.Seconds()}
	if r.Machine, err = describeMachine(); err != nil {
		return r, err
	}
	apis, err := selectAPIs(s.apis)
	if err != nil {
		return r, err
	}
	for _, api := range apis {
		logProgress("API " + api.api + ":")
		costs, err := measureController(ctx, s, api, serin(s), options)
		if err != nil {
			return r, err
		}
		r.APIs = append(r.APIs, apiCosts{API: api.api, controllerCosts: costs})
		program, isMeasured := s.peers[api.api]
		if !isMeasured {
			continue
		}
		logProgress("API " + api.api + ", " + api.peer.name + ":")
		if costs, err = measureController(ctx, s, api, api.peer.controller(program), options); err != nil {
			return r, err
		}
		r.APIs[len(r.APIs)-1].Peer = &costs
	}
	return r, nil
}

// measureController measures one controller on a separate cluster.
func measureController(ctx context.Context, s settings, api benchmarkedAPI, c controller, options cluster.Options) (costs controllerCosts, err error) {
	err = onCluster(ctx, s, api, c, options, func(ctx context.Context, st *stage) (err error) {
		if err := st.createReleases(ctx, s.releases); err != nil {
			return err
		}
		if costs.Idle, err = st.measureIdle(ctx); err != nil {
			return err
		}
		costs.Release, err = st.measureRelease(ctx, 0, s.releases, 0)
		return err
	})
	return costs, err
}

func (r report) measuredAPIs() int { return len(r.APIs) }

// onCluster starts a cluster with a controller and the shared objects of an API, and measures.
func onCluster(ctx context.Context, s settings, api benchmarkedAPI, program controller, options cluster.Options, measure func(context.Context, *stage) error) (err error) {
	switch {
	case program.isPeer:
		s.profiles = "" // only Serin is known to serve them
	case s.profiles != "":
		s.profiles = filepath.Join(s.profiles, api.api)
	}
	options.Folder += "-" + api.api
	logProgress("starting the control plane ...")
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		logProgress("stopping the control plane ...")
		err = errors.Join(err, c.Stop())
	}()
	// If the cluster ends, the benchmark ends.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.Done():
			cancel(fmt.Errorf("the cluster ended: %w", c.Err()))
		case <-ctx.Done():
		}
	}()
	st := &stage{settings: s, subject: api, controller: program, cluster: c, clock: clock.RealClock{}, log: options.Log, say: logProgress}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.deploy(ctx, cancel, options.Builder); err != nil {
		return withCause(ctx, err)
	}
	return withCause(ctx, measure(ctx, st))
}

// withCause replaces an error that results from a cancellation by its cause.
func withCause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// describeMachine describes the machine before anything is started on it.
func describeMachine() (machine, error) {
	m := machine{Processors: runtime.NumCPU()}
	var kilobytes int64
	memory, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		_, err = fmt.Fscanf(strings.NewReader(string(memory)), "MemTotal: %d kB", &kilobytes)
	}
	if err != nil {
		return m, fmt.Errorf("read the size of the memory: %w", err)
	}
	m.MemoryBytes = kilobytes << 10
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, fmt.Errorf("read the load: %w", err)
	}
	first, _, _ := strings.Cut(string(load), " ")
	if m.Load, err = strconv.ParseFloat(first, 64); err != nil {
		return m, fmt.Errorf("read the load: %w", err)
	}
	return m, nil
}

func writeReport(path string, r printable) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the numbers: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the numbers: %w", err)
	}
	return nil
}
