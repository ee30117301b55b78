// Package play puts a history together: which kinds of releases there are, and what is installed in the cluster.
//
// It is the one place that knows all kinds; a new kind of release is added here. It must not know what a history is
// about, nor what must hold in it.
package play

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/canary"
	"github.com/serin-dev/serin/test/sim/kinds"
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
	stories     func() []kinds.Story
}

var apis = map[string]api{
	Canary:  {compiled(canary.Definitions), canary.Classes, canary.New, canary.FixedStories},
	Rollout: {compiled(rollout.Definitions), rollout.Classes, rollout.New, rollout.FixedStories},
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
func Stories(of string) []string {
	var names []string
	for _, story := range apis[of].stories() {
		names = append(names, story.Name)
	}
	return names
}

// Story plays a fixed story in which nothing goes wrong but what strikes it.
func Story(of, name string, strikes ...sim.Strike) sim.Result {
	a := apis[of]
	stories := a.stories()
	i := slices.IndexFunc(stories, func(s kinds.Story) bool { return s.Name == name })
	if i < 0 {
		panic("no story " + name) // a mistake in the program
	}
	o := a.options(1)
	o.Quiet, o.Strikes, o.Tell, o.Troubled = true, strikes, true, kinds.Lasts
	return sim.Run(o, stories[i].New()...)
}
