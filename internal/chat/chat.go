// Package chat sends messages to chats and similar services over HTTP: one attempt per message, with limits, and with errors
// that show whether a retry may succeed. It is shared by the alerts of Canaries (alerting) and the notifications of Rollouts
// (notification/service), which fill its messages with their own templates.
//
// It knows requests, responses and the message formats that both use. It must not know templates, recipients, configuration,
// or queues.
package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/serin-dev/serin/internal/outbound"
)

// maxResponse bounds a response, of which in most cases at most an error code is used.
const maxResponse = 64 << 10

// Request is one message for one service.
type Request struct {
	// Service names the service in errors, such as "the chat".
	Service string
	// Method defaults to POST. URL may contain secrets.
	Method, URL string
	Header      http.Header
	Body        []byte
	// Timeout bounds the attempt.
	Timeout time.Duration
	// MaxResponse bounds the response, in bytes; zero: 64 KiB.
	MaxResponse int64
	// Proxy is the URL of a proxy; empty: the proxy of the environment.
	Proxy      string
	SkipVerify bool
}

// Send makes one attempt and returns the body of a successful response. Errors contain neither the query of the URL nor the
// response; RetryAfter reports whether a retry may succeed.
func Send(ctx context.Context, client *outbound.Client, r Request) ([]byte, error) {
	if r.Method == "" {
		r.Method = http.MethodPost
	}
	response, err := client.Do(ctx, outbound.Request{
		Method: r.Method, URL: r.URL, Header: r.Header, Body: r.Body, Limit: cmp.Or(r.MaxResponse, maxResponse), Timeout: r.Timeout, Proxy: r.Proxy, SkipVerify: r.SkipVerify,
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("send message: %w", err)
	case !response.IsSuccess():
		return nil, NewStatusError(r.Service, response)
	default:
		return response.Body, nil
	}
}

// SendJSON sends a payload as JSON.
func SendJSON(ctx context.Context, client *outbound.Client, r Request, payload any) ([]byte, error) {
	var err error
	if r.Body, err = json.Marshal(payload); err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Content-Type", "application/json")
	return Send(ctx, client, r)
}

// Bearer returns a header with a bearer token.
func Bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// StatusError is a response other than 2xx.
type StatusError struct {
	service  string
	response outbound.Response
}

// NewStatusError returns the error for a response, without its body.
func NewStatusError(service string, response outbound.Response) *StatusError {
	response.Body = nil
	return &StatusError{service: service, response: response}
}

func (e *StatusError) Error() string { return e.service + " answered " + e.response.Status() }

// Code returns the HTTP status.
func (e *StatusError) Code() int { return e.response.Code }

// Header returns a header of the response. It may contain secrets.
func (e *StatusError) Header(name string) string { return e.response.Header.Get(name) }

// RetryAfter reports whether an error of Send is transient, because the service was unreachable or overloaded, and for how
// long the service asks not to be called: up to half a minute, 0 if it does not ask.
func RetryAfter(err error, now time.Time) (wait time.Duration, transient bool) {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.response.RetryAfter(now), status.response.IsTransient()
	}
	_, unreachable := errors.AsType[*outbound.UnreachableError](err)
	return 0, unreachable
}
