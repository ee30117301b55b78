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

// Record is what a user's object keeps of the Rollout that writes it, so that its routes can be restored when the Rollout is
// deleted while no process watches: the status, which says it otherwise, is gone with it.
type Record struct {
	UID    types.UID             `json:"uid,omitempty"`
	Routed []argov1.RoutedStatus `json:"routed,omitempty"`
}

// RecordIn reads the record of an object; false: it has none that can be read.
func RecordIn(annotations map[string]string) (Record, bool) {
	var r Record
	text := annotations[argov1.RoutedByAnnotation]
	if text == "" || json.Unmarshal([]byte(text), &r) != nil {
		return Record{}, false
	}
	return r, true
}

// Text is the record as an object has it; empty where there is nothing to restore.
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

// record is what the route objects of a Rollout without Services keep of it. Where there are Services, they have it.
func (t RolloutTarget) record() string {
	c := t.canary()
	if c.TrafficRouting == nil || c.CanaryService != "" || c.StableService != "" || c.PingPong != nil {
		return ""
	}
	return Record{UID: t.Rollout.UID, Routed: []argov1.RoutedStatus{{TrafficRouting: *c.TrafficRouting}}}.Text()
}

// marker is a router that marks objects of the user.
type marker interface {
	// Marked is their kind.
	Marked() schema.GroupVersionKind
}

// Marked are the kinds of users' objects, beside Services, that carry argov1.ManagedByAnnotation.
func (rs RolloutRenderers) Marked() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{{Group: "apps", Version: "v1", Kind: "Deployment"}} // whose template a Rollout takes
	for _, router := range rs.known() {
		if m, ok := router.renderer.(marker); ok {
			kinds = append(kinds, m.Marked())
		}
	}
	return kinds
}

// MarkedFor are the objects of a kind that say that a Rollout of that name manages them. They must not be changed.
func (a *Applier) MarkedFor(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := a.of(kind.Group).List(ctx, list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy)
	switch {
	case meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list the objects of kind %s that Rollout %s manages: %w", kind.Kind, key, err)
	}
	var out []*unstructured.Unstructured
	for i := range list.Items {
		if list.Items[i].GetAnnotations()[argov1.ManagedByAnnotation] == key.Name {
			out = append(out, &list.Items[i])
		}
	}
	return out, nil
}
