// Package notify writes alerts to chats.
//
// It knows chats, their payloads and which severities somebody wants. It must not know why an alert is sent, the
// Kubernetes API, or queues: a message is posted once, and whoever posts decides about another attempt.
package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Message is one alert.
type Message struct {
	// Canary is name.namespace.
	Canary   string
	Text     string
	Severity release.Severity
	// Fields are shown below the text, in this order.
	Fields []Field
}

// Field is a titled value.
type Field struct{ Name, Value string }

// Notifier posts to one chat. It may be used by several goroutines.
type Notifier interface {
	// Post makes one attempt of at most 5 s. The error shows neither the query of the address nor the answer; RetryAfter
	// says whether another attempt may help.
	Post(ctx context.Context, m Message) error
}

// Options are what an AlertProvider or a flag says about a chat.
type Options struct {
	// URL to post to; its path and query may be a secret.
	URL string
	// Username and Channel are flagger and general without them. Slack, Discord and Rocket.Chat read them.
	Username, Channel string
	// Proxy is the URL of a proxy on the way; empty: that of the environment.
	Proxy string
	// Token authorises, where the chat has such a thing: Slack.
	Token string
}

const (
	timeout   = 5 * time.Second
	maxAnswer = 64 << 10
)

// Wants says whether an alert entry of a Canary is told of that severity. An entry without one is told everything, as
// one that says info is.
func Wants(entry string, s release.Severity) bool { return rank(s) >= rank(release.Severity(entry)) }

func rank(s release.Severity) int {
	switch s {
	case release.Error:
		return 2
	case release.Warn:
		return 1
	default: // info, and no word at all
		return 0
	}
}

// Types are the types of chats, as spec.type of an AlertProvider names them.
func Types() []string { return []string{"slack", "msteams", "discord", "rocket", "gchat"} }

// New is a notifier of that type which calls through client. It checks the options and calls nobody.
func New(client *outbound.Client, chat string, o Options) (Notifier, error) {
	if o.Username == "" {
		o.Username = "flagger"
	}
	if o.Channel == "" {
		o.Channel = "general"
	}
	n := &notifier{client: client, url: o.URL, proxy: o.Proxy}
	address, err := outbound.ParseURL(o.URL)
	if err != nil {
		return nil, fmt.Errorf("invalid %s webhook URL: %w", label(chat), err)
	}
	switch chat {
	case "slack":
		n.token, n.accepted = outbound.Secret(o.Token), slackAccepted
		n.payload = attachment(o, colours{info: "good", warn: "warning", failed: "danger"})
	case "discord":
		n.url = slackCompatible(address)
		n.payload = attachment(o, colours{info: "good", warn: "warning", failed: "danger"})
	case "rocket":
		n.payload = attachment(o, colours{info: "#0076D7", warn: "#FFBF00", failed: "#FF0000"})
	case "msteams":
		n.payload = messageCard
		if wantsAdaptiveCard(address.Hostname()) {
			n.payload = adaptiveCard
		}
	case "gchat":
		n.payload, n.newer = googleCard, googleCardV2
	default:
		return nil, fmt.Errorf("alert provider type %q is not supported: use one of %v", chat, Types())
	}
	return n, nil
}

func label(chat string) string {
	switch chat {
	case "slack":
		return "Slack"
	case "discord":
		return "Discord"
	case "rocket":
		return "Rocket"
	case "msteams":
		return "MS Teams"
	case "gchat":
		return "Google Chat"
	default:
		return "alert"
	}
}

type notifier struct {
	client     *outbound.Client
	url, proxy string
	token      outbound.Secret
	payload    func(Message) any
	// newer is the form for a chat that takes the usual one no more; nil: there is none.
	newer func(Message) any
	// accepted reads the answer of chats that refuse with a status of 200.
	accepted func(body []byte) error
}

// StatusError says that whoever was asked answered and did not take the message.
type StatusError struct {
	// Who answered, and with which code and name.
	Who, Status string
	answer      outbound.Response
}

func (e *StatusError) Error() string { return e.Who + " answered " + e.Status }

// Refused is the error for an answer that is no success. The body is not part of it.
func Refused(who string, answer outbound.Response) *StatusError {
	answer.Body = nil
	return &StatusError{Who: who, Status: answer.Status(), answer: answer}
}

// Post sends the message.
func (n *notifier) Post(ctx context.Context, m Message) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	answer, err := n.post(ctx, n.payload(m))
	if err == nil && answer.Code == http.StatusBadRequest && n.newer != nil {
		answer, err = n.post(ctx, n.newer(m))
	}
	switch {
	case err != nil:
		return err
	case !answer.OK():
		return Refused("the chat", answer)
	case n.accepted != nil:
		return n.accepted(answer.Body)
	default:
		return nil
	}
}

// post makes one call.
func (n *notifier) post(ctx context.Context, payload any) (outbound.Response, error) {
	body, err := json.Marshal(payload)
	if err != nil {
		return outbound.Response{}, fmt.Errorf("encode message: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if n.token != "" {
		header.Set("Authorization", "Bearer "+n.token.Reveal())
	}
	answer, err := n.client.Do(ctx, outbound.Request{
		Method: http.MethodPost, URL: n.url, Header: header, Body: body, Limit: maxAnswer, Timeout: timeout, Proxy: n.proxy,
	})
	if err != nil {
		return outbound.Response{}, fmt.Errorf("post message: %w", err)
	}
	return answer, nil
}

// RetryAfter says whether an error of Post may be gone in a moment, because nobody answered or the chat was too busy, and
// how long the chat asks to be left alone from now on: up to half a minute, 0 where it does not ask.
func RetryAfter(err error, now time.Time) (wait time.Duration, again bool) {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.answer.RetryAfter(now), status.answer.Transient()
	}
	_, gone := errors.AsType[*outbound.UnreachableError](err)
	return 0, gone
}
