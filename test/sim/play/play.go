// Package play puts a history together: which kinds of releases there are, and what is installed in the cluster.
//
// It is the one place that knows all kinds; a new kind of release is added here. It must not know what a history is
// about, nor what must hold in it.
package play

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/canary"
	"github.com/serin-dev/serin/test/sim/store"
)

// definitions are compiled once and shared by all histories.
var definitions = sync.OnceValue(func() *store.Definitions {
	d, err := canary.Definitions(context.Background())
	if err != nil {
		panic(fmt.Sprintf("read the definitions of resources: %v", err))
	}
	return d
})

var scheme = sync.OnceValue(operator.Scheme)

func options(seed uint64) sim.Options {
	return sim.Options{Seed: seed, Definitions: definitions(), Scheme: scheme(), Classes: canary.Classes}
}

// Draw says which history is played.
type Draw struct {
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
	o := options(d.Seed)
	o.Tell, o.Troubled = d.Tell, d.Lasts
	if d.Only != nil {
		o.Only = map[string]bool{}
		for _, name := range d.Only {
			o.Only[name] = true
		}
	}
	return sim.Run(o, canary.New())
}

// Stories are the names of the fixed stories of all kinds.
func Stories() []string { return canary.StoryNames() }

// Story plays a fixed story in which nothing goes wrong but what strikes it.
func Story(name string, strikes ...sim.Strike) sim.Result {
	o := options(1)
	o.Quiet, o.Strikes, o.Tell = true, strikes, true
	o.Troubled = canary.StoryLength(name)
	return sim.Run(o, canary.NewStory(name))
}
