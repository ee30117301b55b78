package scaffold

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// gatewayPlugin is the name under which Rollouts configure the router for the Gateway API.
const gatewayPlugin = "argoproj-labs/gatewayAPI"

// rolloutServices are the Services of a Rollout.
type rolloutServices struct {
	stable, canary string
	// exists is true if the one of the canary exists.
	exists bool
}

func (o *observation) rollout() (string, error) {
	if o.target.kind != kindDeployment {
		return "", refuse("a Rollout runs the template of a Deployment, and %s is none: use --kind canary", &o.target)
	}
	c, provider, others, err := o.decide()
	if err != nil {
		return "", err
	}
	services := o.rolloutServices(c)
	if c.route != nil {
		if services.canary == "" {
			return "", refuse("Service %s-canary exists, and selects other pods than those of %s: rename one of the two Services", services.stable, &o.target)
		}
		o.noteRouter(c, provider, services)
	} else if o.in.Port > 0 {
		return "", refuse("--port has no effect on this Rollout: nothing routes to a Service of %s", &o.target)
	}
	if len(o.autoscalers) > 0 {
		a := o.autoscalers[0]
		o.note("%s %s scales %s. Change its scaleTargetRef to apiVersion: %s, kind: %s, name: %s after you have applied the Rollout: "+
			"otherwise it scales the Deployment up again.", a.kind, a.name, &o.target, argov1.SchemeGroupVersion, argov1.RolloutKind, o.target.name)
	}

	d := &document{}
	o.header(d)
	o.head(d, argov1.SchemeGroupVersion.String(), argov1.RolloutKind, o.target.name)
	d.object(0, "spec")
	o.writePods(d)
	d.object(1, "strategy")
	d.object(2, "canary")
	o.writeRouter(d, c, provider, services, others)
	writeSteps(d, c.route != nil)
	if c.route != nil {
		o.writeCanaryService(d, c, services)
		if name, exists := o.weightedName(c); provider == providerTraefik && !exists {
			o.writeTraefikService(d, c, services, name)
		}
	}
	o.footer(d)
	return d.text.String(), nil
}

// rolloutServices returns the names of the Services. The stable one is the one that clients call already.
func (o *observation) rolloutServices(c choice) rolloutServices {
	out := rolloutServices{stable: o.apexName(c)}
	prefix := strings.TrimSuffix(out.stable, "-stable")
	for _, name := range []string{prefix + "-canary", prefix + "-rollout-canary"} {
		selector, exists := o.taken[name]
		if !exists || o.selectsPods(selector) {
			out.canary, out.exists = name, exists
			break
		}
	}
	return out
}

func (o *observation) writePods(d *document) {
	replicas := int32(1)
	if r := o.target.Spec.Replicas; r != nil {
		replicas = *r
	}
	d.comment(1, "As many pods as the Deployment has now.")
	d.field(1, "replicas", replicas)
	d.comment(1, "The Rollout runs the pod template of the Deployment: a change of that template starts a release. The pods of the Deployment are removed as those "+
		"of the Rollout become ready, so that the capacity remains. Omit spec.replicas from the manifest of the Deployment from now on, or each time it is "+
		"applied, its pods return until Serin removes them.")
	d.object(1, "workloadRef")
	d.field(2, "apiVersion", "apps/v1")
	d.field(2, "kind", kindDeployment)
	d.field(2, "name", o.target.name)
	d.field(2, "scaleDown", string(argov1.ScaleDownProgressively))
}

// weightedName is the name of the TraefikService whose weights Serin writes, and whether it exists.
func (o *observation) weightedName(c choice) (name string, exists bool) {
	switch {
	case c.route.kind == kindTraefikService:
		return c.route.name, true
	case c.route.via != "":
		return c.route.via, true
	case slices.ContainsFunc(o.in.Objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == kindTraefikService && object.GetName() == o.target.name
	}):
		return o.target.name + "-weighted", false // the other one leads elsewhere
	default:
		return o.target.name, false
	}
}

func (o *observation) writeRouter(d *document, c choice, provider string, services rolloutServices, others []route) {
	switch {
	case c.route == nil && o.in.Provider != "":
		d.comment(3, "No router, because of --provider kubernetes: a weight is the share of the pods that run the new version, and the Services are unchanged.")
	case c.route == nil && len(others) > 0:
		d.comment(3, "No router of a Rollout splits the traffic of the existing routes: a weight is the share of the pods that run the new version.")
	case c.route == nil:
		d.comment(3, "No route to the pods was found. Without a router, a weight is the share of the pods that run the new version.")
	}
	for _, r := range others {
		d.comment(3, "%s also routes to Service %s: this Rollout does not split its requests.", &r, r.service)
	}
	if c.route == nil {
		return
	}
	if services.exists {
		d.comment(3, "The Service of the new version. It exists; Serin changes its selector.")
	} else {
		d.comment(3, "The Service of the new version. It does not exist yet, and is the second object of this manifest.")
	}
	d.field(3, "canaryService", services.canary)
	d.comment(3, "The Service that clients call. Serin adds the hash of the stable pods to its selector.")
	d.field(3, "stableService", services.stable)
	d.comment(3, "%s routes to Service %s, so Serin splits the traffic there.", c.route, services.stable)
	d.object(3, "trafficRouting")
	r := c.route
	switch provider {
	case providerGatewayV1, providerGatewayV1Beta1:
		d.object(4, "plugins")
		d.object(5, gatewayPlugin)
		d.field(6, "httpRoute", r.name)
	case providerIstio:
		d.object(4, "istio")
		d.object(5, "virtualService")
		d.field(6, "name", r.name)
		writeRules(d, "routes", r)
	case providerTraefik:
		d.object(4, "traefik")
		name, _ := o.weightedName(c)
		d.field(5, "weightedTraefikServiceName", name)
	case providerApisix:
		d.object(4, "apisix")
		d.object(5, "route")
		d.field(6, "name", r.name)
		writeRules(d, "rules", r)
	case providerNginx:
		d.object(4, "nginx")
		d.field(5, "stableIngress", r.name)
	case providerALB:
		d.object(4, "alb")
		d.field(5, "ingress", r.name)
		d.field(5, "servicePort", o.servicePort(c))
	}
}

// servicePort returns the port of the Service to which the route leads.
func (o *observation) servicePort(c choice) int32 {
	ports := tcpPorts(c.service)
	if i := slices.IndexFunc(ports, c.route.uses); i >= 0 {
		return ports[i].Port
	}
	if len(ports) > 0 {
		return ports[0].Port
	}
	return c.route.port
}

// writeRules selects the rules for the Service, if there are others and all of them have names.
func writeRules(d *document, field string, r *route) {
	if r.otherRules == 0 && r.ruleCount == 1 || len(r.rules) < r.ruleCount {
		return
	}
	d.object(6, field)
	for _, rule := range r.rules {
		d.item(7, rule)
	}
}

// noteRouter describes what the user must change in the object that Serin writes.
func (o *observation) noteRouter(c choice, provider string, services rolloutServices) {
	r := c.route
	add := func(where, entry string) {
		o.note("When Service %s exists, add it to %s of %s, next to Service %s: %s. Serin then writes the weights; until then, the Rollout is blocked, and changes nothing.",
			services.canary, where, r, services.stable, entry)
	}
	switch provider {
	case providerGatewayV1, providerGatewayV1Beta1:
		add("backendRefs", "name: "+scalar(services.canary)+", port: "+scalar(o.servicePort(c))+", weight: 0")
	case providerIstio:
		add("route", "destination.host: "+scalar(services.canary)+", weight: 0")
		if r.tcp {
			o.note("%s has routes of TCP or TLS only: add tcpRoutes or tlsRoutes to virtualService.", r)
		} else if (r.otherRules > 0 || r.ruleCount > 1) && len(r.rules) < r.ruleCount {
			o.note("%s has several rules: give those for Service %s names, and list them in virtualService.routes.", r, services.stable)
		}
	case providerApisix:
		add("backends", "serviceName: "+scalar(services.canary)+", servicePort: "+scalar(o.servicePort(c))+", weight: 0")
	case providerTraefik:
		name, exists := o.weightedName(c)
		if exists {
			o.note("When Service %s exists, add it to weighted.services of TraefikService %s, next to Service %s. Serin then writes the weights; until then, "+
				"the Rollout is blocked, and changes nothing.", services.canary, name, services.stable)
			break
		}
		o.note("TraefikService %s is the last object of this manifest. When it exists, replace the backend in %s by kind: TraefikService, name: %s.", name, r, name)
	case providerALB:
		if r.portName != "use-annotation" {
			o.note("Serin writes the weights into the annotation alb.ingress.kubernetes.io/actions.%s of %s. Set it yourself first, with Service %s as its only target, "+
				"and then replace the port of this backend by name: use-annotation.", services.stable, r, services.stable)
		}
	}
}

func writeSteps(d *document, hasRouter bool) {
	weights := []int{5, 20, 50}
	if hasRouter {
		d.comment(3, "The share of the requests that the new version receives, in percent: a bad version affects few users first.")
	} else {
		d.comment(3, "The share of the pods that run the new version, in percent, rounded to whole pods.")
		weights = []int{20, 50, 80}
	}
	d.comment(3, "A pause without a duration waits for: serin promote. A Rollout has no builtin metrics: nothing measures the new version until you reference an "+
		"AnalysisTemplate. See docs/analysis.md.")
	for _, line := range []string{"analysis:", "  templates:", "    - templateName: success-rate"} {
		d.disabled(3, line)
	}
	d.object(3, "steps")
	for _, weight := range weights {
		d.field(4, "- setWeight", weight)
		d.object(4, "- pause")
		d.field(6, "duration", "2m")
	}
}

// writeCanaryService writes the Service of the new version, a copy of the stable one.
func (o *observation) writeCanaryService(d *document, c choice, services rolloutServices) {
	if services.exists {
		return
	}
	d.text.WriteString("---\n")
	d.comment(0, "The Service of the new version: the ports and the selector are those of Service %s. Serin adds the hash of the new pods to the selector.", services.stable)
	o.head(d, "v1", kindService, services.canary)
	d.object(0, "spec")
	if c.service.Spec.ClusterIP == corev1.ClusterIPNone {
		d.field(1, "clusterIP", corev1.ClusterIPNone)
	}
	d.object(1, "selector")
	selector := c.service.Spec.Selector
	d.labels(2, slices.DeleteFunc(sortedKeys(selector), func(key string) bool { return key == argov1.PodTemplateHashLabel }), selector)
	d.object(1, "ports")
	for _, p := range c.service.Spec.Ports {
		d.field(2, "- port", p.Port)
		if p.Name != "" {
			d.field(3, "name", p.Name)
		}
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			d.field(3, "protocol", string(p.Protocol))
		}
		switch text := p.TargetPort.String(); {
		case p.TargetPort.StrVal != "":
			d.field(3, "targetPort", text)
		case p.TargetPort.IntVal != 0:
			d.field(3, "targetPort", p.TargetPort.IntVal)
		}
		if p.AppProtocol != nil {
			d.field(3, "appProtocol", *p.AppProtocol)
		}
	}
}

// writeTraefikService writes the object whose weights Serin writes.
func (o *observation) writeTraefikService(d *document, c choice, services rolloutServices, weighted string) {
	d.text.WriteString("---\n")
	d.comment(0, "Serin writes the weights.")
	o.head(d, "traefik.io/v1alpha1", kindTraefikService, weighted)
	d.object(0, "spec")
	d.object(1, "weighted")
	d.object(2, "services")
	for _, name := range []string{services.stable, services.canary} {
		d.field(3, "- name", name)
		d.field(4, "port", o.servicePort(c))
	}
}
