package rollout

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// The messages about invalid steps, as Argo Rollouts writes them.
const (
	textStep            = "Step must have one of the following set: experiment, setWeight, setCanaryScale, plugin or pause"
	textWeight          = "SetWeight needs to be between 0 and %d"
	textDuration        = "Duration needs to be greater than 0"
	textScaleUnrouted   = "SetCanaryScale requires TrafficRouting to be set"
	textHeaderRouter    = "SetHeaderRoute requires TrafficRouting, supports Istio and ALB and Apisix"
	textHeaderALB       = "SetHeaderRoute match value invalid. ALB supports 'exact' value only"
	textMirrorRouter    = "SetMirrorRoute requires TrafficRouting, supports Istio and Plugins"
	textMatchNone       = "StringMatch value missed, match value must have one of the following: exact, regex, prefix"
	textMatchSeveral    = "StringMatch match value must have exactly one of the following: exact, regex, prefix"
	textNoManagedRoutes = "Rollout has missing field 'spec.strategy.canary.trafficRouting.managedRoutes'"
	textUnknownRoute    = "Steps define a route that does not exist in spec.strategy.canary.trafficRouting.managedRoutes"
	textWeightUnrouted  = "Experiment template weight cannot be set unless TrafficRouting is enabled"
	textWeightRouter    = "Experiment template weight is only available for TrafficRouting with SMI, ALB, Istio and Plugins at this time"
	textArguments       = "Analyses arguments must refer to valid object metadata supported by downwardAPI"
)

// maxSteps limits the steps of a Rollout: the time for a decision, which occupies a worker, grows with their square.
const maxSteps = 1000

func validateSteps(c argov1.CanaryStrategy, path *field.Path) field.ErrorList {
	if len(c.Steps) > maxSteps {
		return field.ErrorList{field.TooMany(path.Child("steps"), len(c.Steps), maxSteps)}
	}
	var all field.ErrorList
	for i, step := range c.Steps {
		all = append(all, validateStep(c, step, path.Child("steps").Index(i), path.Child("trafficRouting"))...)
	}
	return all
}

func validateStep(c argov1.CanaryStrategy, step argov1.CanaryStep, path, routing *field.Path) field.ErrorList {
	var all field.ErrorList
	if !hasOneKind(step) {
		all = append(all, field.Invalid(path, DescribeStep(step), textStep))
	}
	if weight, maxWeight := step.SetWeight, pods.MaxWeight(&c); weight != nil && (*weight < 0 || *weight > maxWeight) {
		all = append(all, field.Invalid(path.Child("setWeight"), *weight, fmt.Sprintf(textWeight, maxWeight)))
	}
	if step.Pause != nil {
		all = append(all, validatePause(*step.Pause, path.Child("pause"))...)
	}
	if step.SetCanaryScale != nil && c.TrafficRouting == nil {
		all = append(all, field.Required(routing, textScaleUnrouted))
	}
	if step.Analysis != nil {
		all = append(all, validateArguments(step.Analysis.Args, path.Child("analysis", "args"))...)
	}
	if step.Experiment != nil {
		all = append(all, validateExperiment(c.TrafficRouting, *step.Experiment, path.Child("experiment"))...)
	}
	if step.SetHeaderRoute != nil {
		all = append(all, validateHeaderRoute(c.TrafficRouting, *step.SetHeaderRoute, path.Child("setHeaderRoute"), routing)...)
	}
	if step.SetMirrorRoute != nil {
		all = append(all, validateMirrorRoute(c.TrafficRouting, *step.SetMirrorRoute, path.Child("setMirrorRoute"), routing)...)
	}
	return all
}

// hasOneKind reports whether a step has a field, but not two of the original ones.
func hasOneKind(s argov1.CanaryStep) bool {
	counted := 0
	for _, set := range []bool{s.SetWeight != nil, s.Pause != nil, s.Experiment != nil, s.Analysis != nil} {
		if set {
			counted++
		}
	}
	others := s.SetCanaryScale != nil || s.SetHeaderRoute != nil || s.SetMirrorRoute != nil || s.Plugin != nil
	return counted == 1 || counted == 0 && others
}

func validatePause(pause argov1.RolloutPause, path *field.Path) field.ErrorList {
	if isIndefinite(pause) {
		return nil
	}
	if length, err := parsePauseSeconds(*pause.Duration); err != nil || length < 0 {
		return field.ErrorList{field.Invalid(path.Child("duration"), pause.Duration.String(), textDuration)}
	}
	return nil
}

func validateExperiment(r *argov1.RolloutTrafficRouting, e argov1.RolloutExperimentStep, path *field.Path) field.ErrorList {
	var all field.ErrorList
	for i, template := range e.Templates {
		weight := path.Child("templates").Index(i).Child("weight")
		switch {
		case template.Weight == nil:
		case r == nil:
			all = append(all, field.Invalid(weight, *template.Weight, textWeightUnrouted))
		case !usesRouterOf(r, isALB, isSMI, isIstio, isPlugin):
			all = append(all, field.Invalid(weight, *template.Weight, textWeightRouter))
		}
	}
	for i, analysis := range e.Analyses {
		all = append(all, validateArguments(analysis.Args, path.Child("analyses").Index(i).Child("args"))...)
	}
	return all
}

func validateHeaderRoute(r *argov1.RolloutTrafficRouting, route argov1.SetHeaderRoute, path, routing *field.Path) field.ErrorList {
	if !usesRouterOf(r, isIstio, isALB, isApisix, isPlugin) {
		return field.ErrorList{field.Invalid(path, route.Name, textHeaderRouter)}
	}
	var all field.ErrorList
	for i, match := range route.Match {
		at := path.Child("match").Index(i).Child("headerValue")
		headerValue := valueOr(match.HeaderValue, argov1.StringMatch{})
		if isALB(r) && (headerValue.Exact == "" || headerValue.Prefix != "" || headerValue.Regex != "") {
			all = append(all, field.Invalid(at, headerValue, textHeaderALB))
			continue
		}
		all = append(all, validateMatch(headerValue, at)...)
	}
	return append(all, validateManagedRoute(r, route.Name, path, routing)...)
}

func validateMirrorRoute(r *argov1.RolloutTrafficRouting, route argov1.SetMirrorRoute, path, routing *field.Path) field.ErrorList {
	if !usesRouterOf(r, isIstio, isPlugin) {
		return field.ErrorList{field.Invalid(path, route.Name, textMirrorRouter)}
	}
	var all field.ErrorList
	for i, match := range route.Match {
		at := path.Child("match").Index(i)
		if match.Method != nil {
			all = append(all, validateMatch(*match.Method, at.Child("method"))...)
		}
		if match.Path != nil {
			all = append(all, validateMatch(*match.Path, at.Child("path"))...)
		}
	}
	return append(all, validateManagedRoute(r, route.Name, path, routing)...)
}

func validateMatch(match argov1.StringMatch, path *field.Path) field.ErrorList {
	set := 0
	for _, text := range []string{match.Exact, match.Prefix, match.Regex} {
		if text != "" {
			set++
		}
	}
	switch set {
	case 0:
		return field.ErrorList{field.Invalid(path, match, textMatchNone)}
	case 1:
		return nil
	default:
		return field.ErrorList{field.Invalid(path, match, textMatchSeveral)}
	}
}

// validateManagedRoute reports an error if managedRoutes does not contain the route of a step.
func validateManagedRoute(r *argov1.RolloutTrafficRouting, name string, path, routing *field.Path) field.ErrorList {
	if r.ManagedRoutes == nil {
		return field.ErrorList{field.Required(routing.Child("managedRoutes"), textNoManagedRoutes)}
	}
	if !slices.Contains(r.ManagedRoutes, argov1.ManagedRoute{Name: name}) {
		return field.ErrorList{field.Invalid(path.Child("name"), name, textUnknownRoute)}
	}
	return nil
}

func validateArguments(args []argov1.AnalysisRunArgument, path *field.Path) field.ErrorList {
	var all field.ErrorList
	for i, arg := range args {
		if arg.ValueFrom == nil || arg.ValueFrom.FieldRef == nil {
			continue
		}
		if fieldPath := arg.ValueFrom.FieldRef.FieldPath; strings.HasPrefix(fieldPath, "metadata") && !isMetadataPath(fieldPath) {
			all = append(all, field.Invalid(path.Index(i).Child("valueFrom", "fieldRef", "fieldPath"), fieldPath, textArguments))
		}
	}
	return all
}

// isMetadataPath reports whether a path into metadata can be resolved: a name, or a key in brackets and quotes.
func isMetadataPath(fieldPath string) bool {
	switch fieldPath {
	case "metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations":
		return true
	}
	for _, prefix := range []string{"metadata.labels['", "metadata.annotations['"} {
		if key, ok := strings.CutPrefix(fieldPath, prefix); ok && len(key) > len("']") && strings.HasSuffix(key, "']") {
			return true
		}
	}
	return false
}
