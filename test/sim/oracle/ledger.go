package oracle

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// baseLag is how late a process may act on what it read without any fault.
const baseLag = 2 * time.Second

// Ledger records what an outside observer knows of a run, and what the controllers cannot know.
type Ledger struct {
	World *sim.World
	// Lag is how late a process may act on what it read: the lags of this run.
	Lag time.Duration
	// Began is when the run began.
	Began  time.Time
	Clocks Clocks
	// SlowCalls: a call to the API server may take seconds. Relists: the first list of a process may be outdated.
	SlowCalls, Relists bool
	// Objects are the writes of each object.
	Objects map[ObjectKey]*Writes
	// Started is when each running process started.
	Started map[string]time.Time
	// LastFault is when a request of Serin last failed because of an injected fault.
	LastFault time.Time
	// Events counts what may cause a reconciliation.
	Events int

	userStatus schema.GroupKind
}

// ObjectKey identifies an object.
type ObjectKey struct {
	Kind schema.GroupKind
	Key  types.NamespacedName
}

// At is the key of an object.
func At(kind schema.GroupKind, key types.NamespacedName) ObjectKey { return ObjectKey{kind, key} }

// Writes summarizes the writes of one object.
type Writes struct {
	// ByOthers is the last write of anyone but Serin, Last the last one of all, and LastActor who made it.
	ByOthers, Last time.Time
	LastActor      string
	// Unanswered is true while Serin has not written since the last write of others.
	Unanswered bool
}

// Unchanged reports whether no one but Serin wrote the object since then.
func (w *Writes) Unchanged(since time.Time) bool { return w == nil || !w.ByOthers.After(since) }

// Write is a committed write of an object.
type Write struct {
	*store.Event

	BySerin bool
}

// NewLedger returns the ledger of a run. Users write the status of the kind userStatus as well as its spec.
func NewLedger(w *sim.World, userStatus schema.GroupKind) *Ledger {
	return &Ledger{
		World: w, Lag: baseLag + w.Lags(), Began: w.Now(), Clocks: Clocks{world: w},
		SlowCalls: w.Faults.Has(sim.SlowCalls), Relists: w.Faults.Has(sim.Relists),
		Objects: map[ObjectKey]*Writes{}, Started: map[string]time.Time{}, userStatus: userStatus,
	}
}

// Now is the true time.
func (l *Ledger) Now() time.Time { return l.World.Now() }

// OldestView is the earliest moment whose state a process may still act on now.
func (l *Ledger) OldestView() time.Time { return l.Now().Add(-l.Lag) }

// JustStarted reports whether a process started so recently that its first lists may have been outdated.
func (l *Ledger) JustStarted(process string) bool {
	return l.Relists && l.Started[process].After(l.OldestView())
}

// Violate records a violation of an invariant, by an object or (empty) by no particular one.
func (l *Ledger) Violate(number, object, format string, args ...any) {
	if object != "" {
		object += ": "
	}
	l.World.Violate(number, "%s%s", object, fmt.Sprintf(format, args...))
}

// NewWrite is a write in the terms of the ledger.
func NewWrite(event *store.Event) Write { return Write{event, actors.IsSerin(event.Actor)} }

// Record remembers an event.
func (l *Ledger) Record(event any) {
	l.Clocks.record(event)
	switch e := event.(type) {
	case Write:
		l.Events++
		l.recordWrite(e)
	case sim.RequestFailed:
		l.Events++
		l.LastFault = l.Now()
	case sim.ProcessStarted:
		l.Started[e.Instance] = l.Now()
	case sim.ProcessCrashed:
		l.Events++
		delete(l.Started, e.Instance)
	}
}

func (l *Ledger) recordWrite(e Write) {
	at := ObjectKey{e.Kind, e.Key}
	w := l.Objects[at]
	if w == nil {
		w = &Writes{}
		l.Objects[at] = w
	}
	w.Last, w.LastActor = l.Now(), e.Actor
	switch {
	case e.BySerin:
		w.Unanswered = false
	case e.Subresource != "status" || e.Kind == l.userStatus:
		w.ByOthers, w.Unanswered = l.Now(), true
	}
}
