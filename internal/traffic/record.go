package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Record is stored on objects of the user that a Rollout writes, so that its routes can be restored when the Rollout is
// deleted while no process runs: the status, which otherwise has this information, is deleted with it.
type Record struct {
	UID    types.UID             `json:"uid,omitempty"`
	Routed []argov1.RoutedStatus `json:"routed,omitempty"`
}

// ReadRecord reads the record of an object; false: it has none that can be read.
func ReadRecord(annotations map[string]string) (Record, bool) {
	var r Record
	text := annotations[argov1.RoutedByAnnotation]
	if text == "" || json.Unmarshal([]byte(text), &r) != nil {
		return Record{}, false
	}
	return r, true
}

// Text is the value of the annotation; empty where there is nothing to restore.
func (r Record) Text() string {
	if len(r.Routed) == 0 {
		return ""
	}
	routed := slices.Clone(r.Routed)
	for i := range routed {
		routed[i].Restored = false // which may change without a write of the object
	}
	text, err := json.Marshal(Record{UID: r.UID, Routed: routed})
	if err != nil {
		return "" // these types always marshal
	}
	return string(text)
}

// record is stored on each object that is marked, although the Services have it too: users may have recreated them
// before a process restores the routes.
func (t Target) record() string {
	c := t.strategy()
	if c.TrafficRouting == nil {
		return ""
	}
	return Record{UID: t.Rollout.UID, Routed: []argov1.RoutedStatus{{TrafficRouting: *c.TrafficRouting}}}.Text()
}

// Marker is a Renderer that marks objects of the user other than Services.
type Marker interface {
	// MarkedKind is their kind.
	MarkedKind() schema.GroupVersionKind
}

// MarkedKinds are the kinds of users' objects, other than Services, that have argov1.ManagedByAnnotation.
func (r Registry) MarkedKinds() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{{Group: "apps", Version: "v1", Kind: "Deployment"}} // whose template a Rollout uses
	for _, name := range r.routerNames() {
		if m, ok := r.Rollout[name].(Marker); ok {
			kinds = append(kinds, m.MarkedKind())
		}
	}
	return kinds
}

// MarkManaged records on an object of the user that the Rollout writes it. It refuses one that another Rollout writes.
func (t Target) MarkManaged(ref Ref, obj *unstructured.Unstructured) error {
	annotations := obj.GetAnnotations()
	if by := annotations[argov1.ManagedByAnnotation]; by != "" && by != t.Rollout.Name {
		return Refuse(ErrNotOwned, "%s is managed by Rollout %s: give each Rollout its own, or remove its annotation %s",
			ref, by, argov1.ManagedByAnnotation)
	}
	marks := map[string]string{argov1.ManagedByAnnotation: t.Rollout.Name}
	if record := t.record(); record != "" {
		marks[argov1.RoutedByAnnotation] = record
	} else {
		RemoveAnnotations(obj, argov1.RoutedByAnnotation)
	}
	obj.SetAnnotations(merged(obj.GetAnnotations(), marks))
	return nil
}

// UnmarkManaged removes the mark, where it is this Rollout's, and reports whether it was.
func (t Target) UnmarkManaged(obj *unstructured.Unstructured) bool {
	if obj.GetAnnotations()[argov1.ManagedByAnnotation] != t.Rollout.Name {
		return false
	}
	RemoveAnnotations(obj, argov1.ManagedByAnnotation, argov1.RoutedByAnnotation)
	return true
}

// MarkedFor are the objects of a kind that a Rollout of that name manages according to their annotations. They must not be
// modified.
func (a *Applier) MarkedFor(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	marked, err := a.Marked(ctx, kind, key.Namespace)
	if err != nil {
		return nil, fmt.Errorf("find the objects that Rollout %s manages: %w", key, err)
	}
	return slices.DeleteFunc(marked, func(object *unstructured.Unstructured) bool {
		return object.GetAnnotations()[argov1.ManagedByAnnotation] != key.Name
	}), nil
}

// Marked are the objects of a kind in a namespace, or in all namespaces if it is empty, that any Rollout manages according to their
// annotations. They must not be modified.
func (a *Applier) Marked(ctx context.Context, kind schema.GroupVersionKind, namespace string) ([]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := a.clientFor(kind.Group).List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	switch {
	case meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list the objects of kind %s: %w", kind.Kind, err)
	}
	var out []*unstructured.Unstructured
	for i := range list.Items {
		if list.Items[i].GetAnnotations()[argov1.ManagedByAnnotation] != "" {
			out = append(out, &list.Items[i])
		}
	}
	return out, nil
}
