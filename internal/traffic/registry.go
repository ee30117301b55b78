package traffic

import (
	"maps"
	"slices"
	"strings"
)

// Registry knows the renderer of each provider. It is made once, where the process is wired, and never changed.
type Registry struct {
	renderers map[string]Renderer
}

// NewRegistry makes a registry of renderers by the normalised names of their providers.
func NewRegistry(renderers map[string]Renderer) *Registry {
	return &Registry{renderers: maps.Clone(renderers)}
}

// For is the renderer of a provider, by its normalised name.
func (r *Registry) For(provider string) (Renderer, bool) {
	if renderer, ok := r.renderers[provider]; ok {
		return renderer, true
	}
	// smi:v1alpha1:istio is smi:v1alpha1 in front of Istio; the renderer finds the mesh in Target.Provider.
	if family, mesh, ok := cutLast(provider); ok && strings.HasPrefix(provider, "smi:") && mesh != "" {
		renderer, ok := r.renderers[family]
		return renderer, ok
	}
	return nil, false
}

// Names are the providers that have a renderer, sorted.
func (r *Registry) Names() []string {
	return slices.Sorted(maps.Keys(r.renderers))
}

// exactNames are the providers whose name has one form only. It is never changed.
var exactNames = []string{
	"apisix", "appmesh", "contour", "istio", "knative", "kubernetes", "kuma", "linkerd", "nginx", "osm", "skipper", "traefik",
}

// prefixNames are the providers that Flagger takes by the beginning of the name; the first one that fits holds. It is
// never changed.
var prefixNames = []string{"appmesh:v1beta2", "gatewayapi:v1beta1", "gatewayapi:v1", "gloo"}

// Normalize gives the one name of a provider, and whether it is known. Flagger made Istio of all others, so that is the
// name of an unknown one; who reads spec.provider refuses it instead, who reads the flag may keep it with a warning.
func Normalize(provider string) (name string, known bool) {
	if slices.Contains(exactNames, provider) {
		return provider, true
	}
	for _, prefix := range prefixNames {
		if strings.HasPrefix(provider, prefix) {
			return prefix, true
		}
	}
	for _, version := range []string{"smi:v1alpha1", "smi:v1alpha2", "smi:v1alpha3"} {
		if provider == version || strings.HasPrefix(provider, version+":") {
			return provider, true // a mesh may follow, which the renderer has to know
		}
	}
	return "istio", false
}

func cutLast(name string) (before, after string, found bool) {
	i := strings.LastIndex(name, ":")
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}
