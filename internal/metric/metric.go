package metric

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Query is one query to a metrics service.
type Query struct {
	// Text in the language of the provider, variables resolved.
	Text string
	// Interval is the time range of the query. Providers whose language has no time range look back over it, or over a
	// multiple of it.
	Interval time.Duration
	// Now is the end of the time range, for such providers.
	Now time.Time
	// Range requests the values at many times instead of one, from providers that support it. Nil: one.
	Range *Range
}

// PublishDelay is the time that a service may need to publish a point. A point that is later is not used.
const PublishDelay = 3 * time.Minute

// IsCurrent reports whether a point that covers the period before end is recent enough to be the result of the query. Older
// points contain requests from before its time range, such as those of an earlier revision. The newest point of a period that
// is longer than the interval may be as old as the period.
func (q Query) IsCurrent(end time.Time, period time.Duration) bool {
	return !end.Before(q.Now.Add(-max(q.Interval, period)).Add(-PublishDelay))
}

// Range is a time range and the distance of the samples in it.
type Range struct {
	Start, End time.Time
	Step       time.Duration
}

// Provider answers the queries of MetricTemplates with single numbers. It has one set of credentials, and is safe for
// concurrent use.
type Provider interface {
	// Measure returns the value, or an error that OutcomeOf classifies: ErrNoData if there is none. A value is never NaN.
	// No error text shows a credential, a query of a URL, or the body of a response.
	Measure(ctx context.Context, q Query) (float64, error)
	// Online checks that the service responds and accepts the credentials.
	Online(ctx context.Context) error
}

// RawQuerier answers the queries of analyses, whose conditions evaluate numbers, lists and documents.
type RawQuerier interface {
	// QueryRaw returns the whole result. Its errors are those of Provider.Measure.
	QueryRaw(ctx context.Context, q Query) (Result, error)
}

// Result is the result of a query of an analysis.
type Result struct {
	// Value is a float64, a []float64, or a value of a JSON document: a string, a bool, a list, a map, or nil. Numbers may
	// be NaN: conditions can check for it.
	Value any
	// Metadata is what the service reports about its result, by names that the API of analyses defines. May be nil.
	Metadata map[string]string
}

// AsRaw returns the querier of analyses for a provider whose results are single numbers.
func AsRaw(p Provider) RawQuerier { return rawProvider{provider: p} }

type rawProvider struct{ provider Provider }

// QueryRaw returns the number.
func (p rawProvider) QueryRaw(ctx context.Context, q Query) (Result, error) {
	value, err := p.provider.Measure(ctx, q)
	if err != nil {
		return Result{}, err
	}
	return Result{Value: value}, nil
}

// AsyncProvider is a service whose results take longer than one request: a first request starts the work, later ones
// retrieve its result. The execution ID is the only state between them, and contains no credential.
type AsyncProvider interface {
	// Start starts the work.
	Start(ctx context.Context, q Query) (executionID string, err error)
	// Resume returns the result, or ErrUnfinished while there is none.
	Resume(ctx context.Context, executionID string) (Result, error)
}

// Single returns the only number of a result.
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
		return 0, errMultipleValues
	default:
		return 0, errNotNumber
	}
}

var (
	errMultipleValues = errors.New("query returned multiple values: write a query that returns one")
	errNotNumber      = errors.New("the result is not a number: write a query that returns one")
)

// ErrUnfinished reports that an asynchronous measurement has no result yet.
var ErrUnfinished = errors.New("not finished yet")

// ErrNoData reports that the result has no value: nothing matches the query, or the value is NaN.
var ErrNoData = errors.New("no values found")

// StatusError is a response with a status other than 2xx.
type StatusError struct {
	// Code is the HTTP status, Status its code and name.
	Code   int
	Status string
	// Class is the error code of the service, from a list that the provider knows; empty without one.
	Class     string
	transient bool
}

// NewStatusError returns the error for a response that a library read. It is transient if the status or the class is about
// the state of the service, not about the query.
func NewStatusError(answer outbound.Response, class string, transient bool) *StatusError {
	return &StatusError{Code: answer.Code, Status: answer.Status(), Class: class, transient: transient || answer.IsTransient()}
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

// OutcomeOf classifies an error of Measure: measured (nil), no data, unreachable (transport, timeout, 429, 5xx), or broken
// (everything else: the query must be corrected).
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
	// MaxAnswer bounds the response of a provider, in bytes: 10,000 series of a careless query, not a file. One namespace may
	// receive 192 responses at once, which must fit into the memory limit together with those that are decoded in a slot.
	MaxAnswer = 1 << 20
	// DefaultTimeout bounds one call to a provider.
	DefaultTimeout = 5 * time.Second
	// MaxTimeout limits the timeout of a user. A measurement takes no longer.
	MaxTimeout = 2 * time.Minute
)

// TimeoutOf returns a timeout that a user gave in seconds, at most MaxTimeout: the number may be too large for a duration. A
// negative number remains negative.
func TimeoutOf(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, -1), int64(MaxTimeout/time.Second))) * time.Second
}

// Fetch sends one request for a provider and returns the body of the response, which the caller must not modify: equal GET
// requests at the same moment are sent once. It sets the limit and, without one, the timeout, which is at most MaxTimeout. classify,
// which may be nil, returns the error code in the body of a response that is not 2xx. It is shown to users, so it must be from a
// list. The caller decodes the body in a slot; see LimitAnalysis.
func Fetch(ctx context.Context, client *outbound.Client, r outbound.Request, classify func(body []byte) string) ([]byte, error) {
	r.Limit = MaxAnswer
	if r.Timeout == 0 {
		r.Timeout = DefaultTimeout
	}
	r.Timeout = min(r.Timeout, MaxTimeout)
	send := client.Do
	if r.Method == "" || r.Method == http.MethodGet { // others may start something, such as a judgement
		send = client.DoShared
	}
	ReleaseSlot(ctx)
	answer, err := send(ctx, r)
	if err == nil {
		err = AcquireSlot(ctx)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("query %s: %w", serverAddress(r.URL), err)
	case !answer.IsSuccess():
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

// ErrTooLong is the error for a response that is longer than MaxAnswer.
var ErrTooLong = fmt.Errorf("the response is longer than %d MiB: write a query that returns less", MaxAnswer>>20)

// CallError returns the error that prevented the response to a library's request, or nil if there was a response. The text of
// the library's own error may contain the request.
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

// serverAddress returns the scheme and host of an address. Its path may contain an account number, which is from a Secret.
func serverAddress(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the provider"
	}
	return u.Scheme + "://" + u.Host
}

// Unexpected returns the error for a response that does not conform to the service's API. It does not repeat the response,
// which may be a page that only the controller can read.
func Unexpected(service string) error {
	return fmt.Errorf("the response does not conform to the API of %s: correct the address of the provider", service)
}

// Number returns a value, or ErrNoData for NaN.
func Number(v float64) (float64, error) {
	if math.IsNaN(v) {
		return 0, ErrNoData
	}
	return v, nil
}

// Missing returns the error for credentials without the required keys. It contains no value.
func Missing(service string, keys ...string) error {
	return fmt.Errorf("%s credentials does not contain %s: add it to the secret", service, strings.Join(keys, " and "))
}
