package traffictest

import (
	"maps"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/traffic"
)

// IngressAdmission is the admission of the API server for Ingresses.
func IngressAdmission() *Admission {
	return NewBuiltIn(traffic.IngressKind, func() any { return &networkingv1.Ingress{} })
}

// IngressRef names the Ingress of GivenIngress.
func IngressRef(_ *rapid.T, c *flaggerv1.Canary) {
	c.Spec.IngressRef = &flaggerv1.IngressReference{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "shop"}
}

// UsersIngress is an Ingress of a user: a path to the Service on two hosts, another path, and a rule without paths.
func UsersIngress(namespace, name, service string, port map[string]any, annotations map[string]string) *unstructured.Unstructured {
	path := func(path, service string, port map[string]any) any {
		return map[string]any{"path": path, "pathType": "Prefix", "backend": map[string]any{
			"service": map[string]any{"name": service, "port": maps.Clone(port)},
		}}
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"ingressClassName": "public",
		"tls":              []any{map[string]any{"hosts": []any{"shop.example.com"}, "secretName": "shop"}},
		"rules": []any{
			map[string]any{"host": "shop.example.com", "http": map[string]any{"paths": []any{
				path("/cart", service, port), path("/other", "other", map[string]any{"number": int64(80)}),
			}}},
			map[string]any{"host": "empty.example.com"},
			map[string]any{"host": "www.example.com", "http": map[string]any{"paths": []any{path("/", service, port)}}},
		},
	}}}
	obj.SetGroupVersionKind(traffic.IngressKind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetAnnotations(annotations)
	return obj
}

// GivenIngress is an Ingress of a user of Flagger: UsersIngress with metadata of tools.
func GivenIngress(t traffic.Target) []*unstructured.Unstructured {
	obj := UsersIngress(t.Namespace, t.Canary.Spec.IngressRef.Name, t.Apex, map[string]any{"number": int64(80)}, map[string]string{
		"example.com/owner": "shop", "kubectl.kubernetes.io/last-applied-configuration": "{}", "argocd.argoproj.io/tracking-id": "shop",
		"zalando.org/backend-weights": `{"other":30}`, "zalando.org/skipper-predicate": `Method("GET")`,
		"nginx.ingress.kubernetes.io/canary": "true", "nginx.ingress.kubernetes.io/proxy-body-size": "8m",
	})
	obj.SetUID("users")
	obj.SetFinalizers([]string{"example.com/keep"})
	obj.SetLabels(map[string]string{"team": "shop", "kustomize.toolkit.fluxcd.io/name": "apps"})
	return []*unstructured.Unstructured{obj}
}
