package rollout

import (
	"fmt"
	"maps"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// pluginCalls is I43. It judges each call by the Rollout that the plugin receives, and by the earlier answers.
type pluginCalls struct {
	*ledger

	// inFlight are the calls without an answer, by process and Rollout; answered are the last answers to Run, by step; order are the
	// numbers of the first calls of Run, by step.
	inFlight map[string]bool
	answered map[string]pluginAnswer
	order    map[string]int
}

// pluginAnswer is the last answer to a call of Run.
type pluginAnswer struct {
	process string
	at      time.Time
	// next is the time before which the plugin must not be called again; ended is true if it must never be.
	next  time.Time
	ended bool
}

func newPluginCalls(l *ledger) *pluginCalls {
	return &pluginCalls{l, map[string]bool{}, map[string]pluginAnswer{}, map[string]int{}}
}

// check is called for each event.
func (c *pluginCalls) check(event any) {
	switch h := event.(type) {
	case sim.ProcessStarted: // the answers of its predecessor are lost
		c.forget(h.Instance)
	case sim.ShardLost: // it drops the answers to calls in flight, also if it acquires the shard again before they come
		c.forget(h.Instance)
	case actors.QueryAnswered: // first: it contains the other
		if request, ok := h.Query.Request.(controller.StepPluginRequest); ok && c.inFlight[h.Instance+"/"+h.Key.String()] {
			delete(c.inFlight, h.Instance+"/"+h.Key.String())
			c.recordAnswer(h, request)
		}
	case actors.QuerySent:
		if request, ok := h.Query.Request.(controller.StepPluginRequest); ok {
			c.checkCall(h, request)
		}
	}
}

// forget drops what a process knew.
func (c *pluginCalls) forget(instance string) {
	maps.DeleteFunc(c.inFlight, func(key string, _ bool) bool { return strings.HasPrefix(key, instance+"/") })
	maps.DeleteFunc(c.answered, func(_ string, last pluginAnswer) bool { return last.process == instance })
}

func (c *pluginCalls) checkCall(h actors.QuerySent, request controller.StepPluginRequest) {
	name, key := h.Key.Name, h.Instance+"/"+h.Key.String()
	if c.inFlight[key] {
		c.Violate("I43", name, "%s of step %d is called while another call is in flight", request.Operation, request.Step)
	}
	c.inFlight[key] = true
	status, steps := request.Object.Status, request.Object.Spec.Strategy.Canary.Steps
	run := runOfStep(status.Canary.StepPluginStatuses, request.Step)
	if int(request.Step) >= len(steps) || steps[request.Step].Plugin == nil || run == nil {
		c.Violate("I43", name, "step %d is called, which is not a step of a plugin, or has no status", request.Step)
		return
	}
	if string(request.State) != string(run.Status) {
		c.Violate("I43", name, "step %d receives the state %s, and %s is stored", request.Step, request.State, run.Status)
	}
	switch request.Operation {
	case argov1.StepPluginRun:
		c.checkRun(h, request, status, *run)
	case argov1.StepPluginAbort:
		c.checkAbort(h, request, status, *run)
	default:
		if promoted := status.PromoteFull || status.StableRS == status.CurrentPodHash; !promoted && request.Object.Spec.RollbackWindow == nil {
			c.Violate("I43", name, "step %d is terminated although the release is not promoted", request.Step)
		}
	}
}

// checkRun checks that the step is the current one of a release in progress, and that its time has come.
func (c *pluginCalls) checkRun(h actors.QuerySent, request controller.StepPluginRequest, status argov1.RolloutStatus, run argov1.StepPluginStatus) {
	if status.Abort || request.Object.Spec.Paused || status.CurrentStepIndex == nil || *status.CurrentStepIndex != request.Step {
		c.Violate("I43", h.Key.Name, "step %d is executed; the release is at %v, aborted %v, paused %v", request.Step, status.CurrentStepIndex, status.Abort, request.Object.Spec.Paused)
	}
	last, known := c.answered[stepKey(h, request, run)]
	if _, called := c.order[stepKey(h, request, run)]; !called {
		c.order[stepKey(h, request, run)] = len(c.order)
	}
	if !known || last.process != h.Instance || c.Clocks.Changed {
		return // the answer may be lost
	}
	if last.ended || c.Now().Before(last.next) {
		c.Violate("I43", h.Key.Name, "step %d is executed again at %s; its last answer came at %s and permits that from %s", request.Step, c.Now(), last.at, last.next)
	}
}

// checkAbort checks that the release is aborted, and that the steps that were executed later were.
func (c *pluginCalls) checkAbort(h actors.QuerySent, request controller.StepPluginRequest, status argov1.RolloutStatus, run argov1.StepPluginStatus) {
	name := h.Key.Name
	if !status.Abort {
		c.Violate("I43", name, "step %d is aborted, and the release is not", request.Step)
	}
	ended := map[int32]bool{}
	for _, s := range status.Canary.StepPluginStatuses {
		ended[s.Index] = ended[s.Index] || s.Operation == argov1.StepPluginAbort
	}
	if ended[request.Step] {
		c.Violate("I43", name, "step %d is aborted twice", request.Step)
	}
	for _, s := range status.Canary.StepPluginStatuses {
		executed := s.Operation == argov1.StepPluginRun && !s.Disabled && (s.Phase == "" || s.Phase == argov1.StepPluginRunning || s.Phase == argov1.StepPluginSuccessful)
		if executed && !ended[s.Index] && c.wasExecutedLater(h, request, s, run) {
			c.Violate("I43", name, "step %d is aborted before step %d, which was executed after it", request.Step, s.Index)
		}
	}
}

// wasExecutedLater reports whether one step was executed after another. The calls show that, and not the order of the steps: a step
// is executed after later ones if another actor removes its status and sets an earlier current step. Of a step that the status
// contains without a call, only its position is known.
func (c *pluginCalls) wasExecutedLater(h actors.QuerySent, request controller.StepPluginRequest, step, other argov1.StepPluginStatus) bool {
	at, called := c.order[stepKey(h, request, step)]
	otherAt, otherCalled := c.order[stepKey(h, request, other)]
	if called && otherCalled {
		return at > otherAt
	}
	return step.Index > other.Index
}

// recordAnswer records when the plugin may be called again. The times are those that Argo Rollouts documents.
func (c *pluginCalls) recordAnswer(h actors.QueryAnswered, request controller.StepPluginRequest) {
	run := runOfStep(request.Object.Status.Canary.StepPluginStatuses, request.Step)
	if request.Operation != argov1.StepPluginRun || run == nil {
		return
	}
	wait := 30 * time.Second
	reply, _ := h.Answer.Detail.(rollout.StepPluginReply)
	if h.Answer.Outcome == release.Yes && reply.Phase == argov1.StepPluginRunning && reply.RequeueAfter > 10*time.Second {
		wait = reply.RequeueAfter
	}
	const precision = time.Second // times in a status are whole seconds
	c.answered[stepKey(h.QuerySent, request, *run)] = pluginAnswer{
		process: h.Instance, at: c.Now(), next: c.Now().Add(wait - precision),
		ended: reply.Phase == argov1.StepPluginSuccessful || reply.Phase == argov1.StepPluginFailed,
	}
}

// stepKey identifies the execution of a step in a release. Two releases may start it in the same second.
func stepKey(h actors.QuerySent, request controller.StepPluginRequest, run argov1.StepPluginStatus) string {
	return fmt.Sprintf("%s/%s/%d/%s", h.Key.UID, request.Object.Status.CurrentPodHash, run.Index, run.StartedAt)
}

func runOfStep(statuses []argov1.StepPluginStatus, step int32) *argov1.StepPluginStatus {
	for i, s := range statuses {
		if s.Index == step && s.Operation == argov1.StepPluginRun {
			return &statuses[i]
		}
	}
	return nil
}
