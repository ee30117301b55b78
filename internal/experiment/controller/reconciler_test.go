package controller_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/experiment/controller"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

var key = types.NamespacedName{Namespace: "shop", Name: "compare"}

// testCluster is one Experiment with its reconciler; the API server is in memory, and the test acts as the controllers of
// Kubernetes.
type testCluster struct {
	t           *testing.T
	client      client.Client
	reconciler  *controller.Reconciler
	refuse      error // error of the creation of ReplicaSets
	refusePatch error // of patches of ReplicaSets
	refuseRun   error // of the creation of AnalysisRuns
	unreadable  error // of reads of AnalysisTemplates
	// messages are the notifications, which are sent when the test attempts them.
	messages *telemetry.Outbox
}

func newTestCluster(t *testing.T, objects ...client.Object) *testCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, argov1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := &testCluster{t: t}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&appsv1.ReplicaSet{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, ok := object.(*appsv1.ReplicaSet); ok && b.refuse != nil {
				return b.refuse
			}
			if _, ok := object.(*argov1.AnalysisRun); ok && b.refuseRun != nil {
				return b.refuseRun
			}
			return c.Create(ctx, object, options...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if _, ok := into.(*argov1.AnalysisTemplate); ok && b.unreadable != nil {
				return b.unreadable
			}
			return c.Get(ctx, key, into, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, ok := object.(*appsv1.ReplicaSet); ok && b.refusePatch != nil {
				return b.refusePatch
			}
			return c.Patch(ctx, object, patch, options...)
		},
	}).Build()
	clk := clock.RealClock{}
	recorder := telemetry.NewRecorder(b.client, telemetry.NewOutbox(clk, logr.Discard()), clk, "rollouts-controller")
	metrics, policy := telemetry.New(prometheus.NewRegistry()), outbound.Policy{AllowLoopback: true}
	services := outbound.New(policy)
	t.Cleanup(services.Close)
	b.messages = telemetry.NewOutbox(clk, logr.Discard())
	b.reconciler = controller.New(controller.Parts{
		Client: b.client, Clock: clk, Recorder: recorder, Rollouts: recorder, Metrics: metrics,
		Notifications: dispatch.New(dispatch.Parts{
			Client: b.client, Clock: clk, Outbox: b.messages, Metrics: metrics, Services: services, Policy: policy, Namespace: "serin-system",
			RecordEvent: func(_ context.Context, object client.Object, event release.Event) {
				t.Errorf("%s: %s", object.GetName(), event.Message)
			},
		}),
		Launcher: &launch.Launcher{Client: b.client, ClusterTemplates: b.client, APIReader: b.client},
	})
	return b
}

// reconcileTimes reconciles a number of times, with pods that are available immediately.
func (b *testCluster) reconcileTimes(n int) argov1.ExperimentStatus {
	b.t.Helper()
	for range n {
		if err := b.attemptReconcile(); err != nil {
			b.t.Fatal(err)
		}
	}
	e := &argov1.Experiment{}
	b.get(key.Name, e)
	return e.Status
}

// attemptReconcile reconciles once, and makes the pods available.
func (b *testCluster) attemptReconcile() error {
	b.t.Helper()
	_, err := b.reconciler.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: key})
	sets := &appsv1.ReplicaSetList{}
	if err := b.client.List(b.t.Context(), sets); err != nil {
		b.t.Fatal(err)
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		n := *set.Spec.Replicas
		set.Status = appsv1.ReplicaSetStatus{Replicas: n, ReadyReplicas: n, AvailableReplicas: n}
		if err := b.client.Status().Update(b.t.Context(), set); err != nil {
			b.t.Fatal(err)
		}
	}
	return err
}

func (b *testCluster) get(name string, into client.Object) {
	b.t.Helper()
	if err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, into); err != nil {
		b.t.Fatal(err)
	}
}

func comparisonExperiment() *argov1.Experiment {
	side := func(name string) argov1.TemplateSpec {
		labels := map[string]string{"side": name}
		return argov1.TemplateSpec{
			Name: name, Selector: &metav1.LabelSelector{MatchLabels: labels}, Service: &argov1.TemplateService{},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"side": name, argov1.PodTemplateHashLabel: "of-the-rollout"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:v1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}},
			},
		}
	}
	return &argov1.Experiment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "e"},
		Spec: argov1.ExperimentSpec{
			Templates:           []argov1.TemplateSpec{side("old"), side("new")},
			Analyses:            []argov1.ExperimentAnalysisTemplateRef{{Name: "errors", TemplateName: "errors", Args: []argov1.Argument{{Name: "hash", Value: new("{{templates.new.podTemplateHash}}")}}}},
			AnalysisRunMetadata: &argov1.AnalysisRunMetadata{Labels: map[string]string{"team": "shop"}},
		},
	}
}

func errorsTemplate() *argov1.AnalysisTemplate {
	return &argov1.AnalysisTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "errors"}, Spec: argov1.AnalysisTemplateSpec{
		Args: []argov1.Argument{{Name: "hash"}}, Metrics: []argov1.Metric{{Name: "m", Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: "http://{{args.hash}}"}}}},
	}}
}

func TestExperimentCreatesItsObjects(t *testing.T) {
	b := newTestCluster(t, comparisonExperiment(), errorsTemplate())
	status := b.reconcileTimes(6)
	if status.Phase != argov1.AnalysisPhaseRunning || status.AvailableAt == nil || len(status.AnalysisRuns) != 1 {
		t.Fatalf("got %+v", status)
	}
	set, service, run := &appsv1.ReplicaSet{}, &corev1.Service{}, &argov1.AnalysisRun{}
	b.get("compare-new", set)
	b.get("compare-new", service)
	b.get("compare-errors", run)
	hash := set.Labels[argov1.PodTemplateHashLabel]
	if hash == "" || hash == "of-the-rollout" || set.Spec.Selector.MatchLabels[argov1.PodTemplateHashLabel] != hash || set.Spec.Template.Labels[argov1.PodTemplateHashLabel] != hash || *set.Spec.Replicas != 1 {
		t.Errorf("made %+v", set)
	}
	if set.Annotations[argov1.ExperimentNameAnnotation] != "compare" || set.Annotations[argov1.ExperimentTemplateAnnotation] != "new" || !metav1.IsControlledBy(set, comparisonExperiment()) {
		t.Errorf("made %+v", set.ObjectMeta)
	}
	if port := service.Spec.Ports[0]; service.Spec.Selector["side"] != "new" || port.Port != 8080 || port.TargetPort.IntValue() != 8080 || port.Name != "http" {
		t.Errorf("made %+v", service.Spec)
	}
	if *run.Spec.Args[0].Value != hash || run.Labels["team"] != "shop" || !metav1.IsControlledBy(run, comparisonExperiment()) {
		t.Errorf("made %+v", run)
	}
	if side := status.TemplateStatuses[1]; side.ServiceName != "compare-new" || side.PodTemplateHash != hash || side.AvailableReplicas != 1 {
		t.Errorf("says %+v", side)
	}
}

func TestAnExperimentIsLeftToArgoRollouts(t *testing.T) {
	b := newTestCluster(t, comparisonExperiment(), errorsTemplate())
	sign := othercontroller.Sign{Text: "a Deployment of Argo Rollouts has ready pods"}
	b.reconciler.OtherController = func(context.Context, string, time.Time) (othercontroller.Sign, error) { return sign, nil }
	if status := b.reconcileTimes(3); status.Phase != "" || len(status.TemplateStatuses) > 0 {
		t.Errorf("while Argo Rollouts is running: %+v", status)
	}
	sign = othercontroller.Sign{}
	if status := b.reconcileTimes(6); status.Phase != argov1.AnalysisPhaseRunning {
		t.Errorf("after that: %+v", status)
	}
}

func TestTerminatedExperimentRemovesItsObjects(t *testing.T) {
	e := comparisonExperiment()
	e.Spec.ScaleDownDelaySeconds = new(int32(0))
	b := newTestCluster(t, e, errorsTemplate())
	b.reconcileTimes(6)
	b.get(key.Name, e)
	e.Spec.Terminate = true
	if err := b.client.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if status := b.reconcileTimes(6); status.Phase != argov1.AnalysisPhaseSuccessful {
		t.Errorf("got %+v", status)
	}
	run, set := &argov1.AnalysisRun{}, &appsv1.ReplicaSet{}
	b.get("compare-errors", run)
	b.get("compare-new", set)
	err := b.client.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "compare-new"}, &corev1.Service{})
	if !run.Spec.Terminate || *set.Spec.Replicas != 0 || !apierrors.IsNotFound(err) {
		t.Errorf("terminated %v, %d pods, the Service: %v", run.Spec.Terminate, *set.Spec.Replicas, err)
	}
}

func TestObjectsOfOthersAreNotChanged(t *testing.T) {
	for _, stranger := range []client.Object{
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "compare-new"}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3))}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "compare-new"}},
	} {
		b := newTestCluster(t, comparisonExperiment(), errorsTemplate(), stranger)
		status := b.reconcileTimes(6)
		if status.Phase != argov1.AnalysisPhaseError || !strings.Contains(status.Message, "exists and does not belong to this Experiment") {
			t.Errorf("got %s %q", status.Phase, status.Message)
		}
		after := stranger.DeepCopyObject().(client.Object)
		b.get("compare-new", after)
		if len(after.GetOwnerReferences()) > 0 || len(after.GetAnnotations()) > 0 {
			t.Errorf("changed %+v", after)
		}
	}
}

func TestRejectedTemplateFailsExperiment(t *testing.T) {
	b := newTestCluster(t, comparisonExperiment(), errorsTemplate())
	b.refuse = apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind(), "compare-old", nil)
	status := b.reconcileTimes(3)
	if status.Phase != argov1.AnalysisPhaseError || !strings.HasPrefix(status.Message, "Failed to create ReplicaSet for template 'old': ") {
		t.Errorf("got %s %q", status.Phase, status.Message)
	}
}

func TestMissingTemplateFailsExperiment(t *testing.T) {
	b := newTestCluster(t, comparisonExperiment())
	status := b.reconcileTimes(8)
	if want := "Failed to create AnalysisRun for analysis 'errors': AnalysisTemplate 'errors' not found"; status.Phase != argov1.AnalysisPhaseError || status.Message != want {
		t.Errorf("got %s %q, want %q", status.Phase, status.Message, want)
	}
}

func TestContradictingTemplateFailsExperiment(t *testing.T) {
	e := comparisonExperiment()
	e.Spec.Analyses[0].Args = nil
	status := newTestCluster(t, e, errorsTemplate()).reconcileTimes(8)
	if want := "Failed to create AnalysisRun for analysis 'errors': args.hash was not resolved"; status.Phase != argov1.AnalysisPhaseError || status.Message != want {
		t.Errorf("got %s %q, want %q", status.Phase, status.Message, want)
	}
}

// TestUnavailableAPIServerDoesNotFailExperiment: a failed Experiment aborts the Rollout that it is a step of.
func TestUnavailableAPIServerDoesNotFailExperiment(t *testing.T) {
	lost := &url.Error{Op: "Post", URL: "https://kubernetes/apis", Err: io.ErrUnexpectedEOF}
	for _, interrupt := range []func(b *testCluster, err error){
		func(b *testCluster, err error) { b.refuseRun = err },
		func(b *testCluster, err error) { b.unreadable = err },
	} {
		for _, err := range []error{lost, readyourwrites.ErrStale, apierrors.NewServiceUnavailable("overloaded")} {
			b := newTestCluster(t, comparisonExperiment(), errorsTemplate())
			interrupt(b, err)
			for range 8 {
				_ = b.attemptReconcile() // with an error or not: it is repeated
			}
			e := &argov1.Experiment{}
			b.get(key.Name, e)
			if status := e.Status; status.Phase != argov1.AnalysisPhaseRunning || status.AvailableAt == nil || len(status.AnalysisRuns) > 0 {
				t.Errorf("%v: got %s %q with %+v, want another attempt", err, status.Phase, status.Message, status.AnalysisRuns)
			}
			interrupt(b, nil)
			if status := b.reconcileTimes(8); status.Phase != argov1.AnalysisPhaseRunning || len(status.AnalysisRuns) != 1 {
				t.Errorf("%v, and after that: got %s %q with %+v", err, status.Phase, status.Message, status.AnalysisRuns)
			}
		}
	}
}

// TestForbiddenAnalysisIsReported: the Experiment waits for the permission, and its status and an event name the reason.
func TestForbiddenAnalysisIsReported(t *testing.T) {
	forbidden := apierrors.NewForbidden(argov1.SchemeGroupVersion.WithResource("analysistemplates").GroupResource(), "errors", errors.New("no permission"))
	for name, forbid := range map[string]func(b *testCluster, err error){
		"create": func(b *testCluster, err error) { b.refuseRun = err },
		"read":   func(b *testCluster, err error) { b.unreadable = err },
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestCluster(t, comparisonExperiment(), errorsTemplate())
			forbid(b, forbidden)
			for range 8 {
				_ = b.attemptReconcile() // with an error or not: it is repeated
			}
			e := &argov1.Experiment{}
			b.get(key.Name, e)
			for _, part := range []string{"Failed to create AnalysisRun for analysis 'errors'", `"errors" is forbidden: no permission`} {
				if !strings.Contains(e.Status.Message, part) {
					t.Errorf("the status contains %q, want %q in it", e.Status.Message, part)
				}
			}
			if e.Status.Phase != argov1.AnalysisPhaseRunning || len(e.Status.AnalysisRuns) > 0 {
				t.Errorf("got %s with %+v, want another attempt", e.Status.Phase, e.Status.AnalysisRuns)
			}
			forbid(b, nil)
			if status := b.reconcileTimes(8); status.Message != "" || len(status.AnalysisRuns) != 1 {
				t.Errorf("with the permission: got %q with %+v", status.Message, status.AnalysisRuns)
			}
		})
	}
}

// panickingClient is a client in which reading a ReplicaSet panics while broken is true.
type panickingClient struct {
	client.Client

	broken bool
}

func (f *panickingClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, ok := into.(*appsv1.ReplicaSet); ok && f.broken {
		panic("a fault")
	}
	return f.Client.Get(ctx, key, into, options...)
}

func TestPanicIsReportedOnExperiment(t *testing.T) {
	b := newTestCluster(t, comparisonExperiment(), errorsTemplate())
	faulty := &panickingClient{Client: b.client, broken: true}
	b.reconciler.Client = faulty
	status := b.reconcileTimes(3)
	if want := "Fault: Serin could not reconcile this Experiment because of a defect in Serin (a panic whose text is not shown)"; !strings.HasPrefix(status.Message, want) || status.Phase != "" {
		t.Errorf("got %s %q", status.Phase, status.Message)
	}
	faulty.broken = false
	if status := b.reconcileTimes(6); status.Phase != argov1.AnalysisPhaseRunning || status.Message != "" {
		t.Errorf("mended, and %s %q", status.Phase, status.Message)
	}
}

// TestSubscribersOfAnExperimentReceiveItsResult: the message is sent with the result that the Experiment has after the
// reconciliation.
func TestSubscribersOfAnExperimentReceiveItsResult(t *testing.T) {
	received := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- string(body)
	}))
	t.Cleanup(server.Close)
	config := &corev1.ConfigMap{Data: map[string]string{
		"service.webhook.hook": "url: " + server.URL, "trigger.on-experiment-error": "- send: [ended]",
		"template.ended": "message: '{{.experiment.metadata.name}} is {{.experiment.status.phase}}: {{.experiment.status.message}}'",
	}}
	config.Namespace, config.Name = "serin-system", notification.ConfigMapName
	e := comparisonExperiment() // its template of the analysis does not exist
	e.Annotations = map[string]string{"notifications.argoproj.io/subscribe.on-experiment-error.hook": ""}
	b := newTestCluster(t, e, config)
	status := b.reconcileTimes(10)
	for b.messages.AttemptNext(t.Context()) {
	}
	close(received)
	if got, want := <-received, key.Name+" is Error: "+status.Message; got != want || status.Message == "" {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSubscribersOfAnExperimentLearnThatItCannotScale: once, although each retry fails, and not of a conflict, which the next
// reconciliation resolves.
func TestSubscribersOfAnExperimentLearnThatItCannotScale(t *testing.T) {
	received := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- string(body)
	}))
	t.Cleanup(server.Close)
	config := &corev1.ConfigMap{Data: map[string]string{
		"service.webhook.hook": "url: " + server.URL, "trigger.on-replica-set-update-error": "- send: [failed]",
		"template.failed": "message: '{{.experiment.metadata.name}} failed'",
	}}
	config.Namespace, config.Name = "serin-system", notification.ConfigMapName
	e := comparisonExperiment()
	e.Annotations = map[string]string{"notifications.argoproj.io/subscribe.on-replica-set-update-error.hook": ""}
	b := newTestCluster(t, e, errorsTemplate(), config)
	b.refusePatch = apierrors.NewConflict(appsv1.Resource("replicasets"), "compare-old", errors.New("changed"))
	reconcileOnce := func() error {
		_, err := b.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		return err
	}
	for range 3 {
		if err := reconcileOnce(); err != nil {
			t.Fatal(err)
		}
	}
	for b.messages.AttemptNext(t.Context()) {
	}
	if len(received) != 0 {
		t.Errorf("a conflict is reported: %s", <-received)
	}
	b.refusePatch = apierrors.NewForbidden(appsv1.Resource("replicasets"), "compare-old", errors.New("exceeded quota"))
	for range 3 {
		if err := reconcileOnce(); !apierrors.IsForbidden(err) {
			t.Fatalf("got %v", err)
		}
	}
	for b.messages.AttemptNext(t.Context()) {
	}
	if got := <-received; got != key.Name+" failed" || len(received) != 0 {
		t.Errorf("got %q, and %d more", got, len(received))
	}
}
