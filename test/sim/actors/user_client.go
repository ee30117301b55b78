package actors

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/test/sim"
)

// Namespace of everything that users create.
const Namespace = "shop"

// Planted is in every Secret of users. It must never be visible anywhere else.
const Planted = "hush-5b1c"

// NewObject is an object of users.
func NewObject(apiVersion, kind, name string, content map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: content}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(Namespace)
	o.SetName(name)
	return o
}

// UserClient is the client of users and tools. A refusal of the API server appears in the trace, and has no other consequence.
type UserClient struct {
	World *sim.World
}

// Create lets a user make an object.
func (h UserClient) Create(o client.Object) {
	copied, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return
	}
	if err := h.World.Server.Client("user").Create(context.Background(), copied); err != nil {
		h.World.Trace("the API server refuses %s: %v", o.GetName(), err)
	}
}

// Delete lets a user delete an object, and is true when that was done.
func (h UserClient) Delete(name string, kind schema.GroupKind) bool {
	seen := h.World.Server.Peek(kind, types.NamespacedName{Namespace: Namespace, Name: name})
	if seen == nil {
		return false
	}
	if err := h.World.Server.Client("user").Delete(context.Background(), seen.Unstructured()); err != nil {
		h.World.Trace("the API server refuses to delete %s: %v", name, err)
		return false
	}
	return true
}

// Write lets someone change an object in place; change may say that there is nothing to do.
func (h UserClient) Write(actor, name string, kind schema.GroupKind, change func(map[string]any) bool) bool {
	seen := h.World.Server.Peek(kind, types.NamespacedName{Namespace: Namespace, Name: name})
	if seen == nil {
		return false
	}
	o := seen.Unstructured()
	if !change(o.Object) {
		return false
	}
	if err := h.World.Server.Client(actor).Update(context.Background(), o); err != nil {
		h.World.Trace("the API server refuses a change of %s: %v", name, err)
		return false
	}
	return true
}

// DeleteOf lets a user delete an object of a release, and is true when that was done.
func (h UserClient) DeleteOf(release types.NamespacedName, name string, kind schema.GroupKind) bool {
	deleted := h.Delete(name, kind)
	if deleted {
		h.TraceAction(release, "delete %s %s", kind.Kind, name)
	}
	return deleted
}

// EditRouteWeights lets a user write weights into the route of a release, where its provider has one.
func (h UserClient) EditRouteWeights(release types.NamespacedName, apex, provider string, canary func(map[string]any) bool, s *sim.Stream) {
	weight := sim.Pick(s, 0, 0, 5, 33, 77, 100)
	kind, ok := RouteKind(provider)
	if ok && h.Write("user", apex, kind, func(o map[string]any) bool { return Reweigh(o, canary, int64(weight)) }) {
		h.TraceAction(release, "write weight %d", weight)
	}
}

// TraceAction adds to the trace what users did to a release.
func (h UserClient) TraceAction(release types.NamespacedName, format string, args ...any) {
	h.World.Trace("%s: users "+format, append([]any{release.Name}, args...)...)
}
