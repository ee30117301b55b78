// Command run executes simulation runs, and reports which of them violate an invariant.
package main

import (
	"flag"
	"fmt"
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

// gcPercent is the target percentage of the garbage collector. It is high because a run has few live objects, and nearly all of
// them become garbage when it ends.
const gcPercent = 800

func main() {
	runs := flag.Int("runs", 20_000, "number of simulation runs")
	apiNames := flag.String("apis", strings.Join(runner.APIs, ","), "APIs of the releases, comma separated; each seed is executed for all of them")
	seed := flag.Uint64("seed", 0, "seed of the first run; the following runs use consecutive numbers (0: execute the regression corpus, then start from a seed derived from the time)")
	only := flag.String("only", "", "the only faults and actions that occur, as an earlier run named them, comma separated (-: none)")
	lasts := flag.Duration("lasts", 0, "how long faults last (0: drawn from the seed)")
	most := flag.Int("most", 3, "number of violations after which to stop")
	trace := flag.Bool("trace", false, "print the traces of the runs")
	stories := flag.String("stories", "", "execute only the fixed stories whose names contain this (empty: all), and no runs")
	quick := flag.Bool("quick", false, "print a line for each violation, and do not shrink runs")
	flag.Parse()
	log.SetLogger(logr.Discard())
	debug.SetGCPercent(gcPercent)
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
	printSummary(summary)
	exit(len(summary.Violations) == 0)
}

func exit(passed bool) {
	if !passed {
		os.Exit(1)
	}
	os.Exit(0)
}

func printSummary(summary *sim.Summary) {
	if summary.Runs > 0 && summary.Duration > 0 {
		fmt.Printf("\n%.0f runs a minute, %.0f reconciliations and %s of virtual time a run\n",
			float64(summary.Runs)/summary.Duration.Minutes(), float64(summary.Reconciliations)/float64(summary.Runs),
			(summary.Virtual / time.Duration(summary.Runs)).Truncate(time.Second))
	}
	fmt.Println(summary)
}

// executeCorpus executes the regression corpus, and reports whether no run violates an invariant.
func executeCorpus() bool {
	entries, err := corpus.All()
	if err != nil {
		fmt.Println(err)
		return false
	}
	passed := true
	for _, entry := range entries {
		for _, v := range runner.Run(runner.SelectEntry(entry)).Violations {
			fmt.Printf("%s (regression corpus) violates %s after %s: %s\nthe defect was: %s\n",
				entry.Name, v.Number, v.At.Truncate(time.Millisecond), v.Text, entry.Description)
			passed = false
		}
	}
	fmt.Printf("corpus=%d\n", len(entries))
	return passed
}

// isSet reports whether a flag was set on the command line.
func isSet(name string) bool {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// executeStories executes fixed stories, and reports whether no story violates an invariant.
func executeStories(apis []string, part string, trace bool) bool {
	passed := true
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
				passed = false
			}
		}
	}
	return passed
}
