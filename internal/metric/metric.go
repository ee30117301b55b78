// Package metric asks for single values: the contract of metrics providers, their registry, the text of queries.
//
// It knows queries, providers and what an answer is worth as an answer. It must not know what a value is compared
// with, what follows from it, releases, or the Kubernetes API: credentials come in as bytes.
package metric

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Query is one question.
type Query struct {
	// Text in the language of the provider, variables resolved.
	Text string
	// Interval is the span that the question is about. Providers whose language names no span look back over it, or
	// over a multiple of it.
	Interval time.Duration
	// Now is the end of the span, for such providers.
	Now time.Time
	// Range asks for the values at many moments instead of one, for finders that can. Nil: one.
	Range *Range
}

// Range is a span with the moments in it.
type Range struct {
	Start, End time.Time
	Step       time.Duration
}

// Provider answers queries of one metrics service, with one set of credentials. It may be used by several goroutines.
type Provider interface {
	// Measure returns the value, or an error that OutcomeOf sorts: ErrNoData when there is none. A value is never NaN.
	// No error text shows a credential, a query of a URL, or the body of an answer.
	Measure(ctx context.Context, q Query) (float64, error)
	// Online says whether the service answers at all and takes the credentials.
	Online(ctx context.Context) error
}

// Finder is a provider whose answers may be more than one number: conditions of an analysis judge lists and documents.
type Finder interface {
	Provider
	// Find returns the whole answer. Its errors are those of Measure.
	Find(ctx context.Context, q Query) (Result, error)
}

// Result is an answer as a whole.
type Result struct {
	// Value is a float64, a []float64, or what a JSON document holds: text, truth, lists, maps, and nil. Numbers may be
	// NaN: conditions can ask for that.
	Value any
	// Metadata is what the service tells about its answer, by names that the API of analyses promises. Nil without any.
	Metadata map[string]string
}

// Slow is a provider whose answers take longer than a call may: one call begins the work, later ones ask for it. The
// ticket is all that has to be kept in between, and shows no credential.
type Slow interface {
	// Begin gives the work out.
	Begin(ctx context.Context, q Query) (ticket string, err error)
	// Resume asks for the outcome; ErrUnfinished while there is none yet.
	Resume(ctx context.Context, ticket string) (Result, error)
}

// Single is the one number of a result, for those who judge no more than that.
func Single(r Result) (float64, error) {
	switch v := r.Value.(type) {
	case nil:
		return 0, ErrNoData
	case float64:
		return Number(v)
	case []float64:
		if len(v) == 1 {
			return Number(v[0])
		}
		return 0, errMultiple
	default:
		return 0, errNoNumber
	}
}

var (
	errMultiple = errors.New("query returned multiple values: ask for one")
	errNoNumber = errors.New("the result is not a number: ask for one")
)

// ErrUnfinished says that the service is still at work.
var ErrUnfinished = errors.New("not finished yet")

// ErrNoData says that the query was answered and has no value: nothing matches it, or the value is NaN.
var ErrNoData = errors.New("no values found")

// StatusError is an answer with a status other than 2xx.
type StatusError struct {
	// Code is the HTTP status, Status its code and name.
	Code   int
	Status string
	// Class is the service's own word for what is wrong, from a list that the provider knows; empty without one.
	Class     string
	transient bool
}

// NewStatusError is the error for an answer that a library read: status and class as in StatusError, transient if it
// speaks of the service's state and not of the question.
func NewStatusError(answer outbound.Response, class string, transient bool) *StatusError {
	return &StatusError{Code: answer.Code, Status: answer.Status(), Class: class, transient: transient || answer.Transient()}
}

func (e *StatusError) Error() string {
	switch {
	case e.Class != "":
		return fmt.Sprintf("error response: Status %s: %s", e.Status, e.Class)
	case e.Code >= 300 && e.Code <= 399:
		return fmt.Sprintf("error response: Status %s: a redirect that may not be followed, correct the address", e.Status)
	default:
		return "error response: Status " + e.Status
	}
}

// OutcomeOf says what a probe with that error of Measure came to: measured (nil), no data, unreachable (transport,
// timeout, 429, 5xx), or broken (everything else: the question cannot be asked as it stands).
func OutcomeOf(err error) release.Outcome {
	var gone *outbound.UnreachableError
	var status *StatusError
	switch {
	case err == nil:
		return release.Measured
	case errors.Is(err, ErrNoData):
		return release.NoData
	case errors.As(err, &gone), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return release.Unreachable
	case errors.As(err, &status) && status.transient:
		return release.Unreachable
	default:
		return release.Broken
	}
}

const (
	// MaxAnswer bounds the answer of a provider, in bytes: 10,000 series of a careless query, not a file. One namespace may have
	// 192 answers read at once, which must fit into the memory limit beside everything else.
	MaxAnswer = 1 << 20
	// DefaultTimeout bounds one call to a provider.
	DefaultTimeout = 5 * time.Second
)

// Fetch makes one call for a provider and returns the body of the answer. It sets the limit and, without one, the
// timeout. classify, which may be nil, finds the service's word for what is wrong in the body of an answer that is not
// 2xx; what it returns is shown to people, so it must come from a list.
func Fetch(ctx context.Context, client *outbound.Client, r outbound.Request, classify func(body []byte) string) ([]byte, error) {
	r.Limit = MaxAnswer
	if r.Timeout == 0 {
		r.Timeout = DefaultTimeout
	}
	answer, err := client.Do(ctx, r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", server(r.URL), err)
	case !answer.OK():
		class := ""
		if classify != nil {
			class = classify(answer.Body)
		}
		return nil, NewStatusError(answer, class, false)
	case answer.Truncated:
		return nil, ErrTooLong
	default:
		return answer.Body, nil
	}
}

// ErrTooLong is the error for an answer that is not read to its end.
var ErrTooLong = fmt.Errorf("the answer is longer than %d MiB: ask for less", MaxAnswer>>20)

// CallError is what stopped a call that a library made, and nil if the call had an answer. The text of the library's
// own error may have what was sent.
func CallError(err error) error {
	gone, unreachable := errors.AsType[*outbound.UnreachableError](err)
	refused, closed := errors.AsType[*outbound.RefusedError](err)
	switch {
	case unreachable:
		return gone
	case closed:
		return refused
	case errors.Is(err, outbound.ErrTooLong):
		return outbound.ErrTooLong
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return context.Canceled
	default:
		return nil
	}
}

// server is scheme and host alone: paths hold account numbers, and those come from Secrets.
func server(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the provider"
	}
	return u.Scheme + "://" + u.Host
}

// Unexpected is the error for an answer that is not what the service's API promises. It does not repeat the answer,
// which may be a page that only the controller can read.
func Unexpected(service string) error {
	return fmt.Errorf("the answer is not what the API of %s gives: correct the address of the provider", service)
}

// Number is a value that an API gives as a number, which may not be one.
func Number(v float64) (float64, error) {
	if math.IsNaN(v) {
		return 0, ErrNoData
	}
	return v, nil
}

// Missing is the error for credentials that lack keys; none of the keys is shown with its value.
func Missing(service string, keys ...string) error {
	return fmt.Errorf("%s credentials does not contain %s: add it to the secret", service, strings.Join(keys, " and "))
}
