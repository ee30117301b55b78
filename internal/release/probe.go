package release

import "time"

// Query is a question to the outside. It leaves with a decision; its answer comes back as an event of its own.
type Query struct {
	// ID names the question within its release: the same question asked for the same run, window and attempt has the
	// same ID. Asking twice with one ID asks once.
	ID string
	// Since bounds the answers that count: an answer whose call began before it is asked for again. It lets a gate be
	// polled: the ID stays, Since moves on.
	Since time.Time
	// Request is what to ask; its type belongs to the kind of release.
	Request any
}

// Outcome of a probe.
type Outcome string

// The outcomes. No data is not a value, and being unreachable says nothing about the release.
const (
	Yes         Outcome = "yes"         // a hook approved
	No          Outcome = "no"          // a hook refused, or answered what counts as a refusal
	Measured    Outcome = "measured"    // a metric has a value
	NoData      Outcome = "no-data"     // a metric has no value
	Broken      Outcome = "broken"      // the question cannot be asked as it stands: missing template, bad query, 4xx
	Unreachable Outcome = "unreachable" // transport error, timeout, 429, 5xx
)

// Answer is what came back from a probe.
type Answer struct {
	// ID and Since are the probe's.
	ID    string
	Since time.Time
	// Began and Ended are when the call began and when it was over; Ended is zero while it is out.
	Began, Ended time.Time
	Outcome      Outcome
	// Value is set when the outcome is Measured.
	Value float64
	// Text is shown to users: a reason, an excerpt of an answer. Never a secret, never a whole body.
	Text string
	// Query is the resolved query, for metrics.
	Query string
	// Detail is what else was answered; its type belongs to the kind of release.
	Detail any
}

// Answers are what is known of the probes of one release, by ID.
type Answers map[string]Answer

// AnswerTo is the answer that counts for the probe: given, and from a call that did not begin before p.Since, or that was made
// because of that very Since. The wall clock may have been set back in between, and the question would be asked again and
// again until it has caught up.
func (a Answers) AnswerTo(p Query) (Answer, bool) {
	answer, ok := a[p.ID]
	if !ok || answer.Ended.IsZero() || answer.Began.Before(p.Since) && !answer.Since.Equal(p.Since) {
		return Answer{}, false
	}
	return answer, true
}

// LaterOf is the later of two moments; a zero moment loses.
func LaterOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
