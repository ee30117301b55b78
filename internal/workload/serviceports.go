package workload

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/jsontree"
)

// servicePorts returns the ports of the three Services: the configured port, then the discovered ones, in the order of
// the containers and their ports.
func servicePorts(c *flaggerv1.Canary, template map[string]any) []any {
	s := c.Spec.Service
	main := map[string]any{
		"name": cmp.Or(s.PortName, "http"), "protocol": "TCP", "port": int64(s.Port), "targetPort": targetPort(s),
	}
	if s.AppProtocol != "" {
		main["appProtocol"] = s.AppProtocol
	}
	ports := []any{main}
	if !s.PortDiscovery {
		return ports
	}
	for _, found := range discoveredPorts(s, template) {
		ports = append(ports, map[string]any{
			"name": found.name, "protocol": "TCP", "port": found.number, "targetPort": found.number,
		})
	}
	return ports
}

func targetPort(s flaggerv1.CanaryService) any {
	switch {
	case s.TargetPort == nil:
		return int64(s.Port)
	case s.TargetPort.Type == intstr.String:
		return s.TargetPort.StrVal
	default:
		return int64(s.TargetPort.IntVal)
	}
}

type port struct {
	name   string
	number int64
}

// discoveredPorts returns the container ports except for the main one, without the ports of mesh sidecars.
func discoveredPorts(s flaggerv1.CanaryService, template map[string]any) []port {
	var found []port
	spec, _ := template["spec"].(map[string]any)
	main := targetPort(s)
	for _, container := range jsonObjects(spec["containers"]) {
		name, _ := container["name"].(string)
		if name == "istio-proxy" || name == "envoy" {
			continue
		}
		for i, item := range jsonObjects(container["ports"]) {
			portName, _ := item["name"].(string)
			number := intOrDefault(item, 0, "containerPort")
			if main == number || main == portName && portName != "" {
				continue
			}
			found = append(found, port{name: cmp.Or(portName, fmt.Sprintf("tcp-%s-%d", name, i)), number: number})
		}
	}
	return found
}

// portProblem returns the reason why a Service with these ports is invalid, with the API server's message if it has one.
func portProblem(c *flaggerv1.Canary, kind string, template map[string]any) string {
	s := c.Spec.Service
	invalid := func(format string, args ...any) string {
		name := c.Spec.ApexName() + "-canary"
		return fmt.Sprintf("reconcileService failed: service %s.%s create error: Service %q is invalid: ", name, c.Namespace, name) +
			fmt.Sprintf(format, args...)
	}
	if s.Port < 1 || s.Port > 65535 {
		return invalid("spec.ports[0].port: Invalid value: %d: must be between 1 and 65535, inclusive", s.Port)
	}
	if wanted, named := targetPort(s).(string); named && !hasPort(template, wanted) {
		return fmt.Sprintf("spec.service.targetPort is %q, and no container of %s %s.%s has a port of that name: "+
			"set the name of the port there, or its number in spec.service.targetPort", wanted, kind, c.Spec.TargetRef.Name, c.Namespace)
	}
	if !s.PortDiscovery {
		return ""
	}
	names, numbers := map[string]bool{cmp.Or(s.PortName, "http"): true}, map[int64]bool{int64(s.Port): true}
	for i, found := range discoveredPorts(s, template) {
		if names[found.name] {
			return invalid("spec.ports[%d].name: Duplicate value: %q", i+1, found.name)
		}
		if numbers[found.number] {
			return fmt.Sprintf("spec.service.portDiscovery finds port %d in %s %s.%s, which the Services already have: "+
				"change spec.service.port, or disable spec.service.portDiscovery", found.number, kind, c.Spec.TargetRef.Name, c.Namespace)
		}
		names[found.name], numbers[found.number] = true, true
	}
	return ""
}

// portWarning returns a message about a numeric target port that no container declares, although containers declare others; empty:
// there is none.
func portWarning(c *flaggerv1.Canary, template map[string]any) string {
	wanted, numeric := targetPort(c.Spec.Service).(int64)
	spec, _ := template["spec"].(map[string]any)
	var declared []string
	for _, field := range []string{"containers", "initContainers"} {
		for _, container := range jsonObjects(spec[field]) {
			for _, item := range jsonObjects(container["ports"]) {
				number := intOrDefault(item, 0, "containerPort")
				if number == wanted {
					return ""
				}
				declared = append(declared, strconv.FormatInt(number, 10))
			}
		}
	}
	if !numeric || len(declared) == 0 {
		return ""
	}
	field := "targetPort"
	if c.Spec.Service.TargetPort == nil {
		field = "port"
	}
	return fmt.Sprintf("spec.service.%s is %d, which is not a containerPort of %s %s (%s): check on which port the application listens",
		field, wanted, c.Spec.TargetRef.Kind, c.Spec.TargetRef.Name, strings.Join(declared, ", "))
}

func hasPort(template map[string]any, name string) bool {
	spec, _ := template["spec"].(map[string]any)
	for _, field := range []string{"containers", "initContainers"} {
		for _, container := range jsonObjects(spec[field]) {
			for _, item := range jsonObjects(container["ports"]) {
				if item["name"] == name {
					return true
				}
			}
		}
	}
	return false
}

// samePorts compares ports regardless of order and node ports.
func samePorts(live, wanted []any) bool {
	if len(live) != len(wanted) {
		return false
	}
	unmatched := make([]map[string]any, 0, len(live))
	for _, item := range jsonObjects(live) {
		port := maps.Clone(item)
		delete(port, "nodePort")
		unmatched = append(unmatched, port)
	}
	for _, item := range jsonObjects(wanted) {
		at := slices.IndexFunc(unmatched, func(other map[string]any) bool { return jsontree.Equal(item, other) })
		if at < 0 {
			return false
		}
		unmatched = slices.Delete(unmatched, at, at+1)
	}
	return len(unmatched) == 0
}

// withNodePorts copies the node ports of ports with the same name.
func withNodePorts(wanted, live []any) []any {
	ports, _ := runtime.DeepCopyJSONValue(wanted).([]any)
	for _, item := range jsonObjects(ports) {
		for _, other := range jsonObjects(live) {
			if nodePort, found := other["nodePort"]; found && other["name"] == item["name"] {
				item["nodePort"] = nodePort
			}
		}
	}
	return ports
}
