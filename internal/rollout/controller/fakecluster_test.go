package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
)

var key = types.NamespacedName{Namespace: "shop", Name: "cart"}

// fakeCluster is a cluster in memory whose ReplicaSets have their pods at once, and a reconciler that a test calls. It counts
// the requests to the API server.
type fakeCluster struct {
	*testing.T
	key        types.NamespacedName // of the Rollout that its methods are about
	client     client.WithWatch
	cache      *replaceableClient
	reconciler *Reconciler
	clock      *clocktesting.FakeClock

	mu sync.Mutex
	// writes are the requests that change something, except for events; live are reads that no cache answers.
	writes, live   []string
	recordedEvents []string
	news           chan struct{} // closed when another event is recorded, and replaced
	// unpublished is true while endpoints are late.
	unpublished bool
	// refuse is called before each write; nil: none is refused.
	refuse func(verb string, object client.Object) error
}

func newFakeCluster(t *testing.T, manifests ...string) *fakeCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, argov1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	p := &fakeCluster{T: t, key: key, news: make(chan struct{}), clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC))}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&argov1.Rollout{}, &appsv1.ReplicaSet{}).
		WithInterceptorFuncs(p.recordingFuncs())
	for _, index := range []func(context.Context, client.FieldIndexer) error{IndexOwners, IndexServices, IndexWorkloads, IndexMarkedWorkloads, IndexQueueEntries, endpoints.Index} {
		if err := index(t.Context(), indexes{t, builder}); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range manifests {
		builder = builder.WithObjects(p.object(text))
	}
	p.client = builder.Build()
	p.cache = &replaceableClient{p.client}
	outbox := telemetry.NewOutbox(p.clock, logr.Discard())
	p.reconciler = New(Parts{
		Observer: Observer{
			Client: p.cache, APIReader: requestCounter{p}, Applier: &traffic.Applier{Client: p.client},
			Runs: &launch.Launcher{Client: p.client, ClusterTemplates: p.client, APIReader: p.client},
		},
		Clock: p.clock, Recorder: telemetry.NewRecorder(p.client, outbox, p.clock, Component), OngoingEvents: &telemetry.OngoingEvents{},
		Metrics: telemetry.New(prometheus.NewRegistry()), Watch: func([]schema.GroupVersionKind) error { return nil },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = outbox.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return p
}

// replaceableClient is a client that another one can replace while a reconciler uses it.
type replaceableClient struct{ client.Client }

// indexes adds the indexes of a cache to a fake client.
type indexes struct {
	t       *testing.T
	builder *fake.ClientBuilder
}

func (i indexes) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	i.builder.WithIndex(object, field, func(found client.Object) []string {
		if _, generic := object.(*unstructured.Unstructured); generic {
			raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(found)
			if err != nil {
				i.t.Error(err)
			}
			found = &unstructured.Unstructured{Object: raw}
		}
		return values(found)
	})
	return nil
}

// requestCounter counts reads that no cache answers.
type requestCounter struct{ p *fakeCluster }

func (c requestCounter) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	c.p.recordRequest(&c.p.live, "get", into)
	return c.p.client.Get(ctx, key, into, options...)
}

func (c requestCounter) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	c.p.mu.Lock()
	c.p.live = append(c.p.live, fmt.Sprintf("list %T", into))
	c.p.mu.Unlock()
	return c.p.client.List(ctx, into, options...)
}

func (p *fakeCluster) recordRequest(list *[]string, verb string, object client.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*")
	*list = append(*list, verb+" "+kind[strings.LastIndex(kind, ".")+1:]+" "+object.GetName())
}

func (p *fakeCluster) interceptWrite(verb string, object client.Object) error {
	if event, is := object.(*corev1.Event); is {
		p.mu.Lock()
		p.recordedEvents = append(p.recordedEvents, event.Reason+": "+event.Message)
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
		return nil
	}
	if p.refuse != nil {
		if err := p.refuse(verb, object); err != nil {
			return err
		}
	}
	p.recordRequest(&p.writes, verb, object)
	return nil
}

func (p *fakeCluster) recordingFuncs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := p.interceptWrite("create", object); err != nil {
				return err
			}
			object.SetUID(types.UID("uid-" + object.GetName()))
			object.SetCreationTimestamp(metav1.NewTime(p.clock.Now()))
			return c.Create(ctx, object, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := p.interceptWrite("patch", object); err != nil {
				return err
			}
			if _, pod := object.(*corev1.Pod); pod && !(&client.PatchOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency {
				p.Errorf("pod %s is written so that the library starts to watch all pods, which RBAC does not permit", object.GetName())
			}
			return c.Patch(ctx, object, patch, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := p.interceptWrite("delete", object); err != nil {
				return err
			}
			return c.Delete(ctx, object) // the fake server does not support preconditions of objects without versions
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, of string, object, body client.Object, options ...client.SubResourceCreateOption) error {
			if err := p.interceptWrite("create "+of, object); err != nil {
				return err
			}
			return c.SubResource(of).Create(ctx, object, body, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if err := p.interceptWrite("patch "+of, object); err != nil {
				return err
			}
			return c.SubResource(of).Patch(ctx, object, patch, options...)
		},
	}
}

// object decodes a manifest.
func (p *fakeCluster) object(text string) client.Object {
	p.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
		p.Fatal(err)
	}
	var object client.Object
	switch kind.Kind {
	case "Rollout":
		object = &argov1.Rollout{}
	case "ReplicaSet":
		object = &appsv1.ReplicaSet{}
	case "Service":
		object = &corev1.Service{}
	case "Pod":
		object = &corev1.Pod{}
	case "Ingress":
		object = &networkingv1.Ingress{}
	default:
		object = &unstructured.Unstructured{}
	}
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		p.Fatal(err)
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(key.Namespace)
	}
	if object.GetUID() == "" {
		object.SetUID(types.UID("uid-" + object.GetName()))
	}
	return object
}

// reconcile is one reconciliation.
func (p *fakeCluster) reconcile() (reconcile.Result, error) {
	return p.reconciler.Reconcile(log.IntoContext(p.Context(), logr.Discard()), reconcile.Request{NamespacedName: p.key})
}

// settle reconciles until nothing is written anymore. Between reconciliations, ReplicaSets get their pods, and these are
// published.
func (p *fakeCluster) settle() {
	p.Helper()
	for range 60 {
		p.writes, p.live = nil, nil
		if _, err := p.reconcile(); err != nil {
			p.Fatal(err)
		}
		written := len(p.writes) > 0
		p.startPods()
		if published := p.publish(); !written && !published {
			return
		}
	}
	p.Fatalf("it never becomes idle; the last reconciliation wrote %v", p.writes)
}

// startPods gives ReplicaSets their pods.
func (p *fakeCluster) startPods() {
	p.Helper()
	var all appsv1.ReplicaSetList
	if err := p.client.List(p.Context(), &all); err != nil {
		p.Fatal(err)
	}
	for i := range all.Items {
		rs := &all.Items[i]
		n := *rs.Spec.Replicas
		if rs.Status.Replicas == n && rs.Status.AvailableReplicas == n {
			continue
		}
		rs.Status = appsv1.ReplicaSetStatus{Replicas: n, ReadyReplicas: n, AvailableReplicas: n, ObservedGeneration: rs.Generation}
		if err := p.client.Status().Update(p.Context(), rs); err != nil {
			p.Fatal(err)
		}
	}
}

// publish writes the EndpointSlices of all Services, unless these are late, and reports whether one changed.
func (p *fakeCluster) publish() bool {
	p.Helper()
	var services corev1.ServiceList
	var sets appsv1.ReplicaSetList
	if err := errors.Join(p.client.List(p.Context(), &services), p.client.List(p.Context(), &sets)); err != nil {
		p.Fatal(err)
	}
	changed := false
	for _, service := range services.Items {
		slice := &discoveryv1.EndpointSlice{}
		slice.Namespace, slice.Name, slice.AddressType = service.Namespace, service.Name+"-abcde", discoveryv1.AddressTypeIPv4
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: service.Name}
		for _, rs := range sets.Items {
			if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(rs.Spec.Template.Labels)) {
				continue
			}
			for i := range rs.Status.ReadyReplicas {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("%s-%05d", rs.Name, i)}})
			}
		}
		existing := &discoveryv1.EndpointSlice{}
		err := p.client.Get(p.Context(), client.ObjectKeyFromObject(slice), existing)
		switch {
		case p.unpublished, err == nil && equality.Semantic.DeepEqual(existing.Endpoints, slice.Endpoints):
			continue
		case err == nil:
			slice.ResourceVersion = existing.ResourceVersion
			err = p.client.Update(p.Context(), slice)
		default:
			written := p.writes
			err = p.client.Create(p.Context(), slice)
			p.writes = written
		}
		if err != nil {
			p.Fatal(err)
		}
		changed = true
	}
	return changed
}

func (p *fakeCluster) rollout() *argov1.Rollout {
	p.Helper()
	object := &argov1.Rollout{}
	if err := p.client.Get(p.Context(), p.key, object); err != nil {
		p.Fatal(err)
	}
	return object
}

// edit changes the spec of the Rollout as its user does.
func (p *fakeCluster) edit(how func(*argov1.Rollout)) {
	p.Helper()
	object := p.rollout()
	how(object)
	object.Generation++
	if err := p.client.Update(p.Context(), object); err != nil {
		p.Fatal(err)
	}
}

// replicaSetNames returns the ReplicaSets as "name=pods", oldest first.
func (p *fakeCluster) replicaSetNames() []string {
	p.Helper()
	var all appsv1.ReplicaSetList
	if err := p.client.List(p.Context(), &all); err != nil {
		p.Fatal(err)
	}
	var out []string
	for _, rs := range all.Items {
		if rs.Labels["app"] == "cart" && metav1.GetControllerOf(&rs) != nil {
			out = append(out, fmt.Sprintf("%s=%d", rs.Spec.Template.Spec.Containers[0].Image, *rs.Spec.Replicas))
		}
	}
	slices.Sort(out)
	return out
}

func (p *fakeCluster) condition(of argov1.RolloutConditionType) argov1.RolloutCondition {
	p.Helper()
	for _, c := range p.rollout().Status.Conditions {
		if c.Type == of {
			return c
		}
	}
	return argov1.RolloutCondition{}
}

// waitForEvent waits until the outbox has sent an event.
func (p *fakeCluster) waitForEvent(what string) {
	p.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		p.mu.Lock()
		recorded, news := slices.Clone(p.recordedEvents), p.news
		p.mu.Unlock()
		if slices.ContainsFunc(recorded, func(text string) bool { return strings.Contains(text, what) }) {
			return
		}
		select {
		case <-news:
		case <-deadline.C:
			p.Fatalf("no event %q: %v", what, recorded)
		}
	}
}

var errAway = errors.New("the API server is away")
