package release

import "time"

// Query is a request to an external service. A decision sends it; the answer requeues the release.
type Query struct {
	// ID identifies the query within its release: the same query for the same run, window and attempt has the same ID.
	// A query with the same ID is sent only once.
	ID string
	// Since is the earliest start of a valid call: a query whose call began before it is sent again. A gate can
	// therefore poll with a constant ID and a later Since.
	Since time.Time
	// Request is the content of the query; its type belongs to the kind of release.
	Request any
}

// Outcome of a query.
type Outcome string

// The outcomes. No data is not a value, and an unreachable service is no statement about the release.
const (
	Yes         Outcome = "yes"         // a hook approved
	No          Outcome = "no"          // a hook refused, or its response counts as a refusal
	Measured    Outcome = "measured"    // a metric has a value
	NoData      Outcome = "no-data"     // a metric has no value
	Broken      Outcome = "broken"      // the query cannot succeed unchanged: missing template, invalid query, 4xx
	Unreachable Outcome = "unreachable" // transport error, timeout, 429, 5xx
)

// Answer is the result of a query.
type Answer struct {
	// ID and Since are those of the query.
	ID    string
	Since time.Time
	// Began and Ended are the times of the call; Ended is zero while it is in progress.
	Began, Ended time.Time
	Outcome      Outcome
	// Value is set if the outcome is Measured.
	Value float64
	// Text is shown to users: a reason, or an excerpt of a response. It never contains a secret or a whole response.
	Text string
	// Query is the resolved query, for metrics.
	Query string
	// Detail contains everything else that was answered; its type belongs to the kind of release.
	Detail any
}

// Answers are the answers to the queries of one release, by ID.
type Answers map[string]Answer

// AnswerTo returns the valid answer to a query: from a call that did not begin before query.Since, or that was sent
// because of exactly this Since. The latter matters if the clock was set back in between: the query would otherwise be
// sent repeatedly until the clock has caught up.
func (a Answers) AnswerTo(query Query) (Answer, bool) {
	answer, ok := a[query.ID]
	if !ok || answer.Ended.IsZero() || answer.Began.Before(query.Since) && !answer.Since.Equal(query.Since) {
		return Answer{}, false
	}
	return answer, true
}

// LaterOf returns the later of two times.
func LaterOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
