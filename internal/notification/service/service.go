// Package service sends messages to the services that notifications know, each in its own form.
//
// It knows addresses, credentials and payloads. It must not know why a message is sent, Rollouts, the Kubernetes API, or
// queues: a message is sent once, and whoever sends it decides about another attempt.
package service

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/outbound"
)

// timeout bounds one attempt.
const timeout = 8 * time.Second

// Message is one to be sent.
type Message struct {
	Content notification.Content
	// Service is the name of it in the configuration, and Recipient whom it is for there.
	Service, Recipient string
	Now                time.Time
}

// Sender sends messages to one service. It may be used by several goroutines.
type Sender interface {
	// Send makes one attempt. chat.RetryAfter says of its error whether another may help. The error may quote what the
	// configuration says, and so its secrets, but nothing of an answer.
	Send(ctx context.Context, m Message) error
}

// send is a Sender.
type send func(ctx context.Context, m Message) error

func (s send) Send(ctx context.Context, m Message) error { return s(ctx, m) }

// makers make senders of a type from its options.
var makers = map[string]func(caller, []byte) (Sender, error){
	"alertmanager": of(newAlertmanager), "email": of(newEmail), "gcppubsub": of(newPubSub), "googlechat": of(newGoogleChat),
	"grafana": of(newGrafana), "mattermost": of(newMattermost), "nats": of(newNATS), "newrelic": of(newNewRelic), "opsgenie": of(newOpsgenie),
	"pagerduty": of(newPagerDuty), "pagerdutyv2": of(newPagerDutyEvents), "pushover": of(newPushover), "rocketchat": of(newRocketChat), "slack": of(newSlack),
	"teams": of(newTeams), "teams-workflows": of(newTeamsWorkflows), "telegram": of(newTelegram), "webex": of(newWebex), "webhook": of(newWebhook),
}

// Types are the types of services.
func Types() []string { return slices.Sorted(maps.Keys(makers)) }

// New is the sender of a configured service. It reads the options and calls nobody. policy is that of the client.
func New(client *outbound.Client, policy outbound.Policy, s notification.Service) (Sender, error) {
	maker, ok := makers[s.Type]
	if !ok {
		return nil, fmt.Errorf("service type %q is not supported: use one of %s", s.Type, strings.Join(Types(), ", "))
	}
	return maker(caller{client: client, policy: policy, own: s.Own}, s.Options)
}

// of reads the options of a type.
func of[O any](make func(caller, O) (send, error)) func(caller, []byte) (Sender, error) {
	return func(c caller, raw []byte) (Sender, error) {
		var options O
		if err := json.Unmarshal(raw, &options); err != nil {
			return nil, errors.New("its options have not the form of that service: correct them") // the reason might quote a password
		}
		s, err := make(c, options)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
}

// caller makes the calls of all services.
type caller struct {
	client *outbound.Client
	policy outbound.Policy
	// own says that a namespace configured the service for itself, and not the administrator for all.
	own bool
}

// do sends one request; its errors name no service.
func (c caller) do(ctx context.Context, r chat.Request) ([]byte, error) {
	r.Service, r.Timeout = "the service", timeout
	return chat.Send(ctx, c.client, r)
}

// post sends a payload as JSON.
func (c caller) post(ctx context.Context, r chat.Request, payload any) ([]byte, error) {
	r.Service, r.Timeout = "the service", timeout
	return chat.SendJSON(ctx, c.client, r, payload)
}

// basicAuth is user and password as options have them.
type basicAuth struct{ Username, Password string }

func (b basicAuth) header() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(b.Username+":"+b.Password))
}

// under is a path below an address.
func under(address, path string) string {
	return strings.TrimRight(address, "/") + "/" + strings.TrimLeft(path, "/")
}

// required says which option is missing; nil: none.
func required(name, value string) error {
	if value == "" {
		return fmt.Errorf("its option %s is empty: set it", name)
	}
	return nil
}

// chosen is what options have for a recipient.
func chosen(option string, all map[string]string, recipient string) (string, error) {
	value, ok := all[recipient]
	if !ok {
		return "", fmt.Errorf("its option %s has no %q: add the recipient there, or correct the subscription", option, recipient)
	}
	return value, nil
}

// list reads what templates write as the text of a JSON list; empty text is none.
func list(field, text string) ([]json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var out []json.RawMessage
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("%s of the template is no JSON list: correct it", field)
	}
	return out, nil
}
