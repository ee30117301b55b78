package metric

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/outbound"
)

// Config is what one MetricTemplate says about its provider.
type Config struct {
	// Namespace of the MetricTemplate, for providers whose queries name namespaces.
	Namespace string
	// Address is the URL of the service as given; empty without one.
	Address string
	// Header is sent with each query, by providers that read it. It belongs to whoever made the Config.
	Header http.Header
	// Region of the service, for providers that have regions.
	Region string
	// SkipVerify asks without verifying certificates.
	SkipVerify bool
	// Timeout of one call, for providers that read it; zero: their own.
	Timeout time.Duration
	// Credentials are the keys of the Secret. Nil: the template names none, which is not the same as an empty one.
	Credentials map[string]outbound.Secret
}

// Factory makes the providers of one type.
type Factory struct {
	// Type is the word in spec.provider.type.
	Type string
	// New checks the configuration; it calls nobody. Its errors say what to correct and show no credential.
	New func(client *outbound.Client, c Config) (Provider, error)
}

// Registry makes providers by type. It is a value; who wires Serin decides what is in it.
type Registry struct {
	client    *outbound.Client
	factories map[string]Factory
}

// ErrProviderUnknown says that there is no provider of that type.
var ErrProviderUnknown = errors.New("metrics provider is not supported")

// NewRegistry is a registry whose providers call through client. Two factories of one type are a mistake in the
// wiring, hence the panic.
func NewRegistry(client *outbound.Client, factories ...Factory) *Registry {
	r := &Registry{client: client, factories: make(map[string]Factory, len(factories))}
	for _, f := range factories {
		if _, twice := r.factories[f.Type]; twice {
			panic("metrics provider " + f.Type + " is registered twice")
		}
		r.factories[f.Type] = f
	}
	return r
}

// New makes the provider that a MetricTemplate of a namespace asks for. credentials are the data of the Secret that it
// names; they are not kept where it names none. Making one is cheap and calls nobody.
func (r *Registry) New(namespace string, spec flaggerv1.MetricTemplateProvider, credentials map[string][]byte) (Provider, error) {
	factory, ok := r.factories[spec.Type]
	if !ok {
		return nil, fmt.Errorf("provider.type %s: %w by this version of Serin: use one of %s",
			spec.Type, ErrProviderUnknown, strings.Join(r.Types(), ", "))
	}
	config := Config{
		Namespace: namespace, Address: spec.Address, Header: http.Header(spec.Headers).Clone(), Region: spec.Region,
		SkipVerify: spec.InsecureSkipVerify,
	}
	if spec.SecretRef != nil {
		config.Credentials = make(map[string]outbound.Secret, len(credentials))
		for key, value := range credentials {
			// Secrets made with echo end in a line break, which no header may contain.
			config.Credentials[key] = outbound.Secret(strings.TrimSpace(string(value)))
		}
	}
	return factory.New(r.client, config)
}

// Types are the types that are supported, sorted.
func (r *Registry) Types() []string { return slices.Sorted(maps.Keys(r.factories)) }
