// Package alerting sends the alerts of Canaries to the chats and services of AlertProviders, and to the chats of the flags. The
// notifications of Rollouts are in package notification, whose services it shares.
//
// It knows the payloads of Flagger, the default content for services, and which severities an alert entry selects. It must not know why an alert is sent, the
// Kubernetes API, or queues: it makes one attempt, and the caller decides about another one.
package alerting

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/serin-dev/serin/internal/chat"
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
	// At is the time of the alert.
	At time.Time
}

// Field is a titled value.
type Field struct{ Name, Value string }

// Sender sends messages to one chat. It is safe for concurrent use.
type Sender interface {
	// Send makes one attempt of at most 5 s. Its errors are those of chat.Send.
	Send(ctx context.Context, m Message) error
}

// Options are the settings of an AlertProvider or of the flags.
type Options struct {
	// URL is the webhook of the chat; its path and query may be a secret.
	URL string
	// Username and Channel default to flagger and general. They are used by Slack, Discord and Rocket.Chat.
	Username, Channel string
	// Proxy is the URL of a proxy; empty: the proxy of the environment.
	Proxy string
	// Token is the bearer token for Slack. Other chats ignore it.
	Token string

	// Namespace of the AlertProvider, Secret the data of its Secret, and Recipient its channel without a default, for services.
	Namespace string
	Secret    map[string][]byte
	Recipient string
}

// timeout bounds one attempt.
const timeout = 5 * time.Second

// Wants reports whether an alert entry of a Canary includes a severity. An entry without one includes all, like info.
func Wants(entry string, s release.Severity) bool { return rank(s) >= rank(release.Severity(entry)) }

func rank(s release.Severity) int {
	switch s {
	case release.Error:
		return 2
	case release.Warn:
		return 1
	default: // info, and an entry without a severity
		return 0
	}
}

// ChatTypes returns the types of chats with a format of their own.
func ChatTypes() []string { return []string{"slack", "msteams", "discord", "rocket", "gchat"} }

// New returns the sender of a chat. It checks the options and sends no request.
func New(client *outbound.Client, chatType string, o Options) (Sender, error) {
	if o.Username == "" {
		o.Username = "flagger"
	}
	if o.Channel == "" {
		o.Channel = "general"
	}
	s := &sender{client: client, url: o.URL, proxy: o.Proxy}
	address, err := outbound.ParseURL(o.URL)
	if err != nil {
		return nil, fmt.Errorf("invalid %s webhook URL: %w", label(chatType), err)
	}
	switch chatType {
	case "slack":
		s.token, s.accepted = outbound.Secret(o.Token), slackAccepted
		s.payload = attachment(o, colours{info: "good", warn: "warning", failed: "danger"})
	case "discord":
		s.url = slackCompatible(address)
		s.payload = attachment(o, colours{info: "good", warn: "warning", failed: "danger"})
	case "rocket":
		s.payload = attachment(o, colours{info: "#0076D7", warn: "#FFBF00", failed: "#FF0000"})
	case "msteams":
		s.payload = messageCard
		if wantsAdaptiveCard(address.Hostname()) {
			s.payload = adaptiveCard
		}
	case "gchat":
		s.payload, s.newer = googleCard, googleCardV2
	default:
		return nil, fmt.Errorf("alert provider type %q is not supported: use one of %v", chatType, Types())
	}
	return s, nil
}

func label(chatType string) string {
	switch chatType {
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

type sender struct {
	client     *outbound.Client
	url, proxy string
	token      outbound.Secret
	payload    func(Message) any
	// newer is the payload for a chat that no longer accepts the usual one; nil if there is none.
	newer func(Message) any
	// accepted checks the response of chats that report errors with the status 200; nil for other chats.
	accepted func(body []byte) error
}

// Send sends the message.
func (s *sender) Send(ctx context.Context, m Message) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	body, err := s.post(ctx, s.payload(m))
	if status, ok := errors.AsType[*chat.StatusError](err); ok && status.Code() == http.StatusBadRequest && s.newer != nil {
		body, err = s.post(ctx, s.newer(m))
	}
	switch {
	case err != nil:
		return err
	case s.accepted != nil:
		return s.accepted(body)
	default:
		return nil
	}
}

func (s *sender) post(ctx context.Context, payload any) ([]byte, error) {
	header := http.Header{}
	if s.token != "" {
		header = chat.Bearer(s.token.Reveal())
	}
	return chat.SendJSON(ctx, s.client, chat.Request{Service: "the chat", URL: s.url, Header: header, Timeout: timeout, Proxy: s.proxy}, payload)
}
