package rollout

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// pluginBehavior is how a step plugin of a scenario behaves, by operation.
type pluginBehavior struct {
	Run, Abort, Terminate *pluginResult
}

// pluginResult is the result of one operation.
type pluginResult struct {
	Phase   argov1.StepPluginPhase `json:"phase"`
	Message string                 `json:"message"`
	Requeue metav1.Duration        `json:"requeue"`
	State   json.RawMessage        `json:"state"`
	// Error is the error of the call; Unstartable the reason why there is no call; Hangs is true if there is no answer.
	Error, Unstartable string
	Hangs              bool
}

// configurePlugin executes the command plugin of a scenario.
func (w *world) configurePlugin(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	name := d.CmdArgs[0].Key
	var behavior pluginBehavior
	if err := yaml.UnmarshalStrict([]byte(d.Input), &behavior); err != nil {
		d.Fatalf(t, "%v", err)
	}
	w.replies[name], w.plugins[name] = behavior, StepPlugin{Disabled: d.HasArg("disabled")}
	if d.HasArg("refused") {
		w.plugins[name] = StepPlugin{Refusal: name + " is refused"}
	}
	if d.HasArg("lost") {
		delete(w.plugins, name)
	}
}

// sendQueries sends the queries of a decision, and reports whether there are new calls.
func (w *world) sendQueries(t testingT, queries []release.Query) bool {
	t.Helper()
	sent := false
	for _, query := range queries {
		if calls, isRouter := query.Request.(RouterCalls); isRouter {
			sent = w.sendRouterCalls(t, query, calls) || sent
			continue
		}
		call := query.Request.(StepPluginCall)
		if _, done := w.answers.AnswerTo(query); done {
			t.Fatalf("%s of %s is asked although its answer is known", call.Operation, call.Plugin)
		}
		if _, inFlight := w.calls[query.ID]; inFlight {
			continue
		}
		fmt.Fprintf(&w.events, "  calls %s of %s with config %s, state %s\n", call.Operation, call.Plugin, cmpOr(string(call.Config), "-"), cmpOr(string(call.State), "-"))
		w.answers[query.ID] = release.Answer{ID: query.ID, Since: query.Since, Began: w.now}
		w.calls[query.ID] = call
		sent = true
	}
	return sent
}

// finishCalls answers the calls in flight, except to plugins that hang.
func (w *world) finishCalls() {
	w.finishRouterCalls()
	for id, call := range w.calls {
		behavior := w.replies[call.Plugin]
		result := map[argov1.StepPluginOperation]*pluginResult{
			argov1.StepPluginRun: behavior.Run, argov1.StepPluginAbort: behavior.Abort, argov1.StepPluginTerminate: behavior.Terminate,
		}[call.Operation]
		if result == nil {
			result = &pluginResult{Phase: argov1.StepPluginSuccessful}
		}
		if result.Hangs {
			continue
		}
		answer := w.answers[id]
		answer.Ended = w.now
		switch {
		case result.Unstartable != "":
			answer.Outcome, answer.Text = release.Broken, result.Unstartable
		case result.Error != "":
			answer.Outcome, answer.Text = release.Unreachable, result.Error
		default:
			answer.Outcome, answer.Detail = release.Yes, StepPluginReply{Phase: result.Phase, Message: result.Message, RequeueAfter: result.Requeue.Duration, State: result.State}
		}
		w.answers[id] = answer
		delete(w.calls, id)
	}
}

// formatPluginStatus prints the status of an operation of a step plugin.
func formatPluginStatus(s argov1.StepPluginStatus) string {
	if s.Disabled {
		return fmt.Sprintf("%s of step %d is disabled", s.Name, s.Index)
	}
	text := fmt.Sprintf("%s of step %d: %s %s", s.Name, s.Index, s.Operation, s.Phase)
	if s.Message != "" {
		text += fmt.Sprintf(" (%s)", s.Message)
	}
	if s.Executions > 0 {
		text += fmt.Sprintf(", call %d", s.Executions)
	}
	if s.Backoff != "" {
		text += ", then " + string(s.Backoff)
	}
	if len(s.Status) > 0 {
		text += ", state " + string(s.Status)
	}
	if s.FinishedAt != nil {
		text += " at " + s.FinishedAt.UTC().Format(time.TimeOnly)
	}
	return text
}

// TestPluginAnswerOfAnEarlierAttempt: the answer to an attempt that was aborted and retried within one second does not
// count for the next attempt.
func TestPluginAnswerOfAnEarlierAttempt(t *testing.T) {
	started := argov1.StepPluginStatus{Name: "a", Operation: argov1.StepPluginRun, Phase: argov1.StepPluginRunning, StartedAt: new(metav1.NewTime(noon))}
	f := facts{Snapshot: Snapshot{Now: noon.Add(300 * time.Millisecond), Hash: "h"}}
	f.Answers = release.Answers{pluginCallID(f.Hash, started, argov1.StepPluginRun): {Began: noon, Ended: noon, Outcome: release.Yes, Detail: StepPluginReply{Phase: argov1.StepPluginSuccessful}}}
	got := startPlugin(f, argov1.StepPluginStatus{Name: "a", Operation: argov1.StepPluginRun})
	if _, waiting := findPluginAnswer(f, got, argov1.PluginStep{Name: "a"}, argov1.StepPluginRun); waiting == nil {
		t.Errorf("the attempt that starts at %s takes an answer of the one before", got.StartedAt)
	}
}

// TestNextPluginCallOfOtherControllers: whatever another controller stored as backoff, the plugin is called again.
func TestNextPluginCallOfOtherControllers(t *testing.T) {
	got := map[string]string{}
	for _, backoff := range []argov1.DurationString{"", "10s", "1m0s", "-5s", "never"} {
		got[string(backoff)] = nextPluginCall(argov1.StepPluginStatus{Executions: 1, UpdatedAt: new(metav1.NewTime(noon)), Backoff: backoff}).Sub(noon).String()
	}
	want := map[string]string{"": "30s", "10s": "10s", "1m0s": "1m0s", "-5s": "30s", "never": "30s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
