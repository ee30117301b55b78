package clitest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	discoveryfake "k8s.io/client-go/discovery/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/config/crd/crdschema"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/workload"
)

// FakeCluster is a cluster without controllers, whose requests can be made to fail.
type FakeCluster struct {
	// Session is the session of the user under test. Admin has all permissions, and its requests never fail.
	Session *cluster.Session
	Admin   client.WithWatch

	t           testing.TB
	mu          sync.Mutex
	forbidden   map[string]bool
	uninstalled map[string]bool
	denied      []string
	requestErr  error
	onRequest   func()
	// generated is the number of generated names.
	generated int
	streams   []watch.Interface
}

// NewFakeCluster creates a cluster with the objects of YAML documents. In the status of a Canary, the revision "now" is replaced
// with the revision of its target; in the status of a Rollout, the step hash "STEPS" is replaced with the hash of its steps.
func NewFakeCluster(t testing.TB, manifests string) *FakeCluster {
	t.Helper()
	scheme, err := cluster.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for _, add := range []func(*runtime.Scheme) error{gatewayv1.Install, apiextensionsv1.AddToScheme, networkingv1.AddToScheme} { // the fake client returns metadata of known kinds only
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper := newRESTMapper(scheme)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithReturnManagedFields().WithStatusSubresource(&argov1.Rollout{}).
		WithIndex(&coordinationv1.Lease{}, "metadata.name", nameOf).WithIndex(&argov1.AnalysisRun{}, "metadata.name", nameOf).WithIndex(&argov1.Experiment{}, "metadata.name", nameOf).
		WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Kind} }).
		WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Name} })
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		builder = builder.WithObjects(decodeObject(t, scheme, document))
	}
	w := &FakeCluster{t: t, Admin: builder.Build(), forbidden: map[string]bool{}, uninstalled: map[string]bool{}}
	w.Session = &cluster.Session{Clock: clock.RealClock{}, Discovery: w.newDiscovery(scheme, mapper), Client: interceptor.NewClient(w.Admin, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := w.requestError(scheme, obj, key.Name); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := w.requestError(scheme, list, ""); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := w.requestError(scheme, obj, ""); err != nil {
				return err
			}
			if who, is := obj.(*authenticationv1.SelfSubjectReview); is {
				who.Status.UserInfo.Username = "vera"
				return nil
			}
			switch review := obj.(type) {
			case *authorizationv1.SelfSubjectAccessReview:
				of := review.Spec.ResourceAttributes
				review.Status.Allowed = !w.isDenied(of.Verb, of.Resource) && (of.Subresource == "" || !w.isDenied(of.Verb, of.Resource+"/"+of.Subresource))
				return nil
			case *authorizationv1.SubjectAccessReview:
				of := review.Spec.ResourceAttributes
				review.Status.Allowed = !w.isDenied(of.Verb, of.Resource)
				return nil
			}
			review, isReview := obj.(*authorizationv1.LocalSubjectAccessReview)
			if !isReview {
				w.setGeneratedName(obj)
				if err := strictDecodingError(obj, opts); err != nil {
					return err
				}
				return c.Create(ctx, obj, opts...)
			}
			review.Status.Allowed = strings.HasPrefix(review.Spec.User, "system:serviceaccount:flagger-system:") ||
				strings.HasPrefix(review.Spec.User, "system:serviceaccount:argo-rollouts:")
			return nil
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			err := c.Patch(ctx, obj, patch, opts...)
			if err != nil && patch.Type() == types.JSONPatchType && strings.HasSuffix(err.Error(), "test failed") { // the fake client returns the error of a library
				return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
			}
			return err
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			if err := w.requestError(scheme, list, ""); err != nil {
				return nil, err
			}
			stream, err := c.Watch(ctx, list, opts...)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.streams = append(w.streams, stream)
			return stream, err
		},
	})}
	w.setRevisions()
	return w
}

// newDiscovery returns the namespaced kinds of a scheme, without those whose definitions are not installed.
func (w *FakeCluster) newDiscovery(scheme *runtime.Scheme, mapper meta.RESTMapper) discovery.DiscoveryInterfaceWithContext {
	out := &discoveryfake.FakeDiscovery{Fake: &kubetesting.Fake{}}
	for _, api := range scheme.PrioritizedVersionsAllGroups() {
		list := &metav1.APIResourceList{GroupVersion: api.String()}
		for kind := range scheme.KnownTypes(api) {
			mapping, err := mapper.RESTMapping(api.WithKind(kind).GroupKind(), api.Version)
			if err == nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace && isListable(scheme, api.WithKind(kind)) {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: mapping.Resource.Resource, Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"delete", "list"}})
			}
		}
		slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
		out.Resources = append(out.Resources, list)
	}
	out.AddReactor("get", "*", func(kubetesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.requestErr != nil, nil, w.requestErr
	})
	return out
}

// isListable reports whether a kind is one of objects.
func isListable(scheme *runtime.Scheme, kind schema.GroupVersionKind) bool {
	object, objectErr := scheme.New(kind)
	list, listErr := scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	_, isObject := object.(client.Object)
	_, isList := list.(client.ObjectList)
	return objectErr == nil && listErr == nil && isObject && isList
}

// nameOf is the index of objects by their names, by which every API server can select.
func nameOf(o client.Object) []string { return []string{o.GetName()} }

// setGeneratedName names an object with metadata.generateName, also in a dry run. The names of the fake client are random.
func (w *FakeCluster) setGeneratedName(o client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.GetName() == "" && o.GetGenerateName() != "" {
		w.generated++
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), w.generated))
	}
}

// newRESTMapper returns the resources of all types. The mapper of the fake client has none.
func newRESTMapper(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if gvk.Kind == argov1.ClusterAnalysisTemplateKind || gvk.Kind == "Namespace" {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(gvk, scope)
	}
	return mapper
}

// strictDecodingError returns the error of the API server about unknown fields, which the fake client ignores.
func strictDecodingError(o client.Object, opts []client.CreateOption) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok || (&client.CreateOptions{}).ApplyOptions(opts).FieldValidation != metav1.FieldValidationStrict {
		return nil
	}
	definitions, err := crdschema.Definitions(u.GroupVersionKind().Group)
	if err != nil {
		return err
	}
	schema, err := crdschema.New(definitions[u.GetKind()], u.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	unknown := pruning.PruneWithOptions(u.DeepCopy().Object, schema.Structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(unknown) == 0 {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("strict decoding error: unknown field %q", unknown[0]))
}

func decodeObject(t testing.TB, scheme *runtime.Scheme, document string) client.Object {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		t.Fatalf("read a manifest: %v", err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(text); err != nil {
		t.Fatalf("read a manifest: %v", err)
	}
	var o client.Object = u // of a kind of a traffic provider, which the scheme does not know
	if typed, err := scheme.New(u.GroupVersionKind()); err == nil {
		if err := json.Unmarshal(text, typed); err != nil {
			t.Fatalf("read a manifest: %v", err)
		}
		var ok bool
		if o, ok = typed.(client.Object); !ok {
			t.Fatalf("%T is not an object", typed)
		}
	}
	if o.GetNamespace() == "" {
		o.SetNamespace("shop")
	}
	return o
}

// setRevisions replaces the placeholders of revisions and step hashes in statuses.
func (w *FakeCluster) setRevisions() {
	w.t.Helper()
	var list flaggerv1.CanaryList
	if err := w.Admin.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		c := &list.Items[i]
		if c.Status.Serin == nil || c.Status.Serin.Revision != "now" {
			continue
		}
		workloads := &workload.Workloads{Client: w.Admin, APIReader: w.Admin, Options: workload.Options{ConfigTracking: true}}
		observed, err := workloads.ForCanary(c).Observe(w.t.Context(), c)
		if err != nil {
			w.t.Fatalf("observe the target: %v", err)
		}
		w.Change(c, func() {
			c.Status.Serin.Revision, c.Status.LastAppliedSpec = observed.Target.Revision, observed.Target.FlaggerHash
		})
	}
	w.setStepHashes()
}

// setStepHashes replaces the placeholders of step hashes in the statuses of Rollouts.
func (w *FakeCluster) setStepHashes() {
	w.t.Helper()
	var list argov1.RolloutList
	if err := w.Admin.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		if r.Status.CurrentStepHash != "STEPS" {
			continue
		}
		hash, err := rollout.StepHash(r.Spec.Strategy.Canary.Steps)
		if err != nil {
			w.t.Fatal(err)
		}
		w.Change(r, func() { r.Status.CurrentStepHash = hash })
	}
}

// Change reads an object into o, calls change to modify it, and writes the object and its status.
func (w *FakeCluster) Change(o client.Object, change func()) {
	w.t.Helper()
	if err := w.Admin.Get(w.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.t.Fatal(err)
	}
	change()
	wanted, _ := o.DeepCopyObject().(client.Object)
	if err := w.Admin.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
	wanted.SetResourceVersion(o.GetResourceVersion()) // for kinds whose status is written separately
	if err := w.Admin.Status().Update(w.t.Context(), wanted); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// Canary returns a Canary of namespace shop.
func (w *FakeCluster) Canary(name string) *flaggerv1.Canary {
	w.t.Helper()
	var c flaggerv1.Canary
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &c); err != nil {
		w.t.Fatal(err)
	}
	return &c
}

// Rollout returns a Rollout of namespace shop.
func (w *FakeCluster) Rollout(name string) *argov1.Rollout {
	w.t.Helper()
	var r argov1.Rollout
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &r); err != nil {
		w.t.Fatal(err)
	}
	return &r
}

// ScaleReplicaSet sets the numbers of desired and of available pods of a ReplicaSet of namespace shop.
func (w *FakeCluster) ScaleReplicaSet(name string, pods, available int32) {
	w.t.Helper()
	rs := &appsv1.ReplicaSet{}
	rs.Namespace, rs.Name = "shop", name
	w.Change(rs, func() {
		rs.Spec.Replicas = &pods
		rs.Status.Replicas, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = pods, available, available
	})
}

// CompleteAnalysisRun sets the phase of an AnalysisRun of namespace shop and of its first metric, with three failed measurements.
func (w *FakeCluster) CompleteAnalysisRun(name string, phase argov1.AnalysisPhase) {
	w.t.Helper()
	run := &argov1.AnalysisRun{}
	run.Namespace, run.Name = "shop", name
	w.Change(run, func() {
		run.Status.Phase = phase
		result := &run.Status.MetricResults[0]
		result.Phase, result.Failed, result.Count = phase, 3, 4
		result.Message = "Metric \"success-rate\" assessed Failed due to failed (3) > failureLimit (2)"
	})
}

// FailMeasurements gives an AnalysisRun of namespace shop arguments, and two measurements of its first metric that failed with an
// error at that time.
func (w *FakeCluster) FailMeasurements(name, message string, finished time.Time) {
	w.t.Helper()
	run := &argov1.AnalysisRun{}
	run.Namespace, run.Name = "shop", name
	w.Change(run, func() {
		run.Spec.Args = []argov1.Argument{{Name: "min", Value: new("0.95")}, {Name: "address", Value: new("http://prometheus:9090")}}
		metric := &run.Spec.Metrics[0]
		metric.SuccessCondition, metric.Provider.Prometheus.Address = "result[0] >= {{args.min}}", "{{args.address}}"
		at := metav1.NewTime(finished)
		result := &run.Status.MetricResults[0]
		result.Successful, result.Failed, result.Count, result.Error = 0, 0, 0, 2
		result.Measurements = []argov1.Measurement{
			{Phase: argov1.AnalysisPhaseError, Message: message, FinishedAt: &at}, {Phase: argov1.AnalysisPhaseError, Message: message, FinishedAt: &at},
		}
	})
}

// SetCanaryWeight sets the weight of the canary in HTTPRoute cart.
func (w *FakeCluster) SetCanaryWeight(weight int32) {
	w.t.Helper()
	route := &gatewayv1.HTTPRoute{}
	route.Name, route.Namespace = "cart", "shop"
	w.Change(route, func() {
		backends := route.Spec.Rules[0].BackendRefs
		*backends[0].Weight, *backends[1].Weight = 100-weight, weight
	})
}

// Deployment returns a Deployment of namespace shop.
func (w *FakeCluster) Deployment(name string) *appsv1.Deployment {
	w.t.Helper()
	var d appsv1.Deployment
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &d); err != nil {
		w.t.Fatal(err)
	}
	return &d
}

// Forbid removes the user's permission to read and create kinds.
func (w *FakeCluster) Forbid(kinds ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range kinds {
		w.forbidden[kind] = true
	}
}

// Uninstall removes the definitions of kinds from the cluster.
func (w *FakeCluster) Uninstall(kinds ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range kinds {
		w.uninstalled[kind] = true
	}
}

// FailRequests makes every request of the user fail with an error, and ends all watches; nil: the cluster responds again.
func (w *FakeCluster) FailRequests(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requestErr = err
	if err == nil {
		return
	}
	for _, stream := range w.streams {
		stream.Stop()
	}
	w.streams = nil
}

// CountRequests calls a function at each request of the user, from then on.
func (w *FakeCluster) CountRequests(count func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onRequest = count
}

func (w *FakeCluster) requestError(scheme *runtime.Scheme, o runtime.Object, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.onRequest != nil {
		w.onRequest()
	}
	if w.requestErr != nil {
		return w.requestErr
	}
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if kinds, _, err := scheme.ObjectKinds(o); err == nil && kind == "" {
		kind = kinds[0].Kind
	}
	isForbidden := w.forbidden[kind]
	kind = strings.TrimSuffix(kind, "List")
	if w.uninstalled[kind] {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: kind}}
	}
	if !isForbidden && !w.forbidden[kind] {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: strings.ToLower(kind) + "s"}, name, nil)
}

// Versions returns the names and resource versions of all objects as one text, to check whether anything was changed.
func (w *FakeCluster) Versions(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	for _, list := range []client.ObjectList{
		&flaggerv1.CanaryList{}, &argov1.RolloutList{}, &appsv1.ReplicaSetList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.EventList{}, &gatewayv1.HTTPRouteList{},
	} {
		if err := w.Admin.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			if err == nil {
				fmt.Fprintln(&out, object.GetNamespace(), object.GetName(), object.GetUID(), object.GetResourceVersion())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}
