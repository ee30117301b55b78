// Package hook calls webhooks: it sends a request with its payload, retries it, and classifies the response.
//
// It knows addresses, payloads and responses. It must not know why a webhook is called, what follows from an approval,
// phases beyond their name, or which addresses may be called, which package outbound decides.
package hook

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// maxResponseBytes bounds the bytes of a response that are read; only an excerpt is shown to users.
const maxResponseBytes = 64 << 10

// Request is one call of a webhook.
type Request struct {
	URL string
	// Body is JSON, as returned by Payload.JSON and EventPayload.
	Body []byte
	// Timeout bounds each attempt; it must be positive.
	Timeout time.Duration
	// Retries is the number of further attempts after a failed connection, or a status of 429 or 5xx except 501.
	Retries int
	// DisableTLS calls https without verifying the certificate.
	DisableTLS bool
	// Key is sent as Serin-Key, by which the receiver recognises a repeated call. It may be empty.
	Key string
}

// Client calls webhooks. It is safe for concurrent use.
type Client struct {
	client *outbound.Client
	clock  clock.Clock
}

// New returns a Client that sends requests through client and waits between attempts by the clock.
func New(client *outbound.Client, clk clock.Clock) *Client {
	return &Client{client: client, clock: clk}
}

// Send calls the webhook and returns Yes for any 2xx, No for any other response, and Unreachable without a response. Unless
// it is Yes, text is the reason for users: the beginning of the response, or the cause of the failure. Send blocks until the
// last attempt, and returns soon after ctx ends.
func (c *Client) Send(ctx context.Context, call Request) (outcome release.Outcome, text string) {
	header := http.Header{"Content-Type": {"application/json"}}
	if call.Key != "" {
		header.Set("Serin-Key", call.Key)
	}
	request := outbound.Request{
		Method: http.MethodPost, URL: call.URL, Header: header, Body: call.Body,
		Limit: maxResponseBytes, Timeout: call.Timeout, SkipVerify: call.DisableTLS,
	}
	answer, attempts, err := c.client.DoWithRetries(ctx, c.clock, request, call.Retries)
	switch {
	case err != nil:
		return release.Unreachable, describeFailure(call.URL, attempts, err.Error())
	case answer.IsSuccess():
		return release.Yes, ""
	case answer.IsTransient():
		return release.No, describeFailure(call.URL, attempts, outbound.Excerpt(answer.Body))
	}
	if text := outbound.Excerpt(answer.Body); text != "" {
		return release.No, text
	}
	return release.No, "answered " + answer.Status()
}

func describeFailure(url string, attempts int, why string) string {
	text := fmt.Sprintf("POST %s giving up after %d attempt(s)", outbound.Redact(url), attempts)
	if why != "" {
		text += ": " + why
	}
	return text
}
