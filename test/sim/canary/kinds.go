package canary

import "k8s.io/apimachinery/pkg/runtime/schema"

var (
	serviceKind    = schema.GroupKind{Kind: "Service"}
	configMapKind  = schema.GroupKind{Kind: "ConfigMap"}
	virtualService = schema.GroupKind{Group: "networking.istio.io", Kind: "VirtualService"}
	httpRoute      = schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}
)
