// Command bite makes mistakes in copies of Serin, one after the other, and says whether the simulator finds each.
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

	"github.com/serin-dev/serin/test/sim/teeth"
)

func main() {
	apis := flag.String("apis", "", "the APIs whose mistakes are made, comma separated (all without it)")
	histories := flag.Int("histories", 2000, "in how many histories a mistake must be found")
	only := flag.String("only", "", "try only teeth whose name or invariant has this in it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bite(ctx, *histories, *apis, *only); err != nil {
		fmt.Println(err)
		stop()
		os.Exit(1)
	}
}

// bite tries teeth, as many at once as there are processors.
func bite(ctx context.Context, histories int, apis, only string) (err error) {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	jaw, err := teeth.Open(ctx, root, histories)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, jaw.Close()) }()
	began, missed := time.Now(), 0
	for result := range results(ctx, jaw, apis, only) {
		fmt.Println(result)
		if result.err != nil || !result.bite.Found {
			missed++
		}
	}
	fmt.Printf("seconds=%.0f missed=%d\n", time.Since(began).Seconds(), missed)
	if missed > 0 {
		return fmt.Errorf("%d mistakes were not found", missed)
	}
	return ctx.Err()
}

// task is a tooth to be tried.
type task struct {
	api   string
	tooth teeth.Tooth
}

// chosen are the teeth to be tried, of some APIs or (none is named) all.
func chosen(apis, only string) []task {
	var tasks []task
	for _, api := range teeth.APIs {
		if apis != "" && !slices.Contains(strings.Split(apis, ","), api.Name) {
			continue
		}
		for _, tooth := range api.Teeth {
			if strings.Contains(tooth.Name, only) || tooth.Breaks == only {
				tasks = append(tasks, task{api.Name, tooth})
			}
		}
	}
	return tasks
}

// result is what became of a tooth.
type result struct {
	task
	bite teeth.Bite
	err  error
	took time.Duration
}

func (r result) String() string {
	switch {
	case r.err != nil:
		return r.err.Error()
	case !r.bite.Found:
		return fmt.Sprintf("MISSED %s %-4s %s in %s (seen: %s)", r.api, r.tooth.Breaks, r.tooth.Name, r.took, strings.Join(r.bite.Others, " "))
	default:
		return fmt.Sprintf("found  %s %-4s %s in %s, %s: %s", r.api, r.tooth.Breaks, r.tooth.Name, r.took, r.bite.By, r.bite.Sentence)
	}
}

// results tries the chosen teeth, and tells each when it is done.
func results(ctx context.Context, jaw *teeth.Jaw, apis, only string) <-chan result {
	todo, done := make(chan task), make(chan result)
	var trying sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		trying.Go(func() {
			for t := range todo {
				began := time.Now()
				found, err := jaw.Try(ctx, t.api, t.tooth)
				done <- result{t, found, err, time.Since(began).Round(100 * time.Millisecond)}
			}
		})
	}
	go func() {
		for _, t := range chosen(apis, only) {
			if ctx.Err() == nil {
				todo <- t
			}
		}
		close(todo)
		trying.Wait()
		close(done)
	}()
	return done
}
