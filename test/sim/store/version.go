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

// Version is an object as it was stored once. It never changes, and nothing that it gives may be changed, but for
// copies.
type Version struct {
	kind     *kind
	key      types.NamespacedName
	content  map[string]any
	revision uint64
	// before is the version that this one replaced: what did not change need not be converted again.
	before *Version
	typed  client.Object
	meta   *metav1.ObjectMeta
}

// Kind of the object.
func (v *Version) Kind() schema.GroupKind { return v.kind.GroupKind }

// Key of the object.
func (v *Version) Key() types.NamespacedName { return v.key }

// Revision is the resourceVersion.
func (v *Version) Revision() uint64 { return v.revision }

// UID of the object.
func (v *Version) UID() types.UID { return types.UID(text(v.metadata(), "uid")) }

// Generation of the object.
func (v *Version) Generation() int64 { return integer(v.metadata(), "generation", 0) }

// Deleting is true from the moment when someone deleted the object, for as long as finalizers hold it.
func (v *Version) Deleting() bool { return v.metadata()["deletionTimestamp"] != nil }

// Content is the whole object. It must not be changed.
func (v *Version) Content() map[string]any { return v.content }

// Meta is the metadata. It must not be changed.
func (v *Version) Meta() *metav1.ObjectMeta {
	if v.meta == nil {
		m := metaOf(v.metadata())
		v.meta = &m
	}
	return v.meta
}

// Unstructured is a copy.
func (v *Version) Unstructured() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: copiedMap(v.content)}
}

// Labels of the object.
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

// Typed is the object as the type that the scheme has for the stored version of its kind. It must not be changed.
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

// convertChange fills out from the typed version before and what changed since; false where that cannot be done. Both
// share what did not change.
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
		if same(value, v.before.content[name]) {
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

// fieldsOf are the fields of an object's type by their JSON names; the type metadata has none.
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

// reader is what the ways of reading have in common: how a version becomes what someone asked for.
type reader struct {
	scheme *runtime.Scheme
	// cached readers name the type of what they give, as those of caches do.
	cached bool
	// shared readers give no copies.
	shared bool
}

// into fills an object that was asked for.
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

// typed is the version as the type of out, which the caller may change unless it shares.
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

// intoList fills a list that was asked for.
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
