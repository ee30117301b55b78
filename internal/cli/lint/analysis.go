package lint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/condition"
	"github.com/serin-dev/serin/internal/experiment"
)

// checkAnalysisTemplate checks the metrics of a template whose arguments are known.
func (l *linter) checkAnalysisTemplate(d *document, spec argov1.AnalysisTemplateSpec) {
	l.checkTemplateReferences(d, "spec.templates", spec.Templates)
	l.checkMetricPlugins(d, spec.Metrics)
	var args []argov1.Argument
	unset := map[string]bool{}
	for _, arg := range spec.Args {
		if arg.Value == nil && arg.ValueFrom == nil {
			unset[arg.Name] = true
			arg.Value = new("value") // only to find arguments that are not declared
		}
		args = append(args, arg)
	}
	var metrics []argov1.Metric
	complete := len(spec.Templates) == 0
	for i, m := range spec.Metrics {
		at := fmt.Sprintf("spec.metrics[%d]", i)
		resolved, err := analysis.ResolveMetric(m, args, nil)
		switch {
		case usesUnset(m, unset), err != nil && len(spec.Templates) > 0: // the values, or the arguments, are those of another object
			complete = false
		case err != nil:
			complete = false
			l.report(d, ruleInvalidAnalysis, at, err.Error(), "declare the argument in spec.args")
		default:
			metrics = append(metrics, resolved)
			if err := analysis.ValidateMetric(resolved); err != nil {
				complete = false
				l.report(d, ruleInvalidAnalysis, at, err.Error(), "")
			}
			l.checkConditions(d, at, m, resolved, spec.Args)
		}
	}
	if complete {
		run := argov1.AnalysisRunSpec{Metrics: metrics, DryRun: spec.DryRun, MeasurementRetention: spec.MeasurementRetention}
		if err := analysis.Validate(run, metrics); err != nil {
			l.report(d, ruleInvalidAnalysis, "spec", err.Error(), "")
		}
	}
}

// usesUnset reports whether a metric refers to an argument whose value another object passes.
func usesUnset(m argov1.Metric, unset map[string]bool) bool {
	text, err := json.Marshal(m)
	if err != nil {
		return true
	}
	for name := range unset {
		if refersTo(string(text), name) {
			return true
		}
	}
	return false
}

// refersTo reports whether a text refers to an argument.
func refersTo(text, argument string) bool {
	return strings.Contains(strings.ReplaceAll(text, " ", ""), "{{args."+argument+"}}")
}

// checkConditions checks the expressions of a metric, whose arguments are resolved. An expression with the content of a Secret is
// only known when it is measured.
func (l *linter) checkConditions(d *document, at string, m, resolved argov1.Metric, args []argov1.Argument) {
	isSecret := func(text string) bool {
		return slices.ContainsFunc(args, func(arg argov1.Argument) bool {
			return arg.Value == nil && arg.ValueFrom != nil && arg.ValueFrom.SecretKeyRef != nil && refersTo(text, arg.Name)
		})
	}
	for name, texts := range map[string][2]string{
		"successCondition": {m.SuccessCondition, resolved.SuccessCondition}, "failureCondition": {m.FailureCondition, resolved.FailureCondition},
	} {
		text := texts[1]
		if text == "" || isSecret(texts[0]) {
			continue
		}
		if err := condition.Check(text); err != nil {
			l.report(d, ruleInvalidCondition, at+"."+name, fmt.Sprintf("%q: %s", text, err), "")
		}
	}
}

func (l *linter) checkAnalysisRun(d *document, run *argov1.AnalysisRun) {
	l.checkMetricPlugins(d, run.Spec.Metrics)
	metrics, err := analysis.ValidateRun(run.Spec)
	if err != nil {
		l.report(d, ruleInvalidAnalysis, "spec", err.Error(), "")
	}
	for i, m := range metrics {
		l.checkConditions(d, fmt.Sprintf("spec.metrics[%d]", i), run.Spec.Metrics[i], m, run.Spec.Args)
	}
}

func (l *linter) checkExperiment(d *document, e *argov1.Experiment) {
	if _, err := experiment.ValidateSpec(e.Name, e.Spec); err != nil {
		l.report(d, ruleInvalidExperiment, "spec", err.Error(), "")
	}
	for i, ref := range e.Spec.Analyses {
		kind, namespace := templateKind(ref.ClusterScope != nil && *ref.ClusterScope, d.namespace)
		l.checkReference(d, fmt.Sprintf("spec.analyses[%d].templateName", i), argov1.SchemeGroupVersion.Group, kind, namespace, ref.TemplateName)
	}
}
