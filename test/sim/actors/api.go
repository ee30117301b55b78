package actors

import (
	"context"
	"fmt"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// API is one of the simulated APIs.
type API struct {
	// Definitions reads the definitions of the custom kinds that runs need.
	Definitions func(context.Context) (*store.Definitions, error)
	// Classes are the classes of faults that its kinds add to those of the engine.
	Classes []sim.FaultClass
	// Drawn returns the kinds of a run with drawn releases.
	Drawn func() []sim.Kind
	// Stories returns the scripted releases that a run can execute.
	Stories func() []Story
}

// NewAPI returns an API with the stories S. readOwn reads the definitions of Serin's kinds, name returns the name of a story, and
// kinds the kinds of a run: of a story, or if it is nil, of drawn releases.
func NewAPI[S any](readOwn func() (*store.Definitions, error), classes []sim.FaultClass, stories func() []S, name func(*S) string, kinds func(*S) []sim.Kind) API {
	return API{
		Definitions: func(ctx context.Context) (*store.Definitions, error) { return readDefinitions(ctx, readOwn) },
		Classes:     classes,
		Drawn:       func() []sim.Kind { return kinds(nil) },
		Stories: func() []Story {
			var fixed []Story
			for _, story := range stories() {
				fixed = append(fixed, Story{Name: name(&story), New: func() []sim.Kind { return kinds(&story) }})
			}
			return fixed
		},
	}
}

// readDefinitions returns the definitions of Serin's kinds, and those of the kinds of routes.
func readDefinitions(ctx context.Context, readOwn func() (*store.Definitions, error)) (*store.Definitions, error) {
	own, err := readOwn()
	if err != nil {
		return nil, fmt.Errorf("read Serin's definitions: %w", err)
	}
	routes, err := store.Routes(ctx, cluster.RouterKinds...)
	if err != nil {
		return nil, err
	}
	return own.And(routes), nil
}
