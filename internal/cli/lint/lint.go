// Package lint checks manifests of Canaries, Rollouts and their kinds without a cluster: their schemas, and their settings with
// the rules of the controller.
//
// It knows documents and findings, as values. It must not know files, clients, clocks, or rules of its own about a setting: it
// calls those of the controller. A rule is an entry of rules.go, a section of docs/lint.md, and an input in testdata.
package lint

import (
	"cmp"
	"context"
	"slices"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
)

// Input is the content of one file.
type Input struct {
	Name string
	Text []byte
}

// Options are the settings that manifests do not contain.
type Options struct {
	// Namespace of documents without one.
	Namespace string
	// Settings are those of the controller for Canaries.
	Settings canary.Settings
	// Features returns the features of the router of a Canary.
	Features func(c *flaggerv1.Canary, provider string) canary.Features
	// CheckRoute returns the reason why the route of a Canary cannot be created.
	CheckRoute func(c *flaggerv1.Canary, provider string) error
	// CheckRouting returns the reason why the traffic routing of a Rollout cannot work: no router supports it, or, with
	// traffic.ErrInvalid, its configuration is invalid.
	CheckRouting func(*argov1.Rollout) error
	// ExternalPlugins returns the router plugins that are not built in.
	ExternalPlugins func(*argov1.RolloutTrafficRouting) []string
	// MetricTypes are the types of metrics providers.
	MetricTypes []string
}

// linter collects the findings about all inputs.
type linter struct {
	options  Options
	objects  []*document
	findings []Finding
	// targets has the name of the first Canary of each target.
	targets map[canaryTarget]string
}

// canaryTarget identifies the target of a Canary. The kind Service is ambiguous.
type canaryTarget struct {
	namespace, kind, name string
	isKnative             bool
}

// Lint returns the findings about all inputs, in their order. References are resolved among all of them. The
// context ends the evaluation of the CEL rules of schemas.
func Lint(ctx context.Context, inputs []Input, options Options) ([]Finding, error) {
	l := &linter{options: options, targets: map[canaryTarget]string{}}
	order := map[string]int{}
	for i, input := range inputs {
		order[input.Name] = i
		l.readInput(input)
	}
	schemas := newSchemas()
	for _, d := range l.objects {
		usable, err := l.checkSchema(ctx, schemas, d)
		if err != nil {
			return nil, err
		}
		if usable {
			l.checkMeaning(d)
		}
	}
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(order[a.File]-order[b.File], a.Line-b.Line, a.Column-b.Column)
	})
	return l.findings, nil
}

// checkMeaning applies the rules of the controller to an object that its schema permits.
func (l *linter) checkMeaning(d *document) {
	switch d.kind {
	case flaggerv1.CanaryKind:
		decodeAndCheck(l, d, l.checkCanary)
	case flaggerv1.MetricTemplateKind:
		decodeAndCheck(l, d, l.checkMetricTemplate)
	case flaggerv1.AlertProviderKind:
		decodeAndCheck(l, d, l.checkAlertProvider)
	case argov1.RolloutKind:
		decodeAndCheck(l, d, l.checkRollout)
	case argov1.AnalysisTemplateKind:
		decodeAndCheck(l, d, func(d *document, t *argov1.AnalysisTemplate) { l.checkAnalysisTemplate(d, t.Spec) })
	case argov1.ClusterAnalysisTemplateKind:
		decodeAndCheck(l, d, func(d *document, t *argov1.ClusterAnalysisTemplate) { l.checkAnalysisTemplate(d, t.Spec) })
	case argov1.AnalysisRunKind:
		decodeAndCheck(l, d, l.checkAnalysisRun)
	case argov1.ExperimentKind:
		decodeAndCheck(l, d, l.checkExperiment)
	}
}

// decodeAndCheck decodes an object and checks it.
func decodeAndCheck[T any](l *linter, d *document, check func(*document, *T)) {
	object := new(T)
	if err := d.decode(object); err != nil {
		l.report(d, ruleInvalidValue, "", err.Error(), "")
		return
	}
	check(d, object)
}

// fixInMessage is the fix of a finding whose message contains it.
const fixInMessage = "-"

// report adds a finding about a field; empty: about the object. Without a fix, that of the rule applies.
func (l *linter) report(d *document, rule *Rule, field, message, fix string) {
	at := d.locate(field)
	fix = strings.TrimPrefix(cmp.Or(fix, rule.Fix), fixInMessage)
	l.findings = append(l.findings, Finding{
		Rule: rule.Name, Severity: rule.Severity, File: d.file, Line: at.Line + d.firstLine, Column: at.Column,
		Kind: d.kind, Namespace: d.namespace, Name: d.name, Field: field, Message: message, Fix: fix,
	})
}
