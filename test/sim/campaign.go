package sim

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Campaign executes many simulation runs.
type Campaign struct {
	// APIs are the simulated APIs: each seed is executed for all of them before the next seed.
	APIs []string
	// Seed is the seed of the first run; the following runs use consecutive numbers.
	Seed uint64
	Runs int
	// Execute executes one run. If only is not nil, no other faults and actions occur.
	Execute func(api string, seed uint64, only []string, fullTrace bool) Result
	// MaxViolations is the number of violations after which the campaign stops; zero means one.
	MaxViolations int
	// Out receives the report of each violation, with the smallest run that reproduces it.
	Out io.Writer
	// Quick reports each violation in one line when it is found, and does not shrink the run.
	Quick bool
}

// Summary is the result of a campaign.
type Summary struct {
	Runs            int
	Duration        time.Duration
	Violations      []Result
	Seed            uint64
	Reconciliations int
	Virtual         time.Duration
}

// String returns the last line of a campaign's report.
func (s *Summary) String() string {
	return fmt.Sprintf("runs=%d seconds=%.1f violations=%d seed=%d", s.Runs, s.Duration.Seconds(), len(s.Violations), s.Seed)
}

// add counts the result of one run.
func (s *Summary) add(result Result) {
	s.Runs++
	s.Reconciliations += result.Reconciliations
	s.Virtual += result.Virtual
	if len(result.Violations) > 0 {
		s.Violations = append(s.Violations, result)
	}
}

// Run executes the runs, one per processor at a time. Each run has its own world, so that its result does not depend on other
// runs.
func (c Campaign) Run() *Summary {
	began := time.Now()
	summary := &Summary{Seed: c.Seed}
	var mu sync.Mutex
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := next.Add(1) - 1; n < int64(c.Runs); n = next.Add(1) - 1 {
				apiCount := int64(len(c.APIs))
				result := c.Execute(c.APIs[n%apiCount], c.Seed+uint64(n/apiCount), nil, false)
				result.API = c.APIs[n%apiCount]
				mu.Lock()
				summary.add(result)
				c.reportProgress(summary, began)
				c.reportQuickly(result)
				limitReached := len(summary.Violations) >= max(c.MaxViolations, 1)
				mu.Unlock()
				if limitReached {
					next.Store(int64(c.Runs))
				}
			}
		})
	}
	workers.Wait()
	summary.Duration = time.Since(began)
	slices.SortFunc(summary.Violations, func(a, b Result) int { return int(int64(a.Seed) - int64(b.Seed)) })
	if !c.Quick {
		for _, found := range summary.Violations {
			c.reportShrunk(found)
		}
	}
	return summary
}

// reportQuickly reports the violations of a run, one per line, if the campaign is quick.
func (c Campaign) reportQuickly(found Result) {
	if !c.Quick {
		return
	}
	for _, v := range found.Violations {
		c.reportViolation(found.Seed, v)
	}
}

// progressEvery is the number of runs after which a campaign reports its progress. A long campaign takes hours, and if it is
// interrupted, the last report shows the result up to that point.
const progressEvery = 1000

func (c Campaign) reportProgress(s *Summary, began time.Time) {
	if s.Runs%progressEvery == 0 && s.Runs < c.Runs {
		fmt.Fprintf(c.Out, "%d of %d runs after %s, violations: %d\n", s.Runs, c.Runs, time.Since(began).Truncate(time.Second), len(s.Violations))
	}
}

func (c Campaign) reportViolation(seed uint64, v Violation) {
	fmt.Fprintf(c.Out, "seed %d violates %s after %s: %s\n", seed, v.Number, v.At.Truncate(time.Millisecond), v.Text)
}

// reportShrunk reports a violation with the smallest run that reproduces it, and the command that repeats this run.
func (c Campaign) reportShrunk(found Result) {
	smallest := Shrink(found, func(only []string) Result { return c.Execute(found.API, found.Seed, only, false) })
	fullRun := c.Execute(found.API, found.Seed, append([]string{}, smallest.Occurred...), true)
	fmt.Fprintln(c.Out)
	c.reportViolation(found.Seed, smallest.Violations[0])
	for _, line := range fullRun.Trace[max(0, len(fullRun.Trace)-traceTail):] {
		fmt.Fprintln(c.Out, "  "+line)
	}
	fmt.Fprintf(c.Out, "repeat: make sim APIS=%s RUNS=1 SEED=%d ARGS='-trace -only=%s'\n", found.API, found.Seed, strings.Join(smallest.Occurred, ","))
}
