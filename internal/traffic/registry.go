package traffic

import (
	"errors"
	"slices"
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Registry has the renderers of this binary. It is created once, where the process is wired, and never changed.
type Registry struct {
	// Canary has those of Canaries, by the normalised name of the provider.
	Canary map[string]Renderer
	// Rollout has those of Rollouts, by the field of trafficRouting that configures them, or by their name under plugins.
	Rollout map[string]Renderer
	// NoCrossNamespace refuses routes of Rollouts in other namespaces.
	NoCrossNamespace bool
}

// ForCanary returns the renderer of a Canary's provider, by its normalised name.
func (r Registry) ForCanary(provider string) (Renderer, bool) {
	if renderer, ok := r.Canary[provider]; ok {
		return renderer, true
	}
	// smi:v1alpha1:istio is smi:v1alpha1 in front of Istio; the renderer finds the mesh in Target.Provider.
	if i := strings.LastIndex(provider, ":"); i >= 0 && strings.HasPrefix(provider, "smi:") && i < len(provider)-1 {
		renderer, ok := r.Canary[provider[:i]]
		return renderer, ok
	}
	return nil, false
}

// CheckRoute returns why the route of a Canary cannot be created from its spec, before it has traffic. A route that needs objects of
// the user is not checked. Errors: ErrUnsupported, ErrInvalid.
func (r Registry) CheckRoute(c *flaggerv1.Canary, provider string) error {
	renderer, ok := r.ForCanary(provider)
	if !ok {
		return nil
	}
	t := NewCanaryTarget(c, provider, "")
	existing, err := FindObjects(renderer, t, release.Route{}, nothingExists)
	if err != nil || slices.ContainsFunc(existing, func(x Lookup) bool { return !x.Ref.Owned }) {
		return nil //nolint:nilerr // nothing was read that could fail
	}
	_, err = renderer.Render(t, release.Route{}, existing)
	if errors.Is(err, ErrUnsupported) || errors.Is(err, ErrInvalid) {
		return err
	}
	return nil
}

// exactNames are the providers whose name has one form only. It is never changed.
var exactNames = []string{
	"apisix", "appmesh", "contour", "istio", "knative", "kubernetes", "kuma", "linkerd", "nginx", "osm", "skipper", "traefik",
}

// prefixNames are the providers that Flagger recognizes by the beginning of the name; the first match wins. It is never
// changed.
var prefixNames = []string{"appmesh:v1beta2", "gatewayapi:v1beta1", "gatewayapi:v1", "gloo"}

// smiVersions are the providers that may be followed by the name of a mesh. It is never changed.
var smiVersions = []string{"smi:v1alpha1", "smi:v1alpha2", "smi:v1alpha3"}

// ProviderNames returns the canonical names of all providers, in alphabetical order.
func ProviderNames() []string {
	return slices.Sorted(slices.Values(slices.Concat(exactNames, prefixNames, smiVersions)))
}

// Normalize returns the canonical name of a provider, and whether it is known. Flagger uses Istio for all other names, so that
// is the name of an unknown one, for a caller that reads the flags of Flagger. Serin itself refuses an unknown name, in
// spec.provider and in the flag.
func Normalize(provider string) (name string, known bool) {
	if slices.Contains(exactNames, provider) {
		return provider, true
	}
	for _, prefix := range prefixNames {
		if strings.HasPrefix(provider, prefix) {
			return prefix, true
		}
	}
	for _, version := range smiVersions {
		if provider == version || strings.HasPrefix(provider, version+":") {
			return provider, true // a mesh may follow, which the renderer interprets
		}
	}
	return "istio", false
}
