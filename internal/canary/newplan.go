package canary

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Defaults that the API documentation promises.
const (
	defaultInterval       = 60 * time.Second
	defaultDeadline       = 600 * time.Second
	defaultMetricInterval = "1m" // range of a metric's query
	// kubernetesIterations is used where the provider cannot shift weights and the spec has no iterations.
	kubernetesIterations = 10
)

// Settings are the administrator's settings for all plans.
type Settings struct {
	// Provider is used where a Canary names none.
	Provider string
	// MinInterval is the minimum of an analysis interval. Zero: none.
	MinInterval time.Duration
	// Drain is how long pods keep running after they lost their traffic.
	Drain time.Duration
	// NoCrossNamespace forbids references into other namespaces.
	NoCrossNamespace bool
	// Features returns what the router of a provider supports.
	Features func(provider string) Features
}

// Features are the features that the router of a plan declares.
type Features struct {
	// Known is false when no router of that name exists.
	Known bool
	// Weights: traffic can be split. Matches: requests can be matched by header.
	Weights, Matches bool
	// Mirror: requests can be mirrored in blue/green; WeightedMirror: also before the first weight.
	Mirror, WeightedMirror bool
	// Sticky: session affinity is supported.
	Sticky bool
	// ServiceMatch is what the route uses of spec.service.match.
	ServiceMatch release.ServiceMatch
	// RouteBeforePods: pods can join the mesh only if its objects exist before the pods are created.
	RouteBeforePods bool
}

// targetKinds are the kinds that spec.targetRef may have.
var targetKinds = []string{"Deployment", "DaemonSet", "Service"}

// NewPlan returns the plan of a Canary. It accepts every spec; ValidationErrors describes the settings that can never work.
func NewPlan(c *flaggerv1.Canary, settings Settings) Plan {
	analysis := c.Spec.EffectiveAnalysis()
	p := Plan{
		Name: c.Name, Namespace: c.Namespace,
		Kind: c.Spec.TargetRef.Kind, Target: c.Spec.TargetRef.Name, Knative: c.Spec.TargetRef.Knative(),
		Apex:     c.Spec.ApexName(),
		Provider: c.Spec.Provider,
		Deadline: defaultDeadline, Drain: settings.Drain,
		SkipAnalysis: c.Spec.SkipAnalysis || analysis == nil, NoAnalysis: analysis == nil, Suspended: c.Spec.Suspend, RevertOnDeletion: c.Spec.RevertOnDeletion,
	}
	if p.Provider == "" {
		p.Provider = settings.Provider
	}
	p.HasRouter = p.Provider != ProviderKubernetes
	if c.Spec.ProgressDeadlineSeconds != nil {
		p.Deadline = time.Duration(*c.Spec.ProgressDeadlineSeconds) * time.Second
	}
	if analysis == nil {
		analysis = &flaggerv1.CanaryAnalysis{}
	}
	p.Interval, p.IntervalRaised = analysisInterval(analysis.Interval, settings.MinInterval)
	p.checkDurations(analysis)
	p.Threshold = min(max(analysis.Threshold, 1), maxCount)
	features := settings.Features(p.Provider)
	p.RouteBeforePods = features.RouteBeforePods
	p.readStrategy(analysis, features)
	p.checkServiceMatch(c.Spec.Service.Match, features)
	p.readChecks(analysis)
	earlier, namesakes := map[[3]string]int{}, map[[2]string]int{} // by type, name and URL; by type and name
	if excess := len(analysis.Webhooks) - maxHooks; excess > 0 {
		p.addError("spec.analysis.webhooks", "spec.analysis.webhooks has %d entries, and at most %d are supported: remove %d", len(analysis.Webhooks), maxHooks, excess)
	}
	for _, hook := range analysis.Webhooks[:min(len(analysis.Webhooks), maxHooks)] {
		if hook.Type == "" {
			hook.Type = flaggerv1.RolloutHook
		}
		identity := [3]string{string(hook.Type), hook.Name, hook.URL}
		name := [2]string{string(hook.Type), hook.Name}
		p.Hooks = append(p.Hooks, Hook{CanaryWebhook: hook, Ordinal: earlier[identity], Namesakes: namesakes[name]})
		earlier[identity]++
		namesakes[name]++
	}
	p.validateReferences(c, analysis, settings)
	return p
}

// checkServiceMatch adds a warning if the route matches more requests than spec.service.match, because the provider cannot express it.
func (p *Plan) checkServiceMatch(matches []flaggerv1.HTTPMatchRequest, features Features) {
	const field = "spec.service.match"
	if len(matches) == 0 || !features.Known || features.ServiceMatch == release.MatchWhole {
		return
	}
	if features.ServiceMatch == release.MatchIgnored {
		p.addWarning(field, "provider %s does not use %s: requests are not restricted to it; remove it", p.Provider, field)
		return
	}
	rest := matches[0]
	rest.Name = ""
	if rest.URI != nil && *rest.URI == (flaggerv1.StringMatch{Prefix: rest.URI.Prefix}) {
		rest.URI = nil
	}
	if len(matches) > 1 || !equality.Semantic.DeepEqual(rest, flaggerv1.HTTPMatchRequest{}) {
		p.addWarning(field, "provider %s uses only one prefix of a path of %s, so the route matches more requests: remove all other conditions", p.Provider, field)
	}
}

// analysisInterval returns the interval of an analysis, and whether the minimum raised it. An invalid interval is 60 s, as
// documented.
func analysisInterval(interval string, minimum time.Duration) (time.Duration, bool) {
	d, err := time.ParseDuration(interval)
	if err != nil || d <= 0 {
		d = defaultInterval
	}
	return max(d, minimum), d < minimum
}

// checkDurations adds a warning for each duration that is not one: the pattern of the CustomResourceDefinition accepts every text
// that begins like a duration, such as 30sec. As in Flagger, intervals then have their default, and calls of the webhook fail.
func (p *Plan) checkDurations(analysis *flaggerv1.CanaryAnalysis) {
	check := func(field, text, consequence string, usable func(time.Duration) bool) {
		switch d, err := time.ParseDuration(text); {
		case text == "", err == nil && usable(d):
			return
		case err != nil:
			p.addWarning(field, "%s is %q, which is not a duration: %s. Write %s", field, text, consequence, intendedDuration(text))
		default:
			p.addWarning(field, "%s is %q, which is not positive: %s. Write %s", field, text, consequence, intendedDuration(text))
		}
		p.Problems[len(p.Problems)-1].Duration = true
	}
	isPositive := func(d time.Duration) bool { return d > 0 }
	anything := func(time.Duration) bool { return true }
	check("spec.analysis.interval", analysis.Interval, fmt.Sprintf("%ds is used", int(p.Interval.Seconds())), isPositive)
	for i, metric := range analysis.Metrics {
		check(fmt.Sprintf("spec.analysis.metrics[%d].interval", i), metric.Interval, defaultMetricInterval+" is used", anything)
	}
	for i, hook := range analysis.Webhooks {
		check(fmt.Sprintf("spec.analysis.webhooks[%d].timeout", i), hook.Timeout, "each call fails", anything)
	}
}

// intendedDuration returns the duration that the user probably meant, such as 30s for 30sec, or an example.
func intendedDuration(text string) string {
	if match := durationPrefix.FindStringSubmatch(text); match != nil {
		return match[1] + match[2]
	}
	return "for example 30s"
}

// durationPrefix matches a number other than 0 and its unit.
var durationPrefix = regexp.MustCompile(`^([1-9][0-9]*) *(ms|s|m|h)`)

func (p *Plan) readStrategy(analysis *flaggerv1.CanaryAnalysis, features Features) {
	if !features.Known {
		p.addError("spec.provider", "spec.provider: unknown provider %q: set a supported provider, or omit the field to use the default", p.Provider)
	}
	// The schema permits numbers that would overflow, so they are limited here.
	p.StepWeight, p.StepWeights, p.PromotionStep = min(analysis.StepWeight, 100), slices.Clone(analysis.StepWeights), min(max(analysis.StepWeightPromotion, 0), 100)
	p.Iterations, p.Mirror = min(max(analysis.Iterations, 0), maxCount), analysis.Mirror
	p.MaxWeight = maxWeight(analysis)
	matches := len(analysis.Match) > 0
	if !p.HasRouter {
		p.Mirror = false
		if matches {
			matches = false
			p.addWarning("spec.analysis.match", "A/B testing is not supported when using the kubernetes provider")
		}
		if p.Iterations < 1 {
			p.Iterations = kubernetesIterations
			p.addWarning("spec.analysis", "Progressive traffic is not supported when using the kubernetes provider")
			p.addWarning("spec.analysis", "Setting canaryAnalysis.iterations: %d", kubernetesIterations)
		}
	}
	switch {
	case matches && p.Iterations > 0:
		p.Strategy = ABTesting
	case p.Iterations > 0:
		p.Strategy = BlueGreen
	default:
		p.Strategy = Weighted
	}
	if p.SkipAnalysis {
		return
	}
	if p.Strategy == Weighted {
		p.readStepWeights()
		if features.Known && !features.Weights {
			p.addError("spec.provider", "provider %s does not support weighted routing: set spec.analysis.iterations, or choose another provider", p.Provider)
		}
	}
	if p.Strategy == ABTesting && features.Known && !features.Matches {
		p.addError("spec.analysis.match", "provider %s does not support request matching, so spec.analysis.match would route every request to the canary: remove it, or choose another provider", p.Provider)
	}
	// Without mirroring and session affinity a release exposes no more users than with them, so they are only ignored.
	if mirrors := features.Mirror && (p.Strategy == BlueGreen || features.WeightedMirror); p.Mirror && p.Strategy != ABTesting && features.Known && !mirrors {
		p.Mirror = false
		p.addWarning("spec.analysis.mirror", "provider %s does not support mirroring with this strategy: spec.analysis.mirror is ignored", p.Provider)
	}
	if a := analysis.SessionAffinity; a != nil && p.Strategy == Weighted {
		p.Cookie, p.PrimaryCookie = a.CookieName, a.PrimaryCookieName
		if a.CookieName == a.PrimaryCookieName {
			p.addError("spec.analysis.sessionAffinity", "can't use the same cookie name for both primary and cookie name; please update them to be different")
		}
		if features.Known && !features.Sticky {
			p.Cookie, p.PrimaryCookie = "", ""
			p.addWarning("spec.analysis.sessionAffinity", "provider %s does not support session affinity: spec.analysis.sessionAffinity is ignored", p.Provider)
		}
	}
	p.checkReadyThreshold("primaryReadyThreshold", analysis.PrimaryReadyThreshold)
	p.checkReadyThreshold("canaryReadyThreshold", analysis.CanaryReadyThreshold)
	slices.Sort(p.ValidationErrors)
}

// checkReadyThreshold adds a warning if a readiness threshold is not a percentage.
func (p *Plan) checkReadyThreshold(field string, percent *int) {
	if percent == nil || *percent >= 0 && *percent <= 100 {
		return
	}
	p.addWarning("spec.analysis."+field, "spec.analysis.%s is %d, which is not between 0 and 100: using %d", field, *percent, min(max(*percent, 0), 100))
}

// readStepWeights reads the weights of a weighted release. Weights with which it would never be promoted are validation errors.
func (p *Plan) readStepWeights() {
	switch {
	case len(p.StepWeights) > 0 && p.StepWeight <= 0:
		steps, complete := ascendingWeights(p.StepWeights)
		if !complete {
			last := 0
			if len(steps) > 0 {
				last = steps[len(steps)-1]
			}
			p.addError("spec.analysis.stepWeights", "spec.analysis.stepWeights is %v, so the release would not advance beyond weight %d: specify increasing weights from 1 to 100", p.StepWeights, last)
			return
		}
		if !slices.Equal(steps, p.StepWeights) {
			p.addWarning("spec.analysis.stepWeights", "spec.analysis.stepWeights is %v: using %v", p.StepWeights, steps)
		}
		p.StepWeights, p.MaxWeight = steps, steps[len(steps)-1]
	case p.StepWeight <= 0:
		p.addError("spec.analysis", "spec.analysis has no stepWeight, stepWeights or iterations, so the canary would never receive traffic: set one of them")
	case p.MaxWeight < 1:
		p.addError("spec.analysis.stepWeights", "spec.analysis.stepWeights ends with %d, so the canary would be promoted without receiving traffic: specify weights from 1 to 100", p.MaxWeight)
	case p.MaxWeight > 100:
		p.addWarning("spec.analysis.maxWeight", "spec.analysis.maxWeight is %d: using 100", p.MaxWeight)
		p.MaxWeight = 100
	}
}

func (p *Plan) readChecks(analysis *flaggerv1.CanaryAnalysis) {
	var templates []Check
	if excess := len(analysis.Metrics) - maxMetrics; excess > 0 {
		p.addError("spec.analysis.metrics", "spec.analysis.metrics has %d entries, and at most %d are supported: remove %d", len(analysis.Metrics), maxMetrics, excess)
	}
	for i, metric := range analysis.Metrics[:min(len(analysis.Metrics), maxMetrics)] {
		check := Check{Index: i, Metric: metric, Interval: metric.Interval}
		if _, err := time.ParseDuration(check.Interval); err != nil {
			check.Interval = defaultMetricInterval
		}
		name, builtin := canonicalMetric(metric.Name)
		// The legacy names mean a builtin metric only if the entry has no query of its own; the documented names always do.
		if builtin && name != metric.Name && (metric.Query != "" || metric.TemplateRef != nil) {
			builtin = false
		}
		if builtin {
			check.Source, check.Canonical = Builtin, name
			p.Checks = append(p.Checks, check)
			if metric.ThresholdRange == nil && metric.Threshold == 0 && name == Duration && !p.SkipAnalysis {
				p.addError(fmt.Sprintf("spec.analysis.metrics[%d]", i), "spec.analysis.metrics[%d] (%s) has no threshold, so the check would always fail: set thresholdRange.max, in milliseconds", i, metric.Name)
			}
		}
		if metric.Query != "" {
			check.Source, check.Canonical = Inline, ""
			p.Checks = append(p.Checks, check)
		}
		if metric.TemplateRef != nil {
			check.Source, check.Canonical = Template, ""
			templates = append(templates, check)
		}
		if !builtin && metric.Query == "" && metric.TemplateRef == nil && !p.SkipAnalysis {
			p.addError(fmt.Sprintf("spec.analysis.metrics[%d]", i), "Metric query failed for no usable metrics template and query were configured (spec.analysis.metrics[%d] is %q: use %s or %s, or set templateRef)",
				i, metric.Name, SuccessRate, Duration)
		}
	}
	p.Checks = append(p.Checks, templates...)
}

// canonicalMetric maps the name of a metric to a builtin metric; the second form is the legacy name of the oldest manifests.
func canonicalMetric(name string) (string, bool) {
	switch name {
	case SuccessRate, "istio_requests_total":
		return SuccessRate, true
	case Duration, "istio_request_duration_seconds_bucket":
		return Duration, true
	default:
		return "", false
	}
}

// validateReferences validates the references of a Canary to other objects.
func (p *Plan) validateReferences(c *flaggerv1.Canary, analysis *flaggerv1.CanaryAnalysis, settings Settings) {
	knative := c.Spec.TargetRef.Knative()
	switch {
	case knative && c.Spec.Provider != "knative":
		p.addError("spec.provider", "can't use %s provider with Knative Service as target", p.Provider)
	case !knative && c.Spec.Provider == "knative":
		p.addError("spec.targetRef", "can't use %s/%s as target if provider is set to knative", c.Spec.TargetRef.APIVersion, c.Spec.TargetRef.Kind)
	case knative && c.Spec.AutoscalerRef != nil:
		p.addError("spec.autoscalerRef", "can't use autoscaler with Knative Service")
	case !slices.Contains(targetKinds, c.Spec.TargetRef.Kind):
		p.addError("spec.targetRef.kind", "spec.targetRef.kind %s is not supported: use Deployment, DaemonSet or Service", c.Spec.TargetRef.Kind)
	}
	if !settings.NoCrossNamespace {
		return
	}
	isCrossNamespace := func(namespace string) bool { return namespace != "" && namespace != c.Namespace }
	if up := c.Spec.UpstreamRef; up != nil && isCrossNamespace(up.Namespace) {
		p.addError("spec.upstreamRef", "can't access gloo upstream %s.%s, cross-namespace references are blocked", up.Name, up.Namespace)
	}
	for i, metric := range analysis.Metrics {
		if ref := metric.TemplateRef; ref != nil && isCrossNamespace(ref.Namespace) {
			p.addError(fmt.Sprintf("spec.analysis.metrics[%d].templateRef", i), "can't access metric template %s.%s, cross-namespace references are blocked", ref.Name, ref.Namespace)
		}
	}
	for i, alert := range analysis.Alerts {
		if ref := alert.ProviderRef; isCrossNamespace(ref.Namespace) {
			p.addError(fmt.Sprintf("spec.analysis.alerts[%d].providerRef", i), "can't access alert provider %s.%s, cross-namespace references are blocked", ref.Name, ref.Namespace)
		}
	}
}

func (p *Plan) addWarning(field, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	p.Warnings = append(p.Warnings, message)
	p.Problems = append(p.Problems, Problem{Field: field, Message: message, Warning: true})
}

func (p *Plan) addError(field, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	p.ValidationErrors = append(p.ValidationErrors, message)
	p.Problems = append(p.Problems, Problem{Field: field, Message: message})
}
