package lint

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/traffic"
)

func (l *linter) checkRollout(d *document, r *argov1.Rollout) {
	workload, labels := l.referencedWorkload(d, r.Spec)
	problems := rollout.Validate(r.Spec, workload)
	for _, problem := range problems {
		l.report(d, ruleInvalidRollout, strategyField(r.Spec.Strategy, problem.Field), problem.ErrorBody(), "")
	}
	if len(problems) == 0 {
		l.checkServices(d, r, labels)
	}
	r.Namespace = d.namespace
	if c := r.Spec.Strategy.Canary; c != nil && c.TrafficRouting != nil {
		switch err := l.options.CheckRouting(r); {
		case errors.Is(err, traffic.ErrCrossNamespace):
			l.report(d, ruleInvalidRollout, "spec.strategy.canary.trafficRouting", err.Error(), fixInMessage)
		case errors.Is(err, traffic.ErrInvalid):
			l.report(d, ruleInvalidRollout, "spec.strategy.canary.trafficRouting.plugins", err.Error(), "")
		case err != nil:
			l.report(d, ruleUnsupportedRouter, "spec.strategy.canary.trafficRouting", err.Error(), "")
		}
	}
	if c := r.Spec.Strategy.Canary; c != nil {
		l.checkRolloutPlugins(d, c)
	}
	l.checkRolloutAnalyses(d, r.Spec.Strategy)
}

// strategyField returns the path of a field in the document. The messages of Argo Rollouts, and so those of the controller, omit the
// strategy from the path.
func strategyField(s argov1.RolloutStrategy, path string) string {
	name := "canary"
	if s.Canary == nil {
		name = "blueGreen"
	}
	rest, ok := strings.CutPrefix(path, "spec.strategy.")
	switch {
	case !ok || strings.HasPrefix(rest, name+"."):
		return path
	case rest == "strategy":
		return "spec.strategy"
	default:
		return "spec.strategy." + name + "." + rest
	}
}

// referencedWorkload returns the workload of a Rollout in the form that validation needs, and the labels of its pods; nil: the
// workload is not in the input.
func (l *linter) referencedWorkload(d *document, spec argov1.RolloutSpec) (rollout.ReferencedWorkload, map[string]string) {
	ref := spec.WorkloadRef
	if ref == nil {
		return rollout.ReferencedWorkload{}, spec.Template.Labels
	}
	l.checkReference(d, "spec.workloadRef", groupOf(ref.APIVersion), ref.Kind, d.namespace, ref.Name)
	found, _ := l.find(groupOf(ref.APIVersion), ref.Kind, d.namespace, ref.Name)
	if found == nil {
		return rollout.ReferencedWorkload{IsUnknown: true}, nil
	}
	var workload struct {
		Template corev1.PodTemplateSpec `json:"template"` // of a PodTemplate
		Spec     struct {
			Selector *metav1.LabelSelector  `json:"selector"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if found.decode(&workload) != nil {
		return rollout.ReferencedWorkload{IsUnknown: true}, nil // kubectl reports it
	}
	template, selector := workload.Spec.Template, workload.Spec.Selector
	if ref.Kind == "PodTemplate" {
		template, selector = workload.Template, &metav1.LabelSelector{MatchLabels: workload.Template.Labels}
	}
	return rollout.ReferencedWorkload{Template: template, Selector: selector}, template.Labels
}

// checkServices checks the Services of a strategy. labels are those of the pods; nil: unknown.
func (l *linter) checkServices(d *document, r *argov1.Rollout, labels map[string]string) {
	services := map[string]rollout.Service{}
	missing := map[string]bool{}
	for _, name := range rollout.ServiceNames(r.Spec.Strategy) {
		found, anyService := l.find("", "Service", d.namespace, name)
		missing[name] = found == nil && anyService
		service := rollout.Service{Found: !missing[name]}
		var object corev1.Service
		if found != nil && labels != nil && found.decode(&object) == nil {
			service.Selector = object.Spec.Selector
		}
		services[name] = service
	}
	for _, problem := range rollout.ValidateServices(r.Name, r.Spec.Strategy, labels, services) {
		name := fmt.Sprint(problem.BadValue)
		if missing[name] {
			l.checkReference(d, problem.Field, "", "Service", d.namespace, name)
			continue
		}
		l.report(d, ruleServiceMismatch, problem.Field, problem.Detail, "")
	}
}

// errNotInInput is the error of a lookup for a template that the input does not contain.
var errNotInInput = errors.New("the template is not in the input")

// lookupTemplate returns the lookup of the templates in the input.
func (l *linter) lookupTemplate(namespace string) analysis.TemplateLookup {
	return func(name string, cluster bool) (argov1.AnalysisTemplateSpec, error) {
		kind, namespace := templateKind(cluster, namespace)
		found, _ := l.find(argov1.SchemeGroupVersion.Group, kind, namespace, name)
		var template argov1.AnalysisTemplate // both kinds have the same spec
		if found == nil || found.decode(&template) != nil {
			return argov1.AnalysisTemplateSpec{}, errNotInInput
		}
		return template.Spec, nil
	}
}

func templateKind(cluster bool, namespace string) (kind, templateNamespace string) {
	if cluster {
		return argov1.ClusterAnalysisTemplateKind, ""
	}
	return argov1.AnalysisTemplateKind, namespace
}

// checkRolloutAnalyses checks the templates of all analyses of a strategy.
func (l *linter) checkRolloutAnalyses(d *document, s argov1.RolloutStrategy) {
	for _, named := range controller.AnalysesOf(s) {
		l.checkTemplateReferences(d, named.Path().String(), named.Templates())
		problem, err := named.Validate(l.lookupTemplate(d.namespace))
		if err == nil && problem != nil {
			l.report(d, ruleInvalidAnalysis, problem.Field, problem.Detail, "")
		}
	}
	if s.Canary == nil {
		return
	}
	for i, step := range s.Canary.Steps {
		if step.Experiment == nil {
			continue
		}
		for j, ref := range step.Experiment.Analyses {
			kind, namespace := templateKind(ref.ClusterScope != nil && *ref.ClusterScope, d.namespace)
			at := fmt.Sprintf("spec.strategy.canary.steps[%d].experiment.analyses[%d].templateName", i, j)
			l.checkReference(d, at, argov1.SchemeGroupVersion.Group, kind, namespace, ref.TemplateName)
		}
	}
}

// checkTemplateReferences checks the references of a list to templates.
func (l *linter) checkTemplateReferences(d *document, path string, refs []argov1.AnalysisTemplateRef) {
	for i, ref := range refs {
		kind, namespace := templateKind(ref.ClusterScope != nil && *ref.ClusterScope, d.namespace)
		l.checkReference(d, fmt.Sprintf("%s[%d].templateName", path, i), argov1.SchemeGroupVersion.Group, kind, namespace, ref.TemplateName)
	}
}
