//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/cluster"
)

const (
	// probeReleases is the number of releases that are shipped at each size, one after the other.
	probeReleases = 50
	// probeInterval is the time between two of them. A burst would measure the API server.
	probeInterval = 500 * time.Millisecond
	// startUpTimeout bounds the start of Serin with all objects.
	startUpTimeout = 5 * time.Minute
)

// scaleReport contains the costs by the number of releases, as written to the file. Times are in seconds, sizes in bytes.
type scaleReport struct {
	Date    time.Time   `json:"date"`
	Machine machine     `json:"machine"`
	Ballast ballast     `json:"ballast"`
	APIs    []scaleCost `json:"apis"`
}

// scaleCost are the costs of one API.
type scaleCost struct {
	API   string      `json:"api"`
	Sizes []sizeCosts `json:"sizes"`
}

// sizeCosts are the costs with a number of releases, of which all are idle except for the ones that are shipped.
type sizeCosts struct {
	Releases int `json:"releases"`
	// StartUpSeconds is the time from the start of the process until it is ready: its caches contain all objects. StartUpCPUSeconds is the
	// processor time that it needs until no request has been sent for five seconds.
	StartUpSeconds    float64 `json:"startUpSeconds"`
	StartUpCPUSeconds float64 `json:"startUpCpuSeconds"`
	// AnonymousBytes and FileBytes are the two parts of the resident memory while all releases are idle.
	AnonymousBytes int64     `json:"anonymousBytes"`
	FileBytes      int64     `json:"fileBytes"`
	Idle           idleCosts `json:"idle"`
	// Shipped are the costs of a few new versions while the other releases are idle.
	Shipped releaseCosts `json:"shipped"`
	// Busy are the costs of many that are in progress at the same time; nil: that was not measured.
	Busy *releaseCosts `json:"busy,omitempty"`
}

// parseSizes parses the numbers of releases of -scale, in ascending order.
func parseSizes(text string) ([]int, error) {
	var sizes []int
	for part := range strings.SplitSeq(text, ",") {
		size, err := strconv.Atoi(part)
		if err != nil || size < probeReleases || size > maxReleases {
			return nil, fmt.Errorf("-scale contains %q: list numbers of releases between %d and %d, such as 100,1000", part, probeReleases, maxReleases)
		}
		if len(sizes) > 0 && size < sizes[len(sizes)-1]+probeReleases {
			return nil, fmt.Errorf("-scale is %q: each number must exceed the previous one by %d or more", text, probeReleases)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

// measureScale measures each API with a growing number of releases, on a separate cluster.
func measureScale(ctx context.Context, s settings, options cluster.Options) (printable, error) {
	var r scaleReport
	var err error
	r.Date, r.Ballast = clock.RealClock{}.Now().UTC().Truncate(time.Second), newBallast(s.ballast)
	if r.Machine, err = describeMachine(); err != nil {
		return r, err
	}
	apis, err := selectAPIs(s.apis)
	if err != nil {
		return r, err
	}
	sizes, err := parseSizes(s.scale)
	if err != nil {
		return r, err
	}
	for _, api := range apis {
		logProgress("API " + api.api + ":")
		costs := scaleCost{API: api.api}
		err := onCluster(ctx, s, api, serin(s), options, func(ctx context.Context, st *stage) error {
			if err := st.createBallast(ctx, r.Ballast); err != nil {
				return err
			}
			for _, size := range sizes {
				measured, err := st.measureSize(ctx, size)
				if err != nil {
					return fmt.Errorf("with %d releases: %w", size, err)
				}
				costs.Sizes = append(costs.Sizes, measured)
			}
			return nil
		})
		// Ten thousand releases take an hour: a failure does not discard the smaller sizes.
		if len(costs.Sizes) > 0 {
			r.APIs = append(r.APIs, costs)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// measureSize creates releases until there are size of them, and measures.
func (s *stage) measureSize(ctx context.Context, size int) (c sizeCosts, err error) {
	c.Releases = size
	first := len(s.timelines)
	if err := s.createReleases(ctx, size); err != nil {
		return c, err
	}
	if c.StartUpSeconds, err = s.restartSerin(ctx); err != nil {
		return c, err
	}
	if _, err := s.waitQuiet(ctx); err != nil {
		return c, err
	}
	usage, err := s.cluster.Usage(serinName)
	if err != nil {
		return c, err
	}
	c.StartUpCPUSeconds = usage.CPUSeconds
	if c.Idle, err = s.measureIdle(ctx); err != nil {
		return c, err
	}
	c.AnonymousBytes, c.FileBytes = c.Idle.ResidentBytes-c.Idle.FileBytes, c.Idle.FileBytes
	if c.Shipped, err = s.measureRelease(ctx, first, probeReleases, probeInterval); err != nil || s.busy == 0 {
		return c, err
	}
	// The last one starts when the windows of the first one end, so that all are in progress at that time.
	first += probeReleases
	count := min(s.busy, size-first)
	busy, err := s.measureRelease(ctx, first, count, s.windows()/time.Duration(count))
	c.Busy = &busy
	return c, err
}

// restartSerin ends the process, starts it again, and returns how many seconds it takes until it is ready.
func (s *stage) restartSerin(ctx context.Context) (seconds float64, err error) {
	s.say("restarting Serin ...")
	ctx, cancel := context.WithTimeoutCause(ctx, startUpTimeout, fmt.Errorf("it took more than %s", startUpTimeout))
	defer cancel()
	s.setProcess(nil)
	if err := s.cluster.Terminate(ctx, serinName); err != nil {
		return 0, err
	}
	began := s.clock.Now()
	process, err := s.cluster.Restart(serinName)
	if err != nil {
		return 0, err
	}
	s.setProcess(process)
	for {
		if _, err = fetch(ctx, readyURL); err == nil {
			return s.clock.Since(began).Seconds(), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait until Serin is ready: %w; last error: %w", context.Cause(ctx), err)
		case <-s.clock.After(phasePollInterval):
		}
	}
}

// readyURL answers 200 when the process is ready.
const readyURL = "http://127.0.0.1:8080/readyz"

// creators is the number of concurrent creations.
const creators = 16

// createAll creates objects concurrently. Each task creates one, or a few that depend on each other.
func createAll(ctx context.Context, count int, create func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var running sync.WaitGroup
	for range creators {
		running.Go(func() {
			for i := range next {
				if err := create(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
feed:
	for i := range count {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	running.Wait()
	return context.Cause(ctx)
}

func (r scaleReport) measuredAPIs() int { return len(r.APIs) }

// print prints the report as one table for each API.
func (r scaleReport) print(w io.Writer) error {
	fmt.Fprintf(w, "%s: Istio, two Prometheus checks; %d processors, %.0f GiB, load %.2f before\nnext to the releases: %s\n",
		r.Date.Format(time.DateOnly), r.Machine.Processors, float64(r.Machine.MemoryBytes)/gibibyte, r.Machine.Load, r.Ballast)
	for _, api := range r.APIs {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		row := func(what string, cell func(sizeCosts) string) {
			cells := []string{what}
			for _, size := range api.Sizes {
				cells = append(cells, cell(size))
			}
			fmt.Fprintln(table, strings.Join(cells, "\t"))
		}
		each := func(d distribution) string { return fmt.Sprintf("%.2f / %.2f / %.2f s", d.Median, d.P99, d.Max) }
		row("\n"+api.API, func(c sizeCosts) string { return fmt.Sprintf("%d releases", c.Releases) })
		row("start until ready", func(c sizeCosts) string { return fmt.Sprintf("%.1f s", c.StartUpSeconds) })
		row("CPU of the start", func(c sizeCosts) string { return fmt.Sprintf("%.1f s", c.StartUpCPUSeconds) })
		row("memory: anonymous / file", func(c sizeCosts) string {
			return fmt.Sprintf("%.0f / %.0f MB", float64(c.AnonymousBytes)/megabyte, float64(c.FileBytes)/megabyte)
		})
		row("idle: requests", func(c sizeCosts) string {
			return strconv.Itoa(sumCounts(c.Idle.Requests.Writes) + sumCounts(c.Idle.Requests.Reads))
		})
		row("idle: CPU a minute", func(c sizeCosts) string { return fmt.Sprintf("%.2f s", c.Idle.CPUSecondsPerMinute) })
		row("shipped, of them measured", func(c sizeCosts) string {
			return fmt.Sprintf("%d, %d", c.Shipped.Measured+len(c.Shipped.NotMeasured), c.Shipped.Measured)
		})
		row("requests per release", func(c sizeCosts) string { return fmt.Sprintf("%.2f", c.Shipped.RequestsPerRelease) })
		row("CPU per release", func(c sizeCosts) string { return fmt.Sprintf("%.1f ms", c.Shipped.CPUSecondsPerRelease*1000) })
		row("noticing: median / p99 / max", func(c sizeCosts) string { return each(c.Shipped.NoticingSeconds) })
		row("lateness: median / p99 / max", func(c sizeCosts) string { return each(c.Shipped.LatenessSeconds) })
		row("of it in steps", func(c sizeCosts) string { return each(c.Shipped.SteppingSeconds) })
		busy := func(what string, cell func(releaseCosts) string) {
			if slices.ContainsFunc(api.Sizes, func(c sizeCosts) bool { return c.Busy != nil }) {
				row(what, func(c sizeCosts) string {
					if c.Busy == nil {
						return ""
					}
					return cell(*c.Busy)
				})
			}
		}
		busy("in progress at once, of them measured", func(c releaseCosts) string { return fmt.Sprintf("%d, %d", c.Measured+len(c.NotMeasured), c.Measured) })
		busy("CPU per release", func(c releaseCosts) string { return fmt.Sprintf("%.1f ms", c.CPUSecondsPerRelease*1000) })
		busy("CPU per release of API server / etcd / benchmark", func(c releaseCosts) string {
			n := float64(c.Measured + len(c.NotMeasured))
			return fmt.Sprintf("%.0f / %.0f / %.0f ms", c.Processors.APIServerCPUSeconds/n*1000, c.Processors.EtcdCPUSeconds/n*1000, c.Processors.BenchCPUSeconds/n*1000)
		})
		busy("resident memory at the peak", func(c releaseCosts) string { return fmt.Sprintf("%.0f MB", float64(c.PeakResidentBytes)/megabyte) })
		busy("noticing: median / p99 / max", func(c releaseCosts) string { return each(c.NoticingSeconds) })
		busy("lateness: median / p99 / max", func(c releaseCosts) string { return each(c.LatenessSeconds) })
		busy("of it in steps", func(c releaseCosts) string { return each(c.SteppingSeconds) })
		if err := table.Flush(); err != nil {
			return err
		}
		for _, size := range api.Sizes {
			for _, why := range slices.Compact(size.Shipped.NotMeasured) {
				fmt.Fprintf(w, "  not measured with %d releases: %s\n", size.Releases, why)
			}
		}
	}
	return nil
}
