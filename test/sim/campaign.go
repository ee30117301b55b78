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

// Campaign plays many histories.
type Campaign struct {
	// Of are what there are histories of: they take turns, and each seed is played of all of them before the next one.
	Of []string
	// Seed is that of the first history; those that follow have the next numbers.
	Seed      uint64
	Histories int
	// Play plays one history: all of it, or (only is not nil) with nothing but these troubles and actions.
	Play func(of string, seed uint64, only []string, tell bool) Result
	// Most is how many violations end the campaign; zero: one.
	Most int
	// Out is where violations are shown, each with the smallest history that has it.
	Out io.Writer
	// Quick shows one line for each violation, when it is found, and looks for no smaller history.
	Quick bool
}

// Summary is what a campaign came to.
type Summary struct {
	Histories  int
	Took       time.Duration
	Violations []Result
	Seed       uint64
	Covered    map[string]int
	Passes     int
	Virtual    time.Duration
}

// String is the last line of a campaign.
func (s Summary) String() string {
	return fmt.Sprintf("histories=%d seconds=%.1f violations=%d seed=%d", s.Histories, s.Took.Seconds(), len(s.Violations), s.Seed)
}

// Run plays the histories, as many at once as there are processors. Each is alone in its world, so that what it comes to
// does not depend on the others.
func (c Campaign) Run() Summary {
	began := time.Now()
	summary := Summary{Seed: c.Seed, Covered: map[string]int{}}
	var mu sync.Mutex
	var next atomic.Int64
	var players sync.WaitGroup
	most := max(c.Most, 1)
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			for {
				n := next.Add(1) - 1
				if n >= int64(c.Histories) {
					return
				}
				turns := int64(len(c.Of))
				result := c.Play(c.Of[n%turns], c.Seed+uint64(n/turns), nil, false)
				result.Of = c.Of[n%turns]
				mu.Lock()
				summary.Histories++
				summary.Passes += result.Passes
				summary.Virtual += result.Virtual
				for name, count := range result.Covered {
					summary.Covered[name] += count
				}
				if len(result.Violations) > 0 {
					summary.Violations = append(summary.Violations, result)
					c.tell(result)
				}
				enough := len(summary.Violations) >= most
				mu.Unlock()
				if enough {
					next.Store(int64(c.Histories))
				}
			}
		})
	}
	players.Wait()
	summary.Took = time.Since(began)
	slices.SortFunc(summary.Violations, func(a, b Result) int { return int(int64(a.Seed) - int64(b.Seed)) })
	if !c.Quick {
		for _, found := range summary.Violations {
			c.show(found)
		}
	}
	return summary
}

// tell shows the violations of a history, one in a line.
func (c Campaign) tell(found Result) {
	if !c.Quick {
		return
	}
	for _, v := range found.Violations {
		fmt.Fprintf(c.Out, "seed %d breaks %s after %s: %s\n", found.Seed, v.Number, v.At.Truncate(time.Millisecond), v.Sentence)
	}
}

// show tells a violation with the smallest history that was found for it, and how to see it again.
func (c Campaign) show(found Result) {
	smallest := Shrink(found, func(only []string) Result { return c.Play(found.Of, found.Seed, only, false) })
	whole := c.Play(found.Of, found.Seed, append([]string{}, smallest.Happened...), true)
	v := smallest.Violations[0]
	fmt.Fprintf(c.Out, "\nseed %d breaks %s after %s: %s\n", found.Seed, v.Number, v.At.Truncate(time.Millisecond), v.Sentence)
	for _, line := range whole.History[max(0, len(whole.History)-lastLines):] {
		fmt.Fprintln(c.Out, "  "+line)
	}
	fmt.Fprintf(c.Out, "again: make sim APIS=%s HISTORIES=1 SEED=%d ARGS='-tell -only=%s'\n", found.Of, found.Seed, strings.Join(smallest.Happened, ","))
}
