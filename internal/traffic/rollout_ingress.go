package traffic

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Routers of Rollouts that work with Ingresses take one by name, or several.

// OneOrSeveral are the names of a spec that has one or several, each once.
func OneOrSeveral(one string, several []string) []string {
	var out []string
	for _, name := range append([]string{one}, several...) {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// The texts that users of Argo search for.
const (
	textEitherIngress = "Either %s or %s must be configured. "
	textNoIngressRule = "ingress `%s` has no rules using service %s backend"
)

// NoIngress is what people read where a spec names no Ingress, by the names of the two fields.
func NoIngress(one, several string) string {
	return fmt.Sprintf(textEitherIngress, one, several) + "Neither are configured."
}

// IngressFault is what is wrong with an Ingress of the user that has to lead to a Service; empty when nothing is.
func IngressFault(x Found, service string) string {
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

// ValidateIngresses finds what is wrong with the Ingresses of the user that a router names in one of two fields.
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
		if fault := IngressFault(x, service); fault != "" {
			all = append(all, field.Invalid(at, x.Ref.Name, fault))
		}
	}
	return all
}

func upperFirst(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
