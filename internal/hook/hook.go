// Package hook calls web hooks: one question or message, its payload, its retries, and what the answer comes to.
//
// It knows addresses, payloads and answers. It must not know why a hook is called, what an approval opens, phases
// beyond their name, or where a call may go: that is outbound's.
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

// maxResponseBytes is how many bytes of an answer are read; people see a small part of them.
const maxResponseBytes = 64 << 10

// Request is one question or message.
type Request struct {
	URL string
	// Body is JSON, as Payload and EventPayload give it.
	Body []byte
	// Timeout bounds each attempt; it must be positive.
	Timeout time.Duration
	// Retries are further attempts while nobody answers, or the answer is 429 or 5xx but 501.
	Retries int
	// DisableTLS calls https without verifying the certificate.
	DisableTLS bool
	// Key, when not empty, tells the receiver that two calls are one question; it is sent as Serin-Key.
	Key string
}

// Client calls hooks. It may be used by several goroutines.
type Client struct {
	client *outbound.Client
	clock  clock.Clock
}

// New is a caller that goes through client and waits between attempts by the clock.
func New(client *outbound.Client, clk clock.Clock) *Client {
	return &Client{client: client, clock: clk}
}

// Send calls and says what came of it: Yes for any 2xx, No for any other answer, Unreachable where there was none. Unless it
// is Yes, text says why, as a person may read it: the beginning of the answer, or what stood in the way. It takes as long
// as the attempts and the waits between them, and ends soon after ctx does.
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
		return release.Unreachable, describeTimeout(call.URL, attempts, err.Error())
	case answer.IsSuccess():
		return release.Yes, ""
	case answer.IsTransient():
		return release.No, describeTimeout(call.URL, attempts, outbound.Excerpt(answer.Body))
	}
	if text := outbound.Excerpt(answer.Body); text != "" {
		return release.No, text
	}
	return release.No, "answered " + answer.Status()
}

func describeTimeout(url string, attempts int, why string) string {
	text := fmt.Sprintf("POST %s giving up after %d attempt(s)", outbound.Redact(url), attempts)
	if why != "" {
		text += ": " + why
	}
	return text
}
