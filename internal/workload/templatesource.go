package workload

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TemplateSource is the source of a primary's template: the target's revision, and Flagger's hash of its template, the only known
// property of a template that Flagger promoted. The zero value matches any source.
type TemplateSource struct{ Revision, FlaggerHash string }

// matches reports whether the source matches the wanted one. The hash counts only if the wanted revision is unknown.
func (s TemplateSource) matches(wanted TemplateSource) bool {
	if wanted.Revision != "" {
		return s.Revision == wanted.Revision
	}
	return wanted.FlaggerHash == "" || s.FlaggerHash == wanted.FlaggerHash
}

// templateSourceOf reads the source from the annotations of a primary, or of an object of its history.
func templateSourceOf(obj *unstructured.Unstructured) TemplateSource {
	revision, hash, _ := strings.Cut(obj.GetAnnotations()[templateSourceAnnotation], "/")
	return TemplateSource{Revision: revision, FlaggerHash: hash}
}

// withTemplateSource returns the annotations with the given source; an unknown source has no annotation.
func withTemplateSource(annotations map[string]string, source TemplateSource) map[string]string {
	updated := withoutKeys(annotations, func(key string) bool { return key == templateSourceAnnotation })
	if source != (TemplateSource{}) {
		updated[templateSourceAnnotation] = source.Revision + "/" + source.FlaggerHash
	}
	return updated
}
