package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/waittest"
)

var key = types.NamespacedName{Namespace: "shop", Name: "cart"}

// harness is a Dispatcher with a fake client and a real HTTP receiver. Messages are sent when the test calls send.
type harness struct {
	*testing.T
	client     client.Client
	dispatcher *dispatch.Dispatcher
	outbox     *telemetry.Outbox
	registry   *prometheus.Registry
	clock      *clocktesting.FakeClock
	url        string
	health     string
	logs       strings.Builder

	mu sync.Mutex
	// received are the bodies that the receiver accepted; events are the recorded events.
	received, events []string
	answer           func(http.ResponseWriter)
}

func newHarness(t *testing.T, self bool, data map[string]string) *harness {
	t.Helper()
	o := &harness{T: t, registry: prometheus.NewRegistry(), clock: clocktesting.NewFakeClock(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))}
	server := httptest.NewServer(http.HandlerFunc(o.receive))
	t.Cleanup(server.Close)
	o.url = server.URL
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, argov1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	rollout := &argov1.Rollout{}
	rollout.Namespace, rollout.Name, rollout.UID = key.Namespace, key.Name, "uid"
	rollout.Annotations = map[string]string{
		"notifications.argoproj.io/subscribe.on-rollout-completed.hook": "",
		"notifications.argoproj.io/subscribe.on-degraded.hook":          "",
		"rollout.argoproj.io/revision":                                  "2",
	}
	o.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(rollout).Build()
	o.configure("serin", data)
	o.startProcess(self)
	return o
}

// startProcess starts a new process: a Dispatcher and an outbox without state.
func (o *harness) startProcess(self bool) {
	o.outbox = telemetry.NewOutbox(o.clock, funcr.New(func(_, args string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.logs.WriteString(args + "\n")
	}, funcr.Options{}))
	o.registry = prometheus.NewRegistry()
	policy := outbound.Policy{AllowLoopback: true}
	o.dispatcher = dispatch.New(dispatch.Parts{
		Client: o.client, Clock: o.clock, Outbox: o.outbox, Metrics: telemetry.New(o.registry), Services: outbound.New(policy), Policy: policy,
		Namespace: "serin", SelfService: self,
		RecordEvent: func(_ context.Context, _ client.Object, event release.Event) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.events = append(o.events, event.Reason+": "+event.Message)
		},
		ReportHealth: func(_, sentence string) { o.health = sentence },
	})
}

func (o *harness) receive(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.received = append(o.received, string(body))
	if o.answer != nil {
		o.answer(w)
	}
}

// configure writes the configuration of a namespace. Its service hook is the receiver.
func (o *harness) configure(namespace string, data map[string]string) {
	o.Helper()
	texts := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: notification.ConfigMapName}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: notification.SecretName}}
	secret.Data = map[string][]byte{"path": []byte("Very-Secret-Path")}
	_ = o.client.Create(o.Context(), secret)
	texts.Data = map[string]string{"service.webhook.hook": "{url: '" + o.url + "/$path'}"}
	maps.Copy(texts.Data, data)
	err := o.client.Create(o.Context(), texts)
	if err != nil {
		existing := &corev1.ConfigMap{}
		if err := o.client.Get(o.Context(), client.ObjectKeyFromObject(texts), existing); err != nil {
			o.Fatal(err)
		}
		existing.Data = texts.Data
		if err := o.client.Update(o.Context(), existing); err != nil {
			o.Fatal(err)
		}
	}
}

// about returns the stored Rollout in a phase.
func (o *harness) about(phase argov1.RolloutPhase) dispatch.About {
	o.Helper()
	rollout := &argov1.Rollout{}
	if err := o.client.Get(o.Context(), key, rollout); err != nil {
		o.Fatal(err)
	}
	rollout.Status.Phase, rollout.Status.CurrentPodHash = phase, "abc"
	run := func(name, hash, revision string, age time.Duration) argov1.AnalysisRun {
		out := argov1.AnalysisRun{}
		out.Name, out.CreationTimestamp = name, metav1.NewTime(o.clock.Now().Add(-age))
		out.Labels, out.Annotations = map[string]string{argov1.PodTemplateHashLabel: hash}, map[string]string{argov1.RevisionAnnotation: revision}
		return out
	}
	spec := rollout.Spec.DeepCopy()
	spec.Template.Spec.Containers = []corev1.Container{{Name: "cart", Image: "cart:2"}}
	return dispatch.About{Object: rollout, Spec: spec, Runs: func(context.Context) ([]argov1.AnalysisRun, error) {
		return []argov1.AnalysisRun{run("older", "abc", "2", time.Hour), run("other", "xyz", "1", 0), run("newer", "abc", "2", time.Minute)}, nil
	}}
}

// send sends the queued messages.
func (o *harness) send() {
	for o.outbox.AttemptNext(o.Context()) {
	}
}

func (o *harness) wantReceived(got ...string) {
	o.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.received, got) {
		o.Errorf("received %q, want %q; events %q", o.received, got, o.events)
	}
	o.received = nil
}

var defaultConfig = map[string]string{
	"trigger.on-rollout-completed": "- send: [done]",
	"template.done":                "message: '{{.rollout.metadata.name}} {{.event.message}} {{(index .rollout.spec.template.spec.containers 0).image}}{{range .analysisRuns}} {{.metadata.name}}{{end}}'",
	"trigger.on-degraded":          "- when: rollout.status.phase == 'Degraded'\n  send: [bad]",
	"template.bad":                 "message: bad",
}

func TestEventIsSentOnce(t *testing.T) {
	o := newHarness(t, false, defaultConfig)
	o.dispatcher.NotifyEvent(t.Context(), o.about("Healthy"), release.Event{Type: release.Normal, Reason: "RolloutCompleted", Message: "well"})
	o.dispatcher.NotifyEvent(t.Context(), o.about("Healthy"), release.Event{Type: release.Normal, Reason: "RolloutPaused", Message: "no"})
	o.dispatcher.NotifyChange(t.Context(), o.about("Healthy"))
	o.send()
	o.wantReceived("cart well cart:2 newer older")
	if got := counterSum(t, o.registry, "notification_send_success"); got != 1 {
		t.Errorf("%v successes", got)
	}
}

// TestConditionIsReportedOnceByAllProcesses checks that the annotation records the message, and no longer contains it once the
// condition is false.
func TestConditionIsReportedOnceByAllProcesses(t *testing.T) {
	o := newHarness(t, false, defaultConfig)
	stale := o.about("Degraded")
	for range 3 { // a cache that lags shows the annotation later
		o.dispatcher.NotifyChange(t.Context(), stale)
		o.send()
	}
	o.wantReceived("bad")
	if o.about("").Object.GetAnnotations()[notification.NotifiedAnnotation] == "" {
		t.Error("the annotation does not record the message")
	}
	o.startProcess(false)
	o.dispatcher.NotifyChange(t.Context(), o.about("Degraded"))
	o.send()
	o.wantReceived()
	o.dispatcher.NotifyChange(t.Context(), o.about("Healthy"))
	o.send()
	if remaining, ok := o.about("").Object.GetAnnotations()[notification.NotifiedAnnotation]; ok {
		t.Errorf("the annotation still contains %s", remaining)
	}
	o.dispatcher.NotifyChange(t.Context(), o.about("Degraded"))
	o.send()
	o.wantReceived("bad")
}

// TestAnnotationIsBounded checks that the annotation, which shares 256 KiB with all others, keeps the newest messages.
func TestAnnotationIsBounded(t *testing.T) {
	for name, padding := range map[string]string{"number": "", "size": strings.Repeat("x", 900)} {
		t.Run(name, func(t *testing.T) {
			o := newHarness(t, false, map[string]string{
				"trigger.on-degraded": "- when: rollout.status.phase == 'Degraded'\n  oncePer: rollout.metadata.annotations['rollout.argoproj.io/revision']\n  send: [bad]",
				"template.bad":        "message: bad",
			})
			for i := range 150 {
				for range 2 {
					about := o.about("Degraded")
					about.Object.GetAnnotations()["rollout.argoproj.io/revision"] = fmt.Sprint(i) + padding
					o.dispatcher.NotifyChange(t.Context(), about)
					o.send()
				}
				o.wantReceived("bad")
				o.clock.Step(time.Minute)
			}
			text := o.about("").Object.GetAnnotations()[notification.NotifiedAnnotation]
			if sent := notification.ParseSentLog(text); len(sent) > 100 || len(sent) < 20 || len(text) > 32<<10 || !strings.Contains(text, `"149`) {
				t.Errorf("the annotation has %d messages and %d bytes", len(sent), len(text))
			}
		})
	}
}

// TestUndeliverableMessagesAreBounded checks that those of many revisions, which are not retried, do not accumulate in memory.
func TestUndeliverableMessagesAreBounded(t *testing.T) {
	o := newHarness(t, false, map[string]string{
		"trigger.on-degraded": "- when: rollout.status.phase == 'Degraded'\n  oncePer: rollout.metadata.annotations['rollout.argoproj.io/revision']\n  send: [bad]",
		"template.bad":        "message: bad",
	})
	o.answer = func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) }
	for i := range 400 {
		about := o.about("Degraded")
		about.Object.GetAnnotations()["rollout.argoproj.io/revision"] = fmt.Sprint(i) + strings.Repeat("x", 900)
		o.dispatcher.NotifyChange(t.Context(), about)
		o.send()
	}
	if size := len(o.dispatcher.Queued(o.about("Degraded")).String()); size == 0 || size > 256<<10 {
		t.Errorf("the undeliverable messages occupy %d bytes", size)
	}
}

// TestMessagesWithoutSpaceInTheAnnotation checks that messages are sent once even if there are more than it can contain.
func TestMessagesWithoutSpaceInTheAnnotation(t *testing.T) {
	o := newHarness(t, false, map[string]string{
		"trigger.on-degraded": defaultConfig["trigger.on-degraded"], "trigger.on-broken": defaultConfig["trigger.on-degraded"], "template.bad": "message: bad",
	})
	var recipients []string
	for i := range 75 {
		recipients = append(recipients, fmt.Sprint(i))
	}
	notify := func(phase argov1.RolloutPhase) {
		about := o.about(phase)
		for _, trigger := range []string{"on-degraded", "on-broken"} {
			about.Object.GetAnnotations()["notifications.argoproj.io/subscribe."+trigger+".hook"] = strings.Join(recipients, ";")
		}
		o.dispatcher.NotifyChange(t.Context(), about)
		o.send()
	}
	for range 2 {
		notify("Degraded")
		o.wantReceived(slices.Repeat([]string{"bad"}, 150)...)
		for range 3 {
			notify("Degraded")
			o.wantReceived()
		}
		notify("Healthy")
		if text, ok := o.about("").Object.GetAnnotations()[notification.NotifiedAnnotation]; ok {
			t.Errorf("the annotation still contains %s", text)
		}
	}
}

// TestRefusedAnnotation checks that a refusal of the annotation is reported, unless the object was created again.
func TestRefusedAnnotation(t *testing.T) {
	for refused, reported := range map[string]bool{"annotations": true, "uid": false} {
		t.Run(refused, func(t *testing.T) {
			o := newHarness(t, false, defaultConfig)
			o.client = interceptor.NewClient(o.client.(client.WithWatch), interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return apierrors.NewInvalid(argov1.SchemeGroupVersion.WithKind("Rollout").GroupKind(), key.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", refused), "x", "refused")})
			}})
			o.startProcess(false)
			o.dispatcher.NotifyChange(t.Context(), o.about("Degraded"))
			o.send()
			if got := strings.Contains(o.logs.String(), "metadata."+refused); got != reported {
				t.Errorf("reported: %v; logs:\n%s", got, o.logs.String())
			}
		})
	}
}

// TestUnreachableReceiverIsRetried checks that attempts have pauses, and that one event without a secret reports when
// they are exhausted.
func TestUnreachableReceiverIsRetried(t *testing.T) {
	o := newHarness(t, false, defaultConfig)
	o.answer = func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { done <- o.outbox.Run(ctx) }()
	o.dispatcher.NotifyChange(t.Context(), o.about("Degraded"))
	waited := false
	for range 5 {
		o.waitUntil(func() bool { return o.clock.HasWaiters() })
		o.clock.Step(16 * time.Second)
		waited = true
	}
	o.waitUntil(func() bool { return len(o.events) > 0 })
	o.dispatcher.NotifyChange(t.Context(), o.about("Degraded")) // not sent again after the last attempt
	o.mu.Lock()
	attempts, events := len(o.received), slices.Clone(o.events)
	o.mu.Unlock()
	if attempts != 6 || !waited {
		t.Errorf("%d attempts", attempts)
	}
	want := "NotificationFailed: The message of trigger on-degraded to hook was not sent: the service answered 502 Bad Gateway"
	if len(events) != 1 || events[0] != want {
		t.Errorf("recorded %q, want %q", events, want)
	}
	if got := counterSum(t, o.registry, "notification_send_error"); got != 1 {
		t.Errorf("%v errors", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// waitUntil waits until a condition is true that another goroutine changes.
func (o *harness) waitUntil(is func() bool) {
	o.Helper()
	waittest.Until(o, "the condition is true", func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !is() {
			return errors.New("not yet")
		}
		return nil
	})
}

// counterSum returns the sum of a counter.
func counterSum(t *testing.T, registry *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestInvalidKeyIsReportedOnce checks that an invalid key is reported in an event of the subscribed Rollout, and
// in the health of the process.
func TestInvalidKeyIsReportedOnce(t *testing.T) {
	broken := map[string]string{"trigger.on-degraded": "- when: rollout.(\n  send: [bad]", "template.done": "message: '{{.x'", "trigger.on-rollout-completed": "- send: [done]"}
	o := newHarness(t, false, broken)
	for range 2 {
		o.dispatcher.NotifyChange(t.Context(), o.about("Degraded"))
		o.send()
	}
	if len(o.events) != 1 || !strings.HasPrefix(o.events[0], `NotificationFailed: Notifications: ConfigMap argo-rollouts-notification-configmap in serin, key "trigger.on-degraded": when "rollout.("`) {
		t.Errorf("recorded %q", o.events)
	}
	if !strings.Contains(o.health, "2 keys of ConfigMap") || !strings.Contains(o.health, "template.done") {
		t.Errorf("health %q", o.health)
	}
	o.events = nil
	o.dispatcher.NotifyEvent(t.Context(), o.about(""), release.Event{Reason: "RolloutCompleted"})
	o.send()
	if len(o.events) != 1 || !strings.Contains(o.events[0], `key "template.done"`) {
		t.Errorf("recorded %q", o.events)
	}
	o.configure("serin", defaultConfig)
	o.dispatcher.NotifyChange(t.Context(), o.about("Degraded"))
	o.send()
	o.wantReceived("bad")
	if o.health != "" {
		t.Errorf("health %q", o.health)
	}
}

// TestTooManyRecipientsAreReportedOnce checks that omitted recipients are reported once, also if they
// are the only ones with a message.
func TestTooManyRecipientsAreReportedOnce(t *testing.T) {
	o := newHarness(t, false, defaultConfig)
	o.dispatcher.NotifyChange(t.Context(), o.about("Healthy")) // the configuration is parsed
	o.send()
	about := o.about("Degraded")
	var recipients []string
	for i := range 101 {
		recipients = append(recipients, fmt.Sprint(i))
	}
	delete(about.Object.GetAnnotations(), "notifications.argoproj.io/subscribe.on-degraded.hook")
	about.Object.GetAnnotations()["notifications.argoproj.io/subscribe.on-a.hook"] = strings.Join(recipients, ";")
	for range 2 {
		o.dispatcher.NotifyChange(t.Context(), about)
		o.send()
	}
	if len(o.events) != 1 || !strings.HasPrefix(o.events[0], "NotificationFailed: Notifications: the object has more than 100 recipients") {
		t.Errorf("recorded %q", o.events)
	}
	o.dispatcher.NotifyEvent(t.Context(), about, release.Event{Reason: "RolloutCompleted", Message: "well"})
	o.send()
	o.wantReceived() // its annotation is the last one
	about.Object.GetAnnotations()["notifications.argoproj.io/subscribe.on-a.hook"] = strings.Join(recipients[:99], ";")
	o.dispatcher.NotifyEvent(t.Context(), about, release.Event{Reason: "RolloutCompleted", Message: "well"})
	o.send()
	o.wantReceived("cart well cart:2 newer older")
}

func TestErrorsOfServicesContainNoSecret(t *testing.T) {
	o := newHarness(t, false, defaultConfig)
	o.configure("serin", map[string]string{
		"service.webhook.hook": "url: ftp://$path", "trigger.on-rollout-completed": "- send: [done]",
		"template.done": "message: '{{fail .secrets.path}}'",
	})
	o.dispatcher.NotifyEvent(t.Context(), o.about(""), release.Event{Reason: "RolloutCompleted"})
	o.send()
	if len(o.events) != 1 || strings.Contains(o.events[0], "Very-Secret") {
		t.Errorf("recorded %q", o.events)
	}
}

// TestNamespaceMayHaveItsOwnConfiguration checks that the configuration of a namespace applies in addition to that of the
// controller, if that is enabled.
func TestNamespaceMayHaveItsOwnConfiguration(t *testing.T) {
	for _, self := range []bool{false, true} {
		t.Run(fmt.Sprint(self), func(t *testing.T) {
			o := newHarness(t, self, defaultConfig)
			o.configure("shop", map[string]string{"trigger.on-degraded": defaultConfig["trigger.on-degraded"], "template.bad": "message: own"})
			for range 2 {
				o.dispatcher.NotifyChange(t.Context(), o.about("Degraded"))
				o.send()
			}
			want := []string{"bad"}
			if self {
				want = append(want, "own")
			}
			o.wantReceived(want...)
		})
	}
}

// TestNothingIsSentWithoutConfiguration checks that not even the AnalysisRuns are listed.
func TestNothingIsSentWithoutConfiguration(t *testing.T) {
	o := newHarness(t, false, defaultConfig)
	if err := o.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "serin", Name: notification.ConfigMapName}}); err != nil {
		t.Fatal(err)
	}
	about := o.about("Degraded")
	about.Runs = func(context.Context) ([]argov1.AnalysisRun, error) { return nil, errors.New("listed") }
	o.dispatcher.NotifyChange(t.Context(), about)
	o.dispatcher.NotifyEvent(t.Context(), about, release.Event{Reason: "RolloutCompleted"})
	o.send()
	o.wantReceived()
	if len(o.events) > 0 {
		t.Errorf("recorded %q", o.events)
	}
}

// TestWorkersEvaluateNothing checks that expressions of users are evaluated by the outbox, so that a reconciliation returns
// while no evaluation can start.
func TestWorkersEvaluateNothing(t *testing.T) {
	o := newHarness(t, true, defaultConfig)
	o.configure("shop", map[string]string{"trigger.on-degraded": "- when: all(1..1000, all(1..1000, all(1..1000, true)))\n  send: [bad]"})
	if err := o.dispatcher.Occupy(t.Context(), "hostile"); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		o.dispatcher.NotifyChange(t.Context(), o.about("Degraded"))
	}
	o.wantReceived()
	o.send()
	o.wantReceived("bad") // while the evaluations of the other namespace do not end
}

// TestHostileConfigurationsDoNotAffectOthers checks that neither triggers nor templates of a namespace prevent the messages of
// the controller's configuration, and that they send nothing.
func TestHostileConfigurationsDoNotAffectOthers(t *testing.T) {
	o := newHarness(t, true, defaultConfig)
	o.configure("shop", map[string]string{
		"trigger.on-degraded":          "- when: let a = repeat('x', 900000); let b = a+a+a+a+a+a; let c = b+b+b+b+b+b+b+b; len(c+c+c+c) > 0\n  send: [bad]",
		"trigger.on-rollout-completed": "- send: [bad]",
		"template.bad":                 "message: '{{$a := repeat 1000 \"x\"}}{{range until 30}}{{$a = print $a $a}}{{end}}{{len $a}}'",
	})
	o.dispatcher.NotifyChange(t.Context(), o.about("Degraded"))
	o.send()
	o.wantReceived("bad")
	o.dispatcher.NotifyEvent(t.Context(), o.about(""), release.Event{Reason: "RolloutCompleted"})
	o.send()
	o.wantReceived("cart  cart:2 newer older")
	if len(o.events) != 1 || !strings.Contains(o.events[0], "it becomes too long") && !strings.Contains(o.events[0], "too much time or memory") {
		t.Errorf("recorded %q", o.events)
	}
}

// TestNoStateRemainsAfterADeletion checks that the message about the deletion is sent after the Rollout was forgotten, and
// that neither its series nor its ledger remain, whether the message is accepted or not.
func TestNoStateRemainsAfterADeletion(t *testing.T) {
	for name, status := range map[string]int{"arrives": http.StatusOK, "is refused": http.StatusBadRequest} {
		t.Run(name, func(t *testing.T) {
			o := newHarness(t, false, map[string]string{"trigger.on-rollout-deleted": "- send: [gone]", "template.gone": "message: gone", "trigger.on-degraded": defaultConfig["trigger.on-degraded"], "template.bad": "message: bad"})
			o.answer = func(w http.ResponseWriter) { w.WriteHeader(status) }
			about := o.about("Degraded")
			about.Object.GetAnnotations()["notifications.argoproj.io/subscribe.on-rollout-deleted.hook"] = ""
			o.dispatcher.NotifyChange(t.Context(), about)
			o.dispatcher.NotifyEvent(t.Context(), about, release.Event{Reason: "RolloutDeleted"})
			o.dispatcher.Forget(argov1.RolloutKind, key)
			o.send()
			o.wantReceived("bad", "gone")
			if len(o.dispatcher.Keys(argov1.RolloutKind)) != 0 || len(o.events) > 0 {
				t.Errorf("%d Rollouts have a ledger, events %q", len(o.dispatcher.Keys(argov1.RolloutKind)), o.events)
			}
			families, err := o.registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				if strings.HasPrefix(family.GetName(), "notification_send") {
					t.Errorf("%d series %s remain", len(family.GetMetric()), family.GetName())
				}
			}
		})
	}
}

// TestRecreatedRolloutHasItsOwnLedger checks that messages about the former Rollout are sent, and do not affect the new one.
func TestRecreatedRolloutHasItsOwnLedger(t *testing.T) {
	o := newHarness(t, false, map[string]string{"trigger.on-rollout-deleted": "- send: [gone]", "template.gone": "message: gone", "trigger.on-degraded": defaultConfig["trigger.on-degraded"], "template.bad": "message: bad"})
	former, next := o.about("Degraded"), o.about("Degraded")
	former.Object.SetUID("former")
	former.Object.GetAnnotations()["notifications.argoproj.io/subscribe.on-rollout-deleted.hook"] = ""
	o.dispatcher.NotifyEvent(t.Context(), former, release.Event{Reason: "RolloutDeleted"})
	o.dispatcher.Forget(argov1.RolloutKind, key)
	o.dispatcher.NotifyChange(t.Context(), next)
	o.send()
	o.wantReceived("gone", "bad")
	o.dispatcher.NotifyChange(t.Context(), next)
	o.send()
	o.wantReceived() // the message is recorded as sent
	if len(o.dispatcher.Keys(argov1.RolloutKind)) != 1 {
		t.Errorf("%d Rollouts are known", len(o.dispatcher.Keys(argov1.RolloutKind)))
	}
	o.dispatcher.Forget(argov1.RolloutKind, key)
	if len(o.dispatcher.Keys(argov1.RolloutKind)) != 0 {
		t.Errorf("%d Rollouts are known", len(o.dispatcher.Keys(argov1.RolloutKind)))
	}
}

// TestNoStateOfManyDeletedRolloutsRemains checks that no state of deleted Rollouts remains.
func TestNoStateOfManyDeletedRolloutsRemains(t *testing.T) {
	o := newHarness(t, false, defaultConfig)
	about := o.about("Degraded")
	for i := range 2000 {
		rollout := &argov1.Rollout{}
		rollout.Namespace, rollout.Name, rollout.UID = key.Namespace, fmt.Sprintf("cart-%d", i), types.UID(fmt.Sprint(i))
		rollout.Annotations = map[string]string{"notifications.argoproj.io/subscribe.on-degraded.none": ""}
		rollout.Status.Phase = "Degraded"
		about.Object = rollout
		o.dispatcher.NotifyChange(t.Context(), about)
		o.dispatcher.Forget(argov1.RolloutKind, client.ObjectKeyFromObject(about.Object))
		o.send()
	}
	if len(o.dispatcher.Keys(argov1.RolloutKind)) != 0 || counterSum(t, o.registry, "notification_send_error") != 0 {
		t.Errorf("%d Rollouts are known", len(o.dispatcher.Keys(argov1.RolloutKind)))
	}
}

// TestNoConfigurationOfADeletedNamespaceRemains checks that the configuration of a namespace, with its credentials, is in memory as
// long as an object there may use it.
func TestNoConfigurationOfADeletedNamespaceRemains(t *testing.T) {
	o := newHarness(t, true, defaultConfig)
	o.configure("shop", map[string]string{"trigger.on-degraded": defaultConfig["trigger.on-degraded"], "template.bad": "message: own"})
	other := types.NamespacedName{Namespace: "shop", Name: "other"}
	for _, name := range []string{key.Name, other.Name} {
		about := o.about("Degraded")
		about.Object.SetName(name)
		o.dispatcher.NotifyChange(t.Context(), about)
		o.send()
	}
	for _, tt := range []struct {
		deleted types.NamespacedName
		want    []string
	}{{key, []string{"serin", "shop"}}, {other, []string{"serin"}}} {
		o.dispatcher.Forget(argov1.RolloutKind, tt.deleted)
		if got := o.dispatcher.Configs(); !slices.Equal(got, tt.want) {
			t.Errorf("after the deletion of %s, the configurations of %q are in memory, want %q", tt.deleted, got, tt.want)
		}
	}
	o.dispatcher.NotifyChange(t.Context(), o.about("Healthy"))
	o.send()
	if got := o.dispatcher.Configs(); !slices.Equal(got, []string{"serin", "shop"}) {
		t.Errorf("the configurations of %q are in memory", got)
	}
}
