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
	// APIs take turns: each seed is executed for all of them before the next one.
	APIs []string
	// Seed is that of the first run; the following runs have the next numbers.
	Seed uint64
	Runs int
	// Execute executes one run: all of it, or (only is not nil) with these faults and actions alone.
	Execute func(api string, seed uint64, only []string, fullTrace bool) Result
	// MaxViolations is how many violations end the campaign; zero: one.
	MaxViolations int
	// Out is where violations are reported, each with the smallest run that shows it.
	Out io.Writer
	// Quick reports one line for each violation when it is found, and searches for no smaller run.
	Quick bool
}

// Summary is the result of a campaign.
type Summary struct {
	Runs            int
	Duration        time.Duration
	Violations      []Result
	Seed            uint64
	Covered         map[string]int
	Reconciliations int
	Virtual         time.Duration
}

// String is the last line of a campaign.
func (s *Summary) String() string {
	return fmt.Sprintf("runs=%d seconds=%.1f violations=%d seed=%d", s.Runs, s.Duration.Seconds(), len(s.Violations), s.Seed)
}

// add counts the result of one run.
func (s *Summary) add(result Result) {
	s.Runs++
	s.Reconciliations += result.Reconciliations
	s.Virtual += result.Virtual
	for name, count := range result.Covered {
		s.Covered[name] += count
	}
	if len(result.Violations) > 0 {
		s.Violations = append(s.Violations, result)
	}
}

// Run executes the runs, as many at once as there are processors. Each has a world of its own, so that its result does not
// depend on the others.
func (c Campaign) Run() *Summary {
	began := time.Now()
	summary := &Summary{Seed: c.Seed, Covered: map[string]int{}}
	var mu sync.Mutex
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := next.Add(1) - 1; n < int64(c.Runs); n = next.Add(1) - 1 {
				turns := int64(len(c.APIs))
				result := c.Execute(c.APIs[n%turns], c.Seed+uint64(n/turns), nil, false)
				result.API = c.APIs[n%turns]
				mu.Lock()
				summary.add(result)
				c.reportProgress(summary, began)
				c.reportLines(result)
				enough := len(summary.Violations) >= max(c.MaxViolations, 1)
				mu.Unlock()
				if enough {
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

// reportLines reports the violations of a run, one per line, in a quick campaign.
func (c Campaign) reportLines(found Result) {
	if !c.Quick {
		return
	}
	for _, v := range found.Violations {
		c.reportViolation(found.Seed, v)
	}
}

// progressEvery is the number of runs after which a campaign reports its progress: a long one takes hours, and what a campaign
// that is interrupted has shown until then is known by its last report.
const progressEvery = 1000

func (c Campaign) reportProgress(s *Summary, began time.Time) {
	if s.Runs%progressEvery == 0 && s.Runs < c.Runs {
		fmt.Fprintf(c.Out, "%d of %d runs after %s, violations: %d\n", s.Runs, c.Runs, time.Since(began).Truncate(time.Second), len(s.Violations))
	}
}

func (c Campaign) reportViolation(seed uint64, v Violation) {
	fmt.Fprintf(c.Out, "seed %d violates %s after %s: %s\n", seed, v.Number, v.At.Truncate(time.Millisecond), v.Text)
}

// reportShrunk reports a violation with the smallest run that shows it, and the command that repeats that run.
func (c Campaign) reportShrunk(found Result) {
	smallest := Shrink(found, func(only []string) Result { return c.Execute(found.API, found.Seed, only, false) })
	whole := c.Execute(found.API, found.Seed, append([]string{}, smallest.TookPlace...), true)
	fmt.Fprintln(c.Out)
	c.reportViolation(found.Seed, smallest.Violations[0])
	for _, line := range whole.Trace[max(0, len(whole.Trace)-lastLines):] {
		fmt.Fprintln(c.Out, "  "+line)
	}
	fmt.Fprintf(c.Out, "repeat: make sim APIS=%s RUNS=1 SEED=%d ARGS='-trace -only=%s'\n", found.API, found.Seed, strings.Join(smallest.TookPlace, ","))
}
