// Command run executes simulation runs, and reports which of them violate an invariant.
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
	"github.com/serin-dev/serin/test/sim/corpus"
	"github.com/serin-dev/serin/test/sim/runner"
)

// garbage is how much garbage may accumulate before it is collected, in percent of the live heap: a run has few live objects,
// and nearly all of them die with it.
const garbage = 800

func main() {
	runs := flag.Int("runs", 20_000, "number of simulation runs")
	apiNames := flag.String("apis", strings.Join(runner.APIs, ","), "APIs of the releases, which take turns, comma separated")
	seed := flag.Uint64("seed", 0, "seed of the first run; the others have the numbers that follow (0: one of today's, after the regression corpus)")
	only := flag.String("only", "", "the only faults and actions that take place, as an earlier run named them, comma separated (-: none)")
	lasts := flag.Duration("lasts", 0, "how long faults last (0: as drawn)")
	most := flag.Int("most", 3, "number of violations after which to stop")
	trace := flag.Bool("trace", false, "print the traces of the runs")
	cover := flag.Bool("cover", false, "print what was reached, and how often")
	stories := flag.String("stories", "", "execute the fixed stories whose names contain this (empty: all), and no runs")
	quick := flag.Bool("quick", false, "print a line for each violation, and do not search for a smaller run")
	flag.Parse()
	log.SetLogger(logr.Discard())
	debug.SetGCPercent(garbage)
	apis := strings.Split(*apiNames, ",")
	for _, api := range apis {
		if !slices.Contains(runner.APIs, api) {
			fmt.Printf("-apis names %q: use some of %v\n", api, runner.APIs)
			os.Exit(1)
		}
	}
	if isSet("stories") {
		exit(executeStories(apis, *stories, *trace))
	}
	if *seed == 0 {
		if !executeCorpus() {
			exit(false)
		}
		*seed = uint64(time.Now().UnixMicro())
	}
	campaign := sim.Campaign{APIs: apis, Seed: *seed, Runs: *runs, MaxViolations: *most, Out: os.Stdout, Quick: *quick}
	campaign.Execute = func(api string, seed uint64, names []string, keep bool) sim.Result {
		if names == nil && *only != "" {
			names = strings.Split(*only, ",")
		}
		result := runner.Run(runner.Selection{API: api, Seed: seed, Only: names, FaultDuration: *lasts, FullTrace: keep || *trace})
		if *trace {
			for _, line := range result.Trace {
				fmt.Println(line)
			}
		}
		return result
	}
	summary := campaign.Run()
	printSummary(summary, *cover)
	exit(len(summary.Violations) == 0)
}

func exit(sound bool) {
	if !sound {
		os.Exit(1)
	}
	os.Exit(0)
}

func printSummary(summary *sim.Summary, cover bool) {
	if cover {
		for _, name := range slices.Sorted(maps.Keys(summary.Covered)) {
			fmt.Printf("%8d  %s\n", summary.Covered[name], name)
		}
	}
	if summary.Runs > 0 && summary.Duration > 0 {
		fmt.Printf("\n%.0f runs a minute, %.0f reconciliations and %s of virtual time a run\n",
			float64(summary.Runs)/summary.Duration.Minutes(), float64(summary.Reconciliations)/float64(summary.Runs),
			(summary.Virtual / time.Duration(summary.Runs)).Truncate(time.Second))
	}
	fmt.Println(summary)
}

// executeCorpus executes the regression corpus, and is false when a defect is back.
func executeCorpus() bool {
	entries, err := corpus.All()
	if err != nil {
		fmt.Println(err)
		return false
	}
	sound := true
	for _, entry := range entries {
		for _, v := range runner.Run(runner.SelectEntry(entry)).Violations {
			fmt.Printf("%s (regression corpus) violates %s after %s: %s\nthe defect was: %s\n",
				entry.Name, v.Number, v.At.Truncate(time.Millisecond), v.Text, entry.Description)
			sound = false
		}
	}
	fmt.Printf("corpus=%d\n", len(entries))
	return sound
}

// isSet reports whether the command line has a flag.
func isSet(name string) bool {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// executeStories executes fixed stories, and is false when one violates an invariant.
func executeStories(apis []string, part string, trace bool) bool {
	sound := true
	for _, api := range apis {
		for _, name := range runner.Stories(api) {
			if !strings.Contains(name, part) {
				continue
			}
			result := runner.RunStory(api, name)
			if trace {
				fmt.Println(strings.Join(result.Trace, "\n"))
			}
			for _, v := range result.Violations {
				fmt.Printf("story %q violates %s after %s: %s\n", name, v.Number, v.At.Truncate(time.Millisecond), v.Text)
				sound = false
			}
		}
	}
	return sound
}
