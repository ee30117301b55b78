package lint

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// checkReference reports a reference to an object that the input does not contain, although it contains others of that kind in
// that namespace. Without any, the object is probably managed elsewhere.
func (l *linter) checkReference(d *document, at, group, kind, namespace, name string) {
	found, anyOfKind := l.find(group, kind, namespace, name)
	if found != nil || !anyOfKind {
		return
	}
	l.report(d, ruleMissingReference, at, fmt.Sprintf("%s %q is not in the input", kind, name), suggest(name, l.namesOf(group, kind, namespace)))
}

// groupOf returns the group of an API version.
func groupOf(apiVersion string) string {
	version, _ := schema.ParseGroupVersion(apiVersion) // an invalid version has no group
	return version.Group
}

// namespaceOr returns the namespace of a reference: by default that of the object.
func namespaceOr(namespace string, d *document) string { return cmp.Or(namespace, d.namespace) }
