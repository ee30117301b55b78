// Package service sends messages to the services of notifications, each with its own API.
//
// It knows addresses, credentials and payloads. It must not know why a message is sent, Rollouts, the Kubernetes API, or
// queues: it makes one attempt, and the caller decides about another one.
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

// Message is a message to send.
type Message struct {
	Content notification.Content
	// Service is the name of the service in the configuration, and Recipient its recipient.
	Service, Recipient string
	Now                time.Time
}

// Sender sends messages to one service. It is safe for concurrent use.
type Sender interface {
	// Send makes one attempt. chat.RetryAfter reports whether its error may be retried. The error may quote the
	// configuration, and so its secrets, but nothing of a response.
	Send(ctx context.Context, m Message) error
}

// sendFunc is a Sender.
type sendFunc func(ctx context.Context, m Message) error

func (s sendFunc) Send(ctx context.Context, m Message) error { return s(ctx, m) }

// constructors create senders from their options, by type.
var constructors = map[string]func(caller, []byte) (Sender, error){
	"alertmanager": withOptions(newAlertmanager), "awssqs": withOptions(newSQS), "email": withOptions(newEmail), "gcppubsub": withOptions(newPubSub),
	"github": withOptions(newGitHub), "googlechat": withOptions(newGoogleChat),
	"grafana": withOptions(newGrafana), "mattermost": withOptions(newMattermost), "nats": withOptions(newNATS), "newrelic": withOptions(newNewRelic), "opsgenie": withOptions(newOpsgenie),
	"pagerduty": withOptions(newPagerDuty), "pagerdutyv2": withOptions(newPagerDutyEvents), "pushover": withOptions(newPushover), "rocketchat": withOptions(newRocketChat), "slack": withOptions(newSlack),
	"teams": withOptions(newTeams), "teams-workflows": withOptions(newTeamsWorkflows), "telegram": withOptions(newTelegram), "webex": withOptions(newWebex), "webhook": withOptions(newWebhook),
}

// Types returns the supported types of services, sorted.
func Types() []string { return slices.Sorted(maps.Keys(constructors)) }

// New returns the sender of a configured service. It decodes the options and sends nothing. policy must be that of the
// client.
func New(client *outbound.Client, policy outbound.Policy, s notification.Service) (Sender, error) {
	maker, ok := constructors[s.Type]
	if !ok {
		return nil, fmt.Errorf("service type %q is not supported: use one of %s", s.Type, strings.Join(Types(), ", "))
	}
	return maker(caller{client: client, policy: policy, own: s.Own}, s.Options)
}

// withOptions returns a maker that decodes the options of a type.
func withOptions[O any](make func(caller, O) (sendFunc, error)) func(caller, []byte) (Sender, error) {
	return func(c caller, raw []byte) (Sender, error) {
		var options O
		if err := json.Unmarshal(raw, &options); err != nil {
			return nil, errors.New("its options do not have the form of that service: correct them") // the reason might quote a password
		}
		s, err := make(c, options)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
}

// caller sends the requests of all services.
type caller struct {
	client *outbound.Client
	policy outbound.Policy
	// own reports whether the service is configured in the namespace of the Rollout, and not by the administrator for all.
	own bool
}

// sendRequest sends one request. Its errors do not name the service, because the caller does.
func (c caller) sendRequest(ctx context.Context, r chat.Request) ([]byte, error) {
	r.Service, r.Timeout = "the service", timeout
	return chat.Send(ctx, c.client, r)
}

// sendJSON sends a payload as JSON.
func (c caller) sendJSON(ctx context.Context, r chat.Request, payload any) ([]byte, error) {
	r.Service, r.Timeout = "the service", timeout
	return chat.SendJSON(ctx, c.client, r, payload)
}

// basicAuth is the user and password in options.
type basicAuth struct{ Username, Password string }

func (b basicAuth) header() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(b.Username+":"+b.Password))
}

// urlBelow returns the URL of a path below an address.
func urlBelow(address, path string) string {
	return strings.TrimRight(address, "/") + "/" + strings.TrimLeft(path, "/")
}

// requireOption returns an error if an option is missing.
func requireOption(name, value string) error {
	if value == "" {
		return fmt.Errorf("its option %s is empty: set it", name)
	}
	return nil
}

// optionFor returns the value that an option has for a recipient.
func optionFor(option string, all map[string]string, recipient string) (string, error) {
	value, ok := all[recipient]
	if !ok {
		return "", fmt.Errorf("its option %s does not contain %q: add the recipient there, or correct the subscription", option, recipient)
	}
	return value, nil
}

// jsonList decodes a JSON list in a string of a template; it is nil for an empty string.
func jsonList(field, text string) ([]json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var out []json.RawMessage
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("%s of the template is not a JSON list: correct it", field)
	}
	return out, nil
}
