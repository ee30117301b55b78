package canary

import "k8s.io/apimachinery/pkg/runtime/schema"

var (
	serviceKind    = schema.GroupKind{Kind: "Service"}
	configMapKind  = schema.GroupKind{Kind: "ConfigMap"}
	virtualService = schema.GroupKind{Group: "networking.istio.io", Kind: "VirtualService"}
	httpRoute      = schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}
)

// items are the objects of a list.
func items(value any) []map[string]any {
	list, _ := value.([]any)
	out := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if object, ok := item.(map[string]any); ok {
			out = append(out, object)
		}
	}
	return out
}
