// Package play puts a history together: which kinds of releases there are, and what is installed in the cluster.
//
// It is the one place that knows all kinds; a new kind of release is added here. It must not know what a history is
// about, nor what must hold in it.
package play

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/canary"
	"github.com/serin-dev/serin/test/sim/rollout"
	"github.com/serin-dev/serin/test/sim/store"
)

// The APIs of which there are histories, and stories.
const (
	Canary  = "canary"
	Rollout = "rollout"
)

// APIs are all of them.
var APIs = []string{Canary, Rollout}

// api is what a history of one API is made of. Definitions are compiled once and shared by all histories.
type api struct {
	definitions func() *store.Definitions
	classes     []sim.Class
	drawn       func() []sim.Kind
	story       func(name string) []sim.Kind
	stories     func() []string
	length      func(story string) time.Duration
}

var apis = map[string]api{
	Canary: {
		compiled(canary.Definitions), canary.Classes, func() []sim.Kind { return []sim.Kind{canary.New()} },
		func(name string) []sim.Kind { return []sim.Kind{canary.NewStory(name)} }, canary.StoryNames, canary.StoryLength,
	},
	Rollout: {compiled(rollout.Definitions), rollout.Classes, rollout.New, rollout.NewStory, rollout.StoryNames, rollout.StoryLength},
}

func compiled(read func(context.Context) (*store.Definitions, error)) func() *store.Definitions {
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
	return sim.Options{Seed: seed, Definitions: a.definitions(), Scheme: scheme(), Classes: a.classes}
}

// Draw says which history is played.
type Draw struct {
	// API of its releases; empty: Canary.
	API  string
	Seed uint64
	// Only are the only troubles and actions that take place; nil: all that are drawn.
	Only []string
	// Lasts is how long troubles last; zero: drawn.
	Lasts time.Duration
	// Tell keeps all its lines.
	Tell bool
}

// History plays one drawn history.
func History(d Draw) sim.Result {
	a := apis[cmp.Or(d.API, Canary)]
	o := a.options(d.Seed)
	o.Tell, o.Troubled = d.Tell, d.Lasts
	if d.Only != nil {
		o.Only = map[string]bool{}
		for _, name := range d.Only {
			o.Only[name] = true
		}
	}
	return sim.Run(o, a.drawn()...)
}

// Stories are the names of the fixed stories of an API.
func Stories(of string) []string { return apis[of].stories() }

// Story plays a fixed story in which nothing goes wrong but what strikes it.
func Story(of, name string, strikes ...sim.Strike) sim.Result {
	a := apis[of]
	o := a.options(1)
	o.Quiet, o.Strikes, o.Tell = true, strikes, true
	o.Troubled = a.length(name)
	return sim.Run(o, a.story(name)...)
}
