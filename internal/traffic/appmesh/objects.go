package appmesh

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

const (
	virtualNode    = "VirtualNode"
	virtualRouter  = "VirtualRouter"
	virtualService = "VirtualService"

	// accessLogAnnotation of a Canary enables the access log of its pods' proxies.
	accessLogAnnotation = "appmesh.flagger.app/accesslog"

	exposeAnnotation  = "gateway.appmesh.k8s.aws/expose"
	domainAnnotation  = "gateway.appmesh.k8s.aws/domain"
	timeoutAnnotation = "gateway.appmesh.k8s.aws/timeout"
	retriesAnnotation = "gateway.appmesh.k8s.aws/retries"
)

// gatewayAnnotations are the annotations of an exposed service that a gateway reads. It is never changed.
var gatewayAnnotations = []string{exposeAnnotation, domainAnnotation, timeoutAnnotation, retriesAnnotation}

// The fields of the objects themselves that Serin writes.
var (
	nodeFields = traffic.Fields{
		"listeners": listeners, "serviceDiscovery": {Fields: discoveryFields}, "backends": backends, "logging": {Fields: loggingFields},
	}
	providerFields = traffic.Fields{"provider": {Fields: traffic.Fields{
		"virtualRouter": {Fields: traffic.Fields{"virtualRouterRef": {Fields: traffic.WholeFields("name")}}},
		"virtualNode":   {}, // never together with a router
	}}}
)

func embeddedFields(t traffic.Target) traffic.Fields {
	return traffic.Fields{
		"meshName": {}, "virtualRouter": {Fields: traffic.Fields{"name": {}, "listeners": listeners}}, "routes": routesOfRelease(t),
	}
}

// dns returns the name by which proxies find the pods of a Service.
func (v Version) dns(t traffic.Target, service string) map[string]any {
	if v == V1Beta1 {
		return map[string]any{"hostName": service + "." + t.Namespace}
	}
	return map[string]any{"hostname": fmt.Sprintf("%s.%s.svc.cluster.local.", service, t.Namespace)}
}

// embedded returns the objects of v1beta1.
func embedded(t traffic.Target) []part {
	node := func(name, service string) part {
		return part{
			kind: virtualNode, name: name, node: true, fields: nodeFields.With(traffic.WholeFields("meshName")), remains: name != t.StableService,
			spec: func(release.Route) (map[string]any, error) {
				spec := nodeSpec(t, map[string]any{"portMapping": portMapping(t, int64(t.Canary.Spec.Service.Port))})
				spec["meshName"] = t.Canary.Spec.Service.MeshName
				spec["serviceDiscovery"] = map[string]any{"dns": V1Beta1.dns(t, service)}
				return withBackends(t, spec, func(name string) map[string]any { return map[string]any{"virtualServiceName": name} }), nil
			},
		}
	}
	service := func(name string, routed bool) part {
		return part{
			kind: virtualService, name: name + "." + t.Namespace, fields: embeddedFields(t),
			exposed: routed, routed: routed, remains: routed,
			spec: func(r release.Route) (map[string]any, error) {
				routes, err := inVirtualService(t).routes(name, routeOf(routed, r))
				listener := map[string]any{"portMapping": portMapping(t, int64(t.Canary.Spec.Service.Port))}
				return map[string]any{
					"meshName":      t.Canary.Spec.Service.MeshName,
					"virtualRouter": map[string]any{"name": name, "listeners": []any{listener}},
					"routes":        routes,
				}, err
			},
		}
	}
	return []part{
		node(t.CanaryService, t.CanaryService), node(t.StableService, t.StableService), node(t.Apex, t.StableService),
		service(t.CanaryService, false), service(t.Apex, true),
	}
}

// separate returns the objects of v1beta2.
func separate(t traffic.Target) []part {
	node := func(name string, primary bool) part {
		return part{
			kind: virtualNode, name: name, node: true, remains: !primary,
			fields: nodeFields.With(traffic.Fields{"podSelector": {Fields: traffic.WholeFields("matchLabels")}}),
			spec: func(release.Route) (map[string]any, error) {
				listener := map[string]any{"portMapping": portMapping(t, podPort(t))}
				timeout, err := perRequest(t)
				if timeout != nil {
					listener["timeout"] = map[string]any{protocol(t): timeout}
				}
				spec := nodeSpec(t, listener)
				spec["serviceDiscovery"] = map[string]any{"dns": V1Beta2.dns(t, name)}
				if labels := podLabels(t, primary); labels != nil {
					spec["podSelector"] = map[string]any{"matchLabels": labels}
				}
				return withBackends(t, spec, func(name string) map[string]any {
					if strings.HasPrefix(name, "arn:aws") {
						return map[string]any{"virtualServiceARN": name}
					}
					return map[string]any{"virtualServiceRef": map[string]any{"name": name}}
				}), err
			},
		}
	}
	router := func(name string, routed bool) part {
		return part{
			kind: virtualRouter, name: name, fields: traffic.Fields{"listeners": listeners, "routes": routesOfRelease(t)}, routed: routed, remains: routed,
			spec: func(r release.Route) (map[string]any, error) {
				routes, err := inVirtualRouter(t).routes(name, routeOf(routed, r))
				listener := map[string]any{"portMapping": portMapping(t, podPort(t))}
				return map[string]any{"listeners": []any{listener}, "routes": routes}, err
			},
		}
	}
	service := func(name string, exposed bool) part {
		return part{
			kind: virtualService, name: name, fields: providerFields, exposed: exposed, remains: exposed,
			spec: func(release.Route) (map[string]any, error) {
				ref := map[string]any{"virtualRouterRef": map[string]any{"name": name}}
				return map[string]any{"provider": map[string]any{"virtualRouter": ref}}, nil
			},
		}
	}
	return []part{
		node(t.CanaryService, false), node(t.StableService, true),
		router(t.CanaryService, false), router(t.Apex, true),
		service(t.CanaryService, false), service(t.Apex, true),
	}
}

// routeOf is the route of an object: that of the release, or, for clients that call the canary by its name, only the canary.
func routeOf(routed bool, r release.Route) release.Route {
	if routed {
		return r
	}
	return release.Route{Canary: release.Total}
}

// nodeSpec is the part of nodes that both versions have.
func nodeSpec(t traffic.Target, listener map[string]any) map[string]any {
	spec := map[string]any{"listeners": []any{listener}}
	if t.Canary.Annotations[accessLogAnnotation] == "enabled" {
		spec["logging"] = map[string]any{"accessLog": map[string]any{"file": map[string]any{"path": "/dev/stdout"}}}
	}
	return spec
}

func portMapping(t traffic.Target, port int64) map[string]any {
	return map[string]any{"port": port, "protocol": protocol(t)}
}

func protocol(t traffic.Target) string {
	if strings.Contains(t.Canary.Spec.Service.PortName, "grpc") {
		return "grpc"
	}
	return "http"
}

// podPort is the number of the port on which pods listen, as far as it is known: the mesh does not support named ports.
func podPort(t traffic.Target) int64 {
	service := t.Canary.Spec.Service
	if service.TargetPort != nil {
		if port := service.TargetPort.IntValue(); port != 0 { // 0 for a named port
			return int64(port)
		}
	}
	return int64(service.Port)
}

// podLabels are the labels of one side's pods; nil if they are unknown.
func podLabels(t traffic.Target, primary bool) map[string]any {
	if t.SelectorLabel == "" {
		return nil
	}
	value := cmp.Or(t.SelectorValue, t.Canary.Spec.TargetRef.Name)
	if primary {
		value += "-primary"
	}
	return map[string]any{t.SelectorLabel: value}
}

// withBackends adds the services that the pods may call.
func withBackends(t traffic.Target, spec map[string]any, reference func(name string) map[string]any) map[string]any {
	var out []any
	for _, name := range t.Canary.Spec.Service.Backends {
		out = append(out, map[string]any{"virtualService": reference(name)})
	}
	if len(out) > 0 {
		spec["backends"] = out
	}
	return spec
}

// setGateway sets the annotation that exposes the service on gateways if it has hosts, and removes it otherwise.
func setGateway(t traffic.Target, obj *unstructured.Unstructured) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, key := range gatewayAnnotations {
		delete(annotations, key)
	}
	if service := t.Canary.Spec.Service; len(service.Hosts) > 0 {
		annotations[exposeAnnotation] = "true"
		annotations[domainAnnotation] = strings.Join(service.Hosts, ",") + "," // as Flagger does
		if service.Timeout != "" {
			annotations[timeoutAnnotation] = service.Timeout
		}
		if service.Retries != nil && service.Retries.Attempts > 0 {
			annotations[retriesAnnotation] = strconv.Itoa(int(service.Retries.Attempts))
		}
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	obj.SetAnnotations(annotations)
}
