package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/metric"
)

func (l *linter) checkCanary(d *document, c *flaggerv1.Canary) {
	c.Namespace = d.namespace
	settings := l.options.Settings
	settings.Features = func(provider string) canary.Features { return l.options.Features(c, provider) }
	plan := canary.NewPlan(c, settings)
	if plan.NoAnalysis {
		l.report(d, ruleNoAnalysis, "spec", canary.NoAnalysisMessage, "")
	}
	for _, problem := range plan.Problems {
		rule := ruleAdjustedSetting
		switch {
		case !problem.Warning:
			rule = ruleInvalidCanary
		case plan.SkipAnalysis:
			continue // the controller does not report these
		case problem.Duration:
			rule = ruleInvalidDuration
		}
		l.report(d, rule, analysisField(d, problem.Field), problem.Message, fixInMessage)
	}
	if err := l.options.CheckRoute(c, plan.Provider); err != nil && len(plan.ValidationErrors) == 0 {
		l.report(d, ruleInvalidCanary, "spec.service", err.Error(), fixInMessage)
	}
	l.checkSharedTarget(d, c.Spec.TargetRef)
	l.checkCanaryReferences(d, c)
}

// checkSharedTarget reports a Canary whose target an earlier one of the input has.
func (l *linter) checkSharedTarget(d *document, ref flaggerv1.TargetReference) {
	target := canaryTarget{namespace: d.namespace, kind: ref.Kind, name: ref.Name, isKnative: ref.Knative()}
	earlier, isShared := l.targets[target]
	switch {
	case !isShared:
		l.targets[target] = d.name
	case earlier != d.name: // otherwise the same Canary, such as that of another overlay
		l.report(d, ruleSharedTarget, "spec.targetRef", fmt.Sprintf("Canary %s has the same target, %s %s, so only one of the two is served", earlier, ref.Kind, ref.Name), "")
	}
}

// analysisField returns the path of a setting in the document: old manifests have their analysis in spec.canaryAnalysis.
func analysisField(d *document, path string) string {
	spec, _ := d.object["spec"].(map[string]any)
	_, current := spec["analysis"]
	_, old := spec["canaryAnalysis"]
	if rest, ok := strings.CutPrefix(path, "spec.analysis"); ok && old && !current {
		return "spec.canaryAnalysis" + rest
	}
	return path
}

func (l *linter) checkCanaryReferences(d *document, c *flaggerv1.Canary) {
	analysis := c.Spec.EffectiveAnalysis()
	if analysis == nil {
		return
	}
	for i, m := range analysis.Metrics {
		at := analysisField(d, fmt.Sprintf("spec.analysis.metrics[%d]", i))
		vars := metric.Vars{Name: c.Name, Namespace: d.namespace, Target: c.Spec.TargetRef.Name, Variables: m.TemplateVariables}
		if m.Query != "" {
			if _, err := metric.Render(m.Query, vars); err != nil {
				l.report(d, ruleInvalidQuery, at+".query", err.Error(), "")
			}
		}
		if m.TemplateRef != nil {
			l.checkMetricReference(d, at, *m.TemplateRef, vars)
		}
	}
	for i, alert := range analysis.Alerts {
		at := analysisField(d, fmt.Sprintf("spec.analysis.alerts[%d].providerRef", i))
		l.checkReference(d, at, flaggerv1.GroupName, flaggerv1.AlertProviderKind, namespaceOr(alert.ProviderRef.Namespace, d), alert.ProviderRef.Name)
	}
}

// checkMetricReference checks that the template of a metric exists, and that the metric sets its variables.
func (l *linter) checkMetricReference(d *document, at string, ref flaggerv1.CrossNamespaceObjectReference, vars metric.Vars) {
	namespace := namespaceOr(ref.Namespace, d)
	l.checkReference(d, at+".templateRef", flaggerv1.GroupName, flaggerv1.MetricTemplateKind, namespace, ref.Name)
	found, _ := l.find(flaggerv1.GroupName, flaggerv1.MetricTemplateKind, namespace, ref.Name)
	if found == nil {
		return
	}
	var template flaggerv1.MetricTemplate
	if found.decode(&template) != nil || renderAlone(template.Spec.Query) != nil {
		return // reported for the template
	}
	if _, err := metric.Render(template.Spec.Query, vars); err != nil {
		l.report(d, ruleMissingVariable, at, fmt.Sprintf("MetricTemplate %s cannot be rendered for this metric: %s", ref.Name, err), "")
	}
}

func (l *linter) checkMetricTemplate(d *document, t *flaggerv1.MetricTemplate) {
	if providerType := t.Spec.Provider.Type; !slices.Contains(l.options.MetricTypes, providerType) {
		l.report(d, ruleUnsupportedMetric, "spec.provider.type",
			fmt.Sprintf("provider type %q is not supported", providerType), "use one of "+strings.Join(l.options.MetricTypes, ", "))
	}
	if err := renderAlone(t.Spec.Query); err != nil {
		l.report(d, ruleInvalidQuery, "spec.query", err.Error(), "")
	}
}

func (l *linter) checkAlertProvider(d *document, p *flaggerv1.AlertProvider) {
	if err := alerting.CheckSource(p.Spec.Type, p.Spec.Address, p.Spec.SecretRef != nil); err != nil {
		l.report(d, ruleIncompleteAlerts, "spec", err.Error(), "")
	}
}

// variable matches the name of a variable of a template.
var variable = regexp.MustCompile(`variables\.([A-Za-z0-9_]+)`)

// renderAlone renders the template of a query with a value for each of its variables.
func renderAlone(query string) error {
	vars := metric.Vars{Name: "name", Namespace: "namespace", Target: "target", Variables: map[string]string{}}
	for _, match := range variable.FindAllStringSubmatch(query, -1) {
		vars.Variables[match[1]] = match[1]
	}
	_, err := metric.Render(query, vars)
	return err
}
