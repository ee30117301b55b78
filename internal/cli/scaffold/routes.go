package scaffold

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// The providers of Canaries that have a route in Kinds, and the router of Rollouts without one.
const (
	providerGatewayV1      = "gatewayapi:v1"
	providerGatewayV1Beta1 = "gatewayapi:v1beta1"
	providerIstio          = "istio"
	providerTraefik        = "traefik"
	providerContour        = "contour"
	providerApisix         = "apisix"
	providerNginx          = "nginx"
	providerSkipper        = "skipper"
	providerALB            = "alb"
	providerKubernetes     = "kubernetes"
)

// route is an object that routes requests to a Service of the workload.
type route struct {
	kind, name string
	// provider is the one that splits its traffic; empty: none does. class is that of an Ingress.
	provider, class string
	service         string
	// port is the port of the Service, by number or name.
	port     int32
	portName string
	hosts    []string
	// gateways are those of Istio, parents those of the Gateway API.
	gateways []string
	parents  []gatewayv1.ParentReference
	// paths are the paths that it matches; empty: all.
	paths []pathMatch
	// rules are the names of its rules for the Service, ruleCount is their number, and otherRules is that of all others. shared is
	// true if a rule for the Service has other backends too.
	rules                 []string
	ruleCount, otherRules int
	shared                bool
	// defaultOnly is true for an Ingress that routes to the Service by its default backend only, which no provider splits.
	defaultOnly bool
	// tcp is true for a route that is not one of HTTP.
	tcp bool
	// additional are fields of its rules for the Service that a Canary does not contain.
	additional []string
	// via is the TraefikService between an IngressRoute and the Service; empty: none.
	via string
}

// pathMatch matches paths. The type is that of the API of Canaries: exact, prefix or regex.
type pathMatch struct{ kind, value string }

func (r *route) String() string { return r.kind + " " + r.name }

// uses reports whether the route leads to a port.
func (r *route) uses(p corev1.ServicePort) bool {
	return r.port > 0 && r.port == p.Port || r.portName != "" && r.portName == p.Name
}

// addBackend sets the Service and its port. Of several Services, the first one counts.
func (r *route) addBackend(o *observation, service string, port int32, portName string) bool {
	if o.service(service) == nil || r.service != "" && r.service != service {
		return false
	}
	if r.service == "" {
		r.service, r.port, r.portName = service, port, portName
	}
	return true
}

// countRule counts a rule for the Service, by the number of its backends.
func (r *route) countRule(backends int) {
	r.ruleCount, r.otherRules = r.ruleCount+1, r.otherRules-1
	r.shared = r.shared || backends > 1
}

// addAdditional adds the fields of a rule that are not known.
func (r *route) addAdditional(prefix string, rule map[string]json.RawMessage, known ...string) {
	for field := range rule {
		if name := prefix + field; !slices.Contains(known, field) && !slices.Contains(r.additional, name) {
			r.additional = append(r.additional, name)
		}
	}
	slices.Sort(r.additional)
}

// addPath adds a path. The prefix / matches all requests, as does a rule without paths.
func (r *route) addPath(p pathMatch) {
	if !slices.Contains(r.paths, p) {
		r.paths = append(r.paths, p)
	}
}

// matchesAll is the path of a rule that matches all paths.
var matchesAll = pathMatch{"prefix", "/"}

// routeKinds are the kinds of routes, the preferred one first: those of the Gateway API, because they name their gateways, and
// Ingresses last, because they often lead to another router.
var routeKinds = []string{kindHTTPRoute, kindVirtualService, kindIngressRoute, kindTraefikService, kindHTTPProxy, kindApisixRoute, kindIngress}

// readRoutes reads the routes to the Services, and sorts them.
func (o *observation) readRoutes(objects []*unstructured.Unstructured) {
	classes := readClasses(objects)
	for _, object := range objects {
		r := route{kind: object.GetKind(), name: object.GetName()}
		var err error
		switch object.GetKind() {
		case kindHTTPRoute:
			err = r.readHTTPRoute(o, object)
		case kindVirtualService:
			err = r.readVirtualService(o, object)
		case kindTraefikService:
			err = r.readTraefikService(o, object)
		case kindHTTPProxy:
			err = r.readHTTPProxy(o, object)
		case kindApisixRoute:
			err = r.readApisixRoute(o, object)
		case kindIngress:
			err = r.readIngress(o, object, classes)
		default:
			continue
		}
		if err != nil {
			o.note("%s cannot be read: %s", &r, err)
		} else if r.service != "" {
			o.routes = append(o.routes, r)
		}
	}
	o.readIngressRoutes(objects)
	serviceRank := func(r route) int {
		return slices.IndexFunc(o.services, func(s corev1.Service) bool { return s.Name == r.service })
	}
	isApex := func(r route) int {
		if r.name == r.service {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(o.routes, func(a, b route) int {
		return cmp.Or(
			cmp.Compare(slices.Index(routeKinds, a.kind), slices.Index(routeKinds, b.kind)), cmp.Compare(serviceRank(a), serviceRank(b)),
			cmp.Compare(isApex(a), isApex(b)), strings.Compare(a.name, b.name), strings.Compare(a.provider, b.provider))
	})
}

func (r *route) readHTTPRoute(o *observation, object *unstructured.Unstructured) error {
	var in gatewayv1.HTTPRoute
	var raw struct {
		Spec struct{ Rules []map[string]json.RawMessage }
	}
	if err := decode(object, &in); err != nil {
		return err
	}
	if err := decode(object, &raw); err != nil {
		return err
	}
	r.provider = "gatewayapi:" + object.GroupVersionKind().Version
	r.parents, r.otherRules = in.Spec.ParentRefs, len(in.Spec.Rules)
	for _, host := range in.Spec.Hostnames {
		r.hosts = append(r.hosts, string(host))
	}
	for i, rule := range in.Spec.Rules {
		found := false
		for _, ref := range rule.BackendRefs {
			if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != kindService ||
				ref.Namespace != nil && string(*ref.Namespace) != object.GetNamespace() {
				continue
			}
			port := int32(0)
			if ref.Port != nil {
				port = *ref.Port
			}
			found = r.addBackend(o, string(ref.Name), port, "") || found
		}
		if !found {
			continue
		}
		r.countRule(len(rule.BackendRefs))
		if rule.Name != nil {
			r.rules = append(r.rules, string(*rule.Name))
		}
		r.addAdditional("", raw.Spec.Rules[i], "name", "matches", "backendRefs")
		if len(rule.Matches) == 0 {
			r.addPath(matchesAll)
		}
		for _, match := range rule.Matches {
			r.addPath(pathOf(match.Path))
			for field, set := range map[string]bool{"headers": len(match.Headers) > 0, "queryParams": len(match.QueryParams) > 0, "method": match.Method != nil} {
				if set {
					r.addAdditional("matches.", map[string]json.RawMessage{field: nil})
				}
			}
		}
	}
	return nil
}

func pathOf(match *gatewayv1.HTTPPathMatch) pathMatch {
	if match == nil || match.Value == nil {
		return matchesAll
	}
	kind := "prefix"
	if match.Type != nil {
		switch *match.Type {
		case gatewayv1.PathMatchExact:
			kind = "exact"
		case gatewayv1.PathMatchRegularExpression:
			kind = "regex"
		default:
		}
	}
	return pathMatch{kind, *match.Value}
}

// istioRule is a rule of a VirtualService.
type istioRule struct {
	Name  string
	Match []map[string]json.RawMessage
	Route []struct {
		Destination struct {
			Host string
			Port struct{ Number int32 }
		}
	}
}

func (r *route) readVirtualService(o *observation, object *unstructured.Unstructured) error {
	var in struct {
		Spec struct {
			Hosts, Gateways []string
			HTTP, TCP, TLS  []istioRule
		}
	}
	var raw struct {
		Spec struct{ HTTP []map[string]json.RawMessage }
	}
	if err := decode(object, &in); err != nil {
		return err
	}
	if err := decode(object, &raw); err != nil {
		return err
	}
	r.provider, r.hosts, r.gateways, r.otherRules = providerIstio, in.Spec.Hosts, in.Spec.Gateways, len(in.Spec.HTTP)
	for i, rule := range in.Spec.HTTP {
		if !r.addIstioRule(o, rule) {
			continue
		}
		r.addAdditional("", raw.Spec.HTTP[i], "name", "match", "route")
		if len(rule.Match) == 0 {
			r.addPath(matchesAll)
		}
		for _, match := range rule.Match {
			path := matchesAll
			var uri map[string]string
			if json.Unmarshal(match["uri"], &uri) == nil {
				for _, kind := range []string{"exact", "prefix", "regex"} {
					if value, ok := uri[kind]; ok {
						path = pathMatch{kind, value}
					}
				}
			}
			r.addPath(path)
			r.addAdditional("match.", match, "uri", "name")
		}
	}
	if r.service != "" {
		return nil
	}
	for _, rule := range slices.Concat(in.Spec.TCP, in.Spec.TLS) {
		if r.addIstioRule(o, rule) {
			r.tcp = true
		}
	}
	r.otherRules = len(in.Spec.TCP) + len(in.Spec.TLS) - r.ruleCount
	return nil
}

func (r *route) addIstioRule(o *observation, rule istioRule) bool {
	found := false
	for _, destination := range rule.Route {
		host := destination.Destination.Host
		name, namespace, qualified := strings.Cut(host, ".")
		if namespace, _, _ = strings.Cut(namespace, "."); qualified && namespace != o.target.namespace {
			continue
		}
		found = r.addBackend(o, name, destination.Destination.Port.Number, "") || found
	}
	if found {
		r.countRule(len(rule.Route))
		if rule.Name != "" {
			r.rules = append(r.rules, rule.Name)
		}
	}
	return found
}

// traefikBackend is an entry of a TraefikService or an IngressRoute.
type traefikBackend struct {
	Kind, Name, Namespace string
	Port                  any
}

func (r *route) addTraefikBackend(o *observation, b traefikBackend) bool {
	if b.Kind != "" && b.Kind != kindService || b.Namespace != "" && b.Namespace != o.target.namespace {
		return false
	}
	number, name := portOf(b.Port)
	return r.addBackend(o, b.Name, number, name)
}

// portOf returns a port that is a number or a name.
func portOf(value any) (number int32, name string) {
	switch value := value.(type) {
	case float64:
		if value > 0 && value <= 65535 {
			return int32(value), ""
		}
	case string:
		return 0, value
	}
	return 0, ""
}

func (r *route) readTraefikService(o *observation, object *unstructured.Unstructured) error {
	var in struct {
		Spec struct {
			Weighted  struct{ Services []traefikBackend }
			Mirroring traefikBackend
		}
	}
	if err := decode(object, &in); err != nil {
		return err
	}
	r.provider = providerTraefik
	for _, b := range in.Spec.Weighted.Services {
		if r.addTraefikBackend(o, b) {
			r.shared = len(in.Spec.Weighted.Services) > 1
		}
	}
	if r.service == "" && in.Spec.Mirroring.Name != "" {
		r.shared = r.addTraefikBackend(o, in.Spec.Mirroring)
	}
	return nil
}

// readIngressRoutes reads the IngressRoutes of Traefik to the Services, also through TraefikServices.
func (o *observation) readIngressRoutes(objects []*unstructured.Unstructured) {
	through := map[string]route{}
	for _, r := range o.routes {
		if r.kind == kindTraefikService {
			through[r.name] = r
		}
	}
	for _, object := range objects {
		if object.GetKind() != kindIngressRoute {
			continue
		}
		r := route{kind: kindIngressRoute, name: object.GetName(), provider: providerTraefik}
		var in struct {
			Spec struct {
				Routes []struct{ Services []traefikBackend }
			}
		}
		if err := decode(object, &in); err != nil {
			o.note("%s cannot be read: %s", &r, err)
			continue
		}
		for _, rule := range in.Spec.Routes {
			for _, b := range rule.Services {
				found := r.addTraefikBackend(o, b)
				if middle, ok := through[b.Name]; ok && b.Kind == kindTraefikService && r.service == "" {
					found = r.addBackend(o, middle.service, middle.port, middle.portName)
					r.via, r.shared = middle.name, middle.shared
				}
				r.shared = r.shared || found && len(rule.Services) > 1
			}
		}
		if r.service == "" {
			continue
		}
		if r.via != "" { // one entry for both
			o.routes = slices.DeleteFunc(o.routes, func(other route) bool { return other.kind == kindTraefikService && other.name == r.via })
		}
		o.routes = append(o.routes, r)
	}
}

func (r *route) readHTTPProxy(o *observation, object *unstructured.Unstructured) error {
	var in struct {
		Spec struct {
			VirtualHost struct{ FQDN string }
			Routes      []struct {
				Conditions []struct{ Prefix, Exact, Regex string }
				Services   []struct {
					Name string
					Port int32
				}
			}
		}
	}
	var raw struct {
		Spec struct{ Routes []map[string]json.RawMessage }
	}
	if err := decode(object, &in); err != nil {
		return err
	}
	if err := decode(object, &raw); err != nil {
		return err
	}
	r.provider, r.otherRules = providerContour, len(in.Spec.Routes)
	if host := in.Spec.VirtualHost.FQDN; host != "" {
		r.hosts = []string{host}
	}
	for i, rule := range in.Spec.Routes {
		found := false
		for _, s := range rule.Services {
			found = r.addBackend(o, s.Name, s.Port, "") || found
		}
		if !found {
			continue
		}
		r.countRule(len(rule.Services))
		r.addAdditional("", raw.Spec.Routes[i], "conditions", "services")
		path := matchesAll
		for _, c := range rule.Conditions {
			if c.Prefix != "" {
				path = pathMatch{"prefix", c.Prefix}
			}
		}
		r.addPath(path)
	}
	return nil
}

func (r *route) readApisixRoute(o *observation, object *unstructured.Unstructured) error {
	var in struct {
		Spec struct {
			HTTP []struct {
				Name     string
				Match    struct{ Hosts []string }
				Backends []struct {
					ServiceName string
					ServicePort any
				}
			}
		}
	}
	if err := decode(object, &in); err != nil {
		return err
	}
	r.provider, r.otherRules = providerApisix, len(in.Spec.HTTP)
	for _, rule := range in.Spec.HTTP {
		found := false
		for _, b := range rule.Backends {
			number, name := portOf(b.ServicePort)
			found = r.addBackend(o, b.ServiceName, number, name) || found
		}
		if found {
			r.countRule(len(rule.Backends))
			r.rules, r.hosts = append(r.rules, rule.Name), append(r.hosts, rule.Match.Hosts...)
		}
	}
	return nil
}

// classes are the controllers of the classes of Ingresses, and the class of an Ingress without one.
type classes struct {
	controllers map[string]string
	byDefault   string
}

func readClasses(objects []*unstructured.Unstructured) classes {
	out := classes{controllers: map[string]string{}}
	for _, object := range objects {
		if object.GetKind() != kindIngressClass {
			continue
		}
		out.controllers[object.GetName()], _, _ = unstructured.NestedString(object.Object, "spec", "controller")
		if object.GetAnnotations()[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			out.byDefault = object.GetName()
		}
	}
	return out
}

// providerOf returns the provider for a class; empty: none supports it. Without permission to read classes, their usual names
// count.
func (c classes) providerOf(class string) string {
	controller, known := c.controllers[class]
	if !known {
		controller = map[string]string{"nginx": "k8s.io/ingress-nginx", "alb": "ingress.k8s.aws/alb", "skipper": "zalando.org/skipper"}[class]
	}
	switch {
	case controller == "k8s.io/ingress-nginx": // that of nginx.org has no annotations for a canary
		return providerNginx
	case controller == "ingress.k8s.aws/alb":
		return providerALB
	case strings.Contains(controller, "skipper"):
		return providerSkipper
	default:
		return ""
	}
}

// ingressClassAnnotation is the name of the class in older Ingresses.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

func (r *route) readIngress(o *observation, object *unstructured.Unstructured, all classes) error {
	var in networkingv1.Ingress
	if err := decode(object, &in); err != nil {
		return err
	}
	r.class = in.Annotations[ingressClassAnnotation]
	if in.Spec.IngressClassName != nil {
		r.class = *in.Spec.IngressClassName
	}
	r.class = cmp.Or(r.class, all.byDefault)
	r.provider = all.providerOf(r.class)
	for _, rule := range in.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		found := false
		for _, path := range rule.HTTP.Paths {
			if s := path.Backend.Service; s != nil {
				found = r.addBackend(o, s.Name, s.Port.Number, s.Port.Name) || found
			}
		}
		if found && rule.Host != "" {
			r.hosts = append(r.hosts, rule.Host)
		}
	}
	if r.service == "" && in.Spec.DefaultBackend != nil && in.Spec.DefaultBackend.Service != nil {
		s := in.Spec.DefaultBackend.Service
		r.addBackend(o, s.Name, s.Port.Number, s.Port.Name)
		r.defaultOnly = true
	}
	return nil
}
