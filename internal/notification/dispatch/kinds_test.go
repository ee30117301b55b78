package dispatch_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/release"
)

// runConfig notifies about AnalysisRuns and Experiments. The subscriptions of the configuration are for Rollouts.
var runConfig = map[string]string{
	"subscriptions":                  "[{recipients: [hook], triggers: [on-analysis-run-failed, on-experiment-failed, on-failed]}]",
	"trigger.on-analysis-run-failed": "- send: [run]",
	"template.run":                   "message: 'run {{.analysisRun.metadata.name}} {{.analysisRun.status.phase}} {{.event.message}} {{.rollout.kind}}'",
	"trigger.on-experiment-failed":   "- send: [experiment]",
	"template.experiment":            "message: 'experiment {{.experiment.metadata.name}} {{.rollout.status.phase}}'",
	"trigger.on-failed":              "- when: analysisRun.status.phase == 'Failed'\n  send: [state]\n- when: experiment.status.phase == 'Failed'\n  send: [state]",
	"template.state":                 "message: state of {{.rollout.metadata.name}}",
	"trigger.on-rollout-completed":   "- send: [state]",
}

func subscribed(triggers ...string) map[string]string {
	out := map[string]string{}
	for _, trigger := range triggers {
		out["notifications.argoproj.io/subscribe."+trigger+".hook"] = ""
	}
	return out
}

func TestAnalysisRunsAndExperimentsAreNotified(t *testing.T) {
	o := newHarness(t, false, runConfig)
	run := &argov1.AnalysisRun{}
	run.Namespace, run.Name, run.UID, run.Annotations = "shop", "cart", "run-uid", subscribed("on-analysis-run-failed", "on-failed")
	experiment := &argov1.Experiment{}
	experiment.Namespace, experiment.Name, experiment.UID, experiment.Annotations = "shop", "cart", "experiment-uid", subscribed("on-experiment-failed", "on-failed")
	for _, object := range []client.Object{run, experiment} {
		if err := o.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	run.Status.Phase, experiment.Status.Phase = argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseFailed
	runFailed := []release.Event{{Type: release.Warning, Reason: "AnalysisRunFailed", Message: "bad"}}
	experimentFailed := []release.Event{{Type: release.Warning, Reason: "ExperimentFailed", Message: "bad"}}

	o.dispatcher.Notify(t.Context(), dispatch.About{Object: run}, runFailed)
	o.send()
	o.wantReceived("run cart Failed bad AnalysisRun", "state of cart")
	o.dispatcher.Notify(t.Context(), dispatch.About{Object: experiment}, experimentFailed)
	o.send()
	o.wantReceived("experiment cart Failed", "state of cart")

	// The log of sent messages is stored with each object, so that another process sends none of them again.
	o.startProcess(false)
	for _, object := range []client.Object{run, experiment} {
		if err := o.client.Get(t.Context(), key, object); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(object.GetAnnotations()[notification.NotifiedAnnotation], "on-failed") {
			t.Errorf("%T has the annotations %v", object, object.GetAnnotations())
		}
	}
	run.Status.Phase, experiment.Status.Phase = argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseFailed
	o.dispatcher.Notify(t.Context(), dispatch.About{Object: run}, nil)
	o.dispatcher.Notify(t.Context(), dispatch.About{Object: experiment}, nil)
	o.send()
	o.wantReceived()
	if got := counterSum(t, o.registry, "notification_send_success"); got != 0 {
		t.Errorf("%v series of Rollouts about other objects", got)
	}
}

func TestSubscriptionsOfTheConfigurationAreForRollouts(t *testing.T) {
	o := newHarness(t, false, runConfig)
	run := &argov1.AnalysisRun{}
	run.Namespace, run.Name, run.UID = "shop", "background", "run-uid"
	run.Status.Phase = argov1.AnalysisPhaseFailed
	o.dispatcher.Notify(t.Context(), dispatch.About{Object: run}, []release.Event{{Reason: "AnalysisRunFailed"}})
	o.send()
	o.wantReceived()
	o.dispatcher.NotifyEvent(t.Context(), o.about("Degraded"), release.Event{Reason: "AnalysisRunFailed", Message: "bad"})
	o.send()
	o.wantReceived("run <no value> <no value> bad Rollout")
}

// TestObjectsOfOneNameAreSeparate: a deleted AnalysisRun does not end the state of the Rollout with its name.
func TestObjectsOfOneNameAreSeparate(t *testing.T) {
	o := newHarness(t, false, runConfig)
	run := &argov1.AnalysisRun{}
	run.Namespace, run.Name, run.UID, run.Annotations = "shop", "cart", "run-uid", subscribed("on-failed")
	run.Status.Phase = argov1.AnalysisPhaseFailed
	o.dispatcher.Notify(t.Context(), dispatch.About{Object: run}, nil)
	o.dispatcher.NotifyEvent(t.Context(), o.about("Healthy"), release.Event{Reason: "RolloutCompleted"})
	o.send()
	keys := func(kind string) int { return len(o.dispatcher.Keys(kind)) }
	if keys(argov1.AnalysisRunKind) != 1 || keys(argov1.RolloutKind) != 1 {
		t.Fatalf("%d runs and %d Rollouts", keys(argov1.AnalysisRunKind), keys(argov1.RolloutKind))
	}
	o.dispatcher.Forget(argov1.AnalysisRunKind, types.NamespacedName{Namespace: "shop", Name: "cart"})
	if keys(argov1.AnalysisRunKind) != 0 || keys(argov1.RolloutKind) != 1 {
		t.Errorf("after the deletion: %d runs and %d Rollouts", keys(argov1.AnalysisRunKind), keys(argov1.RolloutKind))
	}
}
