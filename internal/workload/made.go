package workload

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Made names what the template of a primary was made of: the target's revision, and Flagger's hash of its template, which
// is all that is known of what Flagger promoted. The zero value is anything.
type Made struct{ Revision, PeerHash string }

// is is true when that is what is looked for.
func (m Made) is(wanted Made) bool {
	if wanted.Revision != "" {
		return m.Revision == wanted.Revision
	}
	return wanted.PeerHash == "" || m.PeerHash == wanted.PeerHash
}

// madeOf is what a primary, or an object of its history, says of itself.
func madeOf(obj *unstructured.Unstructured) Made {
	revision, hash, _ := strings.Cut(obj.GetAnnotations()[runsAnnotation], "/")
	return Made{Revision: revision, PeerHash: hash}
}

// marked are the annotations of a primary whose template was made of that. Where it is not known, they do not say it.
func marked(annotations map[string]string, of Made) map[string]string {
	said := without(annotations, func(key string) bool { return key == runsAnnotation })
	if of != (Made{}) {
		said[runsAnnotation] = of.Revision + "/" + of.PeerHash
	}
	return said
}
