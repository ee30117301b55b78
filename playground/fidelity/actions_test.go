//go:build linux

package fidelity_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// action is one request, without the values that differ between the servers.
type action struct {
	verb, name, subresource string
	// body is a manifest to create, or a merge patch.
	body string
	// version and uid select the preconditions for resourceVersion and UID: none, the last observed value, or an old one.
	version, uid precondition
	policy       metav1.DeletionPropagation
}

type precondition string

const (
	none    precondition = ""
	current precondition = "current"
	stale   precondition = "stale"
)

func (a action) String() string {
	text := a.verb + " " + a.name
	for _, more := range []struct{ name, value string }{
		{"sub-resource", a.subresource}, {"version", string(a.version)}, {"uid", string(a.uid)}, {"policy", string(a.policy)}, {"with", a.body},
	} {
		if more.value != "" {
			text += fmt.Sprintf(" %s=%q", more.name, more.value)
		}
	}
	return text
}

func choose[T any](s *sides, from ...T) T { return from[s.random.IntN(len(from))] }

// draw returns a random action.
func (s *sides) draw() action {
	a := action{name: choose(s, "a", "a", "b")}
	if len(s.real.exists) == 0 || !s.real.exists[a.name] && s.random.IntN(2) == 0 {
		a.verb, a.body = "create", choose(s, s.kind.manifests...)
		return a
	}
	conditions := []precondition{none, none, current, current, stale}
	switch n := s.random.IntN(100); {
	case n < 8:
		a.verb, a.body = "create", choose(s, s.kind.manifests...)
	case n < 55:
		a.verb, a.body, a.version = "patch", choose(s, s.kind.patches...), choose(s, conditions...)
	case n < 60:
		a.verb, a.body, a.version = "json-patch", choose(s, s.kind.patches...), choose(s, conditions...)
	case n < 75:
		a.verb, a.body, a.version, a.uid = "update", choose(s, s.kind.patches...), choose(s, conditions...), choose(s, current, current, current, none, stale)
	case n < 85 && s.kind.status != nil && s.real.exists[a.name]:
		a.verb, a.body, a.version, a.subresource = choose(s, "patch", "update"), choose(s, s.kind.status...), choose(s, conditions...), "status"
	case n < 88 && s.kind.scale:
		a.verb, a.version = "scale", choose(s, conditions...)
	case n < 96:
		a.verb, a.version, a.uid = "delete", choose(s, conditions...), choose(s, conditions...)
		if a.version == none { // a real server updates the object for the policy before it checks the precondition
			a.policy = choose(s, "", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan)
		}
	default:
		a.verb = "list"
	}
	return a
}

// side is one of the servers and the state that was observed on it.
type side struct {
	client client.Client
	// versions and uids contain the observed values of each object by name, oldest first.
	versions map[string][]string
	uids     map[string][]string
	exists   map[string]bool
	stored   map[string]any
	last     error
}

func newSide(c client.Client) *side {
	return &side{client: c, versions: map[string][]string{}, uids: map[string][]string{}, exists: map[string]bool{}, stored: map[string]any{}}
}

// outcome is the result of an action that is compared.
type outcome struct {
	Code   int32
	Reason metav1.StatusReason
	// Changed reports whether there is a new version that differs in more than managedFields, which the simulated server does not
	// maintain.
	Changed bool
	Answer  any
	Stored  any
}

func (d *side) do(ctx context.Context, s *sides, a action) outcome {
	var answer any
	answer, d.last = d.act(ctx, s, a)
	o := outcome{Answer: normalize(answer)}
	if status := apierrors.APIStatus(nil); errors.As(d.last, &status) {
		o.Code, o.Reason = status.Status().Code, status.Status().Reason
	} else if d.last != nil {
		o.Reason = metav1.StatusReason(d.last.Error())
	}
	stored := s.object(a.name)
	delete(d.exists, a.name)
	if err := d.client.Get(ctx, s.key(a.name), stored); err == nil {
		d.exists[a.name] = true
		version, uid := stored.GetResourceVersion(), string(stored.GetUID())
		known := d.versions[a.name]
		if changed := len(known) == 0 || known[len(known)-1] != version; changed {
			d.versions[a.name] = append(known, version)
			o.Changed = !cmp.Equal(d.stored[a.name], normalize(stored.Object)) || !slices.Contains(d.uids[a.name], uid)
		}
		if !slices.Contains(d.uids[a.name], uid) {
			d.uids[a.name] = append(d.uids[a.name], uid)
		}
		o.Stored = normalize(stored.Object)
		d.stored[a.name] = o.Stored
	} else if !apierrors.IsNotFound(err) {
		o.Stored = err.Error()
	}
	return o
}

func (s *sides) object(name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(s.kind.gvk)
	obj.SetNamespace(s.namespace)
	obj.SetName(name)
	return obj
}

func (s *sides) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: name}
}

// resolvePrecondition returns the value of a precondition on this side.
func resolvePrecondition(p precondition, known []string, otherwise string) string {
	switch {
	case p == none:
		return ""
	case len(known) == 0 || p == stale && len(known) == 1:
		return otherwise
	case p == stale:
		return known[0]
	default:
		return known[len(known)-1]
	}
}

func (d *side) act(ctx context.Context, s *sides, a action) (any, error) {
	version := resolvePrecondition(a.version, d.versions[a.name], "4000000000")
	uid := resolvePrecondition(a.uid, d.uids[a.name], "11111111-1111-4111-8111-111111111111")
	obj := s.object(a.name)
	switch a.verb {
	case "create":
		object := parse(a.body)
		object.SetNamespace(s.namespace)
		object.SetName(a.name)
		err := d.client.Create(ctx, object)
		return resultOrError(object.Object, err)
	case "patch":
		patch := withVersion(parse(a.body).Object, version)
		var err error
		if a.subresource == "" {
			err = d.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
		} else {
			err = d.client.SubResource(a.subresource).Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
		}
		return resultOrError(obj.Object, err)
	case "json-patch":
		err := d.client.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, operations(parse(a.body).Object, version)))
		return resultOrError(obj.Object, err)
	case "update":
		return d.update(ctx, s, a, version, uid)
	case "scale":
		scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: a.name, ResourceVersion: version}}
		scale.Spec.Replicas = 7
		err := d.client.SubResource("scale").Update(ctx, obj, client.WithSubResourceBody(scale))
		return scale.Spec.Replicas, err
	case "delete":
		var options []client.DeleteOption
		var preconditions client.Preconditions
		if version != "" {
			preconditions.ResourceVersion = &version
		}
		if uid != "" {
			preconditions.UID = new(types.UID(uid))
		}
		options = append(options, preconditions)
		if a.policy != "" {
			options = append(options, client.PropagationPolicy(a.policy))
		}
		return nil, d.client.Delete(ctx, obj, options...)
	default:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(s.kind.gvk.GroupVersion().WithKind(s.kind.gvk.Kind + "List"))
		err := d.client.List(ctx, list, client.InNamespace(s.namespace))
		var all []any
		for i := range list.Items {
			all = append(all, list.Items[i].Object)
		}
		return all, err
	}
}

// resultOrError returns the object unless there is an error.
func resultOrError(object map[string]any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return object, nil
}

// update reads, changes and writes an object. If it does not exist, it sends an update of a missing object.
func (d *side) update(ctx context.Context, s *sides, a action, version, uid string) (any, error) {
	obj := s.object(a.name)
	if err := d.client.Get(ctx, s.key(a.name), obj); err != nil {
		obj = parse(s.kind.manifests[0])
		obj.SetNamespace(s.namespace)
		obj.SetName(a.name)
	}
	obj.Object = mergePatch(obj.Object, parse(a.body).Object)
	obj.SetResourceVersion(version)
	if uid == "" {
		obj.SetUID("")
	} else if a.uid == stale {
		obj.SetUID(types.UID(uid))
	}
	// The client uses the name of the object in the URL.
	obj.SetNamespace(s.namespace)
	obj.SetName(a.name)
	obj.SetGroupVersionKind(s.kind.gvk)
	var err error
	if a.subresource == "" {
		err = d.client.Update(ctx, obj)
	} else {
		err = d.client.SubResource(a.subresource).Update(ctx, obj)
	}
	return resultOrError(obj.Object, err)
}

func parse(text string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(data, &obj.Object)
	}
	if err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return obj
}

func withVersion(patch map[string]any, version string) []byte {
	if version != "" {
		metadata, _ := patch["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["resourceVersion"] = version
		patch["metadata"] = metadata
	}
	return encode(patch)
}

// operations converts a merge patch to a JSON patch with an operation for each field of the second level.
func operations(patch map[string]any, version string) []byte {
	list := []any{}
	if version != "" {
		list = append(list, map[string]any{"op": "test", "path": "/metadata/resourceVersion", "value": version})
	}
	for _, outer := range sortedKeys(patch) {
		inner, ok := patch[outer].(map[string]any)
		if !ok {
			continue
		}
		for _, name := range sortedKeys(inner) {
			if inner[name] == nil {
				list = append(list, map[string]any{"op": "remove", "path": "/" + outer + "/" + name})
			} else {
				list = append(list, map[string]any{"op": "add", "path": "/" + outer + "/" + name, "value": inner[name]})
			}
		}
	}
	return encode(list)
}

func encode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return data
}

func sortedKeys(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func mergePatch(object, patch map[string]any) map[string]any {
	for name, value := range patch {
		inner, ok := value.(map[string]any)
		if value == nil {
			delete(object, name)
			continue
		}
		if !ok {
			object[name] = value
			continue
		}
		before, _ := object[name].(map[string]any)
		if before == nil {
			before = map[string]any{}
		}
		object[name] = mergePatch(before, inner)
	}
	return object
}

// normalize returns an answer without the values that differ between servers.
func normalize(value any) any {
	switch v := value.(type) {
	case map[string]any:
		v = runtime.DeepCopyJSON(integers(v).(map[string]any))
		removeServerValues(v)
		return v
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = normalize(item)
		}
		return out
	default:
		return v
	}
}

func integers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, item := range v {
			v[name] = integers(item)
		}
	case []any:
		for i, item := range v {
			v[i] = integers(item)
		}
	case int:
		return int64(v)
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return value
}

func removeServerValues(object map[string]any) {
	metadata, _ := object["metadata"].(map[string]any)
	for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		delete(metadata, name)
	}
	if metadata["deletionTimestamp"] != nil {
		metadata["deletionTimestamp"] = "some time"
	}
	if object["kind"] != "Service" {
		return
	}
	spec, _ := object["spec"].(map[string]any)
	if address, _ := spec["clusterIP"].(string); address != "" && address != "None" {
		spec["clusterIP"], spec["clusterIPs"] = "some address", []any{"some address"}
	}
	ports, _ := spec["ports"].([]any)
	for _, item := range ports {
		if port, ok := item.(map[string]any); ok && port["nodePort"] != nil {
			port["nodePort"] = "some port"
		}
	}
}
