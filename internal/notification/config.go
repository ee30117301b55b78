package notification

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Service is the configuration of one service.
type Service struct {
	Name, Type string
	// Options are JSON, in which references to the Secret are replaced by its values.
	Options []byte
	// Own reports whether the service is configured in the namespace of the Rollout, and not by the administrator for all
	// namespaces. Such a service must not use the files or the identity of the controller.
	Own bool
}

// Problem is an invalid key of the ConfigMap, which the user must correct. Other keys remain usable.
type Problem struct {
	Key string
	// Text describes the error and its correction.
	Text string
}

// String returns the key and the text.
func (p Problem) String() string { return fmt.Sprintf("key %q: %s", p.Key, p.Text) }

// Config is the parsed content of a ConfigMap and its Secret.
type Config struct {
	triggers        map[string]trigger
	templates       map[string]template
	services        map[string]Service
	subscriptions   []subscription
	defaultTriggers []string
	serviceTriggers map[string][]string
	secrets         map[string]string
	redactor        redactor
	problems        map[string]string
	// prefix begins the keys of this configuration's messages in the log of sent messages.
	prefix string
}

// NewConfig parses the data of a ConfigMap and of its Secret. Invalid keys are returned by Problems; the others are usable.
func NewConfig(data map[string]string, secret map[string][]byte) *Config {
	c := &Config{
		triggers: map[string]trigger{}, templates: map[string]template{}, services: map[string]Service{},
		serviceTriggers: map[string][]string{}, secrets: make(map[string]string, len(secret)), problems: map[string]string{},
	}
	for key, value := range secret {
		c.secrets[key] = string(value)
	}
	c.redactor = newRedactor(slices.Collect(maps.Values(c.secrets)))
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if err := c.read(key, data[key]); err != nil {
			c.problems[key] = c.redactor.redact(err)
		}
	}
	return c
}

// ForNamespace returns a copy of the configuration that belongs to the namespace of Rollouts instead of the controller.
// Its messages have separate keys in the log of sent messages.
func (c *Config) ForNamespace(namespace string) *Config {
	out := *c
	out.prefix = namespace + ":"
	return &out
}

// read parses one key. Unknown keys are ignored.
func (c *Config) read(key, text string) (err error) {
	kind, name, _ := strings.Cut(key, ".")
	switch {
	case key == "subscriptions":
		c.subscriptions, err = readSubscriptions(text)
	case key == "defaultTriggers":
		err = decodeYAML(text, &c.defaultTriggers)
	case name == "":
		return nil
	case kind == "defaultTriggers":
		return storeIn(c.serviceTriggers, name)(readNames(text))
	case kind == "trigger":
		return storeIn(c.triggers, name)(readTrigger(text))
	case kind == "template":
		return storeIn(c.templates, name)(readTemplate(name, text))
	case kind == "service":
		return c.readService(name, text)
	}
	return err
}

// storeIn returns a function that stores a value under name, unless there was an error.
func storeIn[V any](all map[string]V, name string) func(V, error) error {
	return func(value V, err error) error {
		if err == nil {
			all[name] = value
		}
		return err
	}
}

func readNames(text string) (names []string, err error) {
	err = decodeYAML(text, &names)
	return names, err
}

// readService parses one service. name is TYPE or TYPE.NAME.
func (c *Config) readService(name, text string) error {
	service := Service{Name: name, Type: name}
	if kind, own, found := strings.Cut(name, "."); found {
		if own == "" || strings.Contains(own, ".") {
			return errors.New("write the key as service.TYPE or service.TYPE.NAME")
		}
		service = Service{Name: own, Type: kind}
	}
	var options any
	if decodeYAML(text, &options) != nil {
		return errors.New("it is not valid YAML: correct it") // the reason might quote a password
	}
	missing := map[string]bool{}
	var err error
	if service.Options, err = json.Marshal(c.resolveReferences(options, missing)); err != nil {
		return err
	}
	c.services[service.Name] = service
	if len(missing) > 0 {
		names := strings.Join(slices.Sorted(maps.Keys(missing)), ", ")
		return fmt.Errorf("it refers to %s, which the Secret %s does not contain: add it there", names, SecretName)
	}
	return nil
}

// reference matches a reference to a key of the Secret.
var reference = regexp.MustCompile(`\$[\w-]+`)

// resolveReferences returns options in which references are replaced by the values of the Secret. A reference to a key that does
// not exist is unchanged and added to missing.
func (c *Config) resolveReferences(options any, missing map[string]bool) any {
	return mapStrings(options, func(text string) string {
		return reference.ReplaceAllStringFunc(text, func(name string) string {
			value, ok := c.secrets[name[1:]]
			if !ok {
				missing[name] = true
				return name
			}
			return value
		})
	})
}

// mapStrings returns a copy of a decoded document in which change is applied to all strings.
func mapStrings(document any, transform func(string) string) any {
	switch d := document.(type) {
	case string:
		return transform(d)
	case []any:
		out := make([]any, len(d))
		for i, each := range d {
			out[i] = mapStrings(each, transform)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(d))
		for key, each := range d {
			out[key] = mapStrings(each, transform)
		}
		return out
	default:
		return document
	}
}

// decodeYAML decodes YAML.
func decodeYAML(text string, into any) error {
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("it does not have the form of such a key: %s", firstLine(err))
	}
	return nil
}

// Problems returns the invalid keys, sorted.
func (c *Config) Problems() []Problem {
	var all []Problem
	for _, key := range slices.Sorted(maps.Keys(c.problems)) {
		all = append(all, Problem{Key: key, Text: c.problems[key]})
	}
	return all
}

// Service returns the configuration of the service of that name.
func (c *Config) Service(name string) (Service, error) {
	if service, ok := c.services[name]; ok {
		service.Own = c.prefix != ""
		return service, nil
	}
	for _, problem := range c.Problems() {
		if problem.Key == "service."+name || strings.HasPrefix(problem.Key, "service.") && strings.HasSuffix(problem.Key, "."+name) {
			return Service{}, errors.New(problem.String())
		}
	}
	return Service{}, fmt.Errorf("no service %q is configured: add the key service.%s", name, name)
}

// Hide returns a text, such as that of a message, without the values of the Secret.
func (c *Config) Hide(text string) string { return c.redactor.hide(text) }

// Redact returns the text of an error without the values of the Secret.
func (c *Config) Redact(err error) string { return c.redactor.redact(err) }
