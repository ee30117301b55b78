package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
	"github.com/serin-dev/serin/internal/workload"
	"github.com/serin-dev/serin/internal/workload/flaggerhash"
)

var httpRoute = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}

// flaggerHashes are the hashes of one pod template in versions of Flagger, which depend on the Kubernetes library of each
// version, and values that no version computes.
var flaggerHashes = map[string]string{
	"library 0.29.3":         "5bfb74c84b",
	"Flagger 1.41":           "d58f444fb",
	"Flagger 1.42":           "7b67dd54f9",
	"Flagger 1.43":           "5fcc94f9fb",
	"Flagger 1.44":           "b5dc9c69",
	"library 0.37.2":         "5cfc9c86c4",
	"written by hand":        "v2",
	"that of this very spec": "",
}

// migration is a cluster with Canary cart in the state that Flagger left, and a Serin that starts there.
type migration struct {
	t      *testing.T
	client client.WithWatch
	clock  *clocktesting.FakeClock
	serin  *Reconciler
	// writes are the writes of Serin in order, except for those of the Canary's status.
	writes []string
	phases []flaggerv1.CanaryPhase // byCanary the status, in order
	specs  map[string]appsv1.DeploymentSpec
}

func podTemplate(image string, primary bool) corev1.PodTemplateSpec {
	name, annotations := "cart", map[string]string(nil)
	if primary {
		name, annotations = "cart-primary", map[string]string{"flagger-id": "2d7c1f2e-6f0c-4b6e-9d43-0a5b0c1d2e3f"}
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}, Annotations: annotations},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "server", Image: image, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		}}},
	}
}

func ownedBy(c *flaggerv1.Canary) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(c, flaggerv1.SchemeGroupVersion.WithKind(flaggerv1.CanaryKind))}
}

var driftDetectionDisabled = map[string]string{"helm.toolkit.fluxcd.io/driftDetection": "disabled", "kustomize.toolkit.fluxcd.io/reconcile": "disabled"}

// flaggerObjects creates the objects of the recordings of Flagger, with the canary at that weight.
func flaggerObjects(c *flaggerv1.Canary, target, primary string, replicas int32, weight int64) []client.Object {
	deployment := func(name string, replicas int32, template corev1.PodTemplateSpec) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name}},
			Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template},
		}
	}
	targetDeployment, primaryDeployment := deployment("cart", replicas, podTemplate(target, false)), deployment("cart-primary", 2, podTemplate(primary, true))
	primaryDeployment.OwnerReferences = ownedBy(c)
	objects := []client.Object{c, targetDeployment, primaryDeployment}
	for name, app := range map[string]string{"cart": "cart-primary", "cart-primary": "cart-primary", "cart-canary": "cart"} {
		objects = append(objects, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("service-" + name), Labels: map[string]string{"app": name}, Annotations: driftDetectionDisabled, OwnerReferences: ownedBy(c)},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": app}, ClusterIP: "10.0.0.1",
				Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
			},
		})
	}
	backend := func(name string, weight int64) any {
		return map[string]any{"group": "", "kind": "Service", "name": name, "port": int64(80), "weight": weight}
	}
	route := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"hostnames":  []any{"shop.example.com"},
		"parentRefs": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge", "namespace": "infra"}},
		"rules": []any{map[string]any{
			"backendRefs": []any{backend("cart-primary", 100-weight), backend("cart-canary", weight)},
			"matches":     []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/"}}},
		}},
	}}}
	route.SetGroupVersionKind(httpRoute)
	route.SetNamespace("shop")
	route.SetName("cart")
	route.SetAnnotations(driftDetectionDisabled)
	route.SetOwnerReferences(ownedBy(c))
	return append(objects, route)
}

func flaggerCanary(status flaggerv1.CanaryStatus) *flaggerv1.Canary {
	c := cartCanary()
	c.Generation = 1
	c.Spec.Provider = "gatewayapi:v1"
	c.Spec.Service = flaggerv1.CanaryService{Port: 80, TargetPort: new(intstr.FromInt32(8080)), Hosts: []string{"shop.example.com"}}
	c.Spec.Service.GatewayRefs = []flaggerv1.GatewayReference{{Name: "edge", Namespace: new("infra")}}
	c.Spec.Analysis = &flaggerv1.CanaryAnalysis{Interval: "10s", Threshold: 2, StepWeight: 30, MaxWeight: 60}
	c.Status = status
	return c
}

// startSerin starts Serin in that cluster.
func startSerin(t *testing.T, objects []client.Object, now time.Time) *migration {
	t.Helper()
	s := scheme(t)
	if err := appsv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	s.AddKnownTypeWithName(httpRoute, &unstructured.Unstructured{})
	s.AddKnownTypeWithName(httpRoute.GroupVersion().WithKind("HTTPRouteList"), &unstructured.UnstructuredList{})
	m := &migration{t: t, clock: clocktesting.NewFakeClock(now), specs: map[string]appsv1.DeploymentSpec{}}
	m.client = fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(&flaggerv1.Canary{}).Build()
	m.runKubelet()
	m.runGateway()
	m.restart()
	return m
}

// restart starts another process of Serin without the memory of the previous one.
func (m *migration) restart() {
	recordWrite := func(verb string, object client.Object) {
		m.writes = append(m.writes, strings.TrimSpace(fmt.Sprintf("%s %s %s", verb, object.GetObjectKind().GroupVersionKind().Kind, object.GetName())))
	}
	recordingClient := interceptor.NewClient(m.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.CreateOption) error {
			recordWrite("create", object)
			return c.Create(ctx, object, o...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.UpdateOption) error {
			recordWrite("update", object)
			return c.Update(ctx, object, o...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, p client.Patch, o ...client.PatchOption) error {
			recordWrite("patch", object)
			return c.Patch(ctx, object, p, o...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.DeleteOption) error {
			recordWrite("delete", object)
			return c.Delete(ctx, object, o...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			if err := c.SubResource(sub).Patch(ctx, object, p, o...); err != nil {
				return err
			}
			if c, ok := object.(*flaggerv1.Canary); ok && (len(m.phases) == 0 || m.phases[len(m.phases)-1] != c.Status.Phase) {
				m.phases = append(m.phases, c.Status.Phase)
			}
			return nil
		},
	})
	outbox := telemetry.NewOutbox(m.clock, (&testCluster{}).logger())
	m.serin = New(Parts{
		Observer: Observer{
			Client: recordingClient, Workloads: &workload.Workloads{Client: recordingClient, APIReader: recordingClient, Options: workload.Options{
				ConfigTracking: true, SelectorLabels: []string{"app"},
			}},
			Routers: traffic.Registry{Canary: map[string]traffic.Renderer{"gatewayapi:v1": gatewayapi.New("v1")}}, Applier: &traffic.Applier{Client: recordingClient},
			Settings: canary.Settings{Provider: "gatewayapi:v1", Drain: time.Second}, EndpointsUnread: "there are none here",
		},
		APIReader: recordingClient, Clock: m.clock, Metrics: telemetry.New(prometheus.NewRegistry()),
		Queries: queryrunner.New(m.clock, 1, func(context.Context, queryrunner.Key, release.Query) release.Answer { return release.Answer{} }, func(types.NamespacedName, bool) {}),
		Reporter: &Reporter{
			Client: recordingClient, APIReader: recordingClient, Clock: m.clock, Outbox: outbox, OngoingEvents: &telemetry.OngoingEvents{},
			Recorder: telemetry.NewRecorder(m.client, outbox, m.clock, ""),
		},
		Watch: func(_, _ []schema.GroupVersionKind) error { return nil },
	})
}

// runKubelet makes the desired pods of every Deployment ready. It also increments generations, as an API server does.
func (m *migration) runKubelet() (changed bool) {
	m.t.Helper()
	var list appsv1.DeploymentList
	if err := m.client.List(m.t.Context(), &list); err != nil {
		m.t.Fatal(err)
	}
	for i := range list.Items {
		d := &list.Items[i]
		if equality.Semantic.DeepEqual(m.specs[d.Name], d.Spec) {
			continue
		}
		m.specs[d.Name] = *d.Spec.DeepCopy()
		n := *d.Spec.Replicas
		d.Generation++
		if err := m.client.Update(m.t.Context(), d); err != nil {
			m.t.Fatal(err)
		}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		if err := m.client.Status().Update(m.t.Context(), d); err != nil {
			m.t.Fatal(err)
		}
		changed = true
	}
	return changed
}

// runGateway reports on routes, as the controller of a Gateway does.
func (m *migration) runGateway() (changed bool) {
	m.t.Helper()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(httpRoute)
	if err := m.client.List(m.t.Context(), &list); err != nil {
		m.t.Fatal(err)
	}
	for i := range list.Items {
		route := &list.Items[i]
		parents, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
		if reports, _, _ := unstructured.NestedSlice(route.Object, "status", "parents"); len(reports) == len(parents) {
			continue
		}
		reports := make([]any, 0, len(parents))
		for _, parent := range parents {
			reports = append(reports, map[string]any{"parentRef": parent, "controllerName": "example.com/gateway", "conditions": []any{
				map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": route.GetGeneration()},
			}})
		}
		if err := unstructured.SetNestedSlice(route.Object, reports, "status", "parents"); err != nil {
			m.t.Fatal(err)
		}
		if err := m.client.Update(m.t.Context(), route); err != nil {
			m.t.Fatal(err)
		}
		changed = true
	}
	return changed
}

// run reconciles until there is nothing to wait for, or as many times as given.
func (m *migration) run(limit int) {
	m.t.Helper()
	for range limit {
		before := m.canary().ResourceVersion
		result, err := m.serin.Reconcile(m.t.Context(), reconcile.Request{NamespacedName: cart})
		if err != nil {
			m.t.Fatal(err)
		}
		switch {
		case m.runKubelet(), m.runGateway(), m.canary().ResourceVersion != before: // a watch notifies of the change
		case result.RequeueAfter > 0:
			m.clock.Step(result.RequeueAfter)
		default:
			return
		}
	}
}

func (m *migration) canary() *flaggerv1.Canary {
	m.t.Helper()
	c := &flaggerv1.Canary{}
	if err := m.client.Get(m.t.Context(), cart, c); err != nil {
		m.t.Fatal(err)
	}
	return c
}

// deploy changes the target as a user would.
func (m *migration) deploy(image string) {
	m.t.Helper()
	d := &appsv1.Deployment{}
	if err := m.client.Get(m.t.Context(), cart, d); err != nil {
		m.t.Fatal(err)
	}
	d.Spec.Template.Spec.Containers[0].Image = image
	if err := m.client.Update(m.t.Context(), d); err != nil {
		m.t.Fatal(err)
	}
	m.runKubelet()
}

func (m *migration) countReleases() (n int) {
	for _, phase := range m.phases {
		if phase == flaggerv1.CanaryPhaseProgressing {
			n++
		}
	}
	return n
}

// expectOneRelease ships a version and expects exactly one release, with the records of the newest Flagger.
func (m *migration) expectOneRelease(image string) {
	m.t.Helper()
	m.phases = nil
	m.deploy(image)
	m.run(200)
	c := m.canary()
	if m.countReleases() != 1 || c.Status.Phase != flaggerv1.CanaryPhaseSucceeded {
		m.t.Errorf("one change made %d releases: %v", m.countReleases(), m.phases)
	}
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(new(podTemplate(image, false)))
	if err != nil {
		m.t.Fatal(err)
	}
	if hash := flaggerhash.HashTemplate(template); c.Status.LastAppliedSpec != hash || c.Status.LastPromotedSpec != hash {
		m.t.Errorf("after a migration back Flagger 1.44 would find applied %s and promoted %s, and take %s: a new revision", c.Status.LastAppliedSpec, c.Status.LastPromotedSpec, hash)
	}
	if c.Status.TrackedConfigs == nil {
		m.t.Error("after a migration back Flagger would find no list of tracked configuration")
	}
}

func flaggerStatus(phase flaggerv1.CanaryPhase, applied, promoted string, at time.Time) flaggerv1.CanaryStatus {
	return flaggerv1.CanaryStatus{
		Phase: phase, LastAppliedSpec: applied, LastPromotedSpec: promoted, TrackedConfigs: map[string]string{}, LastTransitionTime: metav1.NewTime(at),
		Conditions: []flaggerv1.CanaryCondition{{Type: flaggerv1.ConditionPromoted, Status: corev1.ConditionUnknown, Reason: string(phase), LastUpdateTime: metav1.NewTime(at), LastTransitionTime: metav1.NewTime(at)}},
	}
}

func TestAdoptionOfAnIdleCanaryWritesNothing(t *testing.T) {
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	for name, hash := range flaggerHashes {
		for _, phase := range []flaggerv1.CanaryPhase{flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed} {
			t.Run(name+"/"+string(phase), func(t *testing.T) {
				target, promoted := "cart:1", hash
				if phase == flaggerv1.CanaryPhaseFailed {
					target, promoted = "cart:2", "7b67dd54f9" // the version that failed is still in the target
				}
				if hash == "" {
					template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(new(podTemplate(target, false)))
					if err != nil {
						t.Fatal(err)
					}
					hash = flaggerhash.HashTemplate(template)
					promoted = hash
				}
				status := flaggerStatus(phase, hash, promoted, now.Add(-time.Hour))
				m := startSerin(t, flaggerObjects(flaggerCanary(status), target, "cart:1", 0, 0), now)
				m.run(20)
				m.restart() // an upgrade of Serin is the same case
				m.run(20)
				if len(m.writes) > 0 {
					t.Errorf("Serin wrote: %v", m.writes)
				}
				c := m.canary()
				if c.Status.Phase != phase || c.Status.LastAppliedSpec != status.LastAppliedSpec || c.Status.LastPromotedSpec != status.LastPromotedSpec {
					t.Errorf("what Flagger stored did not stay: %+v", c.Status)
				}
				if c.Status.Serin == nil || c.Status.Serin.Revision == "" {
					t.Errorf("status.serin was not recorded: %+v", c.Status.Serin)
				}
				m.expectOneRelease("cart:3")
			})
		}
	}
}

func TestAdoptionDuringARunContinuesAtItsStep(t *testing.T) {
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	for name, hash := range flaggerHashes {
		for _, tc := range []struct {
			phase   flaggerv1.CanaryPhase
			primary string
			weight  int
			writes  []string // due at once, because Flagger had decided them
		}{
			{phase: flaggerv1.CanaryPhaseProgressing, primary: "cart:1"},
			{phase: flaggerv1.CanaryPhaseProgressing, primary: "cart:1", weight: 30},
			{phase: flaggerv1.CanaryPhaseWaitingPromotion, primary: "cart:1", weight: 60},
			{phase: flaggerv1.CanaryPhasePromoting, primary: "cart:2", weight: 60},
			{phase: flaggerv1.CanaryPhaseFinalising, primary: "cart:2"},
		} {
			t.Run(fmt.Sprintf("%s/%s at %d", name, tc.phase, tc.weight), func(t *testing.T) {
				status := flaggerStatus(tc.phase, hash, "7b67dd54f9", now.Add(-time.Minute))
				status.CanaryWeight = tc.weight
				m := startSerin(t, flaggerObjects(flaggerCanary(status), "cart:2", tc.primary, 2, int64(tc.weight)), now)
				m.run(1)
				if len(m.writes) > 0 {
					t.Errorf("the reconciliation that adopts the release wrote: %v", m.writes)
				}
				if c := m.canary(); c.Status.Phase != tc.phase || c.Status.CanaryWeight != tc.weight {
					t.Errorf("the step of the release changed: %+v", c.Status)
				}
				m.phases = nil
				m.run(200)
				if c := m.canary(); c.Status.Phase != flaggerv1.CanaryPhaseSucceeded {
					t.Errorf("the release of Flagger did not end: %v", m.phases)
				}
				if restarted := slices.Contains(m.phases[1:], flaggerv1.CanaryPhaseProgressing); restarted {
					t.Errorf("a release was restarted: %v", m.phases)
				}
				m.expectOneRelease("cart:3")
			})
		}
	}
}
