package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// RouteParent is a Gateway that a route of the Gateway API has as its parent.
type RouteParent struct {
	// RouteKind, RouteNamespace, RouteName and Hostnames are those of the route.
	RouteKind, RouteNamespace, RouteName string
	Hostnames                            []gatewayv1.Hostname
	// Namespace and Name of the Gateway. Section and Port select listeners of it; empty and 0: all.
	Namespace, Name string
	Section         gatewayv1.SectionName
	Port            gatewayv1.PortNumber
	// Found is false if the Gateway does not exist.
	Found     bool
	Listeners []gatewayv1.Listener
	// NamespaceLabels are the labels of the namespace of the route; nil: they could not be read.
	NamespaceLabels labels.Set
	// Unread is the reason why the Gateway is unknown; empty: it is known.
	Unread string
}

// result is the check whether a listener of the Gateway accepts the route. A controller reports that only after it has seen the route.
func (p RouteParent) result() Result {
	const name = "listener"
	gateway, route := "Gateway "+p.Name+"."+p.Namespace, p.RouteKind+" "+p.RouteName+"."+p.RouteNamespace
	switch {
	case p.Unread != "":
		return skipped(name, p.Unread, "")
	case !p.Found:
		return failed(name, fmt.Sprintf("%s, the parent of %s, does not exist", gateway, route), "create it, or correct the reference of the route")
	}
	var reasons []string
	for _, listener := range p.Listeners {
		reason := p.rejection(listener)
		if reason == "" {
			return passed(name, fmt.Sprintf("listener %s of %s accepts %s", listener.Name, gateway, route))
		}
		reasons = append(reasons, string(listener.Name)+": "+reason)
	}
	if len(reasons) == 0 {
		reasons = []string{"it has none"}
	}
	return failed(name, fmt.Sprintf("no listener of %s accepts %s: %s", gateway, route, strings.Join(reasons, "; ")), "correct the listener, or the reference and the host names of the route")
}

// protocols are the protocols of the listeners that accept a kind of route.
var protocols = map[string][]gatewayv1.ProtocolType{
	"HTTPRoute": {gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType},
	"GRPCRoute": {gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType},
	"TCPRoute":  {gatewayv1.TCPProtocolType},
	"TLSRoute":  {gatewayv1.TLSProtocolType},
}

// rejection returns the reason why a listener does not accept the route; empty: it does.
func (p RouteParent) rejection(l gatewayv1.Listener) string {
	known := protocols[p.RouteKind]
	isCustom := strings.Contains(string(l.Protocol), "/") // a protocol of an implementation, such as example.com/bar
	switch {
	case p.Section != "" && l.Name != p.Section:
		return fmt.Sprintf("the route names section %s", p.Section)
	case p.Port != 0 && l.Port != p.Port:
		return fmt.Sprintf("it has port %d, but the route names port %d", l.Port, p.Port)
	case len(known) > 0 && !isCustom && !slices.Contains(known, l.Protocol):
		return "it has protocol " + string(l.Protocol)
	case !acceptsHostnames(l.Hostname, p.Hostnames):
		return fmt.Sprintf("its hostname %s matches none of the route (%s)", *l.Hostname, joinHostnames(p.Hostnames))
	case l.AllowedRoutes == nil:
		return p.namespaceRejection(nil)
	case !acceptsKind(l.AllowedRoutes.Kinds, p.RouteKind):
		return "its allowedRoutes.kinds do not include " + p.RouteKind
	default:
		return p.namespaceRejection(l.AllowedRoutes.Namespaces)
	}
}

// namespaceRejection returns the reason why a listener does not accept routes of the namespace; empty: it does. By default, it accepts
// those of its own namespace.
func (p RouteParent) namespaceRejection(allowed *gatewayv1.RouteNamespaces) string {
	from, selector := gatewayv1.NamespacesFromSame, (*metav1.LabelSelector)(nil)
	if allowed != nil {
		selector = allowed.Selector
		if allowed.From != nil {
			from = *allowed.From
		}
	}
	switch from {
	case gatewayv1.NamespacesFromAll:
		return ""
	case gatewayv1.NamespacesFromSelector:
		wanted, err := metav1.LabelSelectorAsSelector(selector)
		if err == nil && (p.NamespaceLabels == nil || wanted.Matches(p.NamespaceLabels)) {
			return ""
		}
		return "its allowedRoutes.namespaces.selector does not select namespace " + p.RouteNamespace
	case gatewayv1.NamespacesFromNone:
		return "its allowedRoutes.namespaces.from is None"
	default: // Same, or a value of a newer version of the API
		if p.RouteNamespace == p.Namespace {
			return ""
		}
		return fmt.Sprintf("its allowedRoutes.namespaces.from is %s, and the route is in namespace %s", from, p.RouteNamespace)
	}
}

// SelectsNamespaces reports whether a listener accepts routes by the labels of their namespace.
func SelectsNamespaces(l gatewayv1.Listener) bool {
	return l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil && l.AllowedRoutes.Namespaces.From != nil && *l.AllowedRoutes.Namespaces.From == gatewayv1.NamespacesFromSelector
}

func acceptsKind(kinds []gatewayv1.RouteGroupKind, kind string) bool {
	return len(kinds) == 0 || slices.ContainsFunc(kinds, func(k gatewayv1.RouteGroupKind) bool {
		return string(k.Kind) == kind && (k.Group == nil || *k.Group == gatewayv1.GroupName)
	})
}

// acceptsHostnames reports whether the host names of a listener and of a route intersect. None is any host name.
func acceptsHostnames(listener *gatewayv1.Hostname, route []gatewayv1.Hostname) bool {
	if listener == nil || *listener == "" || len(route) == 0 {
		return true
	}
	return slices.ContainsFunc(route, func(h gatewayv1.Hostname) bool {
		a, b := strings.ToLower(string(*listener)), strings.ToLower(string(h))
		return a == b || matchesWildcard(a, b) || matchesWildcard(b, a)
	})
}

// matchesWildcard reports whether a wildcard such as *.example.com covers a host name or a narrower wildcard.
func matchesWildcard(wildcard, hostname string) bool {
	suffix, ok := strings.CutPrefix(wildcard, "*")
	return ok && strings.HasSuffix(hostname, suffix) && len(hostname) > len(suffix)
}

func joinHostnames(names []gatewayv1.Hostname) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = string(name)
	}
	return cmp.Or(strings.Join(out, ", "), "none")
}
