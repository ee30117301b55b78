package workload

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cachetest"
	"github.com/serin-dev/serin/internal/readyourwrites"
)

const namespace = "shop"

// worldKinds are the kinds whose versions are compared.
var worldKinds = []schema.GroupVersionKind{
	deploymentKind, daemonSetKind, serviceKind, horizontalPodAutoscaler.kind, scaledObject.kind,
	{Version: "v1", Kind: configMapKind},
	{Version: "v1", Kind: secretKind},
}

// foreignKinds are kinds that this cluster has although no type of them is linked.
var foreignKinds = []schema.GroupVersionKind{scaledObject.kind, knativeServiceKind, revisionKind}

// world is a cluster without controllers, and the Deployments that act on it.
type world struct {
	t      testing.TB
	client client.WithWatch
	d      templateWorkload
	// requests counts what went to the API server, by verb and kind.
	requests map[string]int
	// versions are those of each object in order, seen by look; written are the objects that were not only applied.
	versions map[string][]map[string]any
	written  map[string]bool
	uids     int
	// stale is what the cache shows of one Deployment instead; hidden is one that it does not show.
	stale  *unstructured.Unstructured
	hidden string
	// absent is a kind that the cluster does not know.
	absent schema.GroupVersionKind
}

func (w *world) lag(stale *unstructured.Unstructured) { w.stale = stale }
func (w *world) hide(name string)                     { w.hidden = name }

func newWorld(t testing.TB) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, autoscalingv2.AddToScheme, flaggerv1.AddToScheme} {
		must(t, add(scheme))
	}
	for _, kind := range foreignKinds {
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	w := &world{
		t: t, requests: map[string]int{}, versions: map[string][]map[string]any{}, written: map[string]bool{},
	}
	w.client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{Create: createGeneration, Patch: patchGeneration})
	count := func(verb string, obj runtime.Object) {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		if kinds, _, err := scheme.ObjectKinds(obj); err == nil {
			kind = kinds[0].Kind
		}
		w.requests[verb+" "+kind]++
	}
	cache := cachetest.New(t)
	writes := interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			read, ok := obj.(*unstructured.Unstructured)
			if gvk := obj.GetObjectKind().GroupVersionKind(); ok && w.absent == gvk {
				return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
			}
			switch deployment := ok && read.GroupVersionKind() == deploymentKind; {
			case deployment && w.stale != nil && w.stale.GetName() == key.Name:
				w.stale.DeepCopyInto(read)
				return nil
			case deployment && key.Name == w.hidden:
				return apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, key.Name)
			}
			return cache.Get(ctx, c, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			count("create", obj)
			obj.SetUID(w.uid())
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			count("patch", obj)
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			count("delete", obj)
			return c.Delete(ctx, obj, opts...)
		},
	})
	live := interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			count("get", obj)
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			count("list", list)
			return c.List(ctx, list, opts...)
		},
	})
	w.d = templateWorkload{&Workloads{Client: readyourwrites.New(writes, live, tomorrow{clock.RealClock{}}), Reader: live, Options: Options{ConfigTracking: true}}, deployments{}}
	return w
}

// createGeneration and patchGeneration number the specs of workloads as the API server does.
func createGeneration(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	obj.SetGeneration(1)
	return c.Create(ctx, obj, opts...)
}

func patchGeneration(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	patched, ok := obj.(*unstructured.Unstructured)
	if !ok || patched.GroupVersionKind() != deploymentKind && patched.GroupVersionKind() != daemonSetKind {
		return c.Patch(ctx, obj, patch, opts...)
	}
	before := newObject(patched.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), before); err != nil {
		return err
	}
	if err := c.Patch(ctx, obj, patch, opts...); err != nil || reflect.DeepEqual(before.Object["spec"], patched.Object["spec"]) {
		return err
	}
	obj.SetGeneration(before.GetGeneration() + 1)
	return c.Update(ctx, obj)
}

// tomorrow is the clock of somebody who no longer waits for a watch to tell: what is missing in the cache is asked of the
// API server at once.
type tomorrow struct{ clock.PassiveClock }

func (tomorrow) Since(time.Time) time.Duration { return 24 * time.Hour }

func (w *world) uid() types.UID {
	w.uids++
	return types.UID("uid-" + string(rune('a'+w.uids/26)) + string(rune('a'+w.uids%26)))
}

// apply creates an object as a person would, or replaces it.
func (w *world) apply(object map[string]any) {
	w.t.Helper()
	obj := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(ints(object).(map[string]any))}
	obj.SetNamespace(namespace)
	obj.SetUID(w.uid())
	if stringData, found, _ := unstructured.NestedStringMap(obj.Object, "stringData"); found {
		secret := corev1.Secret{Data: map[string][]byte{}}
		for key, value := range stringData {
			secret.Data[key] = []byte(value)
		}
		text, err := json.Marshal(secret.Data)
		must(w.t, err)
		var data map[string]any
		must(w.t, json.Unmarshal(text, &data))
		obj.Object["data"] = data
		delete(obj.Object, "stringData")
	}
	must(w.t, w.client.Create(context.Background(), obj))
	w.look()
}

func (w *world) applyYAML(text string) {
	w.t.Helper()
	var object map[string]any
	must(w.t, yaml.Unmarshal([]byte(text), &object))
	w.apply(object)
}

// edit changes an object as a person would.
func (w *world) edit(kind schema.GroupVersionKind, name, mergePatch string) {
	w.t.Helper()
	obj := newObject(kind, namespace, name)
	text, err := yaml.YAMLToJSON([]byte(mergePatch))
	must(w.t, err)
	must(w.t, w.client.Patch(context.Background(), obj, client.RawPatch(types.MergePatchType, text)))
	w.look()
}

func (w *world) canary(name string) *flaggerv1.Canary {
	w.t.Helper()
	c := &flaggerv1.Canary{}
	must(w.t, w.client.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, c))
	return c
}

// object is the object as it is stored.
func (w *world) object(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	w.t.Helper()
	obj, err := getOrNil(context.Background(), w.client, &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}, kind, name)
	must(w.t, err)
	return obj
}

// look records the versions of all objects, in the form of the recordings.
func (w *world) look() {
	w.t.Helper()
	here := map[string]bool{}
	for _, kind := range worldKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		must(w.t, w.client.List(context.Background(), list))
		for i := range list.Items {
			obj := &list.Items[i]
			name := kind.Kind + "/" + obj.GetName()
			here[name] = true
			version := map[string]any{}
			for _, field := range []string{"spec", "data", "binaryData", "type", "immutable"} {
				if value, found := obj.Object[field]; found {
					version[field] = value
				}
			}
			metadata := map[string]any{"labels": jsonStrings(obj.GetLabels()), "annotations": jsonStrings(obj.GetAnnotations())}
			var owners []any
			for _, owner := range obj.GetOwnerReferences() {
				entry := map[string]any{"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name}
				if owner.Controller != nil {
					entry["controller"] = *owner.Controller
				}
				if owner.BlockOwnerDeletion != nil {
					entry["blockOwnerDeletion"] = *owner.BlockOwnerDeletion
				}
				owners = append(owners, entry)
				w.written[name] = true
			}
			metadata["ownerReferences"] = owners
			version["metadata"] = metadata
			w.seen(name, plain(version))
		}
	}
	for name := range maps.All(w.versions) {
		if !here[name] {
			w.seen(name, map[string]any{"deleted": true})
		}
	}
}

func (w *world) seen(name string, version map[string]any) {
	w.versions[name] = append(w.versions[name], version)
}

// ints are JSON numbers as the API machinery has them.
func ints(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			value[key] = ints(item)
		}
	case []any:
		for i, item := range value {
			value[i] = ints(item)
		}
	case float64:
		return int64(value)
	}
	return value
}

// versionsOf are the versions of an object in order, each once.
func (w *world) versionsOf(name string) []map[string]any {
	w.look()
	return distinct(w.versions[name])
}

func isKind(err, kind error) bool { return errors.Is(err, kind) }
