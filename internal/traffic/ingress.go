package traffic

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Ingress controllers that split traffic do it by a second Ingress beside that of the user, which spec.ingressRef names.
// What it takes to make one is here; what it says to its controller is the business of that provider.

// IngressKind is what is read and written.
var IngressKind = schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}

// The places of the objects among the references of IngressRefs.
const (
	UsersIngress = iota
	CanaryIngress
)

// ingressKeys are the fields of the spec that API servers of today know. Whatever else the user's has is copied too.
var ingressKeys = []string{"defaultBackend", "ingressClassName", "rules", "tls"}

// IngressRefs are the user's Ingress, which is only read, and the canary's; none where the Canary names no Ingress.
func IngressRefs(t Target) []Ref {
	ref := t.Canary.Spec.IngressRef
	if ref == nil || ref.Name == "" {
		return nil
	}
	return []Ref{
		UsersIngress:  {GVK: IngressKind, Namespace: t.Namespace, Name: ref.Name},
		CanaryIngress: {GVK: IngressKind, Namespace: t.Namespace, Name: ref.Name + "-canary", Owned: true, Derived: true},
	}
}

// IngressCopy makes the canary's Ingress as a copy of the user's. Its spec follows the user's, and so do annotations that
// are told to the controller (those for which told is true): what the user takes away there goes. Other labels and
// annotations are carried over, but for the keys of tools; what others put on the copy stays.
func IngressCopy(t Target, existing []*unstructured.Unstructured, told func(annotation string) bool) (*unstructured.Unstructured, error) {
	refs := IngressRefs(t)
	if len(refs) == 0 {
		return nil, Refuse(ErrInvalid, "ingress selector is empty")
	}
	user := existing[UsersIngress]
	if user == nil {
		name := refs[UsersIngress].Name
		return nil, Refuse(ErrInvalid, "ingress %s.%s get query error: ingresses.networking.k8s.io %q not found", name, t.Namespace, name)
	}
	obj, err := Desired(t, refs[CanaryIngress], existing[CanaryIngress])
	if err != nil {
		return nil, err
	}
	spec, _, _ := unstructured.NestedMap(user.Object, "spec")
	keys := slices.Clone(ingressKeys)
	for key := range spec {
		keys = append(keys, key)
	}
	Own(Spec(obj), spec, keys...)

	CopyMetadata(obj, user, told)
	return obj, nil
}

// IngressPaths are the paths of each rule of an Ingress, to be changed where they are.
func IngressPaths(ingress *unstructured.Unstructured) []map[string]any {
	var out []map[string]any
	for _, rule := range Maps(Spec(ingress)["rules"]) {
		if http, ok := rule["http"].(map[string]any); ok { // a rule may have none
			out = append(out, Maps(http["paths"])...)
		}
	}
	return out
}

// IngressBackend is the Service that a path of an Ingress leads to, to be changed where it is; empty for other backends.
func IngressBackend(path map[string]any) map[string]any {
	backend, _ := path["backend"].(map[string]any)
	service, _ := backend["service"].(map[string]any)
	return service
}

// NoIngressBackend is the refusal of an Ingress none of whose paths leads to the apex.
func NoIngressBackend(t Target) error {
	return Refuse(ErrInvalid, "backend %s not found in ingress %s", t.Apex, t.Canary.Spec.IngressRef.Name)
}

// RestoreIngress gives nothing back: the user's Ingress was never changed, and the canary's goes with the release.
func RestoreIngress(t Target, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	refs := IngressRefs(t)
	if len(refs) == 0 {
		return nil, nil
	}
	obj, err := GivenBack(t, refs[CanaryIngress], existing[CanaryIngress])
	return []*unstructured.Unstructured{UsersIngress: existing[UsersIngress], CanaryIngress: obj}, err
}
