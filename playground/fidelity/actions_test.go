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

// action is one thing to do, said without anything that differs between the servers.
type action struct {
	verb, name, subresource string
	// with is a manifest to create, or a merge patch.
	with string
	// version says which resourceVersion is named: none, the one read last, or an old one; uid likewise.
	version, uid precondition
	policy       metav1.DeletionPropagation
}

type precondition string

const (
	unnamed precondition = ""
	right   precondition = "right"
	wrong   precondition = "wrong"
)

func (a action) String() string {
	text := a.verb + " " + a.name
	for _, more := range []struct{ name, value string }{
		{"sub-resource", a.subresource}, {"version", string(a.version)}, {"uid", string(a.uid)}, {"policy", string(a.policy)}, {"with", a.with},
	} {
		if more.value != "" {
			text += fmt.Sprintf(" %s=%q", more.name, more.value)
		}
	}
	return text
}

func pick[T any](s *sides, from ...T) T { return from[s.random.IntN(len(from))] }

// draw makes up what to do next.
func (s *sides) draw() action {
	a := action{name: pick(s, "a", "a", "b")}
	if len(s.real.exists) == 0 || !s.real.exists[a.name] && s.random.IntN(2) == 0 {
		a.verb, a.with = "create", pick(s, s.kind.manifests...)
		return a
	}
	conditions := []precondition{unnamed, unnamed, right, right, wrong}
	switch n := s.random.IntN(100); {
	case n < 8:
		a.verb, a.with = "create", pick(s, s.kind.manifests...)
	case n < 55:
		a.verb, a.with, a.version = "patch", pick(s, s.kind.patches...), pick(s, conditions...)
	case n < 60:
		a.verb, a.with, a.version = "json-patch", pick(s, s.kind.patches...), pick(s, conditions...)
	case n < 75:
		a.verb, a.with, a.version, a.uid = "update", pick(s, s.kind.patches...), pick(s, conditions...), pick(s, right, right, right, unnamed, wrong)
	case n < 85 && s.kind.status != nil && s.real.exists[a.name]:
		a.verb, a.with, a.version, a.subresource = pick(s, "patch", "update"), pick(s, s.kind.status...), pick(s, conditions...), "status"
	case n < 88 && s.kind.scale:
		a.verb, a.version = "scale", pick(s, conditions...)
	case n < 96:
		a.verb, a.version, a.uid = "delete", pick(s, conditions...), pick(s, conditions...)
		if a.version == unnamed { // a real server changes an object between the policy and the precondition
			a.policy = pick(s, "", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan)
		}
	default:
		a.verb = "list"
	}
	return a
}

// side is one of the servers, and what was seen of it.
type side struct {
	client client.Client
	// versions and uids of each object, by name, the oldest first.
	versions map[string][]string
	uids     map[string][]string
	exists   map[string]bool
	stored   map[string]any
	last     error
}

func newSide(c client.Client) *side {
	return &side{client: c, versions: map[string][]string{}, uids: map[string][]string{}, exists: map[string]bool{}, stored: map[string]any{}}
}

// outcome is what is compared.
type outcome struct {
	Code   int32
	Reason metav1.StatusReason
	// Changed says whether there is a new version that differs in more than who manages which field, which the simulated
	// server does not know.
	Changed bool
	Answer  any
	Stored  any
}

func (d *side) do(ctx context.Context, s *sides, a action) outcome {
	var answer any
	answer, d.last = d.act(ctx, s, a)
	o := outcome{Answer: comparable(answer)}
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
			o.Changed = !cmp.Equal(d.stored[a.name], comparable(stored.Object)) || !slices.Contains(d.uids[a.name], uid)
		}
		if !slices.Contains(d.uids[a.name], uid) {
			d.uids[a.name] = append(d.uids[a.name], uid)
		}
		o.Stored = comparable(stored.Object)
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

// chosen is what a precondition comes to on this side.
func chosen(p precondition, known []string, otherwise string) string {
	switch {
	case p == unnamed:
		return ""
	case len(known) == 0 || p == wrong && len(known) == 1:
		return otherwise
	case p == wrong:
		return known[0]
	default:
		return known[len(known)-1]
	}
}

func (d *side) act(ctx context.Context, s *sides, a action) (any, error) {
	version := chosen(a.version, d.versions[a.name], "4000000000")
	uid := chosen(a.uid, d.uids[a.name], "11111111-1111-4111-8111-111111111111")
	obj := s.object(a.name)
	switch a.verb {
	case "create":
		made := parse(a.with)
		made.SetNamespace(s.namespace)
		made.SetName(a.name)
		err := d.client.Create(ctx, made)
		return given(made.Object, err)
	case "patch":
		patch := versioned(parse(a.with).Object, version)
		var err error
		if a.subresource == "" {
			err = d.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
		} else {
			err = d.client.SubResource(a.subresource).Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
		}
		return given(obj.Object, err)
	case "json-patch":
		err := d.client.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, operations(parse(a.with).Object, version)))
		return given(obj.Object, err)
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

func given(object map[string]any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return object, nil
}

// update reads, changes and writes; without an object it writes one that is not there.
func (d *side) update(ctx context.Context, s *sides, a action, version, uid string) (any, error) {
	obj := s.object(a.name)
	if err := d.client.Get(ctx, s.key(a.name), obj); err != nil {
		obj = parse(s.kind.manifests[0])
		obj.SetNamespace(s.namespace)
		obj.SetName(a.name)
	}
	obj.Object = mergedInto(obj.Object, parse(a.with).Object)
	obj.SetResourceVersion(version)
	if uid == "" {
		obj.SetUID("")
	} else if a.uid == wrong {
		obj.SetUID(types.UID(uid))
	}
	// A client takes the name on the URL from the object.
	obj.SetNamespace(s.namespace)
	obj.SetName(a.name)
	obj.SetGroupVersionKind(s.kind.gvk)
	var err error
	if a.subresource == "" {
		err = d.client.Update(ctx, obj)
	} else {
		err = d.client.SubResource(a.subresource).Update(ctx, obj)
	}
	return given(obj.Object, err)
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

func versioned(patch map[string]any, version string) []byte {
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

// operations are the fields of a merge patch, each two levels deep, as a JSON patch.
func operations(patch map[string]any, version string) []byte {
	list := []any{}
	if version != "" {
		list = append(list, map[string]any{"op": "test", "path": "/metadata/resourceVersion", "value": version})
	}
	for _, outer := range sorted(patch) {
		inner, ok := patch[outer].(map[string]any)
		if !ok {
			continue
		}
		for _, name := range sorted(inner) {
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

func sorted(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func mergedInto(object, patch map[string]any) map[string]any {
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
		object[name] = mergedInto(before, inner)
	}
	return object
}

// comparable is an answer without what no two servers have in common.
func comparable(value any) any {
	switch v := value.(type) {
	case map[string]any:
		v = runtime.DeepCopyJSON(ints(v).(map[string]any))
		neutral(v)
		return v
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = comparable(item)
		}
		return out
	default:
		return v
	}
}

func ints(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, item := range v {
			v[name] = ints(item)
		}
	case []any:
		for i, item := range v {
			v[i] = ints(item)
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

func neutral(object map[string]any) {
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
