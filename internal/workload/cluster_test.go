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

// comparedKinds are the kinds whose versions are compared.
var comparedKinds = []schema.GroupVersionKind{
	deploymentKind, daemonSetKind, serviceKind, horizontalPodAutoscaler.kind, scaledObject.kind,
	{Version: "v1", Kind: configMapKind},
	{Version: "v1", Kind: secretKind},
}

// foreignKinds are the kinds of this cluster without a linked Go type.
var foreignKinds = []schema.GroupVersionKind{scaledObject.kind, knativeServiceKind, revisionKind}

// fakeCluster is a cluster without controllers, with the code under test.
type fakeCluster struct {
	t        testing.TB
	client   client.WithWatch
	workload templateWorkload
	// requests counts the requests to the API server, by verb and kind.
	requests map[string]int
	// versions are the versions of each object in order, as of recordVersions; written are the objects that Serin has written.
	versions map[string][]map[string]any
	written  map[string]bool
	uids     int
	// stale is the old version that the cache shows of one Deployment; hidden is the name of one that it does not show.
	stale  *unstructured.Unstructured
	hidden string
	// absent is a kind that is not installed.
	absent schema.GroupVersionKind
}

func (w *fakeCluster) showStale(stale *unstructured.Unstructured) { w.stale = stale }
func (w *fakeCluster) hideFromCache(name string)                  { w.hidden = name }

func newFakeCluster(t testing.TB) *fakeCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, autoscalingv2.AddToScheme, flaggerv1.AddToScheme} {
		must(t, add(scheme))
	}
	for _, kind := range foreignKinds {
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	w := &fakeCluster{
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
			obj.SetUID(w.nextUID())
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
	w.workload = newTemplateWorkload(&Workloads{Client: readyourwrites.New(writes, live, farFutureClock{clock.RealClock{}}), APIReader: live, Options: Options{ConfigTracking: true}}, deployments{})
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

// farFutureClock lets every wait for the cache expire: objects that are missing in the cache are read from the API server at once.
type farFutureClock struct{ clock.PassiveClock }

func (farFutureClock) Since(time.Time) time.Duration { return 24 * time.Hour }

func (w *fakeCluster) nextUID() types.UID {
	w.uids++
	return types.UID("uid-" + string(rune('a'+w.uids/26)) + string(rune('a'+w.uids%26)))
}

// apply creates an object like a user.
func (w *fakeCluster) apply(object map[string]any) {
	w.t.Helper()
	obj := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(withIntegers(object).(map[string]any))}
	obj.SetNamespace(namespace)
	obj.SetUID(w.nextUID())
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
	w.recordVersions()
}

func (w *fakeCluster) applyYAML(text string) {
	w.t.Helper()
	var object map[string]any
	must(w.t, yaml.Unmarshal([]byte(text), &object))
	w.apply(object)
}

// patchYAML changes an object like a user.
func (w *fakeCluster) patchYAML(kind schema.GroupVersionKind, name, mergePatch string) {
	w.t.Helper()
	obj := newObject(kind, namespace, name)
	text, err := yaml.YAMLToJSON([]byte(mergePatch))
	must(w.t, err)
	must(w.t, w.client.Patch(context.Background(), obj, client.RawPatch(types.MergePatchType, text)))
	w.recordVersions()
}

func (w *fakeCluster) canary(name string) *flaggerv1.Canary {
	w.t.Helper()
	c := &flaggerv1.Canary{}
	must(w.t, w.client.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, c))
	return c
}

// object returns the stored object.
func (w *fakeCluster) object(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	w.t.Helper()
	obj, err := getOrNil(context.Background(), w.client, &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}, kind, name)
	must(w.t, err)
	return obj
}

// recordVersions records the versions of all objects, in the format of the recordings.
func (w *fakeCluster) recordVersions() {
	w.t.Helper()
	existing := map[string]bool{}
	for _, kind := range comparedKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		must(w.t, w.client.List(context.Background(), list))
		for i := range list.Items {
			obj := &list.Items[i]
			name := kind.Kind + "/" + obj.GetName()
			existing[name] = true
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
			w.recordVersion(name, normalized(version))
		}
	}
	for name := range maps.All(w.versions) {
		if !existing[name] {
			w.recordVersion(name, map[string]any{"deleted": true})
		}
	}
}

func (w *fakeCluster) recordVersion(name string, version map[string]any) {
	w.versions[name] = append(w.versions[name], version)
}

// withIntegers converts JSON numbers to int64, like the API machinery.
func withIntegers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			value[key] = withIntegers(item)
		}
	case []any:
		for i, item := range value {
			value[i] = withIntegers(item)
		}
	case float64:
		return int64(value)
	}
	return value
}

// versionsOf returns the versions of an object in order, without repeats.
func (w *fakeCluster) versionsOf(name string) []map[string]any {
	w.recordVersions()
	return withoutRepeats(w.versions[name])
}

func isKind(err, kind error) bool { return errors.Is(err, kind) }
