package metric

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	"text/template/parse"
)

// Vars are the variables of a query's template.
type Vars struct {
	// Name and Namespace are those of the Canary.
	Name, Namespace string
	// Target is the workload's name and TargetKind its kind.
	Target, TargetKind string
	// Service is the apex name: spec.service.name, else the target.
	Service string
	// Ingress is spec.ingressRef.name, else the target.
	Ingress string
	// Route is spec.routeRef.name, else the target; for Knative the latest created revision.
	Route string
	// Interval is the time range of the query, as written in the Canary; empty: 1m.
	Interval string
	// Variables are the templateVariables of the metric.
	Variables map[string]string
}

// DefaultInterval is the time range of a query if the metric has none.
const DefaultInterval = "1m"

func (v Vars) interval() string {
	if v.Interval == "" {
		return DefaultInterval
	}
	return v.Interval
}

// The limits of a template. Users' templates are executed in the controller, so their output and their duration must be
// bounded.
const (
	maxQuery = 64 << 10 // bytes of a template, of its output, and of each intermediate text
	maxSteps = 10_000   // executed bodies of loops and templates
)

var (
	errTooLong      = fmt.Errorf("the template produces more than %d KiB of text: shorten it", maxQuery>>10)
	errTooManySteps = fmt.Errorf("the template runs more than %d steps: remove its loop", maxSteps)
	errWideFormat   = errors.New("the template formats with a width that is not a small number, or with numbered arguments: remove them")
)

// Render renders the template of a query: a Go text/template with the functions name, namespace, target, service, ingress,
// route, interval and variables, and those of the language. Values are inserted without escaping. A variable that does not
// exist is an error, and so are more than 64 KiB of text and endless loops.
func Render(text string, v Vars) (string, error) {
	if len(text) > maxQuery {
		return "", errTooLong
	}
	budget := &budget{}
	t, err := template.New("query").Option("missingkey=error").Funcs(budget.functions(v)).Parse(text)
	if err != nil {
		return "", errors.New(templateError(err))
	}
	step, err := template.New("step").Funcs(budget.functions(v)).Parse("{{" + stepName + "}}")
	if err != nil {
		return "", err
	}
	for _, defined := range t.Templates() {
		countSteps(defined.Root, step.Root.Nodes[0], true)
	}
	if err := t.Execute(&budget.out, nil); err != nil {
		return "", errors.New(templateError(err))
	}
	return budget.out.text.String(), nil
}

// templateError returns the error of a template without the name of the package and without the quoted template.
func templateError(err error) string {
	for _, known := range []error{errTooLong, errTooManySteps, errWideFormat} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return strings.TrimPrefix(err.Error(), "template: ")
}

// budget counts the resources that one rendering uses.
type budget struct {
	out      boundedText
	produced int
	steps    int
}

// stepName is the name of an undocumented function, which is called at the beginning of each counted body.
const stepName = "serinStep"

// functions returns the variables, and bounded versions of the functions of the language that return texts: otherwise, a
// template of a few lines could double a text until the memory is exhausted.
func (b *budget) functions(v Vars) template.FuncMap {
	constant := func(s string) func() string { return func() string { return s } }
	return template.FuncMap{
		"name":      constant(v.Name),
		"namespace": constant(v.Namespace),
		"target":    constant(v.Target),
		"service":   constant(v.Service),
		"ingress":   constant(v.Ingress),
		"route":     constant(v.Route),
		"interval":  constant(v.interval()),
		"variables": func() map[string]string { return v.Variables },

		stepName: func() (string, error) {
			if b.steps++; b.steps > maxSteps {
				return "", errTooManySteps
			}
			return "", nil
		},
		"print":    func(args ...any) (string, error) { return b.produce(args, fmt.Sprint) },
		"println":  func(args ...any) (string, error) { return b.produce(args, fmt.Sprintln) },
		"html":     func(args ...any) (string, error) { return b.produce(args, template.HTMLEscaper) },
		"js":       func(args ...any) (string, error) { return b.produce(args, template.JSEscaper) },
		"urlquery": func(args ...any) (string, error) { return b.produce(args, template.URLQueryEscaper) },
		"printf": func(format string, args ...any) (string, error) {
			if wideFormat.MatchString(format) {
				return "", errWideFormat
			}
			return b.produce(append([]any{format}, args...), func(args ...any) string { return fmt.Sprintf(format, args[1:]...) })
		},
	}
}

// wideFormat matches widths and precisions of a verb that are computed or have four or more digits. It also matches arguments
// that are selected by index, because one argument could be printed any number of times.
var wideFormat = regexp.MustCompile(`%[^a-zA-Z%]*(\*|\[|[0-9]{4})`)

func (b *budget) produce(args []any, text func(...any) string) (string, error) {
	in := 0
	for _, arg := range args {
		if s, ok := arg.(string); ok {
			in += len(s)
		}
	}
	if in > maxQuery {
		return "", errTooLong
	}
	out := text(args...)
	if b.produced += len(out); len(out) > maxQuery || b.produced > 16*maxQuery {
		return "", errTooLong
	}
	return out, nil
}

// boundedText is a writer that refuses more than maxQuery bytes.
type boundedText struct{ text strings.Builder }

func (t *boundedText) Write(p []byte) (int, error) {
	if t.text.Len()+len(p) > maxQuery {
		return 0, errTooLong
	}
	return t.text.Write(p)
}

// repeats reports whether a list of nodes can be executed more than once.
type repeats bool

// countSteps inserts a counter at the beginning of every list that can be executed more than once: a template, which may
// call itself, and the body of a loop.
func countSteps(list *parse.ListNode, step parse.Node, repeats repeats) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.RangeNode:
			countSteps(node.List, step, true)
			countSteps(node.ElseList, step, false)
		case *parse.IfNode:
			countSteps(node.List, step, false)
			countSteps(node.ElseList, step, false)
		case *parse.WithNode:
			countSteps(node.List, step, false)
			countSteps(node.ElseList, step, false)
		default: // text, actions and calls of templates contain no list
		}
	}
	if repeats {
		list.Nodes = append([]parse.Node{step.Copy()}, list.Nodes...)
	}
}
