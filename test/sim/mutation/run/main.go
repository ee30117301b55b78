// Command run applies mutants to copies of Serin, one at a time, and reports whether the simulator detects each of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/serin-dev/serin/test/sim/mutation"
)

func main() {
	apis := flag.String("apis", "", "APIs whose mutants are tested, comma separated (default: all)")
	runs := flag.Int("runs", 2000, "maximum number of simulation runs for one mutant")
	only := flag.String("only", "", "test only mutants whose name contains this, or that violate this invariant")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := testMutants(ctx, *runs, *apis, *only); err != nil {
		fmt.Println(err)
		stop()
		os.Exit(1)
	}
}

// testMutants tests mutants, one per processor at a time.
func testMutants(ctx context.Context, runs int, apis, only string) (err error) {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	tester, err := mutation.Open(ctx, root, runs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tester.Close()) }()
	began, missed := time.Now(), 0
	for result := range results(ctx, tester, apis, only) {
		fmt.Println(result)
		if result.err != nil || !result.Detected {
			missed++
		}
	}
	fmt.Printf("seconds=%.0f missed=%d\n", time.Since(began).Seconds(), missed)
	if missed > 0 {
		return fmt.Errorf("%d mutants were not detected", missed)
	}
	return ctx.Err()
}

// task is a mutant to test.
type task struct {
	api    string
	mutant mutation.Mutant
}

// selected returns the mutants to test, of the named APIs or, if none is named, of all APIs.
func selected(apis, only string) []task {
	var tasks []task
	for _, api := range mutation.APIs {
		if apis != "" && !slices.Contains(strings.Split(apis, ","), api.Name) {
			continue
		}
		for _, mutant := range api.Mutants {
			if strings.Contains(mutant.Name, only) || mutant.Violates == only {
				tasks = append(tasks, task{api.Name, mutant})
			}
		}
	}
	return tasks
}

// result is the result of a task.
type result struct {
	task
	mutation.Result

	err      error
	duration time.Duration
}

func (r result) String() string {
	switch {
	case r.err != nil:
		return r.err.Error()
	case !r.Detected:
		return fmt.Sprintf("MISSED %s %-4s %s in %s (seen: %s)", r.api, r.mutant.Violates, r.mutant.Name, r.duration, strings.Join(r.Others, " "))
	default:
		return fmt.Sprintf("detected %s %-4s %s in %s, %s: %s", r.api, r.mutant.Violates, r.mutant.Name, r.duration, r.By, r.Text)
	}
}

// results tests the selected mutants, and sends each result when it is available.
func results(ctx context.Context, tester *mutation.Tester, apis, only string) <-chan result {
	tasks, done := make(chan task), make(chan result)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for t := range tasks {
				began := time.Now()
				tested, err := tester.Test(ctx, t.api, t.mutant)
				done <- result{t, tested, err, time.Since(began).Round(100 * time.Millisecond)}
			}
		})
	}
	go func() {
		for _, t := range selected(apis, only) {
			if ctx.Err() == nil {
				tasks <- t
			}
		}
		close(tasks)
		workers.Wait()
		close(done)
	}()
	return done
}
