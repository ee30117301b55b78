package rollout

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// The messages about invalid Services. They begin with those of Argo Rollouts; the last one also names the other Rollout.
const (
	textNoService      = "service %q not found"
	textServiceLabel   = "Service %q has unmatch label %q in rollout"
	textServiceManaged = "Service %q is managed by another Rollout: %s"
)

// Service is the observed state of a Service that a strategy names.
type Service struct {
	Found    bool
	Selector map[string]string
	// ManagedBy is the name of the Rollout that manages its selector; empty: none.
	ManagedBy string
	// RecordOutdated is true if its record of the routers of the Rollout is outdated; see traffic.Record.
	RecordOutdated bool
	// Endpoints are the endpoints of the pods of each revision, by its hash; nil: they were not observed. See
	// ServicesWithEndpoints.
	Endpoints map[string]release.Endpoints
}

// ValidateServices returns the errors in the Services that a strategy names, for a spec that is otherwise valid. labels
// are the labels of the pods.
func ValidateServices(rollout string, strategy argov1.RolloutStrategy, labels map[string]string, services map[string]Service) field.ErrorList {
	var all field.ErrorList
	for _, named := range namedServices(strategy) {
		if named.name != "" {
			all = append(all, validateService(rollout, named.name, labels, services[named.name], named.path)...)
		}
	}
	return all
}

// namedService is a Service and the field that names it.
type namedService struct {
	path *field.Path
	name string
}

// ServiceNames returns the names of the Services of a strategy.
func ServiceNames(strategy argov1.RolloutStrategy) []string {
	var names []string
	for _, named := range namedServices(strategy) {
		if named.name != "" && !slices.Contains(names, named.name) {
			names = append(names, named.name)
		}
	}
	return names
}

func namedServices(strategy argov1.RolloutStrategy) []namedService {
	path := field.NewPath("spec", "strategy")
	var all []namedService
	if c := strategy.Canary; c != nil {
		at := path.Child("canary")
		all = append(all, namedService{at.Child("stableService"), c.StableService}, namedService{at.Child("canaryService"), c.CanaryService})
		if c.PingPong != nil {
			at := at.Child("pingPong")
			all = append(all, namedService{at.Child("pingService"), c.PingPong.PingService}, namedService{at.Child("pongService"), c.PingPong.PongService})
		}
	}
	if b := strategy.BlueGreen; b != nil {
		at := path.Child("blueGreen")
		all = append(all, namedService{at.Child("activeService"), b.ActiveService}, namedService{at.Child("previewService"), b.PreviewService})
	}
	return all
}

func validateService(rollout, name string, labels map[string]string, service Service, path *field.Path) field.ErrorList {
	if !service.Found {
		return field.ErrorList{field.Invalid(path, name, fmt.Sprintf(textNoService, name))}
	}
	if service.ManagedBy != "" && service.ManagedBy != rollout {
		return field.ErrorList{field.Invalid(path, name, fmt.Sprintf(textServiceManaged, name, service.ManagedBy))}
	}
	for _, key := range slices.Sorted(maps.Keys(service.Selector)) {
		if got, found := labels[key]; key != argov1.PodTemplateHashLabel && (!found || got != service.Selector[key]) {
			return field.ErrorList{field.Invalid(path, name, fmt.Sprintf(textServiceLabel, name, key))}
		}
	}
	return nil
}
