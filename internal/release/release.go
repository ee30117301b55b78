// Package release is the vocabulary that every kind of release shares: gates, verdicts, probes, answers, effects,
// decisions, and the route.
//
// It imports nothing of ours and knows no kind of resource, no client, no clock and no context: every word in it is a
// plain value.
package release

import (
	"slices"
	"time"
	"unicode/utf8"
)

// Decision is what follows from a snapshot. S is the status of the kind that was decided about.
type Decision[S any] struct {
	// Status is to be persisted, after the effects were acknowledged. Equal to the snapshot's: nothing is written.
	Status S
	// Effects are applied in this order, up to the first that fails. Each is level-triggered.
	Effects []Effect
	// Stamp names the moments in Status that the shell fills in when the last effect was acknowledged.
	Stamp []Stamp
	// Queries are the questions to the outside. They leave after the status was written.
	Queries []Query
	// Gates are all the conditions that were looked at.
	Gates Gates
	// Wake is the next moment at which something can change without an event; zero when there is none.
	Wake time.Time
	// Events are sent in order, after the status was written.
	Events []Event
	// Ending is how the release ends with this decision, for those who count releases; empty: it does not end.
	Ending Ending
	// Analyzed is true of a decision that evaluated or advanced a release, for those who measure how long that takes.
	Analyzed bool
}

// Ending is how a release ended.
type Ending string

// The endings.
const (
	EndingPromoted   Ending = "promoted"   // after its analysis
	EndingUnanalyzed Ending = "unanalyzed" // promoted without analysis: by its spec, or by a command
	EndingFailed     Ending = "failed"
)

// Effect is something that shall be true of the cluster. It carries names, numbers and revisions, never objects.
// Each kind of release declares its own, sealed, set.
type Effect interface {
	// String describes the effect as it is shown in traces.
	String() string
}

// Stamp names a moment in a status that only the shell can know: when the last effect was acknowledged.
type Stamp string

// The stamps.
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

// Event is something that happened and that users are notified of.
type Event struct {
	Type EventType
	// Reason in one word, where the API of the kind has more than one.
	Reason  string
	Message string
	// Phase is the phase that event webhooks receive; empty: the phase of the status before the decision.
	Phase string
	// Persistent events last for as long as every decision repeats them; they are sent when they begin.
	Persistent bool
	// Internal marks failures of ours rather than of the release; they are logged as errors.
	Internal bool
	// Alert, when not nil, is sent to the alert providers along with the event.
	Alert *Alert
	// AlertOnly events have no Kubernetes event: only the alert is sent.
	AlertOnly bool
	// ObjectOnly events are for users who look at the object: no event hook is called for them.
	ObjectOnly bool
}

// Severity of an alert.
type Severity string

// The severities, from the mildest.
const (
	Info  Severity = "info"
	Warn  Severity = "warn"
	Error Severity = "error"
)

// Alert is a message for a chat.
type Alert struct {
	Severity Severity
	Message  string
	// Cause is what led to it, with value and limit where there are some; empty where the message says it, or where it
	// is unknown by now.
	Cause string
	// Metadata asks for the fields that describe the plan (target, threshold, deadline, routing).
	Metadata bool
}

// Verdict of a gate.
type Verdict string

// The verdicts. A gate that passes lets the next one be asked; one that asks waits for an answer; one that waits names
// who opens it; one that fails is a failed check or needs a person.
const (
	Pass Verdict = "pass"
	Ask  Verdict = "ask"
	Wait Verdict = "wait"
	Fail Verdict = "fail"
)

// Opener is who or what opens a gate that is not passed.
type Opener string

// The openers. A gate that does not pass and names none of them is a dead end, which a property test forbids.
const (
	ByTime    Opener = "time"
	ByCluster Opener = "cluster"
	ByAnswer  Opener = "answer"
	ByUser    Opener = "person"
)

// Gate is one named condition before a move.
type Gate struct {
	Name    string
	Verdict Verdict
	// Message says what was seen, as a sentence without a full stop.
	Message string
	// Opener is set unless the gate passes.
	Opener Opener
	// Until is the moment at which time opens the gate, or the moment at which it is asked again.
	Until time.Time
	// Value and Limit are set where a number was compared; Query is what gave the value, variables resolved.
	Value, Limit, Query string
	// Pending is the question to hand out, when the verdict is Ask.
	Pending *Query
	// Answer is what was answered last, where something was asked and an answer is known.
	Answer *Answer
	// NotYetAsked is true of a gate that would ask, and whose turn has not come: nothing is known of it.
	NotYetAsked bool
	// Events are sent once the verdict is acted on.
	Events []Event
}

// Gates are conditions in the order in which they were looked at.
type Gates []Gate

// Verdict is that of the first gate that does not pass; Pass when all do.
func (g Gates) Verdict() Verdict {
	if first := g.First(); first != nil {
		return first.Verdict
	}
	return Pass
}

// First is the first gate that does not pass, nil when all do.
func (g Gates) First() *Gate {
	i := slices.IndexFunc(g, func(g Gate) bool { return g.Verdict != Pass })
	if i < 0 {
		return nil
	}
	return &g[i]
}

// Named is the gate of that name, nil when it was not looked at.
func (g Gates) Named(name string) *Gate {
	i := slices.IndexFunc(g, func(g Gate) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return &g[i]
}

// Wake is the earliest moment at which time opens one of the gates; zero when none does.
func (g Gates) Wake() time.Time {
	var at time.Time
	for _, gate := range g {
		if gate.Verdict != Pass && !gate.Until.IsZero() && (at.IsZero() || gate.Until.Before(at)) {
			at = gate.Until
		}
	}
	return at
}

// Queries are the questions that the gates want to have asked.
func (g Gates) Queries() []Query {
	var out []Query
	for _, gate := range g {
		if gate.Verdict == Ask && gate.Pending != nil {
			out = append(out, *gate.Pending)
		}
	}
	return out
}

// EvaluateGates evaluates the conditions in order. All are evaluated, so that users see every reason at once; only the
// questions wait: a gate that wants to ask is held back until all gates before it pass.
func EvaluateGates[S any](s S, conditions ...func(S) Gate) Gates {
	gates := make(Gates, 0, len(conditions))
	open := true
	for _, condition := range conditions {
		gate := condition(s)
		if !open && gate.Verdict == Ask {
			gate.Pending, gate.NotYetAsked = nil, true
			gate.Verdict, gate.Opener, gate.Until = Wait, ByCluster, time.Time{}
			gate.Message = "asked when the gates before it pass"
		}
		open = open && gate.Verdict == Pass
		gates = append(gates, gate)
	}
	return gates
}

// Events are sent when the gates are acted on: those of every gate up to the first that does not pass.
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

// NewPassingGate is a gate that is open.
func NewPassingGate(name, message string) Gate {
	return Gate{Name: name, Verdict: Pass, Message: message}
}

// NewTimedGate is a gate that time alone opens.
func NewTimedGate(name string, until time.Time, message string) Gate {
	return Gate{Name: name, Verdict: Wait, Opener: ByTime, Until: until, Message: message}
}

// NewWaitingGate is a gate that is opened by the cluster, by a missing answer, or by the user.
func NewWaitingGate(name string, opener Opener, message string) Gate {
	return Gate{Name: name, Verdict: Wait, Opener: opener, Message: message}
}

// NewQueryGate is a gate that an answer opens.
func NewQueryGate(name string, probe Query, message string) Gate {
	return Gate{Name: name, Verdict: Ask, Opener: ByAnswer, Message: message, Pending: &probe}
}

// NewFailedGate is a gate that did not hold; opener says who can change that.
func NewFailedGate(name string, opener Opener, message string) Gate {
	return Gate{Name: name, Verdict: Fail, Opener: opener, Message: message}
}

// Truncate is a text of at most that many bytes, cut between two characters where it is longer.
func Truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const ellipsis = "…"
	cut := max(most-len(ellipsis), 0)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + ellipsis
}
