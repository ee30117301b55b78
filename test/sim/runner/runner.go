// Package runner composes and executes simulation runs: which kinds of releases exist, and what is installed in the cluster.
//
// It is the one place that knows all APIs; a new kind of release is added here. It must not know what happens in a run, nor
// which invariants hold.
package runner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/canary"
	"github.com/serin-dev/serin/test/sim/corpus"
	"github.com/serin-dev/serin/test/sim/rollout"
	"github.com/serin-dev/serin/test/sim/store"
)

// The APIs whose releases are simulated.
const (
	Canary  = "canary"
	Rollout = "rollout"
)

// APIs are all simulated APIs.
var APIs = []string{Canary, Rollout}

// api describes the runs of one API. Its definitions are compiled once and shared by all runs.
type api struct {
	actors.API

	definitions func() *store.Definitions
}

var apis = map[string]api{
	Canary:  {canary.API, compileOnce(canary.API.Definitions)},
	Rollout: {rollout.API, compileOnce(rollout.API.Definitions)},
}

func compileOnce(read func(context.Context) (*store.Definitions, error)) func() *store.Definitions {
	return sync.OnceValue(func() *store.Definitions {
		d, err := read(context.Background())
		if err != nil {
			panic(fmt.Sprintf("read the definitions of resources: %v", err))
		}
		return d
	})
}

var scheme = sync.OnceValue(operator.Scheme)

func (a api) options(seed uint64) sim.Options {
	return sim.Options{Seed: seed, Definitions: a.definitions(), Scheme: scheme(), Classes: a.Classes}
}

// Selection selects a simulation run.
type Selection struct {
	// API is the API of its releases; empty: Canary.
	API  string
	Seed uint64
	// Only are the only faults and actions that occur; nil: all that are drawn.
	Only []string
	// Without are faults and actions that do not occur although they are drawn.
	Without []string
	// FaultDuration is how long faults last; zero: drawn.
	FaultDuration time.Duration
	// FullTrace retains the whole trace.
	FullTrace bool
}

// SelectEntry selects the run of an entry of the regression corpus.
func SelectEntry(e corpus.Entry) Selection {
	return Selection{API: e.API, Seed: e.Seed, Only: e.Only, Without: e.Without, FaultDuration: e.FaultDuration}
}

// Run executes one run that is drawn from a seed.
func Run(selection Selection) sim.Result {
	a := apis[cmp.Or(selection.API, Canary)]
	o := a.options(selection.Seed)
	o.FullTrace, o.FaultDuration, o.Without = selection.FullTrace, selection.FaultDuration, selection.Without
	if selection.Only != nil {
		o.Only = map[string]bool{}
		for _, name := range selection.Only {
			o.Only[name] = true
		}
	}
	return sim.Run(o, a.Drawn()...)
}

// Stories returns the names of the fixed stories of an API.
func Stories(api string) []string {
	var names []string
	for _, story := range apis[api].Stories() {
		names = append(names, story.Name)
	}
	return names
}

// RunStory executes a fixed story, without any faults except for the scheduled ones.
func RunStory(api, name string, faults ...sim.ScheduledFault) sim.Result {
	a := apis[api]
	stories := a.Stories()
	i := slices.IndexFunc(stories, func(s actors.Story) bool { return s.Name == name })
	if i < 0 {
		panic("no story " + name) // a programming error
	}
	o := a.options(1)
	o.FaultFree, o.ScheduledFaults, o.FullTrace, o.FaultDuration = true, faults, true, actors.StoryDuration
	return sim.Run(o, stories[i].New()...)
}
