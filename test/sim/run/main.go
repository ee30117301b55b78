// Command run plays histories in the simulator, and says which of them break what must hold.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/kept"
	"github.com/serin-dev/serin/test/sim/play"
)

// garbage is how much may lie about before it is collected, in percent of what lives: little lives in a history, and
// nearly all of it dies with it.
const garbage = 800

func main() {
	histories := flag.Int("histories", 20_000, "how many histories to play")
	of := flag.String("apis", strings.Join(play.APIs, ","), "the APIs of which histories are played, in turns, comma separated")
	seed := flag.Uint64("seed", 0, "the seed of the first one; the others have the numbers that follow (0: one of today's, after all histories that are kept)")
	only := flag.String("only", "", "the only troubles and actions that take place, as an earlier run named them, comma separated (-: none)")
	lasts := flag.Duration("lasts", 0, "how long troubles last (0: as drawn)")
	most := flag.Int("most", 3, "after how many violations to stop")
	tell := flag.Bool("tell", false, "print the histories, for looking at one")
	cover := flag.Bool("cover", false, "print what was reached, and how often")
	stories := flag.String("stories", "", "play the fixed stories whose names have this in them (empty: all), and no histories")
	quick := flag.Bool("quick", false, "print a line for each violation, and look for no smaller history")
	flag.Parse()
	log.SetLogger(logr.Discard())
	debug.SetGCPercent(garbage)
	for of := range strings.SplitSeq(*of, ",") {
		if !slices.Contains(play.APIs, of) {
			fmt.Printf("-apis names %q: give some of %v\n", of, play.APIs)
			os.Exit(1)
		}
	}
	if given("stories") {
		if !playStories(strings.Split(*of, ","), *stories, *tell) {
			os.Exit(1)
		}
		return
	}
	if *seed == 0 {
		if !playKept() {
			os.Exit(1)
		}
		*seed = uint64(time.Now().UnixMicro())
	}
	campaign := sim.Campaign{Of: strings.Split(*of, ","), Seed: *seed, Histories: *histories, Most: *most, Out: os.Stdout, Quick: *quick}
	campaign.Play = func(of string, seed uint64, names []string, keep bool) sim.Result {
		if names == nil && *only != "" {
			names = strings.Split(*only, ",")
		}
		result := play.History(play.Draw{API: of, Seed: seed, Only: names, Lasts: *lasts, Tell: keep || *tell})
		if *tell {
			for _, line := range result.History {
				fmt.Println(line)
			}
		}
		return result
	}
	summary := campaign.Run()
	if *cover {
		for _, name := range slices.Sorted(maps.Keys(summary.Covered)) {
			fmt.Printf("%8d  %s\n", summary.Covered[name], name)
		}
	}
	if summary.Histories > 0 && summary.Took > 0 {
		fmt.Printf("\n%.0f histories a minute, %.0f passes and %s of virtual time a history\n",
			float64(summary.Histories)/summary.Took.Minutes(), float64(summary.Passes)/float64(summary.Histories),
			(summary.Virtual / time.Duration(summary.Histories)).Truncate(time.Second))
	}
	fmt.Println(summary)
	if len(summary.Violations) > 0 {
		os.Exit(1)
	}
}

// playKept plays the histories that once found a mistake, and is false when one does so again.
func playKept() bool {
	histories, err := kept.All()
	if err != nil {
		fmt.Println(err)
		return false
	}
	sound := true
	for _, h := range histories {
		for _, v := range play.History(play.Draw{API: h.API, Seed: h.Seed, Only: h.Only, Lasts: h.Lasts}).Violations {
			fmt.Printf("%s (kept) breaks %s after %s: %s\nonce: %s\n", h.Name, v.Number, v.At.Truncate(time.Millisecond), v.Sentence, h.Why)
			sound = false
		}
	}
	fmt.Printf("kept=%d\n", len(histories))
	return sound
}

// given is true of a flag that the command line has.
func given(name string) bool {
	is := false
	flag.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}

// playStories plays fixed stories, and is false when one breaks something.
func playStories(apis []string, some string, tell bool) bool {
	sound := true
	for _, of := range apis {
		for _, name := range play.Stories(of) {
			if !strings.Contains(name, some) {
				continue
			}
			result := play.Story(of, name)
			if tell {
				fmt.Println(strings.Join(result.History, "\n"))
			}
			for _, v := range result.Violations {
				fmt.Printf("story %q breaks %s after %s: %s\n", name, v.Number, v.At.Truncate(time.Millisecond), v.Sentence)
				sound = false
			}
		}
	}
	return sound
}
