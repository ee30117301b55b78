// Package release is the vocabulary that every kind of release shares: gates, verdicts, queries, answers, effects,
// decisions, and the route.
//
// Every type in it is a plain value. It must not know any kind of resource, clients, clocks or contexts, and imports no
// other package of Serin.
package release

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Decision is the result of evaluating a snapshot: the new status and everything that the reconciler does for it. S is
// the status type of the kind of resource.
type Decision[S any] struct {
	// Status is written after the effects were applied. If it equals the status of the snapshot, nothing is written.
	Status S
	// Effects are applied in this order, up to the first that fails. Each of them describes a desired state.
	Effects []Effect
	// Stamp lists the times in Status that the reconciler sets when it has applied the last effect.
	Stamp []Stamp
	// Queries are the requests to external services. They are sent after the status was written.
	Queries []Query
	// Gates are all conditions that were evaluated.
	Gates Gates
	// Wake is the earliest time at which something can change without an event; zero: only an event can change
	// something.
	Wake time.Time
	// Events are sent in order, after the status was written.
	Events []Event
	// Ending is how the release ends with this decision, for metrics; empty: it does not end.
	Ending Ending
	// EndingReason is why it failed, as a clause; empty if it did not.
	EndingReason string
	// Analyzed is true if the decision evaluated or advanced a release, for metrics about the duration of an analysis.
	Analyzed bool
}

// Ending is how a release ended.
type Ending string

// The endings of a release.
const (
	EndingPromoted   Ending = "promoted"   // after its analysis
	EndingUnanalyzed Ending = "unanalyzed" // promoted without analysis: by its spec, or by a command
	EndingFailed     Ending = "failed"
	EndingCanceled   Ending = "canceled"   // the user restored the promoted revision
	EndingSuperseded Ending = "superseded" // another revision replaced the analyzed one
)

// Effect is a desired state of the cluster. It contains names, numbers and revisions, never objects. Each kind of
// release declares its own, sealed, set.
type Effect interface {
	// String describes the effect as it is shown in traces.
	String() string
}

// Stamp names a time in a status that only the reconciler knows: when the last effect was applied.
type Stamp string

// The times that the reconciler sets.
const (
	StampWindow       Stamp = "window" // the start of the observation window
	StampDrain        Stamp = "drain"  // the start of the drain delay
	StampSince        Stamp = "since"  // when a workload was asked to change
	StampTrafficEnded Stamp = "left"   // when a revision lost its traffic
)

// EventType is the type of a Kubernetes event.
type EventType string

// The two types of Kubernetes events.
const (
	Normal  EventType = "Normal"
	Warning EventType = "Warning"
)

// Event is an occurrence that users are notified of.
type Event struct {
	Type EventType
	// Reason in one CamelCase word; empty if the API of the kind has only one reason.
	Reason  string
	Message string
	// Phase is the phase that event webhooks receive; empty: the phase of the status before the decision.
	Phase string
	// Persistent events describe a state that lasts as long as every decision repeats the event. They are sent once,
	// when the state begins.
	Persistent bool
	// InStatus events repeat what the status shows: a weight, a completed step, a pause. Of a series of them, those after the first
	// Individual ones of each reason are combined into one event. A Warning is never one of them.
	InStatus   bool
	Individual int
	// StartsSeries is true for an event after which the next ones are written one by one again: the start of a release, its end.
	StartsSeries bool
	// Internal is true for failures of Serin rather than of the release; they are logged as errors.
	Internal bool
	// Alert is sent to the alert providers along with the event; nil: none.
	Alert *Alert
	// AlertOnly events are not recorded as Kubernetes events: only the alert is sent.
	AlertOnly bool
	// ObjectOnly events are recorded on the object only: no event webhook is called for them.
	ObjectOnly bool
}

// Severity of an alert.
type Severity string

// The severities, in ascending order.
const (
	Info  Severity = "info"
	Warn  Severity = "warn"
	Error Severity = "error"
)

// Alert is a message for an alert provider.
type Alert struct {
	Severity Severity
	Message  string
	// Cause of the alert, with value and limit if numbers were compared; empty if the message contains it, or if it is
	// no longer known.
	Cause string
	// Metadata is true if the alert includes fields that describe the plan (target, threshold, deadline, routing).
	Metadata bool
}

// Verdict of a gate.
type Verdict string

// The verdicts.
const (
	Pass Verdict = "pass" // the next gate may send its query
	Ask  Verdict = "ask"  // the gate waits for the answer to its query
	Wait Verdict = "wait" // the gate names what opens it
	Fail Verdict = "fail" // a check failed, or the user must act
)

// Opener names what opens a gate that does not pass.
type Opener string

// The openers. A gate that does not pass and has no opener is a dead end, which a property test forbids. The values are
// part of the API: status.serin.gates contains them.
const (
	ByTime    Opener = "time"
	ByCluster Opener = "cluster"
	ByAnswer  Opener = "answer"
	ByUser    Opener = "person"
)

// Gate is one named condition before a transition.
type Gate struct {
	Name    string
	Verdict Verdict
	// Message describes the observation, without a full stop.
	Message string
	// Opener is set unless the gate passes. A gate that passes with the opener ByUser is a notice.
	Opener Opener
	// Until is the time at which the gate opens, or is evaluated again.
	Until time.Time
	// Otherwise is what happens at Until to a gate that is still closed; empty: it is evaluated again.
	Otherwise string
	// Value and Limit are set if a number was compared; Query is the query that returned the value, with its variables
	// resolved.
	Value, Limit, Query string
	// Pending is the query to send if the verdict is Ask.
	Pending *Query
	// Answer is the last answer to the query of the gate; nil: it has none.
	Answer *Answer
	// Concurrent is true for a query that may be sent together with those of concurrent gates directly before it. The query after one
	// that fails is then sent in vain.
	Concurrent bool
	// NotYetQueried is true if the query of the gate waits for the gates before it.
	NotYetQueried bool
	// Events are sent when the decision takes effect.
	Events []Event
}

// IsNotice reports whether the gate passes although the user should correct what its message describes.
func (g Gate) IsNotice() bool { return g.Verdict == Pass && g.Opener == ByUser }

// Gates are conditions in the order in which they were evaluated.
type Gates []Gate

// Verdict returns the verdict of the first gate that does not pass, or Pass.
func (g Gates) Verdict() Verdict {
	if first := g.First(); first != nil {
		return first.Verdict
	}
	return Pass
}

// First returns the first gate that does not pass; nil: all pass.
func (g Gates) First() *Gate {
	i := slices.IndexFunc(g, func(g Gate) bool { return g.Verdict != Pass })
	if i < 0 {
		return nil
	}
	return &g[i]
}

// Conditions returns the gates without the notices among them.
func (g Gates) Conditions() Gates {
	return slices.DeleteFunc(slices.Clone(g), Gate.IsNotice)
}

// Named returns the gate with a name; nil: it was not evaluated.
func (g Gates) Named(name string) *Gate {
	i := slices.IndexFunc(g, func(g Gate) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return &g[i]
}

// Wake returns the earliest time at which one of the gates opens, or at which a notice is evaluated again; zero: there is
// none.
func (g Gates) Wake() time.Time {
	var at time.Time
	for _, gate := range g {
		if (gate.Verdict != Pass || gate.IsNotice()) && !gate.Until.IsZero() && (at.IsZero() || gate.Until.Before(at)) {
			at = gate.Until
		}
	}
	return at
}

// Queries returns the queries that the gates send. A notice may send one to learn whether it still applies.
func (g Gates) Queries() []Query {
	var out []Query
	for _, gate := range g {
		if (gate.Verdict == Ask || gate.IsNotice()) && gate.Pending != nil {
			out = append(out, *gate.Pending)
		}
	}
	return out
}

// EvaluateGates evaluates the conditions in order. All of them are evaluated, so that users see every reason at once.
// Only queries are deferred: a gate sends its query when all gates before it pass, or send theirs and are concurrent, as it is.
func EvaluateGates[S any](s S, conditions ...func(S) Gate) Gates {
	gates := make(Gates, 0, len(conditions))
	open, together := true, true
	for _, condition := range conditions {
		gate := condition(s)
		if !open && (!together || !gate.Concurrent) && gate.Verdict == Ask {
			gate.Pending, gate.NotYetQueried = nil, true
			gate.Verdict, gate.Opener, gate.Until = Wait, ByCluster, time.Time{}
			gate.Message = "queried when the gates before it pass"
		}
		open = open && gate.Verdict == Pass
		together = together && (gate.Verdict == Pass || gate.Verdict == Ask && gate.Concurrent)
		gates = append(gates, gate)
	}
	return gates
}

// Events returns the events to send: those of every gate up to the first that does not pass.
func (g Gates) Events() []Event {
	var out []Event
	for _, gate := range g {
		out = append(out, gate.Events...)
		if gate.Verdict != Pass {
			break
		}
	}
	return out
}

// NewPassingGate returns a gate that passes.
func NewPassingGate(name, message string) Gate {
	return Gate{Name: name, Verdict: Pass, Message: message}
}

// NewNotice returns a gate that delays nothing: its message describes what the user should correct.
func NewNotice(name, message string) Gate {
	return Gate{Name: name, Verdict: Pass, Opener: ByUser, Message: message}
}

// NewTimedGate returns a gate that opens at a time.
func NewTimedGate(name string, until time.Time, message string) Gate {
	return Gate{Name: name, Verdict: Wait, Opener: ByTime, Until: until, Message: message}
}

// NewWaitingGate returns a gate that is opened by the cluster, by a missing answer, or by the user.
func NewWaitingGate(name string, opener Opener, message string) Gate {
	return Gate{Name: name, Verdict: Wait, Opener: opener, Message: message}
}

// NewQueryGate returns a gate that is opened by the answer to a query.
func NewQueryGate(name string, query Query, message string) Gate {
	return Gate{Name: name, Verdict: Ask, Opener: ByAnswer, Message: message, Pending: &query}
}

// NewFailedGate returns a gate that fails; opener is what can change that.
func NewFailedGate(name string, opener Opener, message string) Gate {
	return Gate{Name: name, Verdict: Fail, Opener: opener, Message: message}
}

// Count returns a number of things in words, of which the singular is given and the plural ends in s.
func Count(n int, singular string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %ss", n, singular)
}

// Ellipsis replaces the omitted part of a text.
const Ellipsis = "…"

// Truncate shortens a text to at most limit bytes. A longer text is cut between two characters.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:boundary(text, max(limit-len(Ellipsis), 0))] + Ellipsis
}

// TruncateMiddle shortens a sentence to at most limit bytes, like Truncate, but omits its middle: the text that it quotes is usually
// there, and what follows from it at the end. limit is at least len(Ellipsis).
func TruncateMiddle(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head := boundary(text, (limit-len(Ellipsis))*2/3)
	tail := len(text) - (limit - len(Ellipsis) - head)
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + Ellipsis + text[tail:]
}

// boundary returns the last beginning of a character that is not after a byte.
func boundary(text string, at int) int {
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}
