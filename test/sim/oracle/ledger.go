package oracle

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// baseLag is the maximum age of the state that a process acts on in a run without faults.
const baseLag = 2 * time.Second

// Ledger records what an outside observer knows of a run, including facts that the controllers cannot know.
type Ledger struct {
	World *sim.World
	// Lag is the maximum age of the state that a process may act on in this run.
	Lag time.Duration
	// Began is when the run started.
	Began  time.Time
	Clocks Clocks
	// SlowCalls means that a request to the API server may take seconds. Relists means that the first list of a process may be
	// outdated.
	SlowCalls, Relists bool
	// LossDetection is how long Kubernetes may consider a pod ready although its node is lost.
	LossDetection time.Duration
	// Objects contains the writes of each object.
	Objects map[ObjectKey]*Writes
	// Started contains the start time of each running process.
	Started map[string]time.Time
	// LastFault is when an injected fault last made a request of Serin fail.
	LastFault time.Time
	// Events counts the events that may cause a reconciliation.
	Events int

	userStatus schema.GroupKind
}

// ObjectKey identifies an object.
type ObjectKey struct {
	Kind schema.GroupKind
	Key  types.NamespacedName
}

// KeyOf returns the key of an object.
func KeyOf(kind schema.GroupKind, key types.NamespacedName) ObjectKey { return ObjectKey{kind, key} }

// Writes summarizes the writes of one object.
type Writes struct {
	// ByOthers is the last write by an actor other than Serin, Last the last write by any actor, and LastActor the actor that
	// made it.
	ByOthers, Last time.Time
	LastActor      string
	// AwaitsSerin reports whether Serin has not written the object since the last write by another actor.
	AwaitsSerin bool
}

// Unchanged reports whether no actor other than Serin has written the object since then.
func (w *Writes) Unchanged(since time.Time) bool { return w == nil || !w.ByOthers.After(since) }

// Write is a committed write of an object.
type Write struct {
	*store.Event

	BySerin bool
}

// NewLedger returns the ledger of a run. userStatus is the kind whose status users write as well as its spec.
func NewLedger(w *sim.World, userStatus schema.GroupKind) *Ledger {
	return &Ledger{
		World: w, Lag: baseLag + w.MaxLag(), Began: w.Now(), Clocks: Clocks{world: w},
		SlowCalls: w.Faults.Has(sim.SlowCalls), Relists: w.Faults.Has(sim.Relists),
		Objects: map[ObjectKey]*Writes{}, Started: map[string]time.Time{}, userStatus: userStatus,
	}
}

// Now returns the simulated time, unaffected by the clocks of processes.
func (l *Ledger) Now() time.Time { return l.World.Now() }

// OldestView returns the earliest time whose state a process may still act on.
func (l *Ledger) OldestView() time.Time { return l.Now().Add(-l.Lag) }

// JustStarted reports whether a process started so recently that it may still act on an outdated first list.
func (l *Ledger) JustStarted(process string) bool {
	return l.Relists && l.Started[process].After(l.OldestView())
}

// Violate records a violation of an invariant, by the named object or, if object is empty, by no particular object.
func (l *Ledger) Violate(number, object, format string, args ...any) {
	if object != "" {
		object += ": "
	}
	l.World.Violate(number, "%s%s", object, fmt.Sprintf(format, args...))
}

// NewWrite returns the write that an event of the store reports.
func NewWrite(event *store.Event) Write { return Write{event, actors.IsSerin(event.Actor)} }

// Record records an event.
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
	case sim.ShardLost:
		l.Events++
		delete(l.Started, e.Instance)
	case sim.ProcessCrashed:
		l.Events++
		delete(l.Started, e.Instance)
	}
}

func (l *Ledger) recordWrite(e Write) {
	key := ObjectKey{e.Kind, e.Key}
	w := l.Objects[key]
	if w == nil {
		w = &Writes{}
		l.Objects[key] = w
	}
	w.Last, w.LastActor = l.Now(), e.Actor
	switch {
	case e.BySerin:
		w.AwaitsSerin = false
	case e.Subresource != "status" || e.Kind == l.userStatus:
		w.ByOthers, w.AwaitsSerin = l.Now(), true
	}
}

// ReleaseWritten is a write of a release O with the record R.
type ReleaseWritten[R, O comparable] struct {
	Write

	// Record is nil before the creation is recorded.
	Record R
	// Before and After are nil before the creation and after the deletion.
	Before, After O
}

// NewReleaseWritten returns the write of a release with a record.
func NewReleaseWritten[R comparable, O interface {
	comparable
	client.Object
}](w *sim.World, e Write, record R) ReleaseWritten[R, O] {
	written := ReleaseWritten[R, O]{Write: e, Record: record, Before: actors.Typed[O](w, e.Old)}
	if e.Type != store.Deleted {
		written.After = actors.Typed[O](w, e.New)
	}
	return written
}

// StatusChanged reports whether the status changed.
func (w ReleaseWritten[R, O]) StatusChanged() bool {
	var none O
	return w.Before != none && w.After != none && w.Subresource == "status"
}

// StatusReported reports whether Serin changed the status of a release with a record.
func (w ReleaseWritten[R, O]) StatusReported() bool {
	var none R
	return w.Record != none && w.BySerin && w.StatusChanged()
}
