package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// The messages about invalid Rollouts, as Argo Rollouts writes them. Tools depend on them.
const (
	textNoSelector              = "Rollout has missing field '.spec.selector'"
	textEmptySelector           = "empty selector is invalid for deployment"
	textBadSelector             = "invalid label selector"
	textTemplateAndRef          = "template must be empty for workload reference rollout"
	textUnmatchedLabels         = "`selector` does not match template `labels`"
	textDeadline                = "must be greater than minReadySeconds"
	textNoStrategy              = "Rollout has missing field '.spec.strategy.canary or .spec.strategy.blueGreen'"
	textTwoStrategies           = "Multiple Strategies can not be listed"
	textZeroSurgeAndUnavailable = "MaxSurge and MaxUnavailable both can not be zero"
	textSameCanaryServices      = "This rollout uses the same service for the stable and canary services, but two different services are required."
	textServicesNeeded          = "Canary service and Stable service must to be set to use Traffic Routing"
	textPingPongNeeded          = "Ping service and Pong service must to be set to use Ping-Pong feature"
	textSamePingPong            = "This rollout uses the same service for the ping and pong services, but two different services are required."
	textPingPongRouter          = "Ping-pong feature works with the ALB, Istio, and plugin-based traffic routers only"
	textPingPongRoot            = "Root service field is required for the configuration with ALB and ping-pong feature enabled"
	textDelayUnrouted           = "Canary scaleDownDelaySeconds can only be used with traffic routing"
	textDynamicUnrouted         = "Canary dynamicStableScale can only be used with traffic routing"
	textDynamicDelay            = "Canary dynamicStableScale cannot be used with scaleDownDelaySeconds"
	textMaxWeightRouter         = "Canary maxTrafficWeight in traffic routing only supported in Nginx and Plugins"
	textMaxWeight               = "must be at least 1: it is the sum of all weights"
	textAntiAffinity            = "AntiAffinity must have exactly one strategy listed"
	textAntiAffinityWeight      = "AntiAffinity weight must be between 1-100"
	textSameActiveService       = "This rollout uses the same service for the active and preview services, but two different services are required."
	textDelayLimit              = "This rollout's revision history limit can not be smaller than the rollout's scale down limit"
)

// The defaults of the API.
const (
	defaultRevisionHistoryLimit    int32 = 10
	defaultProgressDeadlineSeconds int32 = 600
)

// ReferencedWorkload is the observed workload that spec.workloadRef names.
type ReferencedWorkload struct {
	// IsUnknown is true if the workload was not looked up, so that its template and selector cannot be validated.
	IsUnknown bool
	// Problem is the reason why the workload cannot be used; empty: none.
	Problem  string
	Template corev1.PodTemplateSpec
	Selector *metav1.LabelSelector
}

// Validate returns all errors in the spec of a Rollout; the first one is shown to users. workload is only used if the
// spec refers to a workload.
//
// The pod spec of the template is not validated: the API server does that when the ReplicaSet is created.
func Validate(spec argov1.RolloutSpec, workload ReferencedWorkload) field.ErrorList {
	path := field.NewPath("spec")
	all := validateNumbers(spec, path)
	all = append(all, validatePods(spec, workload, path)...)
	if deadline := valueOr(spec.ProgressDeadlineSeconds, defaultProgressDeadlineSeconds); deadline <= spec.MinReadySeconds {
		all = append(all, field.Invalid(path.Child("progressDeadlineSeconds"), deadline, textDeadline))
	}
	return append(all, validateStrategy(spec, path.Child("strategy"))...)
}

func validateNumbers(spec argov1.RolloutSpec, path *field.Path) field.ErrorList {
	var all field.ErrorList
	for _, number := range []struct {
		name  string
		value int32
	}{
		{"replicas", valueOr(spec.Replicas, 1)},
		{"minReadySeconds", spec.MinReadySeconds},
		{"revisionHistoryLimit", valueOr(spec.RevisionHistoryLimit, defaultRevisionHistoryLimit)},
		{"progressDeadlineSeconds", valueOr(spec.ProgressDeadlineSeconds, defaultProgressDeadlineSeconds)},
	} {
		all = append(all, apivalidation.ValidateNonnegativeField(int64(number.value), path.Child(number.name))...)
	}
	return all
}

// valueOr returns the value of a pointer, or the fallback if the pointer is nil.
func valueOr[T any](pointer *T, fallback T) T {
	if pointer == nil {
		return fallback
	}
	return *pointer
}

// isTemplateEmpty reports whether a template has no metadata. Its pod spec is ignored.
func isTemplateEmpty(spec argov1.RolloutSpec) bool {
	return len(spec.Template.Labels) == 0 && len(spec.Template.Annotations) == 0
}

// validatePods validates template and selector, of the Rollout or of its workload.
func validatePods(spec argov1.RolloutSpec, workload ReferencedWorkload, path *field.Path) field.ErrorList {
	ref := spec.WorkloadRef
	if ref == nil {
		return validateTemplate(spec.Selector, spec.Template, path)
	}
	switch at := path.Child("workloadRef"); {
	case !isTemplateEmpty(spec):
		return field.ErrorList{field.Invalid(at, ref.Name, textTemplateAndRef)}
	case workload.Problem != "":
		return field.ErrorList{field.Invalid(at, ref.Name, workload.Problem)}
	case workload.IsUnknown:
		return nil
	}
	selector := spec.Selector
	if selector == nil {
		selector = workload.Selector
	}
	return validateTemplate(selector, workload.Template, path)
}

func validateTemplate(selector *metav1.LabelSelector, template corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	selectorPath, templatePath := path.Child("selector"), path.Child("template")
	var all field.ErrorList
	switch found, err := metav1.LabelSelectorAsSelector(selector); {
	case selector == nil:
		all = append(all, field.Required(selectorPath, textNoSelector))
	case len(selector.MatchLabels)+len(selector.MatchExpressions) == 0:
		all = append(all, field.Invalid(selectorPath, selector, textEmptySelector))
	case err != nil:
		all = append(all, field.Invalid(selectorPath, selector, textBadSelector))
	case !found.Matches(labels.Set(template.Labels)):
		all = append(all, field.Invalid(templatePath.Child("metadata", "labels"), template.Labels, textUnmatchedLabels))
	}
	if len(template.Spec.Containers) == 0 {
		all = append(all, field.Required(templatePath.Child("spec", "containers"), ""))
	}
	return all
}

func validateStrategy(spec argov1.RolloutSpec, path *field.Path) field.ErrorList {
	canary, blueGreen := spec.Strategy.Canary, spec.Strategy.BlueGreen
	switch {
	case canary == nil && blueGreen == nil:
		return field.ErrorList{field.Required(path.Child("strategy"), textNoStrategy)}
	case canary != nil && blueGreen != nil:
		return field.ErrorList{field.Invalid(path.Child("strategy"), spec.Strategy, textTwoStrategies)}
	case canary != nil:
		return validateCanary(*canary, path)
	default:
		return validateBlueGreen(*blueGreen, valueOr(spec.RevisionHistoryLimit, defaultRevisionHistoryLimit), path)
	}
}

func validateBlueGreen(b argov1.BlueGreenStrategy, history int32, path *field.Path) field.ErrorList {
	var all field.ErrorList
	if b.ActiveService == b.PreviewService {
		all = append(all, field.Invalid(path.Child("activeService"), b.ActiveService, textSameActiveService))
	}
	if limit := b.ScaleDownDelayRevisionLimit; limit != nil && *limit > history {
		all = append(all, field.Invalid(path.Child("scaleDownDelayRevisionLimit"), *limit, textDelayLimit))
	}
	return append(all, validateAntiAffinity(b.AntiAffinity, path.Child("antiAffinity"))...)
}

func validateCanary(c argov1.CanaryStrategy, path *field.Path) field.ErrorList {
	var all field.ErrorList
	if isZeroBound(c.MaxSurge) && isZeroBound(c.MaxUnavailable) {
		all = append(all, field.Invalid(path.Child("maxSurge"), c.MaxSurge.String(), textZeroSurgeAndUnavailable))
	}
	all = append(all, validateServices(c, path)...)
	all = append(all, validatePingPong(c, path.Child("pingPong"))...)
	routed := c.TrafficRouting != nil
	if !routed && c.ScaleDownDelaySeconds != nil {
		all = append(all, field.Invalid(path.Child("scaleDownDelaySeconds"), *c.ScaleDownDelaySeconds, textDelayUnrouted))
	}
	switch dynamic := path.Child("dynamicStableScale"); {
	case !c.DynamicStableScale:
	case !routed:
		all = append(all, field.Invalid(dynamic, true, textDynamicUnrouted))
	case c.ScaleDownDelaySeconds != nil:
		all = append(all, field.Invalid(dynamic, true, textDynamicDelay))
	}
	if routed && c.TrafficRouting.MaxTrafficWeight != nil {
		maxWeight, at := *c.TrafficRouting.MaxTrafficWeight, path.Child("trafficRouting", "maxTrafficWeight")
		if c.TrafficRouting.Nginx == nil && len(c.TrafficRouting.Plugins) == 0 {
			all = append(all, field.Invalid(at, maxWeight, textMaxWeightRouter))
		}
		if maxWeight < 1 { // all weights and numbers of pods are fractions of it
			all = append(all, field.Invalid(at, maxWeight, textMaxWeight))
		}
	}
	all = append(all, validateSteps(c, path)...)
	if c.Analysis != nil {
		all = append(all, validateArguments(c.Analysis.Args, path.Child("analysis", "args"))...)
	}
	return append(all, validateAntiAffinity(c.AntiAffinity, path.Child("antiAffinity"))...)
}

// isZeroBound reports whether a limit resolves to 0 for any number of pods. An invalid string counts as the default.
func isZeroBound(bound *intstr.IntOrString) bool {
	if bound == nil {
		return false
	}
	return pods.NewRollingLimits(100, bound, new(intstr.FromInt32(1))).MaxSurge == 0
}

func validateServices(c argov1.CanaryStrategy, path *field.Path) field.ErrorList {
	if c.CanaryService != "" && c.CanaryService == c.StableService {
		return field.ErrorList{field.Invalid(path.Child("stableService"), c.StableService, textSameCanaryServices)}
	}
	if !needsServices(c) {
		return nil
	}
	var all field.ErrorList
	if c.StableService == "" {
		all = append(all, field.Invalid(path.Child("stableService"), c.StableService, textServicesNeeded))
	}
	if c.CanaryService == "" {
		all = append(all, field.Invalid(path.Child("canaryService"), c.CanaryService, textServicesNeeded))
	}
	return all
}

// needsServices reports whether a router distinguishes the two revisions by Services, so that both are required.
func needsServices(c argov1.CanaryStrategy) bool {
	r := c.TrafficRouting
	if r == nil {
		return false
	}
	return r.ALB != nil && c.PingPong == nil ||
		r.Istio != nil && r.Istio.DestinationRule == nil && c.PingPong == nil ||
		r.SMI != nil || r.Apisix != nil || r.Ambassador != nil || r.Nginx != nil || r.AppMesh != nil || r.Traefik != nil
}

func validatePingPong(c argov1.CanaryStrategy, path *field.Path) field.ErrorList {
	p := c.PingPong
	if p == nil {
		return nil
	}
	var all field.ErrorList
	if p.PingService == "" {
		all = append(all, field.Invalid(path.Child("pingService"), p.PingService, textPingPongNeeded))
	}
	if p.PongService == "" {
		all = append(all, field.Invalid(path.Child("pongService"), p.PongService, textPingPongNeeded))
	}
	if p.PingService != "" && p.PingService == p.PongService {
		all = append(all, field.Invalid(path.Child("pingService"), p.PingService, textSamePingPong))
	}
	r := c.TrafficRouting
	switch {
	case r == nil || r.ALB == nil && r.Istio == nil && len(r.Plugins) == 0:
		all = append(all, field.Invalid(path, p.PingService, textPingPongRouter))
	case r.ALB != nil && r.ALB.RootService == "":
		all = append(all, field.Invalid(path, p.PingService, textPingPongRoot))
	}
	return all
}

func validateAntiAffinity(a *argov1.AntiAffinity, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	preferred, required := a.PreferredDuringSchedulingIgnoredDuringExecution, a.RequiredDuringSchedulingIgnoredDuringExecution
	if (preferred == nil) == (required == nil) {
		return field.ErrorList{field.Invalid(path, a, textAntiAffinity)}
	}
	if preferred != nil && (preferred.Weight < 1 || preferred.Weight > 100) {
		return field.ErrorList{field.Invalid(path.Child("preferredDuringSchedulingIgnoredDuringExecution", "weight"), preferred.Weight, textAntiAffinityWeight)}
	}
	return nil
}

// usesRouterOf reports whether a strategy uses one of several routers.
func usesRouterOf(r *argov1.RolloutTrafficRouting, routers ...func(*argov1.RolloutTrafficRouting) bool) bool {
	return r != nil && slices.ContainsFunc(routers, func(uses func(*argov1.RolloutTrafficRouting) bool) bool { return uses(r) })
}

func isIstio(r *argov1.RolloutTrafficRouting) bool  { return r.Istio != nil }
func isALB(r *argov1.RolloutTrafficRouting) bool    { return r.ALB != nil }
func isSMI(r *argov1.RolloutTrafficRouting) bool    { return r.SMI != nil }
func isApisix(r *argov1.RolloutTrafficRouting) bool { return r.Apisix != nil }
func isPlugin(r *argov1.RolloutTrafficRouting) bool { return len(r.Plugins) > 0 }
