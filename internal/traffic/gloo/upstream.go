package gloo

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/toolkeys"
	"github.com/serin-dev/serin/internal/traffic"
)

// patternKeys are what an Upstream takes over from the one that spec.upstreamRef names.
var patternKeys = []string{
	"labels", "sslConfig", "circuitBreakers", "connectionConfig", "loadBalancerConfig", "useHttp2",
	"initialStreamWindowSize", "initialConnectionWindowSize", "httpProxyHostName",
}

// kubeKeys are the address of a Service in an Upstream, and the pods behind it.
var kubeKeys = []string{"serviceName", "serviceNamespace", "servicePort", "selector"}

// renderUpstream makes the Upstream of one side. Settings are those of the pattern, as long as one is named; without one
// they may be written by others.
func (r *Renderer) renderUpstream(t traffic.Target, service string, pattern *unstructured.Unstructured, existing traffic.Found) (*unstructured.Unstructured, error) {
	obj, err := existing.Adopt(t)
	if err != nil {
		return nil, err
	}
	spec := traffic.Spec(obj)
	kube, _ := spec["kube"].(map[string]any)
	if kube == nil {
		kube = map[string]any{}
		spec["kube"] = kube
	}
	want := map[string]any{
		"serviceName": service, "serviceNamespace": t.Namespace, "servicePort": int64(t.Canary.Spec.Service.Port),
	}
	if t.SelectorLabel != "" {
		want["selector"] = map[string]any{t.SelectorLabel: selected(t, service)}
	}
	traffic.SetFields(kube, want, kubeKeys...) // whole values, in which there is nothing to keep
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

// selected is the label's value of the pods behind a Service of the release.
func selected(t traffic.Target, service string) string {
	value := t.SelectorValue
	if value == "" {
		value = t.Canary.Spec.TargetRef.Name
	}
	if service == t.StableService {
		return value + "-primary"
	}
	return value
}

// labels of the pattern that the Upstream itself carries: those that were asked for. Flagger looks for them in the spec, which
// is copied with all of them, and users put them where labels are.
func (r *Renderer) labels(pattern *unstructured.Unstructured) map[string]string {
	out, _, _ := unstructured.NestedStringMap(pattern.Object, "spec", "labels")
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, pattern.GetLabels())
	maps.DeleteFunc(out, func(key, _ string) bool { return !toolkeys.MatchesPrefix(key, r.prefixes) })
	return out
}
