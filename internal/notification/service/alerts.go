package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/chat"
)

// yamlList decodes a YAML list in a string of a template; it is nil for an empty string.
func yamlList(field, text string) ([]any, error) {
	var out []any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("%s of the template is not a YAML list: correct it", field)
	}
	return out, nil
}

type grafanaOptions struct {
	APIURL, APIKey     string
	InsecureSkipVerify bool
}

// newGrafana creates annotations; the recipient is the list of their tags, separated by |.
func newGrafana(c caller, o grafanaOptions) (sendFunc, error) {
	if err := errors.Join(requireOption("apiUrl", o.APIURL), requireOption("apiKey", o.APIKey)); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		_, err := c.sendJSON(ctx, chat.Request{URL: urlBelow(o.APIURL, "annotations"), Header: chat.Bearer(o.APIKey), SkipVerify: o.InsecureSkipVerify}, map[string]any{
			"time": m.Now.UnixMilli(), "isRegion": false, "tags": strings.Split(m.Recipient, "|"), "text": m.Content.Message,
		})
		return err
	}, nil
}

type alertmanagerOptions struct {
	Targets                      []string
	Scheme, APIPath, BearerToken string
	BasicAuth                    *basicAuth
	InsecureSkipVerify           bool
}

// alert is an alert of Alertmanager.
type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	GeneratorURL string            `json:"generatorURL"`
	StartsAt     time.Time         `json:"startsAt"`
}

// newAlertmanager posts to all members of a cluster; it succeeds if one of them accepts the alert.
func newAlertmanager(c caller, o alertmanagerOptions) (sendFunc, error) {
	if len(o.Targets) == 0 {
		return nil, errors.New("its option targets is empty: add at least one HOST:PORT")
	}
	header := http.Header{}
	switch {
	case o.BasicAuth != nil:
		header.Set("Authorization", o.BasicAuth.header())
	case o.BearerToken != "":
		header = chat.Bearer(o.BearerToken)
	}
	return func(ctx context.Context, m Message) error {
		var part alert
		if err := m.Content.Part("alertmanager", &part); err != nil {
			return err
		}
		if len(part.Labels) == 0 {
			return errors.New("the template has no alertmanager.labels: add at least one")
		}
		part.Labels = maps.Clone(part.Labels)
		part.Labels["alertname"] = cmp.Or(part.Labels["alertname"], m.Content.Template)
		part.StartsAt = m.Now
		var last error
		accepted := false
		for _, target := range o.Targets {
			address := cmp.Or(o.Scheme, "http") + "://" + target + cmp.Or(o.APIPath, "/api/v2/alerts")
			if _, err := c.sendJSON(ctx, chat.Request{URL: address, Header: header.Clone(), SkipVerify: o.InsecureSkipVerify}, []alert{part}); err != nil {
				last = err
				continue
			}
			accepted = true
		}
		if accepted {
			return nil
		}
		return last
	}, nil
}

type opsgenieOptions struct {
	APIURL  string
	APIKeys map[string]string
}

type opsgenieAlert struct {
	Message     string              `json:"message"`
	Description string              `json:"description,omitempty"`
	Priority    string              `json:"priority,omitempty"`
	Alias       string              `json:"alias,omitempty"`
	Note        string              `json:"note,omitempty"`
	Actions     []string            `json:"actions,omitempty"`
	Tags        []string            `json:"tags,omitempty"`
	Details     map[string]string   `json:"details,omitempty"`
	Entity      string              `json:"entity,omitempty"`
	VisibleTo   []opsgenieResponder `json:"visibleTo,omitempty"`
	User        string              `json:"user,omitempty"`
	Responders  []opsgenieResponder `json:"responders,omitempty"`
	Source      string              `json:"source,omitempty"`
}

type opsgenieResponder struct {
	Type     string `json:"type,omitempty"`
	Name     string `json:"name,omitempty"`
	ID       string `json:"id,omitempty"`
	Username string `json:"username,omitempty"`
}

// newOpsgenie creates alerts for a team; the recipient is its ID.
func newOpsgenie(c caller, o opsgenieOptions) (sendFunc, error) {
	address := cmp.Or(o.APIURL, "api.opsgenie.com")
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	return func(ctx context.Context, m Message) error {
		key, err := optionFor("apiKeys", o.APIKeys, m.Recipient)
		if err != nil {
			return err
		}
		var body opsgenieAlert
		if err := m.Content.Part("opsgenie", &body); err != nil {
			return err
		}
		body.Message, body.Source = m.Content.Message, "Serin"
		body.Responders = []opsgenieResponder{{Type: "team", ID: m.Recipient}}
		_, err = c.sendJSON(ctx, chat.Request{URL: urlBelow(address, "v2/alerts"), Header: http.Header{"Authorization": {"GenieKey " + key}}}, body)
		return err
	}, nil
}

type pagerDutyOptions struct{ Token, From, APIURL string }

// newPagerDuty creates incidents; the recipient is the ID of a service.
func newPagerDuty(c caller, o pagerDutyOptions) (sendFunc, error) {
	if err := requireOption("token", o.Token); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		if !m.Content.HasPart("pagerduty") {
			return errors.New("the template has no part pagerduty: add one with a title")
		}
		var part struct{ Title, Body, Urgency, PriorityID string }
		if err := m.Content.Part("pagerduty", &part); err != nil {
			return err
		}
		type reference struct {
			ID   string `json:"id"`
			Type string `json:"type"`
		}
		incident := map[string]any{
			"type": "incident", "title": part.Title, "service": reference{m.Recipient, "service_reference"},
			"body": map[string]string{"type": "incident_details", "details": part.Body},
		}
		if part.Urgency != "" {
			incident["urgency"] = part.Urgency
		}
		if part.PriorityID != "" {
			incident["priority"] = reference{part.PriorityID, "priority_reference"}
		}
		header := http.Header{"Authorization": {"Token token=" + o.Token}, "Accept": {"application/vnd.pagerduty+json;version=2"}, "From": {o.From}}
		address := urlBelow(cmp.Or(o.APIURL, "https://api.pagerduty.com"), "incidents")
		_, err := c.sendJSON(ctx, chat.Request{URL: address, Header: header}, map[string]any{"incident": incident})
		return err
	}, nil
}

type pagerDutyEventsOptions struct {
	ServiceKeys map[string]string
	APIURL      string
}

type pagerDutyPayload struct {
	Summary   string `json:"summary"`
	Severity  string `json:"severity"`
	Source    string `json:"source"`
	Component string `json:"component,omitempty"`
	Group     string `json:"group,omitempty"`
	Class     string `json:"class,omitempty"`
}

// newPagerDutyEvents sends events with the routing key of the recipient.
func newPagerDutyEvents(c caller, o pagerDutyEventsOptions) (sendFunc, error) {
	return func(ctx context.Context, m Message) error {
		key, err := optionFor("serviceKeys", o.ServiceKeys, m.Recipient)
		if err != nil {
			return err
		}
		if !m.Content.HasPart("pagerdutyv2") {
			return errors.New("the template has no part pagerdutyv2: add one with summary, severity and source")
		}
		var part struct {
			pagerDutyPayload
			URL string
		}
		if err := m.Content.Part("pagerdutyv2", &part); err != nil {
			return err
		}
		event := map[string]any{"routing_key": key, "event_action": "trigger", "payload": part.pagerDutyPayload, "client": "Serin"}
		if part.URL != "" {
			event["client_url"] = part.URL
		}
		_, err = c.sendJSON(ctx, chat.Request{URL: urlBelow(cmp.Or(o.APIURL, "https://events.pagerduty.com"), "v2/enqueue")}, event)
		return err
	}, nil
}

type newRelicOptions struct{ APIKey, APIURL string }

type newRelicDeployment struct {
	Revision    string `json:"revision"`
	Changelog   string `json:"changelog,omitempty"`
	Description string `json:"description,omitempty"`
	User        string `json:"user,omitempty"`
}

// newNewRelic records deployments of an application; the recipient is its ID.
func newNewRelic(c caller, o newRelicOptions) (sendFunc, error) {
	if err := requireOption("apiKey", o.APIKey); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		var part newRelicDeployment
		if err := m.Content.Part("newrelic", &part); err != nil {
			return err
		}
		part.Description = cmp.Or(part.Description, m.Content.Message)
		address := urlBelow(cmp.Or(o.APIURL, "https://api.newrelic.com"), "v2/applications/"+url.PathEscape(m.Recipient)+"/deployments.json")
		_, err := c.sendJSON(ctx, chat.Request{URL: address, Header: http.Header{"X-Api-Key": {o.APIKey}}}, map[string]any{"deployment": part})
		return err
	}, nil
}
