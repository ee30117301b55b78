package gloo

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/toolkeys"
	"github.com/serin-dev/serin/internal/traffic"
)

// patternKeys are the fields that an Upstream copies from the one that spec.upstreamRef names.
var patternKeys = []string{
	"labels", "sslConfig", "circuitBreakers", "connectionConfig", "loadBalancerConfig", "useHttp2",
	"initialStreamWindowSize", "initialConnectionWindowSize", "httpProxyHostName",
}

// kubeFields are the fields of an Upstream with the address of a Service, and the selector of its pods.
var kubeFields = traffic.WholeFields("serviceName", "serviceNamespace", "servicePort", "selector")

// renderUpstream renders the Upstream of one side. Its settings are those of the pattern, if one is named; otherwise other
// tools may write them.
func (r *Renderer) renderUpstream(t traffic.Target, service string, pattern *unstructured.Unstructured, existing traffic.Lookup) (*unstructured.Unstructured, error) {
	obj, err := existing.Adopt(t)
	if err != nil {
		return nil, err
	}
	spec := traffic.Spec(obj)
	setKube(t, spec, service)
	if pattern == nil {
		return obj, nil
	}
	settings, _, _ := unstructured.NestedMap(pattern.Object, "spec")
	traffic.SetFields(spec, settings, patternKeys...)
	if labels := r.labels(pattern); len(labels) > 0 {
		all := obj.GetLabels()
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, labels)
		obj.SetLabels(all)
	}
	return obj, nil
}

// setKube sets the address of a Service, and the selector of its pods.
func setKube(t traffic.Target, spec map[string]any, service string) {
	kube, _ := spec["kube"].(map[string]any)
	if kube == nil {
		kube = map[string]any{}
		spec["kube"] = kube
	}
	want := map[string]any{
		"serviceName": service, "serviceNamespace": t.Namespace, "servicePort": int64(t.Canary.Spec.Service.Port),
	}
	if t.SelectorLabel != "" {
		want["selector"] = map[string]any{t.SelectorLabel: selectorValue(t, service)}
	}
	traffic.WriteFields(kube, want, kubeFields)
}

// selectorValue is the value of the label of the pods behind a Service of the release.
func selectorValue(t traffic.Target, service string) string {
	value := t.SelectorValue
	if value == "" {
		value = t.Canary.Spec.TargetRef.Name
	}
	if service == t.StableService {
		return value + "-primary"
	}
	return value
}

// labels returns the labels of the pattern with the configured prefixes, for the metadata of the Upstream. Flagger reads them
// from the spec, which is copied with all of them, but users set them in the metadata.
func (r *Renderer) labels(pattern *unstructured.Unstructured) map[string]string {
	out, _, _ := unstructured.NestedStringMap(pattern.Object, "spec", "labels")
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, pattern.GetLabels())
	maps.DeleteFunc(out, func(key, _ string) bool { return !toolkeys.MatchesPrefix(key, r.prefixes) })
	return out
}
