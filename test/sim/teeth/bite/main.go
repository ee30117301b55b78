// Command bite makes mistakes in copies of Serin, one after the other, and says whether the simulator finds each.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/serin-dev/serin/test/sim/teeth"
)

func main() {
	histories := flag.Int("histories", 2000, "in how many histories a mistake must be found")
	seed := flag.Uint64("seed", 1, "the seed of the first one")
	only := flag.String("only", "", "try only teeth whose name or invariant has this in it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	jaw := teeth.Jaw{Root: ".", Seed: *seed, Histories: *histories}
	if root, err := os.Getwd(); err == nil {
		jaw.Root = root // an overlay names files by their whole path
	}
	missed := 0
	for _, tooth := range teeth.Teeth {
		if !strings.Contains(tooth.Name, *only) && tooth.Breaks[0] != *only {
			continue
		}
		began := time.Now()
		bite, err := jaw.Try(ctx, tooth)
		took := time.Since(began).Round(time.Second)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			fmt.Println(err)
			missed++
		case bite.Broken == "":
			fmt.Printf("MISSED %-4s %s in %s (seen: %s)\n", tooth.Breaks[0], tooth.Name, took, strings.Join(bite.Others, " "))
			missed++
		default:
			fmt.Printf("found  %-4s %s in %s: %s: %s\n", tooth.Breaks[0], tooth.Name, took, bite.Broken, bite.Sentence)
		}
	}
	if missed > 0 {
		fmt.Printf("%d mistakes were not found\n", missed)
		os.Exit(1)
	}
}
