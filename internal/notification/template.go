package notification

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/serin-dev/serin/internal/budget"
)

// template is the document of one key: the message, and the parts of services, whose strings are templates.
type template struct {
	name     string
	document map[string]any
}

// Content is the rendered content of a message: the text for all services, and the parts for single services.
type Content struct {
	Message string
	// Template is the name of the last rendered template.
	Template string
	parts    map[string]any
}

// Part decodes the part for a service. If there is none, into is unchanged.
func (c Content) Part(service string, into any) error {
	part, ok := c.parts[service]
	if !ok {
		return nil
	}
	encoded, err := json.Marshal(part)
	if err != nil {
		return fmt.Errorf("read the part %s of the template: %w", service, err)
	}
	if err := json.Unmarshal(encoded, into); err != nil {
		return fmt.Errorf("the part %s of the template does not have the form of that service: correct it", service)
	}
	return nil
}

// HasPart reports whether the templates have a part for a service.
func (c Content) HasPart(service string) bool { return c.parts[service] != nil }

func readTemplate(name, content string) (template, error) {
	var raw map[string]any
	if err := decodeYAML(content, &raw); err != nil {
		return template{}, err
	}
	return template{name: name, document: raw}, checkTemplates(name, raw)
}

// checkTemplates returns an error if a string of a document is not a valid template.
func checkTemplates(name string, document any) error {
	switch d := document.(type) {
	case string:
		_, err := parseText(name, d, parserFunctions())
		return err
	case []any:
		for _, each := range d {
			if err := checkTemplates(name, each); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range sortedKeys(d) {
			if err := checkTemplates(name, d[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// renderDocument returns a copy of a document whose strings are rendered, all of them within the budget of g.
func renderDocument(name string, document any, vars map[string]any, g *guard) (any, error) {
	switch d := document.(type) {
	case string:
		return g.execute(name, d, vars)
	case []any:
		out := make([]any, len(d))
		for i, each := range d {
			var err error
			if out[i], err = renderDocument(name, each, vars, g); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(d))
		for _, key := range sortedKeys(d) {
			var err error
			if out[key], err = renderDocument(name, d[key], vars, g); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return document, nil
	}
}

// Render renders templates with the variables, which it does not modify. A later template overrides the fields of earlier
// ones that it sets. It executes templates of users, which may be slow: do not call it from a reconciliation.
func (c *Config) Render(ctx context.Context, names []string, vars map[string]any) (Content, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, errTooSlow)
	defer cancel()
	all, g := map[string]any{}, &guard{Budget: budget.New(ctx, maxCost)}
	vars, _ = deepCopy(vars).(map[string]any)
	for _, name := range names {
		t, ok := c.templates[name]
		switch {
		case ok:
		case c.problems["template."+name] != "":
			return Content{}, errors.New(Problem{Key: "template." + name, Text: c.problems["template."+name]}.String())
		default:
			return Content{}, fmt.Errorf("no template %q is configured: add the key template.%s", name, name)
		}
		filled, err := renderDocument(t.name, t.document, vars, g)
		if err != nil {
			return Content{}, err
		}
		merge(all, filled.(map[string]any))
	}
	message, _ := all["message"].(string)
	delete(all, "message")
	content := Content{Message: message, parts: all}
	if len(names) > 0 {
		content.Template = names[len(names)-1]
	}
	return content, nil
}

// merge adds the fields of more to all, and overrides those that all has already.
func merge(all, overrides map[string]any) {
	for key, value := range overrides {
		existing, both := all[key].(map[string]any)
		override, maps := value.(map[string]any)
		switch {
		case both && maps:
			merge(existing, override)
		case value != "" || all[key] == nil:
			all[key] = value
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
