package scaffold

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// addService adds a Service that selects the pods of the workload.
func (o *observation) addService(object *unstructured.Unstructured) {
	if object.GetKind() != kindService || object.GroupVersionKind().Group != "" {
		return
	}
	var s corev1.Service
	if err := decode(object, &s); err != nil {
		o.note("Service %s cannot be read: %s", object.GetName(), err)
		return
	}
	o.taken[s.Name] = s.Spec.Selector
	if owner := metav1.GetControllerOf(&s); owner != nil && owner.Kind == flaggerv1.CanaryKind {
		return
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName && o.selectsPods(s.Spec.Selector) {
		o.services = append(o.services, s)
	}
}

// selectsPods reports whether a selector selects the pods of the workload.
func (o *observation) selectsPods(selector map[string]string) bool {
	return len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(o.target.Spec.Template.Labels))
}

// sortServices sorts the Services: the one with the name of the workload is probably the one that clients call, and the one for a
// new version is not.
func (o *observation) sortServices() {
	rank := func(s corev1.Service) int {
		switch {
		case s.Name == o.target.name:
			return 0
		case strings.HasSuffix(s.Name, "-canary"), strings.HasSuffix(s.Name, "-preview"):
			return 3
		case s.Spec.ClusterIP == corev1.ClusterIPNone:
			return 2
		default:
			return 1
		}
	}
	slices.SortStableFunc(o.services, func(a, b corev1.Service) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
	})
}

// service returns a Service by its name; nil: it does not select the pods.
func (o *observation) service(name string) *corev1.Service {
	for i := range o.services {
		if o.services[i].Name == name {
			return &o.services[i]
		}
	}
	return nil
}

// choice is what the manifest is for: one Service, one port, and the route to it.
type choice struct {
	// service is nil if no Service selects the pods, route is nil if nothing routes to it.
	service *corev1.Service
	route   *route
	port    port
}

// port is the port of the Services of a Canary.
type port struct {
	number            int32
	name, appProtocol string
	target            intstr.IntOrString
	source            string
	otherPorts        bool
}

// choose returns the preferred route that the provider supports, with its Service.
func (o *observation) choose(routes []route) choice {
	var c choice
	if len(routes) > 0 {
		c.route = &routes[0]
		c.service = o.service(c.route.service)
	} else if len(o.services) > 0 {
		c.service = &o.services[0]
	}
	return c
}

// tcpPorts returns the ports of a Service without those of other protocols, which no provider routes.
func tcpPorts(s *corev1.Service) []corev1.ServicePort {
	return slices.DeleteFunc(slices.Clone(s.Spec.Ports), func(p corev1.ServicePort) bool { return p.Protocol != "" && p.Protocol != corev1.ProtocolTCP })
}

// containerPorts returns the TCP ports of the containers without those of mesh sidecars.
func (o *observation) containerPorts() []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range o.target.Spec.Template.Spec.Containers {
		if c.Name == "istio-proxy" || c.Name == "envoy" || c.Name == "linkerd-proxy" {
			continue
		}
		for _, p := range c.Ports {
			if (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) && p.ContainerPort > 0 {
				out = append(out, p)
			}
		}
	}
	return out
}

// choosePort sets the port: that of the flag, of the route, or the first one, where one for HTTP comes first.
func (o *observation) choosePort(c *choice) error {
	if c.service != nil && len(tcpPorts(c.service)) > 0 {
		return o.chooseServicePort(c)
	}
	ports := o.containerPorts()
	slices.SortStableFunc(ports, func(a, b corev1.ContainerPort) int { return compareHTTP(a.Name, b.Name) })
	switch {
	case o.in.Port > 0:
		c.port = port{number: o.in.Port, source: "The port is that of --port."}
	case len(ports) > 0:
		c.port = port{number: ports[0].ContainerPort, name: ports[0].Name, otherPorts: len(ports) > 1}
		c.port.source = "No Service selects the pods, so Serin creates them with the first port of the containers."
		if slices.Contains(o.in.Unread, kindService) {
			c.port.source = "The port is the first one of the containers. If a Service selects the pods, write its name and port here."
		}
	case c.service != nil:
		return refuse("%s has Service %s, which has no TCP port: name the port that the pods listen on with --port", &o.target, c.service.Name)
	default:
		return refuse("no Service selects the pods of %s, and its containers declare no port: name the port that the pods listen on with --port", &o.target)
	}
	return nil
}

// compareHTTP sorts names of ports: those for HTTP come first.
func compareHTTP(a, b string) int {
	rank := func(name string) int {
		switch {
		case name == "http" || name == "web":
			return 0
		case strings.HasPrefix(name, "http") || strings.HasPrefix(name, "grpc"):
			return 1
		default:
			return 2
		}
	}
	return cmp.Compare(rank(a), rank(b))
}

func (o *observation) chooseServicePort(c *choice) error {
	ports := tcpPorts(c.service)
	slices.SortStableFunc(ports, func(a, b corev1.ServicePort) int { return compareHTTP(a.Name, b.Name) })
	chosen, source := &ports[0], "The port is that of Service "+c.service.Name+"."
	if len(ports) > 1 {
		source = "The port is the first one of Service " + c.service.Name + "; --port chooses another one."
	}
	find := func(matches func(p corev1.ServicePort) bool) bool {
		i := slices.IndexFunc(ports, matches)
		if i >= 0 {
			chosen = &ports[i]
		}
		return i >= 0
	}
	switch {
	case o.in.Port > 0:
		if !find(func(p corev1.ServicePort) bool { return p.Port == o.in.Port }) {
			var existing []string
			for _, p := range ports {
				existing = append(existing, scalar(p.Port))
			}
			return refuse("Service %s has no TCP port %d: use --port with one of its ports (%s)", c.service.Name, o.in.Port, names(existing))
		}
		source = "The port is that of --port."
	case c.route != nil && find(func(p corev1.ServicePort) bool { return c.route.uses(p) }):
		source = "The port is the one to which " + c.route.String() + " routes."
	}
	c.port = port{
		number: chosen.Port, name: chosen.Name, target: chosen.TargetPort, source: source,
		otherPorts: len(c.service.Spec.Ports) > 1,
	}
	if chosen.AppProtocol != nil {
		c.port.appProtocol = *chosen.AppProtocol
	}
	return nil
}

// selectorLabel returns the label whose value differs between the pods of target and primary; empty: there is none.
func (o *observation) selectorLabel() string {
	if o.target.Spec.Selector == nil {
		return ""
	}
	for _, label := range o.in.SelectorLabels {
		if _, ok := o.target.Spec.Selector.MatchLabels[label]; ok {
			return label
		}
	}
	return ""
}

// sortedKeys returns the keys of a map.
func sortedKeys(all map[string]string) []string { return slices.Sorted(maps.Keys(all)) }
