package metric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/outbound"
)

// Registry finds services by type. It has two readers: the MetricTemplates of Canaries and the metrics of AnalysisRuns.
// It is a value that the operator package creates.
type Registry struct {
	byTemplateType, byAnalysisType map[string]Service
}

// ErrProviderUnknown reports that there is no provider of that type.
var ErrProviderUnknown = errors.New("metrics provider is not supported")

// NewRegistry returns a registry of services. Two services of one type are a programming error, hence the panic.
func NewRegistry(services ...Service) *Registry {
	r := &Registry{byTemplateType: map[string]Service{}, byAnalysisType: map[string]Service{}}
	for _, s := range services {
		register(r.byTemplateType, s.TemplateType, s)
		register(r.byAnalysisType, s.AnalysisType, s)
	}
	return r
}

func register(services map[string]Service, serviceType string, s Service) {
	if serviceType == "" {
		return
	}
	if _, exists := services[serviceType]; exists {
		panic("metrics service " + serviceType + " is registered twice")
	}
	services[serviceType] = s
}

// NewProvider returns the provider of a MetricTemplate. namespace is the template's; credentials are the data of the Secret
// that it names, and are ignored if it names none. It is cheap and sends no request.
func (r *Registry) NewProvider(
	client *outbound.Client, namespace string, spec flaggerv1.MetricTemplateProvider, credentials map[string][]byte,
) (Provider, error) {
	service, ok := r.byTemplateType[spec.Type]
	if !ok {
		return nil, fmt.Errorf("provider.type %s: %w by this version of Serin: use one of %s",
			spec.Type, ErrProviderUnknown, strings.Join(r.TemplateTypes(), ", "))
	}
	config := Config{
		Namespace: namespace, Address: spec.Address, Header: http.Header(spec.Headers).Clone(), Region: spec.Region,
		SkipVerify: spec.InsecureSkipVerify,
	}
	if spec.SecretRef != nil {
		config.Credentials = make(map[string]outbound.Secret, len(credentials))
		for key, value := range credentials {
			// Secrets created with echo end in a line break, which headers cannot contain.
			config.Credentials[key] = outbound.Secret(strings.TrimSpace(string(value)))
		}
	}
	return service.NewProvider(client, config)
}

// NewMeasurement returns the measurement of one metric of an AnalysisRun.
func (r *Registry) NewMeasurement(ctx context.Context, request AnalysisRequest) (Measurement, error) {
	for _, providerType := range request.Metric.Provider.Types() {
		if service, ok := r.byAnalysisType[providerType]; ok {
			return service.NewMeasurement(ctx, request)
		}
	}
	return Measurement{}, fmt.Errorf("no valid provider in metric '%s'", request.Metric.Name)
}

// TemplateTypes returns the types that MetricTemplates may name, sorted.
func (r *Registry) TemplateTypes() []string { return slices.Sorted(maps.Keys(r.byTemplateType)) }

// AnalysisTypes returns the types that AnalysisTemplates may name, sorted; Jobs and plugins are not metrics services.
func (r *Registry) AnalysisTypes() []string { return slices.Sorted(maps.Keys(r.byAnalysisType)) }
