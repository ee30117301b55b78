package notification

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	text "text/template"

	"github.com/Masterminds/sprig/v3"
)

// maxText bounds what one text of a template comes to, and how long a list or a text its functions make.
const (
	maxText = 256 << 10
	maxList = 1000
)

var errTooLong = errors.New("it becomes too long")

// template is the texts of one key: the message, and those of each service, to be filled in.
type template struct{ document map[string]any }

// Content is what a message says: the text for all services, and what is for one of them alone.
type Content struct {
	Message string
	// Template is the name of the last of them.
	Template string
	parts    map[string]any
}

// Part reads what the templates have for a service; it leaves into alone where there is nothing.
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
		return fmt.Errorf("the part %s of the template has not the form of that service: correct it", service)
	}
	return nil
}

// Has says whether the templates have a part for a service.
func (c Content) Has(service string) bool { return c.parts[service] != nil }

func readTemplate(name, content string) (template, error) {
	var raw map[string]any
	if err := decode(content, &raw); err != nil {
		return template{}, err
	}
	document, err := parsed(name, raw)
	if err != nil {
		return template{}, err
	}
	filled, _ := document.(map[string]any)
	return template{document: filled}, nil
}

// parsed is a document with its texts as templates.
func parsed(name string, document any) (any, error) {
	switch d := document.(type) {
	case string:
		t, err := text.New(name).Funcs(functions()).Parse(d)
		if err != nil {
			return nil, err
		}
		return t, endless(t)
	case []any:
		out := make([]any, len(d))
		for i, each := range d {
			var err error
			if out[i], err = parsed(name, each); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(d))
		for key, each := range d {
			var err error
			if out[key], err = parsed(name, each); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return document, nil
	}
}

// fill is a document with its templates filled in.
func fill(document any, vars map[string]any) (any, error) {
	switch d := document.(type) {
	case *text.Template:
		out := &bounded{}
		err := d.Execute(out, vars)
		return out.String(), err
	case []any:
		out := make([]any, len(d))
		for i, each := range d {
			var err error
			if out[i], err = fill(each, vars); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(d))
		for _, key := range sortedKeys(d) {
			var err error
			if out[key], err = fill(d[key], vars); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return document, nil
	}
}

// bounded takes no more than a message may have.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxText {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}

// Render is what templates say about the variables. Of what several say, the last that says something counts.
func (c *Config) Render(names []string, vars map[string]any) (Content, error) {
	all := map[string]any{}
	for _, name := range names {
		t, ok := c.templates[name]
		switch {
		case ok:
		case c.problems["template."+name] != "":
			return Content{}, errors.New(Problem{Key: "template." + name, Text: c.problems["template."+name]}.String())
		default:
			return Content{}, fmt.Errorf("no template %q is configured: add the key template.%s", name, name)
		}
		filled, err := fill(t.document, vars)
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

// merge lays what a template says over what those before it said.
func merge(all, more map[string]any) {
	for key, value := range more {
		before, both := all[key].(map[string]any)
		now, maps := value.(map[string]any)
		switch {
		case both && maps:
			merge(before, now)
		case value != "" || all[key] == nil:
			all[key] = value
		}
	}
}

// functions are those of templates: the usual library, but for what reads the process, asks the network or only burns
// time, and what makes lists and texts of any length.
func functions() text.FuncMap {
	all := sprig.TxtFuncMap()
	for _, name := range []string{
		"env", "expandenv", "getHostByName", "genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey",
		"genSignedCert", "genSignedCertWithKey", "derivePassword", "bcrypt", "htpasswd", "buildCustomCert", "seq",
	} {
		delete(all, name)
	}
	until := all["until"].(func(int) []int)
	all["until"] = func(n int) ([]int, error) {
		if n > maxList || n < -maxList {
			return nil, errTooLong
		}
		return until(n), nil
	}
	step := all["untilStep"].(func(int, int, int) []int)
	all["untilStep"] = func(start, stop, by int) ([]int, error) {
		if math.Abs(float64(start)-float64(stop)) > maxList {
			return nil, errTooLong
		}
		return step(start, stop, by), nil
	}
	repeat := all["repeat"].(func(int, string) string)
	all["repeat"] = func(n int, s string) (string, error) {
		if n < 0 || n > maxText || n*len(s) > maxText {
			return "", errTooLong
		}
		return repeat(n, s), nil
	}
	for _, name := range []string{"randAlpha", "randAlphaNum", "randAscii", "randNumeric"} {
		random := all[name].(func(int) string)
		all[name] = func(n int) (string, error) {
			if n > maxList {
				return "", errTooLong
			}
			return random(max(n, 0)), nil
		}
	}
	for _, name := range []string{"indent", "nindent"} {
		indent := all[name].(func(int, string) string)
		all[name] = func(n int, s string) (string, error) {
			if n < 0 || n > maxList || n*(len(s)+1) > 64*maxText {
				return "", errTooLong
			}
			return indent(n, s), nil
		}
	}
	return all
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
