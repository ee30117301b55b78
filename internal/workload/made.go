package workload

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TemplateSource is the source of a primary's template: the target's revision, and Flagger's hash of its template, which is the
// only known property of what Flagger promoted. The zero value matches anything.
type TemplateSource struct{ Revision, FlaggerHash string }

// matches reports whether it matches the wanted source.
func (m TemplateSource) matches(wanted TemplateSource) bool {
	if wanted.Revision != "" {
		return m.Revision == wanted.Revision
	}
	return wanted.FlaggerHash == "" || m.FlaggerHash == wanted.FlaggerHash
}

// templateSourceOf reads the source from the annotations of a primary, or of an object of its history.
func templateSourceOf(obj *unstructured.Unstructured) TemplateSource {
	revision, hash, _ := strings.Cut(obj.GetAnnotations()[templateSourceAnnotation], "/")
	return TemplateSource{Revision: revision, FlaggerHash: hash}
}

// templateSourceAnnotations returns the annotations of a primary whose template has that source. An unknown source has none.
func templateSourceAnnotations(annotations map[string]string, of TemplateSource) map[string]string {
	said := withoutKeys(annotations, func(key string) bool { return key == templateSourceAnnotation })
	if of != (TemplateSource{}) {
		said[templateSourceAnnotation] = of.Revision + "/" + of.FlaggerHash
	}
	return said
}
