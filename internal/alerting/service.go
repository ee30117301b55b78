package alerting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/fairshare"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/outbound"
)

// The keys of the Secret of an AlertProvider for a service of notifications. All other keys are credentials, to which the
// options refer as $KEY.
const (
	keyOptions  = "options"
	keyTemplate = "template"
)

// serviceName is the name of the service in its configuration, which templates for webhooks refer to.
const serviceName = "alert"

// maxEvaluations bounds the alerts whose templates are executed concurrently. Each may need some ten MiB.
const maxEvaluations = 4

// serviceTypes returns the types of notification services that AlertProviders may name. Slack is a chat with a format of its
// own.
func serviceTypes() []string {
	return slices.DeleteFunc(service.Types(), func(kind string) bool { return slices.Contains(ChatTypes(), kind) })
}

// Types returns the supported values of spec.type of an AlertProvider, sorted.
func Types() []string { return slices.Sorted(slices.Values(append(serviceTypes(), ChatTypes()...))) }

// RequiresAddress reports whether the Secret of an AlertProvider must contain an address.
func RequiresAddress(providerType string) bool { return !slices.Contains(serviceTypes(), providerType) }

// CheckSource returns why an AlertProvider can send nothing, as far as its spec shows.
func CheckSource(providerType, address string, hasSecret bool) error {
	switch {
	case hasSecret:
		return nil
	case address == "":
		return errors.New("neither address nor secretRef is set")
	case !RequiresAddress(providerType) && addressOptions(providerType, address) == nil:
		return fmt.Errorf("the service %s needs a secretRef, whose key %s contains its options", providerType, keyOptions)
	default:
		return nil
	}
}

// Senders creates the senders of AlertProviders: for the chats, and for the services of notifications.
type Senders struct {
	client      *outbound.Client
	policy      outbound.Policy
	evaluations *fairshare.Semaphore
}

// NewSenders returns senders that send through a client. policy must be that of the client.
func NewSenders(client *outbound.Client, policy outbound.Policy) *Senders {
	return &Senders{client: client, policy: policy, evaluations: fairshare.NewSemaphore(maxEvaluations)}
}

// New returns the sender of an AlertProvider. It sends no request. The options of a service are parsed when an alert is sent,
// because that may be slow.
func (s *Senders) New(providerType string, o Options) (Sender, error) {
	if RequiresAddress(providerType) {
		return New(s.client, providerType, o)
	}
	return &serviceSender{Senders: s, kind: providerType, options: o}, nil
}

// serviceSender sends alerts to a service of notifications.
type serviceSender struct {
	*Senders
	kind    string
	options Options
}

// Send sends the message.
func (s *serviceSender) Send(ctx context.Context, m Message) error {
	config, sender, content, err := s.prepare(ctx, m)
	if err == nil {
		err = sender.Send(ctx, service.Message{Content: content, Service: serviceName, Recipient: s.options.Recipient, Now: m.At})
	}
	if err != nil && config != nil {
		return &redactedError{text: config.Redact(err), cause: err}
	}
	return err
}

// prepare parses the configuration and executes its templates, a few at a time and with fair shares for namespaces.
func (s *serviceSender) prepare(ctx context.Context, m Message) (*notification.Config, service.Sender, notification.Content, error) {
	done, err := s.evaluations.Acquire(ctx, s.options.Namespace)
	if err != nil {
		return nil, nil, notification.Content{}, outbound.NewUnreachableError(fmt.Errorf("other alerts of the namespace take too long: %w", err))
	}
	defer done()
	config, err := s.newConfig()
	if err != nil {
		return config, nil, notification.Content{}, err
	}
	options, err := config.Service(serviceName)
	if err != nil {
		return config, nil, notification.Content{}, err
	}
	sender, err := service.New(s.client, s.policy, options)
	if err != nil {
		return config, nil, notification.Content{}, fmt.Errorf("service %s: %w", s.kind, err)
	}
	names := []string{"default"}
	if s.options.Secret[keyTemplate] != nil {
		names = append(names, keyTemplate)
	}
	vars := templateVars(m)
	vars["serviceType"], vars["recipient"] = s.kind, s.options.Recipient
	content, err := config.Render(ctx, names, vars)
	if s.kind == "telegram" && len(names) == 1 {
		content.Message = markdownEscaper.Replace(content.Message)
	}
	return config, sender, content, err
}

// markdownEscaper escapes the default content for Telegram, which refuses a message with a single underscore as invalid Markdown.
var markdownEscaper = strings.NewReplacer("_", `\_`, "*", `\*`, "`", "\\`", "[", `\[`)

// newConfig returns the configuration of the service, in the form of that of notifications. It belongs to a namespace, so that it
// can use neither files nor the identity of the controller.
func (s *serviceSender) newConfig() (*notification.Config, error) {
	options, ok := s.options.Secret[keyOptions]
	if !ok {
		options = addressOptions(s.kind, s.options.URL)
	}
	if options == nil {
		return nil, fmt.Errorf("the secret does not contain %s: add it, with the options of the service %s", keyOptions, s.kind)
	}
	credentials := maps.Clone(s.options.Secret)
	delete(credentials, keyOptions)
	delete(credentials, keyTemplate)
	hidden := map[string][]byte{}
	for i, text := range inlineTexts(options) { // no reference can have such a name
		hidden[fmt.Sprintf("%s/%d", keyOptions, i)] = []byte(text)
	}
	maps.Copy(hidden, credentials)
	keys := map[string]string{"service." + s.kind + "." + serviceName: string(options), "template.default": defaultTemplate}
	if own, ok := s.options.Secret[keyTemplate]; ok {
		keys["template."+keyTemplate] = string(own)
	}
	config := notification.NewConfig(keys, hidden).ForNamespace(s.options.Namespace)
	problems := config.Problems()
	if len(problems) == 0 {
		return config, nil
	}
	key := keyTemplate
	if strings.HasPrefix(problems[0].Key, "service.") {
		key = keyOptions
	}
	return config, fmt.Errorf("the key %s of the secret: %s", key, problems[0].Text)
}

// addressOptions returns the options of a webhook of which only the address is known.
func addressOptions(kind, address string) []byte {
	if kind != "webhook" || address == "" {
		return nil
	}
	options, err := json.Marshal(map[string]any{"url": address, "headers": []map[string]string{{"name": "Content-Type", "value": "application/json"}}})
	if err != nil {
		return nil
	}
	return options
}

// minInlineSecret is the minimum length of a text in the options that is treated as a secret. Ports and flags are shorter.
const minInlineSecret = 8

// inlineTexts returns the texts in options that may be credentials, because not all users refer to other keys.
func inlineTexts(options []byte) []string {
	var document any
	if yaml.Unmarshal(options, &document) != nil {
		return nil
	}
	var out []string
	var walk func(any)
	walk = func(node any) {
		switch node := node.(type) {
		case string:
			if len(node) >= minInlineSecret && !strings.HasPrefix(node, "$") {
				out = append(out, node)
			}
		case []any:
			for _, child := range node {
				walk(child)
			}
		case map[string]any:
			for _, child := range node {
				walk(child)
			}
		}
	}
	walk(document)
	return out
}

// templateVars returns the variables of the templates of an alert.
func templateVars(m Message) map[string]any {
	name, namespace := m.Canary, ""
	if dot := strings.LastIndex(m.Canary, "."); dot >= 0 {
		name, namespace = m.Canary[:dot], m.Canary[dot+1:]
	}
	fields := make([]any, len(m.Fields))
	for i, f := range m.Fields {
		fields[i] = map[string]any{"name": f.Name, "value": f.Value}
	}
	return map[string]any{serviceName: map[string]any{
		"name": name, "namespace": namespace, "text": m.Text, "severity": string(m.Severity), "fields": fields, "time": m.At.UTC().Format(time.RFC3339),
	}}
}

// defaultTemplate is the content of alerts for all services. The template of a user overrides its fields. Opsgenie limits the
// length of a message, so that the fields are in its description.
const defaultTemplate = `
message: |-
  {{.alert.name}}.{{.alert.namespace}}: {{.alert.text}}
  {{- if ne .serviceType "opsgenie"}}{{range .alert.fields}}
  {{.name}}: {{.value}}
  {{- end}}{{end}}
email:
  subject: "[{{.alert.severity}}] {{.alert.name}}.{{.alert.namespace}}: {{.alert.text}}"
alertmanager:
  labels:
    alertname: CanaryAlert
    namespace: "{{.alert.namespace}}"
    name: "{{.alert.name}}"
    severity: "{{.alert.severity}}"
  annotations:
    summary: "{{.alert.text}}"
awssqs:
  messageAttributes:
    severity: "{{.alert.severity}}"
gcppubsub:
  attributes:
    severity: "{{.alert.severity}}"
newrelic:
  revision: "{{.alert.name}}.{{.alert.namespace}}"
opsgenie:
  alias: "{{.alert.name}}.{{.alert.namespace}}"
  description: "{{range .alert.fields}}{{.name}}: {{.value}}\n{{end}}"
  priority: '{{if eq .alert.severity "error"}}P2{{else if eq .alert.severity "warn"}}P4{{else}}P5{{end}}'
pagerduty:
  title: "{{.alert.name}}.{{.alert.namespace}}: {{.alert.text}}"
  body: "{{range .alert.fields}}{{.name}}: {{.value}}\n{{end}}"
  urgency: '{{if eq .alert.severity "error"}}high{{else}}low{{end}}'
pagerdutyv2:
  summary: "{{.alert.name}}.{{.alert.namespace}}: {{.alert.text}}"
  severity: '{{if eq .alert.severity "error"}}error{{else if eq .alert.severity "warn"}}warning{{else}}info{{end}}'
  source: "{{.alert.name}}.{{.alert.namespace}}"
  component: "{{.alert.name}}"
  group: "{{.alert.namespace}}"
webhook:
  alert:
    method: POST
    body: "{{toJson .alert}}"
`

// redactedError is an error whose text contains no secrets.
type redactedError struct {
	text  string
	cause error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.cause }
