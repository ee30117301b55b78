package controller

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/launch"
)

// NamedAnalysis is an analysis of a strategy, with the path of its templates.
type NamedAnalysis struct {
	path     *field.Path
	analysis argov1.RolloutAnalysis
	// background is true for an analysis that may run as long as the release.
	background bool
}

// AnalysesOf returns the analyses of a strategy, in the order in which they are validated.
func AnalysesOf(strategy argov1.RolloutStrategy) []NamedAnalysis {
	path := field.NewPath("spec", "strategy")
	var all []NamedAnalysis
	add := func(of *argov1.RolloutAnalysis, path *field.Path, background bool) {
		if of != nil {
			all = append(all, NamedAnalysis{path: path.Child("templates"), analysis: *of, background: background})
		}
	}
	if b := strategy.BlueGreen; b != nil {
		add(b.PrePromotionAnalysis, path.Child("blueGreen", "prePromotionAnalysis"), false)
		add(b.PostPromotionAnalysis, path.Child("blueGreen", "postPromotionAnalysis"), false)
	}
	if c := strategy.Canary; c != nil {
		for i := range c.Steps {
			add(c.Steps[i].Analysis, path.Child("canary", "steps").Index(i).Child("analysis"), false)
		}
		if c.Analysis != nil {
			add(&c.Analysis.RolloutAnalysis, path.Child("canary", "analysis"), true)
		}
	}
	return all
}

// experimentTemplates returns the templates of the analyses of Experiments, with their paths in the order of the steps.
func experimentTemplates(strategy argov1.RolloutStrategy) iter.Seq2[*field.Path, []argov1.AnalysisTemplateRef] {
	return func(yield func(*field.Path, []argov1.AnalysisTemplateRef) bool) {
		if strategy.Canary == nil {
			return
		}
		for i, step := range strategy.Canary.Steps {
			if step.Experiment == nil {
				continue
			}
			path := field.NewPath("spec", "strategy", "canary", "steps").Index(i).Child("experiment", "analyses")
			for j, a := range step.Experiment.Analyses {
				if !yield(path.Index(j), []argov1.AnalysisTemplateRef{{TemplateName: a.TemplateName, ClusterScope: a.ClusterScope}}) {
					return
				}
			}
		}
	}
}

// Path returns the path of the references to the templates of an analysis.
func (a NamedAnalysis) Path() *field.Path { return a.path }

// Templates returns the references to the templates of an analysis.
func (a NamedAnalysis) Templates() []argov1.AnalysisTemplateRef { return a.analysis.Templates }

// Validate reads the templates of an analysis, and returns the reason why they cannot be used; nil: they can. It fails if lookup
// fails for another reason than a missing template.
func (a NamedAnalysis) Validate(lookup analysis.TemplateLookup) (*field.Error, error) {
	templates, err := analysis.CollectTemplates(a.analysis.Templates, lookup)
	if missing, is := errors.AsType[*launch.TemplateNotFoundError](err); is {
		return field.Invalid(a.path, missing.Name, missing.Error()), nil
	}
	if err != nil {
		return nil, err
	}
	return a.validateTemplates(templates), nil
}

// validateTemplates returns the reason why templates cannot be used for an analysis; nil: they can.
func (a NamedAnalysis) validateTemplates(templates []analysis.Template) *field.Error {
	caller := analysis.RunOptions{DryRun: a.analysis.DryRun, MeasurementRetention: a.analysis.MeasurementRetention}
	for _, arg := range a.analysis.Args {
		value := arg.Value
		if arg.ValueFrom != nil {
			value = "known when the AnalysisRun is created"
		}
		caller.Args = append(caller.Args, argov1.Argument{Name: arg.Name, Value: &value})
	}
	for _, t := range templates {
		unset := func(arg argov1.Argument) bool { return arg.Value == nil && arg.ValueFrom == nil }
		if a.background && len(a.analysis.Args) == 0 && slices.ContainsFunc(t.Spec.Args, unset) {
			return field.Invalid(a.path, t.Name, "missing analysis arguments in rollout spec")
		}
		for _, m := range t.Spec.Metrics {
			if !a.background && m.Interval != "" && unbounded(m.Count) {
				return field.Invalid(a.path, t.Name, fmt.Sprintf("AnalysisTemplate %s has metric %s which runs indefinitely. Invalid value for count: %s", t.Name, m.Name, m.Count))
			}
		}
	}
	if _, err := analysis.MergeTemplates(templates, caller); err != nil {
		names := make([]string, len(templates))
		for i, t := range templates {
			names[i] = t.Name
		}
		return field.Invalid(a.path, fmt.Sprint(names), err.Error())
	}
	return nil
}

// unbounded reports whether a count has no limit. A text may be an argument.
func unbounded(count *intstr.IntOrString) bool {
	return count == nil || count.Type == intstr.Int && count.IntVal == 0 || count.Type == intstr.String && count.StrVal == "0"
}
