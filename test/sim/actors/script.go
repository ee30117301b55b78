package actors

import (
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// Script is what users have begun and not finished, and what is left of the acts of a story.
type Script struct {
	world   *sim.World
	pending int
	acts    []Act
}

// Act is one thing that users do in a story.
type Act struct {
	// When is evaluated after each event; the act follows After it is first true. Nil: immediately.
	When  func() bool
	After time.Duration
	Do    func()
}

// Step is an act of users P in a story about a release R with a status S.
type Step[P, R, S any] struct {
	// When evaluates the release; the act follows After it is first true. Nil: immediately.
	When  func(R, S) bool
	After time.Duration
	Do    func(P, R)
}

// StartStory begins a story about a release; status is false while it does not exist.
func StartStory[P, R, S any](script *Script, users P, release R, steps []Step[P, R, S], status func() (S, bool)) {
	acts := make([]Act, len(steps))
	for i, step := range steps {
		acts[i] = Act{After: step.After, Do: func() { step.Do(users, release) }}
		if step.When != nil {
			acts[i].When = func() bool {
				now, exists := status()
				return exists && step.When(release, now)
			}
		}
	}
	script.Start(acts)
}

// Story is a release whose course is fixed.
type Story struct {
	Name string
	// New returns the kinds of releases of one run of it.
	New func() []sim.Kind
}

// StoryDuration is how long a story is simulated before its end is awaited. Its acts continue after that.
const StoryDuration = time.Minute

// NewScript is of users who have begun nothing.
func NewScript(w *sim.World) *Script { return &Script{world: w} }

// Start begins a story.
func (s *Script) Start(acts []Act) {
	s.acts = acts
	s.Continue()
}

// Continue lets the next act of a story follow when its moment has come.
func (s *Script) Continue() {
	if len(s.acts) == 0 || s.pending > 0 {
		return
	}
	act := s.acts[0]
	if act.When != nil && !act.When() {
		return
	}
	s.After(act.After, func() {
		s.acts = s.acts[1:]
		act.Do()
	})
}

// After does something that follows from what was done before, also when faults are over by then.
func (s *Script) After(after time.Duration, do func()) {
	s.pending++
	s.world.After(after, func() {
		s.pending--
		do()
		s.Continue()
	})
}

// Active is true until users have finished.
func (s *Script) Active() bool { return s.pending > 0 || len(s.acts) > 0 }
