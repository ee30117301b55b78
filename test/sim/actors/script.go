package actors

import (
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// Script contains the pending actions of users, and the remaining acts of a story.
type Script struct {
	world   *sim.World
	pending int
	acts    []Act
}

// Act is an action of users in a story.
type Act struct {
	// When is evaluated after each event. Once it returns true, the act follows after the delay After. Nil means immediately.
	When  func() bool
	After time.Duration
	Do    func()
}

// Step is an act of users P in a story about a release R with a status S.
type Step[P, R, S any] struct {
	// When evaluates the release. Once it returns true, the act follows after the delay After. Nil means immediately.
	When  func(R, S) bool
	After time.Duration
	Do    func(P, R)
}

// StartStory starts a story about a release. status returns false while the release does not exist.
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

// Story is a release with a fixed sequence of actions.
type Story struct {
	Name string
	// New returns the kinds of releases for one run of the story.
	New func() []sim.Kind
}

// StoryDuration is how long a story is simulated before the run quiesces. Its acts may continue after that.
const StoryDuration = time.Minute

// NewScript returns a script without actions.
func NewScript(w *sim.World) *Script { return &Script{world: w} }

// Start starts a story.
func (s *Script) Start(acts []Act) {
	s.acts = acts
	s.Continue()
}

// Continue schedules the next act of a story if its condition is met.
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

// After schedules an action that completes an earlier one. It also happens if faults have ended by then.
func (s *Script) After(after time.Duration, do func()) {
	s.pending++
	s.world.After(after, func() {
		s.pending--
		do()
		s.Continue()
	})
}

// Active reports whether actions or acts remain.
func (s *Script) Active() bool { return s.pending > 0 || len(s.acts) > 0 }
