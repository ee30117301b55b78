package workload

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Made is the source of a primary's template: the target's revision, and Flagger's hash of its template, which is the
// only known property of what Flagger promoted. The zero value matches anything.
type Made struct{ Revision, PeerHash string }

// is reports whether it matches the wanted source.
func (m Made) is(wanted Made) bool {
	if wanted.Revision != "" {
		return m.Revision == wanted.Revision
	}
	return wanted.PeerHash == "" || m.PeerHash == wanted.PeerHash
}

// madeOf reads the source from the annotations of a primary, or of an object of its history.
func madeOf(obj *unstructured.Unstructured) Made {
	revision, hash, _ := strings.Cut(obj.GetAnnotations()[runsAnnotation], "/")
	return Made{Revision: revision, PeerHash: hash}
}

// marked returns the annotations of a primary whose template has that source. An unknown source has none.
func marked(annotations map[string]string, of Made) map[string]string {
	said := without(annotations, func(key string) bool { return key == runsAnnotation })
	if of != (Made{}) {
		said[runsAnnotation] = of.Revision + "/" + of.PeerHash
	}
	return said
}
