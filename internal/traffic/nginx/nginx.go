// Package nginx routes traffic with a second Ingress for the NGINX ingress controller, whose annotations define its share of
// the requests of the user's Ingress.
//
// It must not know other providers, clients, or the reason for a weight.
package nginx

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// DefaultPrefix of the annotations that the controller reads.
const DefaultPrefix = "nginx.ingress.kubernetes.io"

// Renderer creates an Ingress with the name of the user's, and the suffix -canary.
type Renderer struct {
	prefix string
}

// New returns the renderer of the provider nginx. The prefix is that of the controller's annotations; empty means
// DefaultPrefix.
func New(prefix string) Renderer {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return Renderer{prefix: strings.TrimSuffix(prefix, "/")}
}

// Features are weights, and matches of one header and one cookie.
func (Renderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, Matches: true}
}

// Refs are the user's Ingress, which is only read, and the canary's.
func (Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	return traffic.IngressRefs(t)
}

// Render renders the canary's Ingress: the user's, with the canary in place of the apex.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	selecting, err := r.annotations(t, route)
	if err != nil {
		return nil, err
	}
	obj, err := traffic.IngressCopy(t, existing, func(key string) bool { return strings.HasPrefix(key, r.prefix+"/") })
	if err != nil {
		return nil, err
	}
	if !toCanary(t, obj) {
		return nil, traffic.NoIngressBackend(t)
	}
	traffic.PreventDriftCorrection(obj)
	annotations := obj.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.HasPrefix(key, r.key("")) }) // the user's, for another canary
	maps.Copy(annotations, selecting)
	obj.SetAnnotations(annotations)
	return []*unstructured.Unstructured{
		traffic.UsersIngress: existing[traffic.UsersIngress].Object, traffic.CanaryIngress: obj,
	}, nil
}

// toCanary changes the backends of the apex's paths to the canary, and reports whether there are any.
func toCanary(t traffic.Target, ingress *unstructured.Unstructured) bool {
	found := false
	for _, path := range traffic.IngressPaths(ingress) {
		if service := traffic.IngressBackend(path); service["name"] == t.Apex {
			service["name"], found = t.CanaryService, true
		}
	}
	return found
}

// key is the key of an annotation of a canary's Ingress. All of them have the key of the empty name as a prefix.
func (r Renderer) key(name string) string { return r.prefix + "/canary" + name }

// The annotations of a canary's Ingress, after the prefix.
const (
	byWeight        = "-weight"
	byHeader        = "-by-header"
	byHeaderValue   = "-by-header-value"
	byHeaderPattern = "-by-header-pattern"
	byCookie        = "-by-cookie"
)

// annotations select the requests for the canary. The controller evaluates the header first, then the cookie, then the
// weight.
func (r Renderer) annotations(t traffic.Target, route release.Route) (map[string]string, error) {
	out := map[string]string{r.key(""): "true", r.key(byWeight): strconv.Itoa(route.Canary)}
	if len(route.Matches) == 0 {
		return out, nil
	}
	out[r.key(byWeight)] = "0"
	matched, err := r.matched(route.Matches)
	if err != nil {
		return nil, err
	}
	switch route.Canary {
	case 0:
		return out, nil
	case release.Total:
		maps.Copy(out, matched)
		return out, nil
	default:
		return nil, traffic.Refuse(traffic.ErrUnsupported, "provider %s sends all matching requests to the canary or none, not %d%% of them", t.Provider, route.Canary)
	}
}

// matched is the match as the controller supports it: one header, and one cookie.
func (r Renderer) matched(matches []release.Match) (map[string]string, error) {
	out := map[string]string{}
	for _, m := range matches {
		if len(m.Headers) != 1 {
			return nil, traffic.Refuse(traffic.ErrInvalid, "spec.analysis.match has an entry with %d headers: provider nginx supports entries with one header each", len(m.Headers))
		}
		for name, value := range m.Headers {
			more, err := r.header(name, value)
			if err != nil {
				return nil, err
			}
			for _, key := range slices.Sorted(maps.Keys(more)) {
				if _, twice := out[key]; twice {
					return nil, traffic.Refuse(traffic.ErrInvalid, "spec.analysis.match names more than one header, or more than one cookie: provider nginx supports one of each")
				}
			}
			maps.Copy(out, more)
		}
	}
	return out, nil
}

func (r Renderer) header(name string, value release.StringMatch) (map[string]string, error) {
	if strings.EqualFold(name, "cookie") {
		if value.Exact == "" {
			return nil, traffic.Refuse(traffic.ErrInvalid, "spec.analysis.match matches a cookie by a pattern: "+
				"provider nginx sends users to the canary by a cookie with the value always; set headers.cookie.exact to its name")
		}
		return map[string]string{r.key(byCookie): value.Exact}, nil
	}
	out := map[string]string{r.key(byHeader): name}
	switch {
	case value.Exact != "":
		out[r.key(byHeaderValue)] = value.Exact
	case value.Prefix != "":
		out[r.key(byHeaderPattern)] = "^" + regexp.QuoteMeta(value.Prefix)
	case value.Suffix != "":
		out[r.key(byHeaderPattern)] = regexp.QuoteMeta(value.Suffix) + "$"
	default:
		out[r.key(byHeaderPattern)] = value.Regex
	}
	return out, nil
}

// Read reads the weight from the canary's Ingress. Matching requests are sent to the canary whatever the weight is. The
// controller does not report what it serves.
func (r Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if len(existing) == 0 || existing[traffic.CanaryIngress].Object == nil {
		return out, nil
	}
	ingress := existing[traffic.CanaryIngress].Object
	out.Found = slices.ContainsFunc(traffic.IngressPaths(ingress), func(path map[string]any) bool {
		return traffic.IngressBackend(path)["name"] == t.CanaryService
	})
	if !out.Found {
		return out, nil
	}
	annotations := ingress.GetAnnotations()
	if annotations[r.key(byHeader)] != "" || annotations[r.key(byCookie)] != "" {
		out.Route.Canary, out.Matched = release.Total, true
		return out, nil
	}
	if weight, err := strconv.Atoi(annotations[r.key(byWeight)]); err == nil { // the controller reads an invalid number as 0
		out.Route.Canary = min(max(weight, 0), release.Total)
	}
	return out, nil
}

// Restore has nothing to restore: the user's Ingress was never changed.
func (Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	return traffic.RestoreCopy(t, existing)
}
