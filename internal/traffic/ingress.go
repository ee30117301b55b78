package traffic

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// For a Canary, ingress controllers split traffic by a second Ingress next to that of the user, which spec.ingressRef names.
// Its creation is here; its annotations for the controller are in the package of the provider. Routers of Rollouts name one
// Ingress of the user, or several.

// IngressKind is the kind of Ingresses, in the version that is read and written.
var IngressKind = schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}

// The positions of the objects of IngressRefs.
const (
	UsersIngress = iota
	CanaryIngress
)

// ingressKeys are the known fields of the spec. Other fields of the user's Ingress are copied, too.
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

// IngressCopy is the canary's Ingress: a copy of the user's. Its spec follows the user's, and so do annotations that the
// provider reads (readByProvider): what the user removes there is removed. Other labels and annotations are copied, except for
// the keys of tools; what others set on the copy remains.
func IngressCopy(t Target, existing Objects, readByProvider func(annotation string) bool) (*unstructured.Unstructured, error) {
	if len(existing) == 0 {
		return nil, Refuse(ErrInvalid, "ingress selector is empty")
	}
	user := existing[UsersIngress].Object
	if user == nil {
		name := existing[UsersIngress].Ref.Name
		return nil, Refuse(ErrInvalid, "ingress %s.%s get query error: ingresses.networking.k8s.io %q not found", name, t.Namespace, name)
	}
	obj, err := existing[CanaryIngress].Adopt(t)
	if err != nil {
		return nil, err
	}
	spec, _, _ := unstructured.NestedMap(user.Object, "spec")
	keys := slices.Clone(ingressKeys)
	for key := range spec {
		keys = append(keys, key)
	}
	SetFields(Spec(obj), spec, keys...)

	CopyMetadata(obj, user, readByProvider)
	return obj, nil
}

// IngressPaths are the paths of each rule of an Ingress. They are not copies.
func IngressPaths(ingress *unstructured.Unstructured) []map[string]any {
	var out []map[string]any
	for _, rule := range Maps(Spec(ingress)["rules"]) {
		if http, ok := rule["http"].(map[string]any); ok { // a rule may have none
			out = append(out, Maps(http["paths"])...)
		}
	}
	return out
}

// IngressBackend is the Service to which a path of an Ingress routes; nil for other backends. It is not a copy.
func IngressBackend(path map[string]any) map[string]any {
	backend, _ := path["backend"].(map[string]any)
	service, _ := backend["service"].(map[string]any)
	return service
}

// NoIngressBackend is the error for an Ingress without a path to the apex.
func NoIngressBackend(t Target) error {
	return Refuse(ErrInvalid, "backend %s not found in ingress %s", t.Apex, t.Canary.Spec.IngressRef.Name)
}

// RestoreCopy is the Restore of providers of Canaries that copy an object of the user: that was never changed, and the copy
// is deleted with the release.
func RestoreCopy(t Target, existing Objects) ([]*unstructured.Unstructured, error) {
	return existing.Originals(t, func(int) Written { return Written{} })
}

// UniqueNames are the names of a spec that has one or several, each once.
func UniqueNames(one string, several []string) []string {
	var out []string
	for _, name := range append([]string{one}, several...) {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// The texts of Argo Rollouts, for which users may search.
const (
	textEitherIngress = "Either %s or %s must be configured. "
	textNoIngressRule = "ingress `%s` has no rules using service %s backend"
)

// NoIngress is the message for a spec that names no Ingress, with the names of the two fields.
func NoIngress(one, several string) string {
	return fmt.Sprintf(textEitherIngress, one, several) + "Neither are configured."
}

// IngressProblem is why an Ingress of the user does not route to a Service; empty if it does.
func IngressProblem(x Lookup, service string) string {
	if x.Object == nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: IngressKind.Group, Resource: "ingresses"}, x.Ref.Name).Error()
	}
	for _, path := range IngressPaths(x.Object.DeepCopy()) {
		if IngressBackend(path)["name"] == service {
			return ""
		}
	}
	return fmt.Sprintf(textNoIngressRule, x.Ref.Name, service)
}

// ValidateIngresses validates the Ingresses of the user that a router names in one of two fields.
func ValidateIngresses(path *field.Path, one string, several []string, fields [2]string, service string, users Objects) field.ErrorList {
	titles := [2]string{upperFirst(fields[0]), upperFirst(fields[1])}
	switch {
	case one != "" && len(several) > 0:
		return field.ErrorList{field.Invalid(path, one, fmt.Sprintf(textEitherIngress, titles[0], titles[1])+"Both are configured.")}
	case one == "" && len(several) == 0:
		return field.ErrorList{field.Invalid(path, "", NoIngress(titles[0], titles[1]))}
	}
	at := path.Child(fields[0])
	if one == "" {
		at = path.Child(fields[1])
	}
	var all field.ErrorList
	for _, x := range users {
		if fault := IngressProblem(x, service); fault != "" {
			all = append(all, field.Invalid(at, x.Ref.Name, fault))
		}
	}
	return all
}

func upperFirst(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
