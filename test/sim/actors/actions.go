package actors

import (
	"fmt"
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// Ship is no fault: it is what releases are for.
const Ship sim.FaultClass = "ship"

// The classes of actions that users of every API do.
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

// GitOps are tools that write their own copies of objects back.
const GitOps sim.FaultClass = "gitops"

// WritesBack returns what a tool does repeatedly that writes its own copies of the objects of a release back.
func WritesBack(w *sim.World, release string, writeBack func()) func() {
	times := 0
	return func() {
		if times++; w.Faults.TakesPlace(fmt.Sprintf("%s#%s-%d", GitOps, release, times)) {
			writeBack()
		}
	}
}

// Action is what a user P does to a release R repeatedly.
type Action[P, R any] struct {
	Class sim.FaultClass
	Do    func(P, R, *sim.Stream)
}

// ActionClasses are the classes of actions.
func ActionClasses[P, R any](actions []Action[P, R]) []sim.FaultClass {
	classes := make([]sim.FaultClass, 0, len(actions))
	for _, d := range actions {
		classes = append(classes, d.Class)
	}
	return classes
}

// ScheduleActions plans the actions of users in a run, each of them on one of the releases that exist by then.
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

// Shipping is how new versions of one release come.
type Shipping struct {
	World *sim.World
	Name  string
	// Most is how many there are at most; from Soonest to Latest pass between two.
	Most            int
	Soonest, Latest time.Duration
	// Draw draws a version, and gives what ships it.
	Draw func(*sim.Stream) (ship func())
	// Over is true once users have stopped shipping.
	Over func() bool
}

// Begin plans the first version, which plans the next.
func (x Shipping) Begin() {
	s := x.World.Draws.Stream("ship/" + x.Name)
	x.again(s, s.Between(40*time.Second, 4*time.Minute), s.Int(1, x.Most))
}

// again ships a version after a while, and the next ones later.
func (x Shipping) again(s *sim.Stream, after time.Duration, left int) {
	if left == 0 {
		return
	}
	ship := x.Draw(s)
	next := s.Between(x.Soonest, x.Latest)
	x.World.After(after, func() {
		if x.Over() {
			return
		}
		if x.World.Faults.TakesPlace(fmt.Sprintf("%s#%s-%d", Ship, x.Name, left)) {
			ship()
		}
		x.again(s, next, left-1)
	})
}
