package actors

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// Namespace is the namespace of all objects that users create.
const Namespace = "shop"

// PlantedSecret is contained in every Secret of users. It must not appear anywhere else.
const PlantedSecret = "hush-5b1c"

// NewObject returns an object of a user.
func NewObject(apiVersion, kind, name string, content map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: content}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(Namespace)
	o.SetName(name)
	return o
}

// NewAutoscaler returns an autoscaler of an object of the same name.
func NewAutoscaler(name, apiVersion, kind, owner string, maxReplicas int64) *unstructured.Unstructured {
	return NewObject("autoscaling/v2", "HorizontalPodAutoscaler", name, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"example.com/owner": owner}},
		"spec": map[string]any{
			"scaleTargetRef": map[string]any{"apiVersion": apiVersion, "kind": kind, "name": name},
			"minReplicas":    int64(2), "maxReplicas": maxReplicas,
			"metrics": []any{map[string]any{"type": "Resource", "resource": map[string]any{
				"name": "cpu", "target": map[string]any{"type": "Utilization", "averageUtilization": int64(80)},
			}}},
		},
	})
}

// UserClient is the client of users and tools. If the API server rejects a request, the rejection is added to the trace and has
// no other consequence.
type UserClient struct {
	World *sim.World
}

// Create creates an object as a user.
func (c UserClient) Create(o client.Object) {
	copied, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return
	}
	if err := c.World.Server.Client("user").Create(context.Background(), copied); err != nil {
		c.World.Trace("the API server rejects %s: %v", o.GetName(), err)
	}
}

// Delete deletes an object as a user, and reports whether it was deleted.
func (c UserClient) Delete(name string, kind schema.GroupKind) bool {
	seen := c.World.Server.Peek(kind, types.NamespacedName{Namespace: Namespace, Name: name})
	if seen == nil {
		return false
	}
	if err := c.World.Server.Client("user").Delete(context.Background(), seen.Unstructured()); err != nil {
		c.World.Trace("the API server rejects the deletion of %s: %v", name, err)
		return false
	}
	return true
}

// Write changes an object in place as the given actor, and reports whether it was written. change returns false if no change is
// necessary.
func (c UserClient) Write(actor, name string, kind schema.GroupKind, change func(map[string]any) bool) bool {
	seen := c.World.Server.Peek(kind, types.NamespacedName{Namespace: Namespace, Name: name})
	if seen == nil {
		return false
	}
	o := seen.Unstructured()
	if !change(o.Object) {
		return false
	}
	if err := c.World.Server.Client(actor).Update(context.Background(), o); err != nil {
		c.World.Trace("the API server rejects a change of %s: %v", name, err)
		return false
	}
	return true
}

// DuringWrite performs an action once, while the first request of Serin to write an object of a kind is in progress: before its
// effect or, if it is committed, before the response.
func (c UserClient) DuringWrite(verb string, kind schema.GroupKind, committed bool, do func()) {
	done := false
	once := func(call string, of schema.GroupKind) {
		if !done && call == verb && of == kind {
			done = true
			c.World.After(0, do)
		}
	}
	c.World.Subscribe(func(event any) {
		switch e := event.(type) {
		case sim.RequestSent:
			if !committed {
				once(e.Call.Verb, e.Call.Kind)
			}
		case sim.ObjectWritten:
			if committed && IsSerin(e.Actor) {
				once(e.Verb, e.Kind)
			}
		}
	})
}

// Reconnect ends the watches of kinds in all processes, which then observe the current objects.
func (c UserClient) Reconnect(kinds ...schema.GroupKind) {
	for _, process := range c.World.Instances() {
		for _, kind := range kinds {
			process.Reconnect(kind)
		}
	}
}

// DeleteOf deletes an object of a release as a user, and reports whether it was deleted.
func (c UserClient) DeleteOf(release types.NamespacedName, name string, kind schema.GroupKind) bool {
	deleted := c.Delete(name, kind)
	if deleted {
		c.TraceAction(release, "delete %s %s", kind.Kind, name)
	}
	return deleted
}

// DeleteRoute deletes the route of a release as a user, if its provider has one, and reports whether it was deleted.
func (c UserClient) DeleteRoute(release types.NamespacedName, apex, provider string) bool {
	kind, ok := cluster.RouteKind(provider)
	return ok && c.DeleteOf(release, apex, kind)
}

// EditRouteWeights writes weights into the route of a release as a user, if its provider has one.
func (c UserClient) EditRouteWeights(release types.NamespacedName, apex, provider string, canary func(map[string]any) bool, s *sim.Stream) {
	weight := sim.Pick(s, 0, 0, 5, 33, 77, 100)
	kind, ok := cluster.RouteKind(provider)
	if ok && c.Write("user", apex, kind, func(o map[string]any) bool { return SetCanaryWeight(o, canary, int64(weight)) }) {
		c.TraceAction(release, "write weight %d", weight)
	}
}

// TraceAction adds a user action on a release to the trace.
func (c UserClient) TraceAction(release types.NamespacedName, format string, args ...any) {
	c.World.Trace("%s: users "+format, append([]any{release.Name}, args...)...)
}
