package scaffold

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// canaryProviders are the providers of a Canary whose manifest follows from the workload.
var canaryProviders = []string{
	providerApisix, "appmesh:v1beta2", providerContour, providerGatewayV1, providerGatewayV1Beta1, "gloo", providerIstio, providerKubernetes, "kuma",
	"linkerd", providerNginx, "osm", providerSkipper, "smi:v1alpha1", "smi:v1alpha2", "smi:v1alpha3", providerTraefik,
}

// rolloutProviders are the routers of a Rollout, by the names of the providers if there are such.
var rolloutProviders = []string{providerALB, providerApisix, providerGatewayV1, providerIstio, providerKubernetes, providerNginx, providerTraefik}

// Providers returns the valid values of Input.Provider for a kind of release.
func Providers(kind string) []string {
	if kind == argov1.RolloutKind {
		return rolloutProviders
	}
	return canaryProviders
}

func checkProvider(in Input) error {
	if in.Provider == "" || slices.Contains(Providers(in.Kind), in.Provider) {
		return nil
	}
	return refuse("provider %q is not supported for a %s: use one of %s", in.Provider, in.Kind, names(Providers(in.Kind)))
}

// existingRoutes are the kinds without which a provider has nothing to split.
var existingRoutes = map[string]string{
	providerGatewayV1: kindHTTPRoute, providerGatewayV1Beta1: kindHTTPRoute, providerNginx: kindIngress, providerSkipper: kindIngress,
	providerApisix: kindApisixRoute, providerALB: kindIngress, providerIstio: kindVirtualService,
}

// usable returns the routes whose traffic the wanted provider splits, and the others.
func (o *observation) usable() (usable, others []route) {
	wanted := o.in.Provider
	for _, r := range o.routes {
		provider := r.provider
		if r.kind == kindIngress && provider == "" && (wanted == providerNginx || wanted == providerSkipper || wanted == providerALB) {
			provider = wanted // the user knows the controller of the class
		}
		isFamily := strings.HasPrefix(wanted, "gatewayapi:") && strings.HasPrefix(provider, "gatewayapi:")
		switch {
		case wanted != "" && wanted != provider && !isFamily,
			provider == "", r.defaultOnly,
			r.kind == kindHTTPRoute && len(r.parents) == 0,
			!isFamily && !slices.Contains(Providers(o.in.Kind), provider) && !strings.HasPrefix(provider, "gatewayapi:"):
			others = append(others, r)
		default:
			r.provider = provider
			if wanted != "" {
				r.provider = wanted
			}
			usable = append(usable, r)
		}
	}
	return usable, others
}

// decide chooses provider, Service and route.
func (o *observation) decide() (c choice, provider string, others []route, err error) {
	usable, others := o.usable()
	c = o.choose(usable)
	provider = o.in.Provider
	switch {
	case c.route != nil:
		provider = c.route.provider
		others = append(slices.Clone(usable[1:]), others...)
	case provider == "":
		provider = providerKubernetes
	case existingRoutes[provider] != "" && (provider != providerIstio || o.in.Kind == argov1.RolloutKind):
		kind := existingRoutes[provider]
		what := "its Services"
		if len(o.services) == 0 {
			what = "a Service that selects its pods"
		}
		err = refuse("provider %s splits the traffic of an existing %s, and none of namespace %s routes to %s: create one, or use another --provider",
			provider, kind, o.target.namespace, what)
	}
	return c, provider, others, err
}

// apexName is the name of the Service that clients call.
func (o *observation) apexName(c choice) string {
	if c.service != nil {
		return c.service.Name
	}
	return o.target.name
}

func (o *observation) canary() (string, error) {
	c, provider, others, err := o.decide()
	if err != nil {
		return "", err
	}
	if err := o.choosePort(&c); err != nil {
		return "", err
	}
	if err := o.checkApex(c); err != nil {
		return "", err
	}
	isTCP := c.route != nil && c.route.tcp || strings.EqualFold(c.port.appProtocol, "tcp") || c.port.name == "tcp" || strings.HasPrefix(c.port.name, "tcp-")
	o.noteSelector()
	o.noteOtherServices(c)
	o.noteRoute(c, provider)

	d := &document{}
	o.header(d)
	o.head(d, flaggerv1.SchemeGroupVersion.String(), flaggerv1.CanaryKind, o.target.name)
	d.object(0, "spec")
	o.writeProvider(d, c, provider, others)
	d.object(1, "targetRef")
	d.field(2, "apiVersion", "apps/v1")
	d.field(2, "kind", o.target.kind)
	d.field(2, "name", o.target.name)
	o.writeAutoscaler(d)
	o.writeRouteReference(d, c, provider)
	d.comment(1, "If the Canary is deleted, Serin first restores the pods of the %s, and the Services and the route that existed before. "+
		"Without this, a deletion is an outage, because only the primary has pods between releases.", o.target.kind)
	d.field(1, "revertOnDeletion", true)
	o.writeService(d, c, provider, isTCP)
	o.writeAnalysis(d, c, provider, isTCP)
	o.footer(d)
	return d.text.String(), nil
}

// checkApex returns an error if another Canary already manages the Service that clients call: both would change its selector.
func (o *observation) checkApex(c choice) error {
	for _, object := range o.in.Objects {
		var other flaggerv1.Canary
		if groupKind(object) != canaryKind || decode(object, &other) != nil {
			continue
		}
		if apex := other.Spec.ApexName(); apex == o.apexName(c) {
			return refuse("Service %s belongs to Canary %s, which releases %s %s: create another Service for %s", apex, other.Name, other.Spec.TargetRef.Kind,
				other.Spec.TargetRef.Name, &o.target)
		}
	}
	return nil
}

func (o *observation) noteSelector() {
	if o.selectorLabel() == "" {
		o.note("The selector of %s has none of the labels %s, by which Serin distinguishes the pods of target and primary: add a label of "+
			"spec.selector.matchLabels to the flag -selector-labels of the controller. Otherwise the Canary is blocked.", &o.target, names(o.in.SelectorLabels))
	}
}

// noteOtherServices describes the Services that lose their endpoints, because the pods of the primary have another label.
func (o *observation) noteOtherServices(c choice) {
	label := o.selectorLabel()
	for _, s := range o.services {
		if s.Name == o.apexName(c) || s.Spec.Selector[label] == "" {
			continue
		}
		o.note("Service %s also selects the pods. Between releases, only the primary has pods, with another value of the label %s, so that this "+
			"Service has no endpoints: move its clients to Service %s first.", s.Name, label, o.apexName(c))
	}
	if c.service == nil {
		return
	}
	var removed []string
	for _, p := range c.service.Spec.Ports {
		isUDP := p.Protocol != "" && p.Protocol != corev1.ProtocolTCP
		isKept := p.Port == c.port.number || slices.ContainsFunc(o.containerPorts(), func(other corev1.ContainerPort) bool { return other.ContainerPort == p.Port })
		if isUDP || !isKept {
			removed = append(removed, fmt.Sprintf("%d/%s", p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP)))
		}
	}
	if len(removed) > 0 {
		o.note("Service %s loses the ports %s: a Canary writes the port of spec.service and the TCP ports of the containers. "+
			"Create another Service for their clients first.", c.service.Name, names(removed))
	}
}

// noteRoute describes what the user must change for the chosen route.
func (o *observation) noteRoute(c choice, provider string) {
	apex := o.apexName(c)
	if c.route == nil {
		return
	}
	r := c.route
	switch provider {
	case providerGatewayV1, providerGatewayV1Beta1, providerIstio:
		if r.name != apex {
			o.note("Serin creates %s %s, and %s routes the same requests. When the Canary is Initialized, delete the rules for Service %s in %s: until then, "+
				"they may have precedence, and the canary receives no requests.", r.kind, apex, r, apex, r)
		}
		o.noteReplacedRules(r, r.kind+" "+apex)
	case providerContour:
		if r.name != apex {
			o.note("Serin creates HTTPProxy %s without a host. When the Canary is Initialized, replace the route for Service %s in %s by an entry of "+
				"includes with the name %s.", apex, apex, r, apex)
			break
		}
		o.noteReplacedRules(r, r.String())
	case providerTraefik:
		switch {
		case r.kind == kindTraefikService && r.name == apex, r.via == apex:
			o.note("Serin takes over TraefikService %s, and replaces its entries by ones for primary and canary.", apex)
		case r.kind == kindIngressRoute:
			o.note("Serin creates TraefikService %s. When the Canary is Initialized, replace the backend in %s by kind: TraefikService, name: %s.", apex, r, apex)
		default:
			o.note("Serin creates TraefikService %s. When the Canary is Initialized, replace %s by it in your IngressRoute.", apex, r)
		}
	case providerApisix:
		if r.shared {
			o.note("%s has a rule with Service %s and other backends, which Serin refuses: give the Service a rule of its own.", r, apex)
		}
	}
}

// noteReplacedRules describes what the object that Serin writes does not contain.
func (o *observation) noteReplacedRules(r *route, written string) {
	if r.otherRules > 0 {
		o.note("%s also has rules for other backends, which %s does not contain: move them to another object first.", r, written)
	}
	if r.shared {
		o.note("%s has a rule with other backends next to Service %s, which %s does not contain.", r, r.service, written)
	}
	if len(r.additional) > 0 {
		o.note("The rules of %s have fields that this manifest does not contain: %s. Describe them in spec.service (match, timeout, retries, headers, "+
			"rewrite, corsPolicy), as far as the provider supports them.", r, names(r.additional))
	}
}

func (o *observation) writeProvider(d *document, c choice, provider string, others []route) {
	switch unread := o.unreadRoutes(); {
	case c.route != nil && o.in.Provider == "":
		d.comment(1, "%s routes to Service %s, so Serin splits the traffic with this provider.", c.route, c.service.Name)
	case c.route != nil:
		d.comment(1, "The provider is that of --provider, for %s, which routes to Service %s.", c.route, c.service.Name)
	case o.in.Provider != "":
		d.comment(1, "The provider is that of --provider.")
	case len(others) > 0:
		d.comment(1, "No provider of a Canary splits the traffic of the existing routes. Without one, traffic cannot be weighted: the release is blue/green.")
	case len(unread) > 0:
		d.comment(1, "No route to the pods was found, but %s could not be read: if one of them routes to the pods, use --provider. Without a router, traffic "+
			"cannot be weighted: the release is blue/green.", names(unread))
	default:
		d.comment(1, "No route to the pods was found. Without a router, traffic cannot be weighted: the release is blue/green, and Service %s is switched "+
			"when the checks have passed. With a mesh, use --provider, for example linkerd.", o.apexName(c))
	}
	writeOtherRoutes(d, others)
	d.field(1, "provider", provider)
}

// unreadRoutes returns the kinds of routes that could not be read, and of the objects that lead to them.
func (o *observation) unreadRoutes() []string {
	var out []string
	for _, kind := range slices.Sorted(slices.Values(o.in.Unread)) {
		if kind == kindService || kind == kindIngressClass || slices.Contains(routeKinds, kind) {
			out = append(out, pluralOf(kind))
		}
	}
	return out
}

// writeOtherRoutes names the routes that were not chosen.
func writeOtherRoutes(d *document, others []route) {
	for _, r := range others {
		reason := "its requests are not split"
		switch {
		case r.defaultOnly:
			reason = "only its default backend leads there, and providers split paths"
		case r.kind == kindHTTPRoute && len(r.parents) == 0:
			reason = "it has no parentRefs"
		case r.kind == kindIngress && r.provider == providerALB:
			reason = "only a Rollout splits its traffic (--kind rollout)"
		case r.kind == kindIngress && r.provider == "":
			reason = "no provider is known for its class " + scalar(r.class)
		}
		d.comment(1, "%s also routes to Service %s: %s.", &r, r.service, reason)
	}
}

func (o *observation) writeAutoscaler(d *document) {
	if len(o.autoscalers) == 0 {
		return
	}
	chosen := o.autoscalers[0]
	d.comment(1, "%s %s scales the %s. Serin creates a copy of it for the primary, which serves users between releases.", chosen.kind, chosen.name, o.target.kind)
	for _, other := range o.autoscalers[1:] {
		d.comment(1, "%s %s scales it as well: delete one of the two.", other.kind, other.name)
	}
	d.object(1, "autoscalerRef")
	d.field(2, "apiVersion", chosen.apiVersion)
	d.field(2, "kind", chosen.kind)
	d.field(2, "name", chosen.name)
}

// writeRouteReference names the object of the user that a provider copies.
func (o *observation) writeRouteReference(d *document, c choice, provider string) {
	field, apiVersion, kind := "", "", ""
	switch provider {
	case providerNginx, providerSkipper:
		field, apiVersion, kind = "ingressRef", "networking.k8s.io/v1", kindIngress
	case providerApisix:
		field, apiVersion, kind = "routeRef", "apisix.apache.org/v2", kindApisixRoute
	default:
		return
	}
	d.comment(1, "Serin does not change this object: it creates a second one next to it, for the requests to the canary.")
	d.object(1, field)
	d.field(2, "apiVersion", apiVersion)
	d.field(2, "kind", kind)
	d.field(2, "name", c.route.name)
}

func (o *observation) writeService(d *document, c choice, provider string, isTCP bool) {
	d.object(1, "service")
	if apex := o.apexName(c); apex != o.target.name {
		d.comment(2, "The Service that clients call. Serin takes it over, and creates %s-primary and %s-canary.", apex, apex)
		d.field(2, "name", apex)
	} else if c.service != nil {
		d.comment(2, "Serin takes over Service %s, and creates %s-primary and %s-canary.", apex, apex, apex)
	}
	d.comment(2, "%s", c.port.source)
	d.field(2, "port", c.port.number)
	if c.port.name != "" && c.port.name != "http" {
		d.field(2, "portName", c.port.name)
	}
	switch t := c.port.target; {
	case t.Type == intstr.String && t.StrVal != "":
		d.field(2, "targetPort", t.StrVal)
	case t.Type == intstr.Int && t.IntVal != 0 && t.IntVal != c.port.number:
		d.field(2, "targetPort", t.IntVal)
	}
	switch {
	case c.port.appProtocol != "":
		d.field(2, "appProtocol", c.port.appProtocol)
	case isTCP && provider == providerIstio:
		d.comment(2, "The route is one of TCP.")
		d.field(2, "appProtocol", "tcp")
	}
	if c.port.otherPorts {
		d.comment(2, "The Services also get the other ports of the containers, with the numbers that they have there.")
		d.field(2, "portDiscovery", true)
	}
	if c.service != nil && c.service.Spec.ClusterIP == corev1.ClusterIPNone {
		d.comment(2, "Service %s is headless, and Kubernetes does not permit to change that.", c.service.Name)
		d.field(2, "headless", true)
	}
	o.writeRoute(d, c, provider, isTCP)
}

// writeRoute writes gateways, hosts and paths of the route that Serin creates.
func (o *observation) writeRoute(d *document, c choice, provider string, isTCP bool) {
	r := c.route
	if r == nil {
		return
	}
	switch provider {
	case providerGatewayV1, providerGatewayV1Beta1:
		d.comment(2, "The parents and hosts of %s.", r)
		d.object(2, "gatewayRefs")
		for _, parent := range r.parents {
			d.field(3, "- name", string(parent.Name))
			if parent.Group != nil && *parent.Group != "gateway.networking.k8s.io" {
				d.field(4, "group", string(*parent.Group))
			}
			if parent.Kind != nil && *parent.Kind != "Gateway" {
				d.field(4, "kind", string(*parent.Kind))
			}
			if parent.Namespace != nil {
				d.field(4, "namespace", string(*parent.Namespace))
			}
			if parent.SectionName != nil {
				d.field(4, "sectionName", string(*parent.SectionName))
			}
			if parent.Port != nil {
				d.field(4, "port", *parent.Port)
			}
		}
	case providerIstio:
		if len(r.gateways)+len(r.hosts) > 0 {
			d.comment(2, "The gateways and hosts of %s.", r)
		}
		writeList(d, "gateways", r.gateways)
	case providerContour:
		if r.name != o.apexName(c) {
			return // the HTTPProxy that includes it has the conditions
		}
	default:
		return
	}
	if provider != providerContour {
		writeList(d, "hosts", r.hosts)
	}
	if isTCP || len(r.paths) == 0 || slices.Contains(r.paths, matchesAll) {
		return
	}
	d.comment(2, "The paths of %s.", r)
	d.object(2, "match")
	for _, path := range r.paths {
		d.object(3, "- uri")
		d.field(5, path.kind, path.value)
	}
}

func writeList(d *document, field string, values []string) {
	if len(values) == 0 {
		return
	}
	d.object(2, field)
	for _, value := range values {
		d.item(3, value)
	}
}

func (o *observation) writeAnalysis(d *document, c choice, provider string, isTCP bool) {
	d.object(1, "analysis")
	if provider == providerKubernetes {
		d.comment(2, "The new version is tested for this number of intervals, without users. Then Serin switches the Service to it.")
		d.field(2, "iterations", 5)
	} else {
		d.comment(2, "The share of the requests that the new version receives, in percent. It grows with each interval in which all checks pass: a bad version "+
			"affects few users first.")
		d.field(2, "stepWeights", flow("[5, 20, 50]"))
	}
	d.comment(2, "Long enough for a sample of requests in each interval. With few requests, use a longer one.")
	d.field(2, "interval", "1m")
	d.comment(2, "Serin rolls back after this number of failed checks in the whole release.")
	d.field(2, "threshold", 3)
	o.writeMetrics(d, provider, isTCP)
	if provider == providerKubernetes {
		d.comment(2, "No user sends requests to the new version during the test: send some with a webhook, or the metrics have no data. See docs/loadtester.md.")
		for _, line := range []string{
			"webhooks:", "  - name: load", "    type: rollout", "    url: http://flagger-loadtester." + o.target.namespace + "/", "    metadata:",
			fmt.Sprintf("      cmd: hey -z 1m -q 10 -c 2 http://%s-canary.%s:%d/", o.apexName(c), o.target.namespace, c.port.number),
		} {
			d.disabled(2, line)
		}
	}
}

// proxyMetrics are the providers whose proxies measure the requests, so that the builtin metrics need nothing of the application.
var proxyMetrics = []string{
	providerApisix, "appmesh:v1beta2", providerContour, "gloo", providerIstio, "kuma", "linkerd", providerNginx, "osm", providerSkipper, providerTraefik,
}

func (o *observation) writeMetrics(d *document, provider string, isTCP bool) {
	measuresItself := (strings.HasPrefix(provider, "gatewayapi:") || provider == providerKubernetes) &&
		o.target.Spec.Template.Annotations["prometheus.io/scrape"] == "true"
	switch {
	case isTCP:
		d.comment(2, "The builtin metrics measure HTTP requests, and this port is one of TCP. The release has no checks until you reference a MetricTemplate:")
	case slices.Contains(proxyMetrics, provider):
		d.comment(2, "The builtin metrics of this provider are those of its proxies, which Prometheus must scrape. Without data, a check fails.")
	case measuresItself:
		d.comment(2, "The builtin metrics of this provider are those of the application: the histogram http_request_duration_seconds with the labels status, "+
			"kubernetes_namespace and kubernetes_pod_name. The pods have the annotation prometheus.io/scrape. If they export another histogram, reference a "+
			"MetricTemplate instead: without data, a check fails.")
	default:
		d.comment(2, "The provider does not measure requests, and the pods have no annotation prometheus.io/scrape. The release has no checks until you "+
			"reference a MetricTemplate:")
	}
	if isTCP || !slices.Contains(proxyMetrics, provider) && !measuresItself {
		for _, line := range []string{
			"metrics:", "  - name: error-rate", "    templateRef:", "      name: error-rate # see docs/metrictemplate.md",
			"    thresholdRange:", "      max: 1", "    interval: 1m",
		} {
			d.disabled(2, line)
		}
		return
	}
	d.object(2, "metrics")
	d.field(3, "- name", "request-success-rate")
	d.comment(4, "percent of the requests")
	d.object(4, "thresholdRange")
	d.field(5, "min", 99)
	d.field(4, "interval", "1m")
	d.field(3, "- name", "request-duration")
	if provider == providerNginx || provider == providerSkipper {
		d.comment(4, "milliseconds, mean")
	} else {
		d.comment(4, "milliseconds, 99th percentile")
	}
	d.object(4, "thresholdRange")
	d.field(5, "max", 500)
	d.field(4, "interval", "1m")
}
