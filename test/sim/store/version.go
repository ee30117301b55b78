package store

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Version is one stored version of an object. It is immutable, and returned values must not be modified unless they are copies.
type Version struct {
	kind     *kind
	key      types.NamespacedName
	content  map[string]any
	revision uint64
	// before is the previous version: parts that did not change need not be converted again.
	before *Version
	typed  client.Object
	meta   *metav1.ObjectMeta
}

// Kind returns the kind of the object.
func (v *Version) Kind() schema.GroupKind { return v.kind.GroupKind }

// Key returns the key of the object.
func (v *Version) Key() types.NamespacedName { return v.key }

// Revision returns the resourceVersion.
func (v *Version) Revision() uint64 { return v.revision }

// UID returns the UID of the object.
func (v *Version) UID() types.UID { return types.UID(text(v.metadata(), "uid")) }

// Generation returns the generation of the object.
func (v *Version) Generation() int64 { return integer(v.metadata(), "generation", 0) }

// Deleting reports whether the object was deleted and only its finalizers remain.
func (v *Version) Deleting() bool { return v.metadata()["deletionTimestamp"] != nil }

// Content returns the whole object. It must not be modified.
func (v *Version) Content() map[string]any { return v.content }

// Meta returns the metadata. It must not be modified.
func (v *Version) Meta() *metav1.ObjectMeta {
	if v.meta == nil {
		m := metaOf(v.metadata())
		v.meta = &m
	}
	return v.meta
}

// Unstructured returns a copy.
func (v *Version) Unstructured() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: copiedMap(v.content)}
}

// labels returns the labels of the object.
func (v *Version) labels() labelsView { return labelsView(object(v.metadata(), "labels")) }

func (v *Version) metadata() map[string]any {
	m, _ := v.content["metadata"].(map[string]any)
	return m
}

func (v *Version) String() string {
	if v == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s@%d", v.kind.Kind, v.key, v.revision)
}

// Typed returns the object in the type that the scheme has for the stored version of its kind. It must not be modified.
func (v *Version) Typed(scheme *runtime.Scheme) (client.Object, error) {
	if v.typed != nil {
		return v.typed, nil
	}
	made, err := scheme.New(v.kind.WithVersion(v.kind.versions[0]))
	if err != nil {
		return nil, err
	}
	out, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", made)
	}
	if !v.convertChange(out) {
		if err := fromContent(v.content, out); err != nil {
			return nil, fmt.Errorf("convert %s: %w", v, err)
		}
	}
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as decoders do
	v.typed, v.before = out, nil
	return out, nil
}

// convertChange sets out from the previous typed version and the changes since then; false: this is not possible. Both share
// their unchanged parts.
func (v *Version) convertChange(out client.Object) bool {
	if v.before == nil || v.before.typed == nil || reflect.TypeOf(v.before.typed) != reflect.TypeOf(out) {
		return false
	}
	into, from := reflect.ValueOf(out).Elem(), reflect.ValueOf(v.before.typed).Elem()
	fields := fieldsOf(into.Type())
	for name, value := range v.content {
		index, found := fields[name]
		if !found || name == "metadata" {
			continue
		}
		field := into.Field(index)
		if identical(value, v.before.content[name]) {
			field.Set(from.Field(index))
			continue
		}
		content, ok := value.(map[string]any)
		if !ok || field.Kind() != reflect.Struct {
			into.SetZero()
			return false
		}
		if err := fromContent(content, field.Addr().Interface()); err != nil {
			into.SetZero()
			return false
		}
	}
	into.Field(fields[""]).Set(from.Field(fields[""])) // the type
	into.Field(fields["metadata"]).Set(reflect.ValueOf(*v.Meta().DeepCopy()))
	return true
}

var fieldIndexes sync.Map // of reflect.Type

// fieldsOf returns the fields of an object's type by their JSON names; the type metadata has none.
func fieldsOf(t reflect.Type) map[string]int {
	if known, ok := fieldIndexes.Load(t); ok {
		return known.(map[string]int) //nolint:forcetypeassert // nothing else is in there
	}
	fields := map[string]int{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[name] = i
	}
	fieldIndexes.Store(t, fields)
	return fields
}

// reader converts versions for the different ways of reading.
type reader struct {
	scheme *runtime.Scheme
	// cached readers set the kind of the returned objects, like caches.
	cached bool
	// shared readers return no copies.
	shared bool
}

// into sets a requested object.
func (r reader) into(v *Version, gvk schema.GroupVersionKind, out client.Object) error {
	switch out := out.(type) {
	case *unstructured.Unstructured:
		out.Object = r.unstructured(v, gvk)
	case *metav1.PartialObjectMetadata:
		out.ObjectMeta = r.meta(v)
		out.SetGroupVersionKind(gvk)
	default:
		typed, err := r.typed(v, gvk, out)
		if err != nil {
			return err
		}
		reflect.ValueOf(out).Elem().Set(reflect.ValueOf(typed).Elem())
		if r.cached && !r.shared {
			out.GetObjectKind().SetGroupVersionKind(gvk)
		} else if !r.cached {
			out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
	}
	return nil
}

func (r reader) unstructured(v *Version, gvk schema.GroupVersionKind) map[string]any {
	switch {
	case r.shared && gvk.Version == v.kind.versions[0]:
		return v.content
	case r.shared:
		return withField(v.content, "apiVersion", v.kind.apiVersion(gvk.Version))
	}
	content := copiedMap(v.content)
	content["apiVersion"] = v.kind.apiVersion(gvk.Version)
	return content
}

func (r reader) meta(v *Version) metav1.ObjectMeta {
	if r.shared {
		return *v.Meta()
	}
	return metaOf(v.metadata())
}

// typed returns the version in the type of out, which the caller may modify unless it is shared.
func (r reader) typed(v *Version, gvk schema.GroupVersionKind, out client.Object) (client.Object, error) {
	if gvk.Version == v.kind.versions[0] {
		typed, err := v.Typed(r.scheme)
		if err != nil {
			return nil, err
		}
		if reflect.TypeOf(typed) == reflect.TypeOf(out) {
			if r.shared {
				return typed, nil
			}
			copied, ok := typed.DeepCopyObject().(client.Object)
			if !ok {
				return nil, fmt.Errorf("the copy of %T is no object", typed)
			}
			return copied, nil
		}
	}
	made, ok := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(out).Elem()))
	if !ok {
		return nil, fmt.Errorf("%T is no object", out)
	}
	return made, fromContent(r.unstructured(v, gvk), made)
}

// intoList sets a requested list.
func (r reader) intoList(versions []*Version, revision uint64, gvk schema.GroupVersionKind, out client.ObjectList) error {
	version := revisionText(revision)
	switch out := out.(type) {
	case *unstructured.UnstructuredList:
		out.Items = make([]unstructured.Unstructured, 0, len(versions))
		for _, v := range versions {
			out.Items = append(out.Items, unstructured.Unstructured{Object: r.unstructured(v, gvk)})
		}
		out.Object = map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind + "List", "metadata": map[string]any{"resourceVersion": version}}
		return nil
	case *metav1.PartialObjectMetadataList:
		out.Items = make([]metav1.PartialObjectMetadata, 0, len(versions))
		for _, v := range versions {
			item := metav1.PartialObjectMetadata{ObjectMeta: r.meta(v)}
			item.SetGroupVersionKind(gvk)
			out.Items = append(out.Items, item)
		}
		out.ResourceVersion = version
		return nil
	}
	field := reflect.ValueOf(out).Elem().FieldByName("Items")
	if !field.IsValid() || field.Kind() != reflect.Slice {
		return fmt.Errorf("%T has no items", out)
	}
	list := reflect.MakeSlice(field.Type(), 0, len(versions))
	for _, v := range versions {
		item := reflect.New(field.Type().Elem())
		made, ok := reflect.TypeAssert[client.Object](item)
		if !ok {
			return fmt.Errorf("the items of %T are no objects", out)
		}
		if err := r.into(v, gvk, made); err != nil {
			return err
		}
		list = reflect.Append(list, item.Elem())
	}
	field.Set(list)
	out.SetResourceVersion(version)
	return nil
}
