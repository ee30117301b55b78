package store

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// errModified is returned to a writer that names an outdated version.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

var errBroken = errors.New("unexpected EOF")

// fillMeta converts the metadata of an external object to the form of its type.
func fillMeta(content map[string]any) (map[string]any, error) {
	delete(object(content, "metadata"), "managedFields")
	converted, err := convert(reflect.TypeFor[metav1.PartialObjectMetadata](), map[string]any{"metadata": content["metadata"]})
	if err != nil {
		return nil, err
	}
	metadata := object(converted, "metadata")
	delete(metadata, "selfLink")
	content["metadata"] = metadata
	return metadata, nil
}

// metaOf returns stored metadata as a Go value, which shares nothing with the map.
func metaOf(m map[string]any) metav1.ObjectMeta {
	var out metav1.ObjectMeta
	if err := fromContent(m, &out); err != nil {
		panic(fmt.Sprintf("store: stored metadata does not decode: %v", err))
	}
	return out
}

func texts(m map[string]any, field string) map[string]string {
	values, ok := m[field].(map[string]any)
	if !ok {
		return nil
	}
	out := make(map[string]string, len(values))
	for key := range values {
		out[key] = text(values, key)
	}
	return out
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func finalizers(content map[string]any) []any { return list(object(content, "metadata"), "finalizers") }

// checkMeta returns the errors of metadata; old is nil for a creation. Unchanged metadata remains valid.
func (k *kind) checkMeta(metadata, old map[string]any) field.ErrorList {
	if old != nil && equalExcept(metadata, old, "resourceVersion", "generation") { // which only the server writes
		return nil
	}
	now := metaOf(metadata)
	validName := apivalidation.ValidateNameFunc(apivalidation.NameIsDNSSubdomain)
	if k.name != nil {
		validName = k.name
	}
	faults := apivalidation.ValidateObjectMeta(&now, k.namespaced, validName, field.NewPath("metadata"))
	if old != nil {
		before := metaOf(old)
		faults = append(faults, apivalidation.ValidateObjectMetaUpdate(&now, &before, field.NewPath("metadata"))...)
	}
	return unique(faults)
}

func unique(faults field.ErrorList) field.ErrorList {
	var out field.ErrorList
	for _, fault := range faults {
		if !slices.ContainsFunc(out, func(known *field.Error) bool { return known.Error() == fault.Error() }) {
			out = append(out, fault)
		}
	}
	return out
}

// parseVersion parses a resourceVersion.
func parseVersion(version string) (uint64, error) {
	if version == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ObjectMeta").GroupKind(), "",
			field.ErrorList{field.Invalid(field.NewPath("resourceVersion"), version, err.Error())})
	}
	return n, nil
}

// labelsView reads labels without copying them.
type labelsView map[string]any

func (l labelsView) Has(label string) bool {
	_, found := l[label]
	return found
}
func (l labelsView) Get(label string) string { return text(l, label) }
func (l labelsView) Lookup(label string) (string, bool) {
	value, found := l[label].(string)
	return value, found
}

// fromContent fills a typed object.
func fromContent(content map[string]any, out any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, out)
}

// suffix returns the generated part of a name, with the length and the alphabet of the real API server.
func suffix(n uint64) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	var out strings.Builder
	for range 5 {
		out.WriteByte(alphabet[n%uint64(len(alphabet))])
		n /= uint64(len(alphabet))
	}
	return out.String()
}
