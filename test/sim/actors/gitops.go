package actors

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim"
)

// GitOps is the class of GitOps tools, which reapply their own copies of objects.
const GitOps sim.FaultClass = "gitops"

// minReaction is the minimum time after which a tool that watches reapplies its copy.
const minReaction = 10 * time.Second

// Copies are a GitOps tool's own copies of some objects of a release. The fields report which fields the copies contain.
type Copies struct {
	Replicas, Template, Selectors, Weights bool
}

// gitOpsTool reapplies copies, as GitOps tools do.
type gitOpsTool struct {
	world   *sim.World
	stream  *sim.Stream
	stopped func() bool
	reapply func()
	// manages reports whether the tool has a copy of an object. scheduled is set while it is about to reapply its copies.
	manages   func(kind schema.GroupKind, name string) bool
	scheduled bool
}

// ScheduleGitOps starts the GitOps tool of a release, if the run has such tools. It compares the objects at one of the given
// intervals, and writes all fields that differ from its copies. If the interval is zero, it compares them after each change of an
// object of which it has a copy, as manages reports.
func (f *Frame[R]) ScheduleGitOps(r R, intervals []time.Duration, write func(R, Copies), manages func(R, Copies, schema.GroupKind, string) bool) {
	if !f.World.Faults.Has(GitOps) {
		return
	}
	name := r.Common().Key.Name
	s := f.World.Draws.Stream("gitops/" + name)
	copies := Copies{Replicas: s.Chance(0.5), Template: s.Chance(0.6), Selectors: s.Chance(0.4), Weights: s.Chance(0.4)}
	t := &gitOpsTool{
		world: f.World, stream: s, stopped: func() bool { return f.Stopped }, reapply: admitEach(f.World, name, func() { write(r, copies) }),
		manages: func(kind schema.GroupKind, name string) bool { return manages(r, copies, kind, name) },
	}
	if interval := sim.Pick(s, intervals...); interval > 0 {
		Repeat(f.World, interval, t.stopped, t.reapply)
		return
	}
	f.World.Subscribe(t.observe)
}

// admitEach returns a function that a tool calls repeatedly. Each call is a separate fault, so that it can be omitted when a run
// is shrunk.
func admitEach(w *sim.World, release string, reapply func()) func() {
	times := 0
	return func() {
		if times++; w.Faults.Admit(fmt.Sprintf("%s#%s-%d", GitOps, release, times)) {
			reapply()
		}
	}
}

// observe schedules a comparison some time after another actor changed an object of which the tool has a copy.
func (t *gitOpsTool) observe(event any) {
	written, ok := event.(sim.ObjectWritten)
	if !ok || t.scheduled || t.stopped() || written.Actor == "gitops" || written.Subresource == "status" || !t.manages(written.Kind, written.Key.Name) {
		return
	}
	t.scheduled = true
	t.world.After(t.stream.Between(minReaction, time.Minute), func() {
		t.scheduled = false
		if !t.stopped() {
			t.reapply()
		}
	})
}
