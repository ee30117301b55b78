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
	"strings"
	"sync"
	"time"

	"github.com/serin-dev/serin/test/sim/teeth"
)

func main() {
	histories := flag.Int("histories", 2000, "in how many histories a mistake must be found")
	only := flag.String("only", "", "try only teeth whose name or invariant has this in it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bite(ctx, *histories, *only); err != nil {
		fmt.Println(err)
		stop()
		os.Exit(1)
	}
}

// bite tries teeth, as many at once as there are processors.
func bite(ctx context.Context, histories int, only string) (err error) {
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
	for result := range results(ctx, jaw, only) {
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

// result is what became of a tooth.
type result struct {
	tooth teeth.Tooth
	bite  teeth.Bite
	err   error
	took  time.Duration
}

func (r result) String() string {
	switch {
	case r.err != nil:
		return r.err.Error()
	case !r.bite.Found:
		return fmt.Sprintf("MISSED %-4s %s in %s, %d histories (seen: %s)", r.tooth.Breaks, r.tooth.Name, r.took, r.bite.Histories,
			strings.Join(r.bite.Others, " "))
	default:
		return fmt.Sprintf("found  %-4s %s in %s, seed %d, %d histories: %s", r.tooth.Breaks, r.tooth.Name, r.took, r.bite.Seed,
			r.bite.Histories, r.bite.Sentence)
	}
}

// results tries the chosen teeth, and tells each when it is done.
func results(ctx context.Context, jaw *teeth.Jaw, only string) <-chan result {
	todo, done := make(chan teeth.Tooth), make(chan result)
	var trying sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		trying.Go(func() {
			for tooth := range todo {
				began := time.Now()
				found, err := jaw.Try(ctx, tooth)
				done <- result{tooth, found, err, time.Since(began).Round(100 * time.Millisecond)}
			}
		})
	}
	go func() {
		for _, tooth := range teeth.Teeth {
			if ctx.Err() == nil && (strings.Contains(tooth.Name, only) || tooth.Breaks == only) {
				todo <- tooth
			}
		}
		close(todo)
		trying.Wait()
		close(done)
	}()
	return done
}
