package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
)

// The release changes between the question to the user and the answer.
func TestACommandAppliesToTheObservedReleaseOnly(t *testing.T) {
	for _, c := range []struct {
		name    string
		command cluster.Command
		before  func(*flaggerv1.CanaryStatus)
		after   func(*flaggerv1.CanaryStatus)
		want    error
		sent    string
	}{
		{
			"its weight", cluster.PromoteFull, func(*flaggerv1.CanaryStatus) {},
			func(s *flaggerv1.CanaryStatus) { s.CanaryWeight = 40 }, nil, "promote-full@1f2e",
		},
		{
			"its revision", cluster.PromoteFull, func(*flaggerv1.CanaryStatus) {},
			func(s *flaggerv1.CanaryStatus) { s.Serin.Run = "next" }, cluster.ErrRefused, "",
		},
		{
			"it starts its analysis", cluster.Promote,
			func(s *flaggerv1.CanaryStatus) { s.Phase = flaggerv1.CanaryPhaseWaiting },
			func(s *flaggerv1.CanaryStatus) { s.Phase, s.Serin.Run = flaggerv1.CanaryPhaseProgressing, "next" }, cluster.ErrRefused, "",
		},
		{
			"its step is approved", cluster.Promote,
			func(s *flaggerv1.CanaryStatus) { s.Serin.Held = "confirm-traffic-increase/gate" },
			func(s *flaggerv1.CanaryStatus) { s.Serin.Held, s.CanaryWeight = "", 40 }, cluster.ErrRefused, "",
		},
		{
			"it waits at the next step", cluster.Promote,
			func(s *flaggerv1.CanaryStatus) { s.Serin.Held = "confirm-traffic-increase/gate" },
			func(s *flaggerv1.CanaryStatus) { s.CanaryWeight = 40 }, cluster.ErrRefused, "",
		},
		{
			"its revision", cluster.Pause, func(*flaggerv1.CanaryStatus) {},
			func(s *flaggerv1.CanaryStatus) { s.Serin.Run = "next" }, nil, "",
		},
	} {
		w := clitest.NewFakeCluster(t, clitest.Cart)
		set := func(change func(*flaggerv1.CanaryStatus)) {
			o := w.Canary("cart")
			w.Change(o, func() { change(&o.Status) })
		}
		set(c.before)
		planned, err := w.Session.PlanCommand(t.Context(), c.command, "shop", cluster.Name{Name: "cart"})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		set(c.after)
		if err := w.Session.SendCommand(t.Context(), planned); !errors.Is(err, c.want) {
			t.Errorf("%s changes: SendCommand returns %v, want %v", c.name, err, c.want)
		}
		if got := w.Canary("cart").Annotations[canary.CommandAnnotation]; got != c.sent {
			t.Errorf("%s changes: the command is %q, want %q", c.name, got, c.sent)
		}
	}
}

func TestAnAbortHasNoEffectOnceThePrimaryHasTheNewRevision(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	o := w.Canary("cart")
	w.Change(o, func() { o.Status.Serin.Intent = "finish" })
	if _, err := w.Session.PlanCommand(t.Context(), cluster.Abort, "shop", cluster.Name{Name: "cart"}); !errors.Is(err, cluster.ErrNoEffect) {
		t.Errorf("PlanCommand returns %v, want %v", err, cluster.ErrNoEffect)
	}
}

func TestUndoReplacesTheTemplateThatItRead(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.WebRollout)
	planned, err := w.Session.PlanUndo(t.Context(), "shop", cluster.Name{Name: "web"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := w.Rollout("web")
	w.Change(r, func() { r.Spec.Template.Spec.Containers[0].Image = "web:v3" })
	if err := w.Session.SendCommand(t.Context(), planned); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "has changed meanwhile") {
		t.Errorf("another version was deployed meanwhile: SendCommand returns %v, want %v", err, cluster.ErrRefused)
	}
	if image := w.Rollout("web").Spec.Template.Spec.Containers[0].Image; image != "web:v3" {
		t.Errorf("the image is %s", image)
	}
}

// TestUndoReturnsToTheRevisionBeforeTheCurrentTemplate has revisions 1 (web:v1) and 2 (web:v2). A template has no ReplicaSet yet
// while the Rollout is paused or the controller has not seen it.
func TestUndoReturnsToTheRevisionBeforeTheCurrentTemplate(t *testing.T) {
	for current, want := range map[string]string{"web:v2": "web:v1", "web:v3": "web:v2"} {
		w := clitest.NewFakeCluster(t, clitest.WebRollout)
		r := w.Rollout("web")
		w.Change(r, func() { r.Spec.Template.Spec.Containers[0].Image = current })
		planned, err := w.Session.PlanUndo(t.Context(), "shop", cluster.Name{Name: "web"}, 0)
		if err == nil {
			err = w.Session.SendCommand(t.Context(), planned)
		}
		if got := w.Rollout("web").Spec.Template.Spec.Containers[0].Image; err != nil || got != want {
			t.Errorf("undo of %s: got %s and error %v, want %s", current, got, err, want)
		}
	}
}

// Only a pause is ended without --full: every other step is complete when its check has passed.
func TestPromoteSkipsNoCheckOfARollout(t *testing.T) {
	for name, test := range map[string]struct {
		step argov1.CanaryStep
		want error
	}{
		"analysis":   {argov1.CanaryStep{Analysis: &argov1.RolloutAnalysis{}}, cluster.ErrRefused},
		"experiment": {argov1.CanaryStep{Experiment: &argov1.RolloutExperimentStep{}}, cluster.ErrRefused},
		"plugin":     {argov1.CanaryStep{Plugin: &argov1.PluginStep{Name: "org/check"}}, cluster.ErrRefused},
		"weight":     {argov1.CanaryStep{SetWeight: new(int32(50))}, cluster.ErrRefused},
		"scale":      {argov1.CanaryStep{SetCanaryScale: &argov1.SetCanaryScale{Replicas: new(int32(2))}}, cluster.ErrRefused},
		"pause":      {argov1.CanaryStep{Pause: &argov1.RolloutPause{}}, nil},
	} {
		w := clitest.NewFakeCluster(t, clitest.WebRollout)
		r := w.Rollout("web")
		w.Change(r, func() {
			r.Spec.Strategy.Canary.Steps[1] = test.step
			r.Status.Phase, r.Status.PauseConditions, r.Status.ControllerPause = argov1.RolloutPhaseProgressing, nil, false
		})
		planned, err := w.Session.PlanCommand(t.Context(), cluster.Promote, "shop", cluster.Name{Name: "web"})
		if err == nil {
			err = w.Session.SendCommand(t.Context(), planned)
		}
		if index := *w.Rollout("web").Status.CurrentStepIndex; !errors.Is(err, test.want) || (index == 1) != (test.want != nil) {
			t.Errorf("promote at a step with %s: got %v and step %d, want %v", name, err, index+1, test.want)
		}
	}
}

func TestPromoteSkipsOnlyTheObservedStepOfARollout(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.WebRollout)
	planned, err := w.Session.PlanCommand(t.Context(), cluster.Promote, "shop", cluster.Name{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	r := w.Rollout("web")
	w.Change(r, func() { r.Status.CurrentStepIndex, r.Status.PauseConditions = new(int32(2)), nil })
	if err := w.Session.SendCommand(t.Context(), planned); !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("the pause ended meanwhile: SendCommand returns %v, want %v", err, cluster.ErrRefused)
	}
	if index := *w.Rollout("web").Status.CurrentStepIndex; index != 2 {
		t.Errorf("the analysis was skipped: step %d", index)
	}
}

// deniesStatus is a client of a user who may not write the status of an object.
type deniesStatus struct{ client.WithWatch }

func (deniesStatus) Status() client.SubResourceWriter { return deniedStatus{} }

type deniedStatus struct{ client.SubResourceWriter }

func (deniedStatus) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return apierrors.NewForbidden(argov1.SchemeGroupVersion.WithResource("rollouts").GroupResource(), o.GetName(), errors.New("no permission"))
}

// TestADeniedAnswerIsReportedAsTheCommandOfTheUser: the user approved a gate, and did not promote a release.
func TestADeniedAnswerIsReportedAsTheCommandOfTheUser(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.WebRollout)
	planned, err := w.Session.PlanAnswer(t.Context(), cluster.Approve, "shop", cluster.Name{Name: "web"}, "pause")
	if err != nil {
		t.Fatal(err)
	}
	w.Session.Client = deniesStatus{w.Session.Client}
	const want = "approve pause of Rollout web in namespace shop: access denied: "
	if err := w.Session.SendCommand(t.Context(), planned); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the error is %v, want %s…", err, want)
	}
}
