package rollout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// StepPlugin is a step plugin as the controller is configured.
type StepPlugin struct {
	// Disabled is true if the steps of the plugin are skipped.
	Disabled bool
	// Refusal is the reason why the plugin cannot be called, with its remedy; empty: it can.
	Refusal string
}

// StepPluginCall is the request of a query: one call of a step plugin. A call may be repeated, because a process can stop
// between the call and the write of the status.
type StepPluginCall struct {
	Plugin    string
	Step      int32
	Operation argov1.StepPluginOperation
	// Config is that of the step, State the state that the plugin returned last.
	Config, State json.RawMessage
}

// StepPluginReply is the detail of an answer to a StepPluginCall with the outcome Yes: the plugin returned a result. If the
// outcome is Unreachable, the call failed. If it is Broken, there was no call, because the plugin could not be started.
type StepPluginReply struct {
	Phase        argov1.StepPluginPhase
	Message      string
	RequeueAfter time.Duration
	State        json.RawMessage
}

const (
	// pluginRetryInterval is the time before a call that failed is repeated, before the configuration of a missing
	// plugin is checked again, and the default time between two calls of a running plugin.
	pluginRetryInterval = 30 * time.Second
	// minPluginRequeue is the time that a plugin cannot undercut; the default applies then. The value is that of Argo
	// Rollouts.
	minPluginRequeue = 10 * time.Second
)

const reasonPluginTransition = "StepPluginTransition"

// StepPluginGate is the name of the gate of a step plugin.
const StepPluginGate = "plugin"

// pluginPlan is the state of the step plugins after the answers of this snapshot were recorded.
type pluginPlan struct {
	statuses []argov1.StepPluginStatus
	// gate is that of the step, or of a call that ends an earlier one; nil: no plugin is concerned.
	gate   *release.Gate
	events []release.Event
}

// planStepPlugins records the answers of step plugins and decides about the next call: Run during a step, Abort for each
// executed plugin of an aborted release in reverse order, and Terminate for a running plugin whose step is skipped. There
// is one call at a time.
func planStepPlugins(f facts) pluginPlan {
	plan := planPluginCall(f)
	if plan.gate != nil && plan.gate.Verdict == release.Fail {
		plan.events = append(plan.events, release.Event{
			Type: release.Warning, Reason: reasonReconciliation, Persistent: true,
			Message: "Reconciliation failed with error: step plugin " + plan.gate.Message,
		})
	}
	return plan
}

func planPluginCall(f facts) pluginPlan {
	statuses := f.Status.Canary.StepPluginStatuses
	advancing := !f.Status.Abort && !isPromoted(f.Status) && f.hasDistinctStable()
	step, stepping := pods.StepAt(f.steps(), f.Status.CurrentStepIndex)
	if advancing && f.Status.AbortedAt != nil {
		statuses = nil // from before the retry
	}
	switch {
	case f.Status.Abort:
		return endPlugins(f, statuses, argov1.StepPluginAbort)
	case f.Status.PromoteFull || isPromoted(f.Status) || f.inRollbackWindow:
		return endPlugins(f, statuses, argov1.StepPluginTerminate)
	case advancing && stepping && step.Plugin != nil:
		return runPlugin(f, statuses, *step.Plugin)
	default:
		return pluginPlan{statuses: statuses}
	}
}

// runPlugin records the answer of the plugin of the current step and evaluates its gate.
func runPlugin(f facts, statuses []argov1.StepPluginStatus, step argov1.PluginStep) pluginPlan {
	status := argov1.StepPluginStatus{Index: *f.Status.CurrentStepIndex, Name: step.Name, Operation: argov1.StepPluginRun}
	i := slices.IndexFunc(statuses, isStatusOf(status))
	refusal := refusedPluginGate(f, step.Name)
	switch {
	case i >= 0 && (statuses[i].Disabled || isPluginCompleted(statuses[i].Phase)): // evaluated by pluginSuccessful
		return pluginPlan{statuses: statuses}
	case f.StepPlugins[step.Name].Disabled:
		status.Disabled = true
		return pluginPlan{statuses: setPluginStatus(statuses, status)}
	case f.Spec.Paused, len(f.Status.PauseConditions) > 0:
		return pluginPlan{statuses: statuses, gate: new(release.NewWaitingGate(StepPluginGate, release.ByUser, step.Name+" is not called while the rollout is paused"))}
	case refusal != nil:
		return pluginPlan{statuses: statuses, gate: refusal}
	case i >= 0:
		status = statuses[i]
	default:
		status = startPlugin(f, status)
	}
	var events []release.Event
	if !f.Now.Before(nextPluginCall(status)) {
		answer, waiting := findPluginAnswer(f, status, step, argov1.StepPluginRun)
		if waiting != nil {
			return pluginPlan{statuses: setPluginStatus(statuses, status), gate: waiting}
		}
		before := status
		status = recordPluginAnswer(status, answer)
		if before.Phase != status.Phase || before.Executions == 0 {
			events = reportPluginPhase(status, "transitioned to %s")
		}
	}
	return pluginPlan{statuses: setPluginStatus(statuses, status), gate: nextCallGate(status), events: events}
}

// nextCallGate returns the gate that waits for the next call of Run; nil: the plugin has completed.
func nextCallGate(status argov1.StepPluginStatus) *release.Gate {
	if isPluginCompleted(status.Phase) {
		return nil
	}
	next := nextPluginCall(status)
	gate := release.NewTimedGate(StepPluginGate, next, describePluginStatus(status)+"; next call at "+next.UTC().Format(time.TimeOnly))
	gate.Value, gate.Limit = string(status.Phase), string(argov1.StepPluginSuccessful)
	return &gate
}

// endPlugins calls an operation for the steps whose plugin was executed, the last step first. It ends at the first call
// without an answer, because the order of the calls matters to plugins.
func endPlugins(f facts, statuses []argov1.StepPluginStatus, operation argov1.StepPluginOperation) pluginPlan {
	plan := pluginPlan{statuses: slices.Clone(statuses)}
	for i, run := range slices.Backward(statuses) {
		if !lacksOperation(f.steps(), plan.statuses, run, operation) {
			continue
		}
		step := *f.steps()[run.Index].Plugin
		run, plan.gate = recordLastRun(f, run, step)
		if plan.gate != nil {
			return plan
		}
		plan.statuses[i] = run
		if !mustEndPlugin(run, operation) || f.StepPlugins[run.Name].Disabled {
			continue
		}
		if plan.gate = refusedPluginGate(f, run.Name); plan.gate != nil {
			return plan
		}
		var answer release.Answer
		if answer, plan.gate = findPluginAnswer(f, run, step, operation); plan.gate != nil {
			return plan
		}
		ended := newEndedStatus(run, operation, answer)
		plan.statuses = setPluginStatus(plan.statuses, ended)
		plan.events = append(plan.events, reportPluginPhase(ended, map[argov1.StepPluginOperation]string{argov1.StepPluginAbort: "aborted (%s)", argov1.StepPluginTerminate: "terminated (%s)"}[operation])...)
		if operation == argov1.StepPluginTerminate {
			return plan // only one step can be running
		}
	}
	return plan
}

// lacksOperation reports whether a status is that of an executed plugin for whose step the operation was not called.
func lacksOperation(steps []argov1.CanaryStep, all []argov1.StepPluginStatus, run argov1.StepPluginStatus, operation argov1.StepPluginOperation) bool {
	if run.Operation != argov1.StepPluginRun || run.Disabled || run.Index < 0 || int(run.Index) >= len(steps) {
		return false
	}
	step := steps[run.Index].Plugin
	return step != nil && step.Name == run.Name && !slices.ContainsFunc(all, func(s argov1.StepPluginStatus) bool {
		return s.Index == run.Index && s.Name == run.Name && s.Operation == operation
	})
}

// areAborting reports whether a plugin of an aborted release remains to be aborted. One that cannot be called does not count,
// because it may never be.
func (p pluginPlan) areAborting(f facts, s argov1.RolloutStatus) bool {
	if p.gate != nil && p.gate.Verdict == release.Fail {
		return false
	}
	all := s.Canary.StepPluginStatuses
	return slices.ContainsFunc(all, func(run argov1.StepPluginStatus) bool {
		plugin, configured := f.StepPlugins[run.Name]
		return configured && !plugin.Disabled && plugin.Refusal == "" &&
			lacksOperation(f.steps(), all, run, argov1.StepPluginAbort) && mustEndPlugin(run, argov1.StepPluginAbort)
	})
}

// recordLastRun records the answer to a call of Run that was sent before the release was aborted or promoted, so that the
// next operation receives the newest state of the plugin. It returns the gate that waits while that call is in progress.
func recordLastRun(f facts, run argov1.StepPluginStatus, step argov1.PluginStep) (argov1.StepPluginStatus, *release.Gate) {
	answer, sent := f.Answers[pluginCallID(f.Hash, run, argov1.StepPluginRun)]
	switch {
	case !sent || isPluginCompleted(run.Phase):
		return run, nil
	case answer.Ended.IsZero():
		return run, new(release.NewWaitingGate(StepPluginGate, release.ByAnswer, "waiting for the last answer of "+step.Name))
	case answer.Outcome == release.Broken || invalidReply(answer) != "":
		return run, nil
	default:
		return recordPluginAnswer(run, answer), nil
	}
}

// mustEndPlugin reports whether an operation that ends a plugin is called for a step with this status.
func mustEndPlugin(run argov1.StepPluginStatus, operation argov1.StepPluginOperation) bool {
	switch run.Phase {
	case "", argov1.StepPluginRunning: // it may have been called already if there is no phase
		return true
	case argov1.StepPluginSuccessful:
		return operation == argov1.StepPluginAbort
	default:
		return false
	}
}

// refusedPluginGate returns the gate of a plugin that cannot be called; nil: it can.
func refusedPluginGate(f facts, name string) *release.Gate {
	plugin, configured := f.StepPlugins[name]
	switch {
	case !configured:
		return failedPluginGate(name+": not configured", f.Now.Add(pluginRetryInterval))
	case plugin.Refusal != "":
		return failedPluginGate(plugin.Refusal, f.Now.Add(pluginRetryInterval))
	default:
		return nil
	}
}

// failedPluginGate returns a failed gate that is evaluated again at a time.
func failedPluginGate(message string, until time.Time) *release.Gate {
	gate := release.NewFailedGate(StepPluginGate, release.ByUser, message)
	gate.Until = until
	return &gate
}

// findPluginAnswer returns the valid answer to the call of an operation. If there is none, it returns the gate that asks
// for it, or that explains why the plugin could not be called.
func findPluginAnswer(f facts, status argov1.StepPluginStatus, step argov1.PluginStep, operation argov1.StepPluginOperation) (release.Answer, *release.Gate) {
	query := release.Query{
		ID:      pluginCallID(f.Hash, status, operation),
		Request: StepPluginCall{Plugin: step.Name, Step: status.Index, Operation: operation, Config: step.Config, State: status.Status},
	}
	answer, answered := f.Answers.AnswerTo(query)
	problem := ""
	switch {
	case !answered:
	case answer.Outcome == release.Broken:
		problem = answer.Text
	default:
		problem = invalidReply(answer)
	}
	if answered && problem == "" {
		return answer, nil
	}
	if answered {
		query.Since = answer.Ended.Add(pluginRetryInterval)
		if f.Now.Before(query.Since) {
			return release.Answer{}, failedPluginGate(step.Name+": "+problem, query.Since)
		}
	}
	return release.Answer{}, new(release.NewQueryGate(StepPluginGate, query, fmt.Sprintf("%s of %s in progress", operation, step.Name)))
}

// pluginCallID returns the ID of the query for a call. The start of the step distinguishes a release from an earlier one,
// and the number of executions counts the calls of Run; the other operations are called once.
func pluginCallID(hash string, status argov1.StepPluginStatus, operation argov1.StepPluginOperation) string {
	started, number := "", int32(0)
	if status.StartedAt != nil {
		started = status.StartedAt.UTC().Format(time.RFC3339)
	}
	if operation == argov1.StepPluginRun {
		number = status.Executions
	}
	return fmt.Sprintf("plugin/%s/%d/%s/%s/%d", hash, status.Index, started, operation, number)
}

// startPlugin returns the status of a step that starts. It has no phase until the plugin has answered. Its time
// identifies the calls of the step, so it differs from that of an earlier attempt in the same second.
func startPlugin(f facts, status argov1.StepPluginStatus) argov1.StepPluginStatus {
	for at := f.Now.Truncate(time.Second); ; at = at.Add(time.Second) {
		status.StartedAt = new(metav1.NewTime(at))
		if _, used := f.Answers[pluginCallID(f.Hash, status, argov1.StepPluginRun)]; !used {
			return status
		}
	}
}

// isStatusOf returns a filter for the status of the same operation.
func isStatusOf(operation argov1.StepPluginStatus) func(argov1.StepPluginStatus) bool {
	return func(s argov1.StepPluginStatus) bool {
		return s.Index == operation.Index && s.Name == operation.Name && s.Operation == operation.Operation
	}
}

// setPluginStatus returns the statuses with that of an operation.
func setPluginStatus(statuses []argov1.StepPluginStatus, status argov1.StepPluginStatus) []argov1.StepPluginStatus {
	i := slices.IndexFunc(statuses, isStatusOf(status))
	if i < 0 {
		return append(slices.Clone(statuses), status)
	}
	return slices.Concat(statuses[:i], []argov1.StepPluginStatus{status}, statuses[i+1:])
}

// reportPluginPhase returns the event about the phase of an operation. The completed step has an event of its own.
func reportPluginPhase(status argov1.StepPluginStatus, format string) []release.Event {
	if status.Operation == argov1.StepPluginRun && status.Phase == argov1.StepPluginSuccessful {
		return nil
	}
	kind := release.Normal
	if status.Phase == argov1.StepPluginError || status.Phase == argov1.StepPluginFailed {
		kind = release.Warning
	}
	return []release.Event{{
		Type: kind, Reason: reasonPluginTransition,
		Message: fmt.Sprintf("Step plugin %s (step %d) "+format, status.Name, status.Index+1, status.Phase),
	}}
}

// recordPluginAnswer returns the status with the answer to a call of Run. An error does not overwrite the state of the
// plugin, because the call is repeated with that state.
func recordPluginAnswer(status argov1.StepPluginStatus, answer release.Answer) argov1.StepPluginStatus {
	ended := metav1.NewTime(answer.Ended.Truncate(time.Second))
	status.UpdatedAt, status.Backoff = &ended, ""
	status.Executions++
	reply, ok := answer.Detail.(StepPluginReply)
	if !ok {
		status.Phase, status.Message = argov1.StepPluginError, answer.Text
		status.Backoff = argov1.DurationString(pluginRetryInterval.String())
		return status
	}
	status.Message = reply.Message
	status.Phase = cmp.Or(reply.Phase, status.Phase, argov1.StepPluginRunning)
	switch status.Phase {
	case argov1.StepPluginSuccessful, argov1.StepPluginFailed:
		status.FinishedAt = &ended
		status.Status = reply.State
	case argov1.StepPluginError:
		status.Backoff = argov1.DurationString(pluginRetryInterval.String())
	default: // Running: invalidReply rejects all others
		status.Status = reply.State
		backoff := pluginRetryInterval
		if reply.RequeueAfter > minPluginRequeue {
			backoff = reply.RequeueAfter
		}
		status.Backoff = argov1.DurationString(backoff.String())
	}
	return status
}

// newEndedStatus returns the status of Abort or Terminate. These operations are called once, so that one that is still
// running counts as failed.
func newEndedStatus(run argov1.StepPluginStatus, operation argov1.StepPluginOperation, answer release.Answer) argov1.StepPluginStatus {
	status := argov1.StepPluginStatus{
		Index: run.Index, Name: run.Name, Operation: operation, Phase: argov1.StepPluginSuccessful,
		StartedAt: new(metav1.NewTime(answer.Began.Truncate(time.Second))), FinishedAt: new(metav1.NewTime(answer.Ended.Truncate(time.Second))),
	}
	reply, ok := answer.Detail.(StepPluginReply)
	if !ok {
		status.Phase, status.Message = argov1.StepPluginError, answer.Text
		return status
	}
	status.Message = reply.Message
	if reply.Phase != "" {
		status.Phase = reply.Phase
	}
	if status.Phase == argov1.StepPluginRunning {
		status.Phase = argov1.StepPluginFailed
	}
	return status
}

// invalidReply returns the reason why an answer cannot be recorded; empty: it can.
func invalidReply(answer release.Answer) string {
	reply, ok := answer.Detail.(StepPluginReply)
	if !ok {
		return ""
	}
	switch reply.Phase {
	case "", argov1.StepPluginRunning, argov1.StepPluginSuccessful, argov1.StepPluginFailed, argov1.StepPluginError:
		return ""
	default:
		return fmt.Sprintf("could not validate rpc phase: phase '%s' is not valid", reply.Phase)
	}
}

func isPluginCompleted(phase argov1.StepPluginPhase) bool {
	return phase == argov1.StepPluginSuccessful || phase == argov1.StepPluginFailed
}

// nextPluginCall returns the time of the next call of Run. A status of another controller may contain any text as
// backoff.
func nextPluginCall(status argov1.StepPluginStatus) time.Time {
	if status.Executions == 0 || status.UpdatedAt == nil {
		return time.Time{}
	}
	backoff, err := time.ParseDuration(string(status.Backoff))
	if err != nil || backoff < 0 {
		backoff = pluginRetryInterval
	}
	return status.UpdatedAt.Add(backoff)
}

// describePluginStatus returns the last result of a plugin in words.
func describePluginStatus(status argov1.StepPluginStatus) string {
	text := fmt.Sprintf("%s is %s", status.Name, strings.ToLower(string(status.Phase)))
	if status.Phase == argov1.StepPluginError {
		text = status.Name + " failed, and is called again"
	}
	if status.Message != "" {
		text += ": " + status.Message
	}
	return text
}

// pluginSuccessful evaluates the gate of the plugin of a step.
func pluginSuccessful(v stepState) release.Gate {
	if v.PluginGate != nil {
		return *v.PluginGate
	}
	s := v.pluginStatus()
	switch {
	case s != nil && s.Disabled:
		return release.NewPassingGate(StepPluginGate, s.Name+" is disabled")
	case s != nil && s.Phase == argov1.StepPluginSuccessful:
		return release.NewPassingGate(StepPluginGate, s.Message)
	case s != nil && s.Phase == argov1.StepPluginFailed:
		return release.NewFailedGate(StepPluginGate, release.ByUser, s.Message)
	default:
		return release.NewWaitingGate(StepPluginGate, release.ByCluster, v.Step.Plugin.Name+" is not called yet")
	}
}

// pluginStatus returns the status of the plugin of the step; nil: it was not called.
func (v stepState) pluginStatus() *argov1.StepPluginStatus {
	for i, s := range v.Status.Canary.StepPluginStatuses {
		if s.Index == v.Index && s.Operation == argov1.StepPluginRun {
			return &v.Status.Canary.StepPluginStatuses[i]
		}
	}
	return nil
}
