package actors

import (
	"fmt"
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// Ship is the class of shipped versions. Its name takes part in shrinking like the name of a fault.
const Ship sim.FaultClass = "ship"

// The classes of user actions that exist for every API.
const (
	EditTemplate     sim.FaultClass = "edit-template"
	EditSpec         sim.FaultClass = "edit-spec"
	Scale            sim.FaultClass = "scale"
	Command          sim.FaultClass = "command"
	DeleteRelease    sim.FaultClass = "delete-release"
	DeleteService    sim.FaultClass = "delete-service"
	DeleteRoute      sim.FaultClass = "delete-route"
	EditRouteWeights sim.FaultClass = "edit-route-weights"
	NonsenseStatus   sim.FaultClass = "nonsense-status"
	SwapStrategy     sim.FaultClass = "swap-strategy"
)

// Action is an action that users P perform repeatedly on a release R.
type Action[P, R any] struct {
	Class sim.FaultClass
	Do    func(P, R, *sim.Stream)
}

// ActionClasses returns the classes of actions.
func ActionClasses[P, R any](actions []Action[P, R]) []sim.FaultClass {
	classes := make([]sim.FaultClass, 0, len(actions))
	for _, d := range actions {
		classes = append(classes, d.Class)
	}
	return classes
}

// ScheduleActions schedules the actions of users in a run. Each action affects one of the releases that exist at that time.
func ScheduleActions[P, R any](w *sim.World, users P, actions []Action[P, R], releases func() []R) {
	for _, d := range actions {
		every := sim.Pick(w.Draws.Stream("often/"+string(d.Class)), 4*time.Minute, 8*time.Minute, 20*time.Minute)
		w.ScheduleFaults(d.Class, every, func(s *sim.Stream) {
			if all := releases(); len(all) > 0 {
				d.Do(users, sim.Pick(s, all...), s)
			}
		})
	}
}

// ShippingPlan describes how users ship new versions of a release.
type ShippingPlan struct {
	World *sim.World
	Name  string
	// MaxVersions is the maximum number of versions. The time between two of them is from MinInterval to MaxInterval.
	MaxVersions              int
	MinInterval, MaxInterval time.Duration
	// Draw draws a version, and returns the function that ships it.
	Draw func(*sim.Stream) (ship func())
	// Stopped reports whether users have stopped shipping.
	Stopped func() bool
}

// Schedule schedules the first version, which schedules the next one.
func (p ShippingPlan) Schedule() {
	s := p.World.Draws.Stream("ship/" + p.Name)
	p.scheduleNext(s, s.Between(40*time.Second, 4*time.Minute), s.Int(1, p.MaxVersions))
}

// scheduleNext schedules a version after a delay, and the remaining versions after it.
func (p ShippingPlan) scheduleNext(s *sim.Stream, after time.Duration, remaining int) {
	if remaining == 0 {
		return
	}
	ship := p.Draw(s)
	next := s.Between(p.MinInterval, p.MaxInterval)
	p.World.After(after, func() {
		if p.Stopped() {
			return
		}
		if p.World.Faults.Admit(fmt.Sprintf("%s#%s-%d", Ship, p.Name, remaining)) {
			ship()
		}
		p.scheduleNext(s, next, remaining-1)
	})
}
