package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/cockroachdb/datadriven"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/demo"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
	"github.com/serin-dev/serin/internal/rollout"
)

// TestCommands runs commands as users type them. In the test data, cluster creates a cluster with Canary cart or Rollout web in a
// state, and run executes a command line and shows its output and exit code. With the argument unreachable, all requests of run
// fail; after names a change during the command. The command events shows the events that record commands of users, annotation
// the command for Canary cart, template a pod template, demo-objects the objects of serin demo, and analysis the state of an AnalysisRun or Experiment.
func TestCommands(t *testing.T) {
	for _, file := range []string{"testdata/commands", "testdata/rollouts", "testdata/trees", "testdata/top", "testdata/history", "testdata/othercontrollers", "testdata/control", "testdata/workloads", "testdata/plan", "testdata/check", "testdata/answers", "testdata/analyses", "testdata/deadlines", "testdata/demo"} {
		synctest.Test(t, func(t *testing.T) { // without subtests, which a synctest bubble does not support
			var w *clitest.FakeCluster
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				switch d.Cmd {
				case "cluster":
					w = newCluster(t, d)
					return ""
				case "template":
					return templateOf(t, w, strings.TrimSpace(d.Input))
				case "events":
					return userEvents(t, w)
				case "demo-objects":
					return demoObjects(t, w)
				case "analysis":
					return analysisOf(t, w, strings.TrimSpace(d.Input))
				case "annotation":
					return w.Canary("cart").Annotations[canary.CommandAnnotation] + "\n"
				case "run":
					return runCommand(t, w, strings.Fields(d.Input), d)
				default:
					d.Fatalf(t, "unknown command")
					return ""
				}
			})
		})
	}
}

func newCluster(t *testing.T, d *datadriven.TestData) *clitest.FakeCluster {
	t.Helper()
	var manifests []string
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "cart":
			manifests = append(manifests, clitest.Cart)
		case "web":
			manifests = append(manifests, clitest.WebRollout)
		case "routed":
			manifests = append(manifests, clitest.RoutedWeb())
		case "blue-green":
			manifests = append(manifests, clitest.BlueGreenWeb())
		case "namesake": // a Rollout with the name of the Canary
			manifests = append(manifests, strings.ReplaceAll(strings.Split(clitest.WebRollout, "\n---\n")[0], "name: web", "name: cart"))
		}
	}
	manifest := strings.Join(manifests, "\n---\n")
	for key, more := range map[string]string{
		"controller": clitest.SerinDeployment, "plugins": clitest.PluginsDeployment, "flagger": clitest.FlaggerDeployment, "argo": clitest.ArgoRolloutsDeployment, "no-image": clitest.PodsWithoutImage,
		"cart-pods": clitest.CartPods, "daemonsets": clitest.CartDaemonSets, "web-pods": clitest.WebPods, "web-no-image": clitest.WebPodWithoutImage, "many-pods": clitest.ManyPods(25), "experiment": clitest.WebExperiment, "experiments": clitest.EndedExperiments, "gateway": clitest.PublicGateway, "closed-gateway": clitest.ClosedGateway, "scaling": clitest.WebScaling, "stable-budget": clitest.StableBudget, "hostile": clitest.HostilePod,
	} {
		if d.HasArg(key) {
			manifest += more
		}
	}
	w := clitest.NewFakeCluster(t, strings.TrimPrefix(manifest, "\n---\n"))
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "forbidden":
			w.Forbid(arg.Vals...)
		case "missing":
			w.Uninstall(arg.Vals...)
		case "cart":
			setCart(t, d, w, arg.Vals[0])
		case "web":
			setWeb(t, d, w, arg.Vals[0])
		case "relabelled": // Service web-stable selects other pods
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-stable"}}
			w.Change(service, func() { service.Spec.Selector["app"], service.Spec.Selector["tier"] = "other", "front" })
		case "managed": // Service web-stable is managed by another Rollout
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-stable"}}
			w.Change(service, func() { service.Annotations = map[string]string{argov1.ManagedByAnnotation: arg.Vals[0]} })
		case "unconfirmed": // the route of Canary cart was changed, and no Gateway has reported about that
			route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "cart", Namespace: "shop"}}
			w.Change(route, func() { route.Generation = 2 })
		case "namespaces":
			for _, name := range arg.Vals {
				if err := w.Admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
					t.Fatal(err)
				}
			}
		case "definitions":
			for _, group := range arg.Vals {
				w.InstallDefinitions(group)
			}
		case "metrics": // the value that Prometheus returns, none, broken or forbidden
			w.ServeAPI(strings.TrimPrefix(arg.Vals[0], "none"))
		case "denied":
			for _, request := range arg.Vals {
				w.Deny(strings.ReplaceAll(request, "_", " "))
			}
		case "metrics-server":
			setMetricsServer(t, w, arg.Vals[0])
		case "elsewhere": // a Canary of another namespace
			c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Name: arg.Vals[0], Namespace: "kitchen"}}
			if err := w.Admin.Create(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(10 * time.Second) // in the synctest bubble
	return w
}

// createInDemo creates objects in namespace try.
func createInDemo(t *testing.T, w *clitest.FakeCluster, name string, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		o.SetNamespace("try")
		o.SetName(name)
		o.SetUID(types.UID(fmt.Sprintf("%T-%s", o, name)))
		if err := w.Admin.Create(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
}

// demoObjects returns the namespaces and the objects of namespace try.
func demoObjects(t *testing.T, w *clitest.FakeCluster) string {
	t.Helper()
	var out strings.Builder
	for _, list := range []client.ObjectList{&corev1.NamespaceList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &flaggerv1.CanaryList{}, &argov1.RolloutList{}} {
		if err := w.Admin.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			if err == nil && (object.GetNamespace() == "try" || object.GetName() == "try") {
				fmt.Fprintf(&out, "%s %s label=%s\n", strings.TrimPrefix(fmt.Sprintf("%T", o), "*"), object.GetName(), object.GetLabels()[demo.Label])
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// signOff is a webhook that has to approve the promotion.
var signOff = flaggerv1.CanaryWebhook{Name: "sign-off", Type: flaggerv1.ConfirmPromotionHook, URL: "http://loadtester.test/gate/check"}

func setCart(t *testing.T, d *datadriven.TestData, w *clitest.FakeCluster, state string) {
	t.Helper()
	c := w.Canary("cart")
	w.Change(c, func() {
		own := c.Status.Serin
		own.Window.Start.Time = time.Now()
		switch state {
		case "progressing":
		case "starting":
			d := w.Deployment("cart")
			w.Change(d, func() { d.Status.ReadyReplicas, d.Status.AvailableReplicas = 0, 0 })
			own.Window, own.Gates, c.Status.CanaryWeight = nil, nil, 0
		case "overdue", "overdue-suspended", "just-due": // the window has ended, and the controller has recorded nothing since
			c.Spec.Suspend = state == "overdue-suspended"
			began := time.Now().Add(-3 * time.Minute)
			if state == "just-due" {
				began = time.Now().Add(-40 * time.Second)
			}
			since, until := metav1.NewMicroTime(began), metav1.NewMicroTime(began.Add(30*time.Second))
			own.Window.Start = since
			own.Gates = append([]flaggerv1.GateStatus{{Name: "window", Verdict: "wait", Opener: "time", Message: "observing", Since: &since, Until: &until}}, own.Gates...)
		case "succeeded":
			c.Status.Phase, c.Status.CanaryWeight, own.Window, own.Gates = flaggerv1.CanaryPhaseSucceeded, 0, nil, nil
		case "failed":
			c.Status.Phase, c.Status.CanaryWeight, own.Window, own.Gates = flaggerv1.CanaryPhaseFailed, 0, nil, nil
		case "answered": // a gate of the release in progress was approved, and one of the last release denied
			own.Release.Command, own.History[0].Command = "approve confirm-promotion/sign-off", "deny confirm-promotion/sign-off"
			own.History[0].Cause = &flaggerv1.ReleaseCause{Gate: "confirm-promotion/sign-off", Message: "confirm-promotion/sign-off was denied by command"}
		case "rolling-back":
			c.Status.FailedChecks = 2
		case "suspended":
			c.Spec.Suspend = true
		case "unroutable":
			c.Spec.Provider = "nginx"
		case "daemonset":
			c.Spec.TargetRef.Kind, own.Shape = "DaemonSet", strings.Replace(own.Shape, "Deployment", "DaemonSet", 1)
		case "service":
			c.Spec.TargetRef.Kind, own.Shape = "Service", strings.Replace(own.Shape, "Deployment", "Service", 1)
		case "waiting":
			c.Status.Phase, c.Status.CanaryWeight, own.Window = flaggerv1.CanaryPhaseWaiting, 0, nil
		case "queued":
			c.Status.Phase, c.Status.CanaryWeight, own.Window = flaggerv1.CanaryPhaseSucceeded, 0, nil
			own.Queue = &flaggerv1.QueuePlace{Since: metav1.NewMicroTime(time.Now())}
		case "queued-release":
			c.Status.Phase, c.Status.CanaryWeight, own.Window, own.Gates = flaggerv1.CanaryPhaseSucceeded, 0, nil, nil
			own.Revision, c.Status.LastAppliedSpec, own.Release = "s1-older", "older", nil
			own.Queue = &flaggerv1.QueuePlace{Since: metav1.NewMicroTime(time.Now())}
		case "held":
			own.Held = "confirm-traffic-increase/gate"
		case "before-approval": // a webhook has to approve the promotion later
			c.Spec.Analysis.Webhooks = []flaggerv1.CanaryWebhook{signOff}
		case "unapproved", "unapproved-twice": // a webhook has not approved the promotion, and another one was not called yet
			c.Spec.Analysis.StepWeights = []int{20}
			c.Spec.Analysis.Webhooks = []flaggerv1.CanaryWebhook{signOff}
			if state == "unapproved-twice" {
				c.Spec.Analysis.Webhooks = append(c.Spec.Analysis.Webhooks, flaggerv1.CanaryWebhook{Name: "security", Type: flaggerv1.ConfirmPromotionHook, URL: "http://loadtester.test/gate/security"})
			}
			c.Status.Phase, c.Status.Serin.Held = flaggerv1.CanaryPhaseWaitingPromotion, "confirm-promotion/sign-off"
			began, until := metav1.NewMicroTime(time.Now()), metav1.NewMicroTime(time.Now().Add(30*time.Second))
			c.Status.Serin.Window = &flaggerv1.AnalysisWindow{Start: began}
			c.Status.Serin.Gates = []flaggerv1.GateStatus{
				{Name: "confirm-promotion/sign-off", Verdict: "wait", Opener: "person", Message: "sign-off has not approved: Forbidden", Since: &began, Until: &until},
			}
		case "waiting-promotion", "suspended-waiting-promotion":
			c.Status.Phase, c.Spec.Suspend = flaggerv1.CanaryPhaseWaitingPromotion, state != "waiting-promotion"
		case "skipping":
			own.Intent = "skip"
		case "promoting":
			c.Status.Phase = flaggerv1.CanaryPhasePromoting
		default:
			d.Fatalf(t, "unknown state %q", state)
		}
	})
	if state == "succeeded" || state == "failed" || state == "starting" || state == "queued-release" {
		w.SetCanaryWeight(0)
	}
}

func setWeb(t *testing.T, d *datadriven.TestData, w *clitest.FakeCluster, state string) {
	t.Helper()
	r := w.Rollout("web")
	w.Change(r, func() {
		s := &r.Status
		resume := func() { s.PauseConditions, s.ControllerPause = nil, false }
		switch state {
		case "paused":
		case "plugged":
			for _, name := range []string{"acme/approve", "acme/missing"} {
				r.Spec.Strategy.Canary.Steps = append(r.Spec.Strategy.Canary.Steps, argov1.CanaryStep{Plugin: &argov1.PluginStep{Name: name}})
			}
		case "referencing":
			r.Spec.WorkloadRef = &argov1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
		case "role-metadata":
			r.Spec.Strategy.Canary.StableMetadata = &argov1.PodTemplateMetadata{Labels: map[string]string{"role": "stable"}, Annotations: map[string]string{"role": "stable"}}
			rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-old"}}
			w.Change(rs, func() {
				rs.Spec.Template.Labels["role"], rs.Spec.Template.Annotations = "stable", map[string]string{"role": "stable"}
			})
		case "timed-pause":
			s.CurrentStepIndex = new(int32(4))
			s.PauseConditions[0].StartTime = metav1.NewTime(time.Now())
			w.ScaleReplicaSet("web-new", 2, 2)
			w.ScaleReplicaSet("web-old", 2, 2)
		case "overdue-pause": // the pause has ended, and the controller has recorded nothing since
			s.CurrentStepIndex = new(int32(4))
			since, until := metav1.NewMicroTime(time.Now().Add(-time.Hour)), metav1.NewMicroTime(time.Now().Add(-55*time.Minute))
			s.PauseConditions[0].StartTime = metav1.NewTime(since.Time)
			s.Serin.Gates = []argov1.GateStatus{
				{Name: "pause", Verdict: "wait", Opener: "time", Message: "until", Since: &since, Until: &until},
				{Name: "scale-down-delay", Verdict: "wait", Opener: "time", Message: "until", Since: &since, Until: &metav1.MicroTime{Time: time.Now().Add(time.Hour)}},
			}
			w.ScaleReplicaSet("web-new", 2, 2)
			w.ScaleReplicaSet("web-old", 2, 2)
		case "paused-by-user":
			r.Spec.Paused = true
			resume()
		case "analysing":
			s.CurrentStepIndex, s.Phase, s.Message = new(int32(2)), argov1.RolloutPhaseProgressing, "more replicas need to be updated"
			resume()
			s.Canary.CurrentStepAnalysisRunStatus = &argov1.RolloutAnalysisRunStatus{Name: "web-new-2-2", Status: argov1.AnalysisPhaseRunning}
		case "analysing-without-answers":
			s.CurrentStepIndex, s.Phase, s.Message = new(int32(2)), argov1.RolloutPhaseProgressing, "more replicas need to be updated"
			resume()
			s.Canary.CurrentStepAnalysisRunStatus = &argov1.RolloutAnalysisRunStatus{Name: "web-new-2-2", Status: argov1.AnalysisPhaseRunning}
			w.FailMeasurements("web-new-2-2", "dial tcp: lookup prometheus: no such host", time.Now())
		case "starting":
			s.CurrentStepIndex, s.Phase, s.Message = new(int32(0)), argov1.RolloutPhaseProgressing, "more replicas need to be updated"
			resume()
			w.ScaleReplicaSet("web-new", 1, 0)
		case "aborted", "rolling-back":
			resume()
			s.CurrentStepIndex, s.Abort, s.AbortedAt = new(int32(0)), true, &metav1.Time{Time: time.Now().Add(-time.Minute)}
			s.Phase = argov1.RolloutPhaseDegraded
			s.Message = "RolloutAborted: Rollout aborted update to revision 2: Step-based analysis phase error/failed: Metric \"success-rate\" assessed Failed due to failed (3) > failureLimit (2)"
			s.Conditions = []argov1.RolloutCondition{{
				Type: argov1.RolloutProgressing, Status: "False", Reason: "RolloutAborted", Message: strings.TrimPrefix(s.Message, "RolloutAborted: "),
				LastTransitionTime: *s.AbortedAt, LastUpdateTime: *s.AbortedAt,
			}}
			w.CompleteAnalysisRun("web-new-2-2", argov1.AnalysisPhaseFailed)
			if state == "aborted" {
				w.ScaleReplicaSet("web-new", 0, 0)
				w.ScaleReplicaSet("web-old", 4, 4)
			}
		case "hostile": // a controller, or who may write its status, controls the terminal
			resume()
			s.StableRS, s.CurrentStepIndex, s.Phase, s.Message = "new", new(int32(5)), "Healthy\x1b[2J\nserin: promoted\u202e", "all\x1b]0;title\a is\r\nwell\u202e"
		case "promoted":
			resume()
			s.StableRS, s.CurrentStepIndex, s.UpdatedReplicas, s.Phase, s.Message = "new", new(int32(5)), 4, argov1.RolloutPhaseHealthy, ""
			w.ScaleReplicaSet("web-new", 4, 4)
			w.ScaleReplicaSet("web-old", 0, 0)
		case "promoting": // the last pods of the promoted revision are not available yet
			resume()
			s.StableRS, s.CurrentStepIndex, s.UpdatedReplicas, s.Phase, s.Message = "new", new(int32(5)), 4, argov1.RolloutPhaseProgressing, "more replicas need to be updated"
			w.ScaleReplicaSet("web-new", 4, 3)
			w.ScaleReplicaSet("web-old", 1, 1)
		case "first":
			resume()
			s.StableRS, s.CurrentStepIndex, s.Phase, s.Message = "", nil, argov1.RolloutPhaseProgressing, "more replicas need to be updated"
			w.ScaleReplicaSet("web-new", 4, 3)
			w.ScaleReplicaSet("web-old", 0, 0)
		case "failed-before": // revision 2 failed, after revision 1 was promoted
			s.StableRS = "older"
			for name, revision := range map[string]string{"web-older": "1", "web-old": "2", "web-new": "3"} {
				rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
				w.Change(rs, func() { rs.Annotations[argov1.RevisionAnnotation] = revision })
			}
			w.CompleteAnalysisRun("web-new-2-2", argov1.AnalysisPhaseFailed)
			run := &argov1.AnalysisRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-new-2-2"}}
			w.Change(run, func() { run.Labels[argov1.PodTemplateHashLabel] = "old" })
		case "late", "late-first", "late-again": // the progress deadline has passed: of a new revision, of the first one, or of one that had all its pods
			resume()
			s.CurrentStepIndex, s.Phase = new(int32(0)), argov1.RolloutPhaseDegraded
			s.AvailableReplicas, s.ReadyReplicas = 3, 3
			w.ScaleReplicaSet("web-new", 1, 0)
			since := metav1.NewTime(time.Now().Add(-time.Minute))
			s.Conditions = []argov1.RolloutCondition{
				{Type: argov1.RolloutHealthy, Status: "False", Reason: "RolloutHealthy"},
				{Type: argov1.RolloutProgressing, Status: "False", Reason: "ProgressDeadlineExceeded", Message: `ReplicaSet "web-new" has timed out progressing.`, LastUpdateTime: since, LastTransitionTime: since},
			}
			s.Message = "ProgressDeadlineExceeded: " + s.Conditions[1].Message
			if state == "late" {
				break
			}
			s.StableRS, s.CurrentStepIndex = "new", new(int32(5))
			s.Replicas, s.UpdatedReplicas, s.AvailableReplicas, s.ReadyReplicas = 4, 4, 0, 0
			w.ScaleReplicaSet("web-new", 4, 0)
			w.ScaleReplicaSet("web-old", 0, 0)
			if state == "late-first" {
				s.Conditions = s.Conditions[1:]
				if err := w.Admin.Delete(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-old"}}); err != nil {
					t.Error(err)
				}
			}
		case "invalid":
			r.Spec.Strategy.Canary.Steps[2].Analysis.Templates[0].TemplateName = "nowhere"
		default:
			d.Fatalf(t, "unknown state %q", state)
		}
	})
}

// templateOf returns the pod template of kind/name, and restartAt of a Rollout.
func templateOf(t *testing.T, w *clitest.FakeCluster, of string) string {
	t.Helper()
	kind, name, _ := strings.Cut(of, "/")
	var template any
	restart := ""
	switch kind {
	case "deployment":
		template = w.Deployment(name).Spec.Template
	case "rollout":
		spec := w.Rollout(name).Spec
		template = spec.Template
		if spec.RestartAt != nil {
			restart = "restartAt: " + spec.RestartAt.UTC().Format(time.RFC3339) + "\n"
		}
	}
	text, err := yaml.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + restart
}

// analysisOf returns spec.terminate and the phase of an AnalysisRun or an Experiment, given as kind/name.
func analysisOf(t *testing.T, w *clitest.FakeCluster, of string) string {
	t.Helper()
	kind, name, _ := strings.Cut(of, "/")
	key := client.ObjectKey{Namespace: "shop", Name: name}
	if kind == "experiment" {
		var e argov1.Experiment
		if err := w.Admin.Get(t.Context(), key, &e); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("terminate=%v phase=%s\n", e.Spec.Terminate, e.Status.Phase)
	}
	var run argov1.AnalysisRun
	if err := w.Admin.Get(t.Context(), key, &run); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("terminate=%v phase=%s\n", run.Spec.Terminate, run.Status.Phase)
}

// userEvents returns the events that record commands of users.
func userEvents(t *testing.T, w *clitest.FakeCluster) string {
	t.Helper()
	var list corev1.EventList
	if err := w.Admin.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range list.Items {
		if e.Reason == "UserAction" {
			of := e.InvolvedObject
			lines = append(lines, fmt.Sprintf("%s %s %s/%s %s: %s\n", e.Type, of.APIVersion, of.Kind, of.Name, e.Source.Component, e.Message))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// setMetricsServer adds a flag to the Deployment of the controller.
func setMetricsServer(t *testing.T, w *clitest.FakeCluster, address string) {
	t.Helper()
	var list appsv1.DeploymentList
	if err := w.Admin.List(t.Context(), &list, client.InNamespace("serin-system")); err != nil || len(list.Items) != 1 {
		t.Fatalf("list the Deployments of Serin: %v, %d", err, len(list.Items))
	}
	w.Change(&list.Items[0], func() {
		container := &list.Items[0].Spec.Template.Spec.Containers[0]
		container.Args = append(container.Args, "-metrics-server="+address)
	})
}

// runCommand executes a command line and returns its output, its errors and its exit code. The argument after changes the cluster
// ten seconds later.
func runCommand(t *testing.T, w *clitest.FakeCluster, args []string, d *datadriven.TestData) string {
	t.Helper()
	connect := func(selected *connection, controllerFlags controllerFlags) (*cluster.Session, string, error) {
		session := *w.Session
		session.ControllerFlags = controllerFlags
		return &session, cmp.Or(selected.overrides.Context.Namespace, "shop"), nil
	}
	if d.HasArg("unreachable") {
		w.FailRequests(errors.New("dial tcp 127.0.0.1:6443: connect: connection refused"))
	}
	root := newRoot("serin", connect)
	var out, notes bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&notes)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	after := ""
	d.MaybeScanArgs(t, "after", &after)
	go func() {
		if after == "" {
			return
		}
		time.Sleep(10 * time.Second)
		switch after {
		case "succeeded", "failed":
			w.SetCanaryWeight(0)
			c := w.Canary("cart")
			w.Change(c, func() {
				c.Status.Phase, c.Status.CanaryWeight, c.Status.Serin.Window = flaggerv1.CanaryPhaseSucceeded, 0, nil
				if after == "failed" {
					c.Status.Phase = flaggerv1.CanaryPhaseFailed
				}
			})
		case "unapproved":
			setCart(t, d, w, after)
		case "carried-out", "new-run":
			c := w.Canary("cart")
			w.Change(c, func() {
				c.Status.Serin.Command = c.Annotations[canary.CommandAnnotation]
				if after == "new-run" {
					c.Status.Serin.Run = "next"
				}
			})
		case "web-continued":
			r := w.Rollout("web")
			w.Change(r, func() { r.Status.CurrentStepIndex, r.Status.Phase = new(int32(2)), argov1.RolloutPhaseProgressing })
		case "pulled":
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-7d47-vvd8m"}}
			w.Change(pod, func() { pod.Status.ContainerStatuses = nil })
		case "deleted":
			if err := w.Admin.Delete(t.Context(), w.Canary("cart")); err != nil {
				t.Error(err)
			}
		case "run-ended":
			w.CompleteAnalysisRun("web-new-2-2", argov1.AnalysisPhaseSuccessful)
		case "experiment-deleted":
			if err := w.Admin.Delete(t.Context(), &argov1.Experiment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "load"}}); err != nil {
				t.Error(err)
			}
		case "interrupted":
			cancel()
		case "namespace-used": // by a user, after the demo created it
			createInDemo(t, w, "notes", &corev1.ConfigMap{})
		case "namespace-configured": // by a user, without an object that runs anything
			createInDemo(t, w, "web", &networkingv1.Ingress{}, &networkingv1.NetworkPolicy{}, &corev1.ServiceAccount{}, &argov1.Experiment{})
		case "namespace-initialized": // by Kubernetes, by the controllers of the demo's Services, and by Serin
			createInDemo(t, w, "kube-root-ca.crt", &corev1.ConfigMap{})
			createInDemo(t, w, "default", &corev1.ServiceAccount{})
			createInDemo(t, w, "demo-load", &corev1.Event{}, &corev1.Endpoints{}) //nolint:staticcheck // clusters still have it
			createInDemo(t, w, "serin", &coordinationv1.Lease{})
		}
	}()
	for i, arg := range args {
		args[i] = strings.Trim(arg, `"'`) // "" is an empty argument
	}
	code := Run(ctx, root, args, &notes)
	synctest.Wait()
	text := out.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(notes.String(), "\n"), "\n") {
		if line != "" {
			text += "! " + line + "\n"
		}
	}
	return text + fmt.Sprintf("exit %d\n", code)
}

func TestExitCodesOfTheCommandLine(t *testing.T) {
	root := NewRoot("serin")
	for _, line := range []string{
		"nonsense", "why", "why a b", "get --nonsense", "get -o xml", "watch --until never", "watch --timeout 1m", "watch --until weight=0", "watch --until weight=101",
		"watch --until step=x", "wait", "wait cart", "wait --for=done", "wait cart --for=never", "get -w -o json", "get -o jsonpath={", "why canary cart web",
		"why -o wide cart", "options x", "get a --tree -w", "get a --tree -o name", "top a", "top -o wide", "top -w -o json", "get fleet/x", "get /x", "get rollouts canary/x", "promote rollout/x --all", "abort", "abort a b", "promote a --timeout 1m",
		"retry a --wait --timeout -1m", "pause a --wait", "restart", "undo a b", "undo a --to-revision -1", "set", "set image a", "set image a b", "set image a b=",
		"set image a b=c b=d", "set color a", "plan", "plan a b", "plan a -f b", "plan -f does-not-exist.yaml", "plan -o wide a", "init", "init a b", "init statefulset/a", "init a --kind fleet", "init a --port -1", "get a -A", "terminate", "terminate a b", "terminate a --timeout 1m", "terminate a --wait --dry-run", "terminate rollout/a", "terminate ar/", "terminate a/b c", "retry experiment", "retry experiment a b", "create", "create a", "create analysisrun", "create analysisrun a", "create analysisrun --from a --from-file b",
		"create -f does-not-exist.yaml", "create -f testdata/create-none.yaml", "create -f testdata/create-service.yaml", "list", "list rollouts", "list x", "list experiments a", "list experiments -o wide", "version x", "crds --group apps", "lint -f testdata/lint-empty.yaml",
	} {
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		if got := Run(t.Context(), root, strings.Fields(line), &out); got != ExitUsage {
			t.Errorf("serin %s: exit code %d, want %d: %s", line, got, ExitUsage, out.String())
		}
	}
}

func TestExitCodesNeverChange(t *testing.T) {
	for want, got := range []int{ExitDone, ExitFailed, ExitUsage, ExitUserAction, ExitTimeout, ExitNotFound, ExitUnreachable, ExitCheck} {
		if got != want {
			t.Errorf("exit code %d changed to %d", want, got)
		}
	}
}

func TestCRDsPrintsDefinitionsOfBothGroupsOrOne(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{
			"alertproviders.flagger.app", "canaries.flagger.app", "metrictemplates.flagger.app", "analysisruns.argoproj.io",
			"analysistemplates.argoproj.io", "clusteranalysistemplates.argoproj.io", "experiments.argoproj.io", "rollouts.argoproj.io",
		}},
		{[]string{"--group", "flagger.app"}, []string{"alertproviders.flagger.app", "canaries.flagger.app", "metrictemplates.flagger.app"}},
		{[]string{"--group", "argoproj.io"}, []string{
			"analysisruns.argoproj.io", "analysistemplates.argoproj.io", "clusteranalysistemplates.argoproj.io",
			"experiments.argoproj.io", "rollouts.argoproj.io",
		}},
	} {
		cmd := newCRDsCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(c.args)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), "\nkind: CustomResourceDefinition\n"); got != len(c.want) {
			t.Errorf("crds %v printed %d definitions, want %d", c.args, got, len(c.want))
		}
		for _, name := range c.want {
			if !strings.Contains(out.String(), "name: "+name) {
				t.Errorf("crds %v: the definition of %s is missing", c.args, name)
			}
		}
	}
}

func TestLiveViewHandlesKeysSizesAndStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart)
		observed, err := w.Session.Observe(t.Context(), cluster.Selection{Namespace: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		first, _ := observed.Releases[0].(*explain.Canary)
		other := *first
		other.Object = other.Object.DeepCopy()
		other.Object.Name, other.Snapshot.Plan.Name = "web", "web"
		m := &model{releaseWatch: &releaseWatch{session: w.Session, goal: goal{kind: goalDone}, timeout: time.Minute, startedAt: time.Now()}}
		quits := func(msg tea.Msg) bool {
			_, next := m.Update(msg)
			if next == nil {
				return false
			}
			_, ticks := msg.(tickMsg)
			return !ticks || m.hasEnded
		}
		if !strings.Contains(m.View(), "Reading") {
			t.Errorf("before the first observation the view is %q", m.View())
		}
		quits(tea.WindowSizeMsg{Width: 60, Height: 12})
		quits(cluster.State{Releases: append(observed.Releases, &other), Controller: observed.Controller})
		if lines := strings.Split(m.View(), "\n"); len(lines) != 12 || !strings.Contains(m.View(), "shop/web") {
			t.Errorf("the list is not drawn with 12 lines and both releases:\n%s", m.View())
		}
		for _, key := range []tea.KeyMsg{{Type: tea.KeyDown}, {Type: tea.KeyDown}, {Type: tea.KeyEnter}} {
			quits(key)
		}
		if !strings.Contains(m.View(), "web.shop") {
			t.Errorf("the details of the second release are not shown:\n%s", m.View())
		}
		if quits(tea.KeyMsg{Type: tea.KeyEsc}) || !strings.Contains(m.View(), "shop/cart") {
			t.Errorf("esc does not return to the list:\n%s", m.View())
		}
		time.Sleep(30 * time.Second) // in the synctest bubble
		if quits(tickMsg{}); !strings.Contains(m.View(), "request-succ") {
			t.Errorf("after half a minute the checks are not queried:\n%s", m.View())
		}
		time.Sleep(time.Minute)
		if !quits(tickMsg{}) || ExitCode(m.err) != ExitTimeout {
			t.Errorf("after the timeout the watch does not end with %d: %v", ExitTimeout, m.err)
		}
		if !quits(tea.KeyMsg{Type: tea.KeyCtrlC}) {
			t.Error("Ctrl-C does not quit")
		}
	})
}

// TestKeysOfTheDemoReleaseVersions: the keys of the live view release the next version, and break it.
func TestKeysOfTheDemoReleaseVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart)
		objects, err := demo.Objects(demo.Options{Namespace: "try", Image: "serin:v1", Kind: explain.KindCanary})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Session.CreateDemo(t.Context(), cluster.Demo{Namespace: "try"}, objects, func(string) {}); err != nil {
			t.Fatal(err)
		}
		run := &demoRun{session: w.Session, namespace: "try", flags: demoFlags{kind: initCanary}}
		m := newModel(t.Context(), run.watch("", true), view.Paint{})
		observe := func() {
			observed, err := w.Session.Observe(t.Context(), run.watch("", true).sel)
			if err != nil {
				t.Fatal(err)
			}
			m.Update(cluster.State{Releases: observed.Releases, Controller: observed.Controller})
		}
		observe()
		if !strings.Contains(m.View(), "b break the new version  n next version  q quit") {
			t.Errorf("the keys are not shown:\n%s", m.View())
		}
		for _, c := range []struct{ key, want string }{
			{"n", "releasing v2\n"}, {"b", "releasing v2, which fails half of its requests"}, {"n", "releasing v3\n"},
		} {
			_, act := m.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(c.key)})
			if act == nil {
				t.Fatalf("the key %s has no effect", c.key)
			}
			m.Update(act())
			if !strings.Contains(m.View(), c.want) {
				t.Errorf("after the key %s, %q is missing:\n%s", c.key, c.want, m.View())
			}
		}
		w.FailRequests(errors.New("connection refused"))
		_, act := m.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("b")})
		if m.Update(act()); !strings.Contains(m.View(), "! break the new version: get Deployment demo in namespace try: connection") {
			t.Errorf("the failed action is not reported:\n%s", m.View())
		}
	})
}

// TestTheLiveViewByUrgencyRetainsTheSelection: the order of releases changes while the user looks at one of them.
func TestTheLiveViewByUrgencyRetainsTheSelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart+"\n---\n"+clitest.WebRollout)
		observed, err := w.Session.Observe(t.Context(), cluster.Selection{Namespace: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		m := &model{releaseWatch: &releaseWatch{session: w.Session, byUrgency: true}}
		m.Update(tea.WindowSizeMsg{Width: 100, Height: 12})
		m.Update(cluster.State{Releases: observed.Releases, Controller: observed.Controller})
		if first := m.screen.Releases[0].Name; first != "web" || !strings.Contains(m.View(), "1 needs user action") {
			t.Errorf("the first release is %s, want web, which waits for the user:\n%s", first, m.View())
		}
		m.Update(tea.KeyMsg{Type: tea.KeyDown})
		if selected := m.screen.Releases[m.screen.Selected].Name; selected != "cart" {
			t.Errorf("after the key down %s is selected, want cart", selected)
		}
		web := w.Rollout("web")
		w.Change(web, func() {
			web.Status.PauseConditions, web.Status.ControllerPause, web.Status.CurrentStepIndex = nil, false, new(int32(2))
		})
		cart := w.Canary("cart")
		w.Change(cart, func() { cart.Status.FailedChecks = 2 })
		if observed, err = w.Session.Observe(t.Context(), cluster.Selection{Namespace: "shop"}); err != nil {
			t.Fatal(err)
		}
		m.Update(cluster.State{Releases: observed.Releases, Controller: observed.Controller})
		if first, selected := m.screen.Releases[0].Name, m.screen.Releases[m.screen.Selected].Name; first != "cart" || selected != "cart" {
			t.Errorf("cart rolls back: %s is first and %s is selected, want cart twice", first, selected)
		}
	})
}

// TestThePluginOfKubectlNamesItself calls the program as kubectl does, for a command and for completions of it.
func TestThePluginOfKubectlNamesItself(t *testing.T) {
	var out bytes.Buffer
	root := NewRoot("/usr/local/bin/kubectl-serin")
	root.SetOut(&out)
	if code := Run(t.Context(), root, Arguments([]string{"/usr/local/bin/kubectl-serin", "why", "--help"}), &out); code != ExitDone {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	for _, want := range []string{"  kubectl serin why [KIND] NAME [flags]\n", "  kubectl serin why cart -n shop\n", "\"kubectl serin options\""} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help does not contain %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	root = NewRoot("kubectl_complete-serin")
	root.SetOut(&out)
	if code := Run(t.Context(), root, Arguments([]string{"kubectl_complete-serin", "wat"}), &bytes.Buffer{}); code != ExitDone || !strings.HasPrefix(out.String(), "watch\t") {
		t.Errorf("completion of wat: exit code %d: %s", code, out.String())
	}
}

func TestHelpShowsTheConnectionFlagsSeparately(t *testing.T) {
	help := func(args ...string) string {
		var out bytes.Buffer
		root := NewRoot("serin")
		root.SetOut(&out)
		if code := Run(t.Context(), root, args, &out); code != ExitDone {
			t.Fatalf("%v: exit code %d: %s", args, code, out.String())
		}
		return out.String()
	}
	if text := help("get", "--help"); strings.Contains(text, "--as-user-extra") || !strings.Contains(text, "--namespace") || !strings.Contains(text, "serin options") {
		t.Errorf("help of get:\n%s", text)
	}
	if text := help("options"); !strings.Contains(text, "--as-user-extra") || !strings.Contains(text, "--namespace") {
		t.Errorf("options:\n%s", text)
	}
	if version, flag := help("version"), help("--version"); version != flag || !strings.HasPrefix(version, "Serin version ") {
		t.Errorf("serin version prints %q, serin --version %q", version, flag)
	}
}

func TestUnknownFlagsSuggestASimilarOne(t *testing.T) {
	for line, want := range map[string]string{
		"get --selectr x":     "unknown flag --selectr: did you mean --selector?",
		"get -contxt x":       "unknown flag -contxt: did you mean --context?",
		"get --nonsense":      "unknown flag --nonsense: see serin get --help",
		"get -x":              "unknown flag -x: see serin get --help",
		"why cart --output=x": `--output "x" is invalid: use json, yaml, name, jsonpath=`,
	} {
		var out bytes.Buffer
		if code := Run(t.Context(), NewRoot("serin"), strings.Fields(line), &out); code != ExitUsage || out.String() != "serin: "+want+"\n" {
			t.Errorf("serin %s: exit code %d: %s", line, code, out.String())
		}
	}
}

func TestGatesNameExistingCommands(t *testing.T) {
	verbs := map[string]bool{}
	for _, o := range releaseCommands {
		verbs[o.verb] = true
	}
	for _, kind := range slices.Concat(canary.GateKinds(), rollout.GateKinds()) {
		if kind.Command != "" && !verbs[kind.Command] {
			t.Errorf("the gate %s is opened by serin %s, which is not a command", kind.Name, kind.Command)
		}
	}
}
