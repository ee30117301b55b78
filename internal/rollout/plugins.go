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

// PluginCall is the request of a query: one call of a step plugin. A call may be repeated, because a process can stop
// between the call and the write of the status.
type PluginCall struct {
	Plugin    string
	Step      int32
	Operation argov1.StepPluginOperation
	// Config is that of the step, State the state that the plugin returned last.
	Config, State json.RawMessage
}

// PluginReply is the detail of an answer to a PluginCall with the outcome Yes: the plugin returned a result. If the
// outcome is Unreachable, the call failed. If it is Broken, there was no call, because the plugin could not be started.
type PluginReply struct {
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

// GatePlugin is the name of the gate of a step plugin.
const GatePlugin = "plugin"

// pluginPlan is the state of the step plugins after the answers of this snapshot were recorded.
type pluginPlan struct {
	statuses []argov1.StepPluginStatus
	// gate is that of the step, or of a call that ends an earlier one; nil: no plugin is concerned.
	gate   *release.Gate
	events []release.Event
}

// pluginPlanner builds a pluginPlan.
type pluginPlanner struct {
	facts
	pluginPlan
}

// planStepPlugins records the answers of step plugins and decides about the next call: Run during a step, Abort for each
// executed plugin of an aborted release in reverse order, and Terminate for a running plugin whose step is skipped. There
// is one call at a time.
func planStepPlugins(f facts) pluginPlan {
	p := &pluginPlanner{facts: f, pluginPlan: pluginPlan{statuses: slices.Clone(f.Status.Canary.StepPluginStatuses)}}
	advancing := !f.Status.Abort && !isPromoted(f.Status) && f.hasDistinctStable()
	step, stepping := pods.StepAt(f.steps(), f.Status.CurrentStepIndex)
	if advancing && f.Status.AbortedAt != nil {
		p.statuses = nil // from before the retry
	}
	switch {
	case f.Status.Abort:
		p.endCalls(argov1.StepPluginAbort, f.steps())
	case f.Status.PromoteFull || isPromoted(f.Status) || f.inRollbackWindow:
		p.endCalls(argov1.StepPluginTerminate, f.steps())
	case advancing && stepping && step.Plugin != nil:
		p.runStep(*f.Status.CurrentStepIndex, *step.Plugin)
	}
	return p.pluginPlan
}

// runStep records the answer of the plugin of the current step and evaluates its gate.
func (p *pluginPlanner) runStep(index int32, step argov1.PluginStep) {
	status := p.find(index, step.Name, argov1.StepPluginRun)
	plugin := p.StepPlugins[step.Name]
	switch {
	case status != nil && (status.Disabled || isPluginCompleted(status.Phase)): // evaluated by pluginSuccessful
		return
	case plugin.Disabled:
		p.record(argov1.StepPluginStatus{Index: index, Name: step.Name, Operation: argov1.StepPluginRun, Disabled: true})
		return
	case p.Spec.Paused, len(p.Status.PauseConditions) > 0:
		p.setGate(release.NewWaitingGate(GatePlugin, release.ByUser, step.Name+" is not called while the rollout is paused"))
		return
	case p.refuses(step.Name):
		return
	case status == nil:
		status = p.record(p.startedStatus(index, step.Name))
	}
	if !p.recordRun(status, step) {
		return
	}
	if next := nextPluginCall(*status); !isPluginCompleted(status.Phase) {
		gate := release.NewTimedGate(GatePlugin, next, describePluginStatus(*status)+"; next call at "+next.UTC().Format(time.TimeOnly))
		gate.Value, gate.Limit = string(status.Phase), string(argov1.StepPluginSuccessful)
		p.setGate(gate)
	}
}

// recordRun records the answer to the due call of Run, or sets the gate that waits for it. It returns false if the gate
// is set.
func (p *pluginPlanner) recordRun(status *argov1.StepPluginStatus, step argov1.PluginStep) bool {
	if p.Now.Before(nextPluginCall(*status)) {
		return true
	}
	answer, answered := p.call(*status, step, argov1.StepPluginRun, status.Executions)
	if !answered {
		return false
	}
	before, called := status.Phase, status.Executions > 0
	recordPluginAnswer(status, answer)
	if before != status.Phase || !called {
		p.addTransition(*status, "transitioned to %s")
	}
	return true
}

// endCalls calls an operation for the steps whose plugin was executed, the last step first. It ends at the first call
// without an answer, because the order of the calls matters to plugins.
func (p *pluginPlanner) endCalls(operation argov1.StepPluginOperation, steps []argov1.CanaryStep) {
	for i := len(p.statuses) - 1; i >= 0; i-- {
		run := p.statuses[i]
		if !lacksOperation(steps, p.statuses, run, operation) {
			continue
		}
		step := *steps[run.Index].Plugin
		if p.awaitsRun(&p.statuses[i], step) {
			return
		}
		run = p.statuses[i]
		switch {
		case !mustEndPlugin(run, operation), p.StepPlugins[run.Name].Disabled:
			continue
		case p.refuses(run.Name):
			return
		}
		answer, answered := p.call(run, step, operation, 0)
		if !answered {
			return
		}
		ended := newEndedStatus(run, operation, answer)
		p.record(ended)
		p.addTransition(ended, map[argov1.StepPluginOperation]string{argov1.StepPluginAbort: "aborted (%s)", argov1.StepPluginTerminate: "terminated (%s)"}[operation])
		if operation == argov1.StepPluginTerminate {
			return // only one step can be running
		}
	}
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

// awaitsRun records the answer to a call of Run that was sent before the release was aborted or promoted, so that the
// next operation receives the newest state of the plugin. It returns true while that call is in progress.
func (p *pluginPlanner) awaitsRun(run *argov1.StepPluginStatus, step argov1.PluginStep) bool {
	answer, sent := p.Answers[p.callID(*run, argov1.StepPluginRun, run.Executions)]
	switch {
	case !sent || isPluginCompleted(run.Phase):
		return false
	case answer.Ended.IsZero():
		p.setGate(release.NewWaitingGate(GatePlugin, release.ByAnswer, "waiting for the last answer of "+step.Name))
		return true
	case answer.Outcome != release.Broken && invalidReply(answer) == "":
		recordPluginAnswer(run, answer)
	}
	return false
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

// refuses sets the gate of a plugin that cannot be called. It returns false if it can.
func (p *pluginPlanner) refuses(name string) bool {
	plugin, configured := p.StepPlugins[name]
	refusal := plugin.Refusal
	if !configured {
		refusal = name + ": not configured"
	}
	if refusal == "" {
		return false
	}
	p.fail(refusal, p.Now.Add(pluginRetryInterval))
	return true
}

// fail sets a failed gate that is evaluated again at a time.
func (p *pluginPlanner) fail(message string, until time.Time) {
	gate := release.NewFailedGate(GatePlugin, release.ByUser, message)
	gate.Until = until
	p.setGate(gate)
	p.events = append(p.events, release.Event{
		Type: release.Warning, Reason: reasonReconciliation, Persistent: true,
		Message: "Reconciliation failed with error: step plugin " + message,
	})
}

func (p *pluginPlanner) setGate(gate release.Gate) { p.gate = &gate }

// call returns the valid answer to a call. If there is none, it sets the gate that asks for it, or that explains why the
// plugin could not be called.
func (p *pluginPlanner) call(status argov1.StepPluginStatus, step argov1.PluginStep, operation argov1.StepPluginOperation, number int32) (release.Answer, bool) {
	query := release.Query{
		ID:      p.callID(status, operation, number),
		Request: PluginCall{Plugin: step.Name, Step: status.Index, Operation: operation, Config: step.Config, State: status.Status},
	}
	answer, answered := p.Answers.AnswerTo(query)
	problem := ""
	switch {
	case !answered:
	case answer.Outcome == release.Broken:
		problem = answer.Text
	default:
		problem = invalidReply(answer)
	}
	if problem != "" {
		query.Since = answer.Ended.Add(pluginRetryInterval)
		if p.Now.Before(query.Since) {
			p.fail(fmt.Sprintf("%s: %s", step.Name, problem), query.Since)
			return answer, false
		}
		answered = false
	}
	if !answered {
		p.setGate(release.NewQueryGate(GatePlugin, query, fmt.Sprintf("%s of %s in progress", operation, step.Name)))
	}
	return answer, answered
}

// callID returns the ID of the query for a call. The start of the step distinguishes a release from an earlier one, and
// the number counts the calls of a step.
func (p *pluginPlanner) callID(status argov1.StepPluginStatus, operation argov1.StepPluginOperation, number int32) string {
	return pluginCallID(p.Hash, status, operation, number)
}

func pluginCallID(hash string, status argov1.StepPluginStatus, operation argov1.StepPluginOperation, number int32) string {
	started := ""
	if status.StartedAt != nil {
		started = status.StartedAt.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("plugin/%s/%d/%s/%s/%d", hash, status.Index, started, operation, number)
}

// startedStatus returns the status of a step that starts. It has no phase until the plugin has answered. Its time identifies the calls of the step, so it differs from
// that of an earlier attempt in the same second.
func (p *pluginPlanner) startedStatus(index int32, name string) argov1.StepPluginStatus {
	status := argov1.StepPluginStatus{Index: index, Name: name, Operation: argov1.StepPluginRun}
	for at := p.Now.Truncate(time.Second); ; at = at.Add(time.Second) {
		status.StartedAt = new(metav1.NewTime(at))
		if _, used := p.Answers[p.callID(status, argov1.StepPluginRun, 0)]; !used {
			return status
		}
	}
}

// find returns the status of an operation; nil: there is none.
func (p *pluginPlanner) find(index int32, name string, operation argov1.StepPluginOperation) *argov1.StepPluginStatus {
	i := slices.IndexFunc(p.statuses, func(s argov1.StepPluginStatus) bool {
		return s.Index == index && s.Operation == operation && s.Name == name
	})
	if i < 0 {
		return nil
	}
	return &p.statuses[i]
}

// record sets the status of an operation, and returns it.
func (p *pluginPlanner) record(status argov1.StepPluginStatus) *argov1.StepPluginStatus {
	if existing := p.find(status.Index, status.Name, status.Operation); existing != nil {
		*existing = status
		return existing
	}
	p.statuses = append(p.statuses, status)
	return &p.statuses[len(p.statuses)-1]
}

// addTransition adds the event about the phase of an operation. The completed step has an event of its own.
func (p *pluginPlanner) addTransition(status argov1.StepPluginStatus, format string) {
	if status.Operation == argov1.StepPluginRun && status.Phase == argov1.StepPluginSuccessful {
		return
	}
	kind := release.Normal
	if status.Phase == argov1.StepPluginError || status.Phase == argov1.StepPluginFailed {
		kind = release.Warning
	}
	p.events = append(p.events, release.Event{
		Type: kind, Reason: reasonPluginTransition,
		Message: fmt.Sprintf("Step plugin %s (step %d) "+format, status.Name, status.Index+1, status.Phase),
	})
}

// recordPluginAnswer records the answer to a call of Run. An error does not overwrite the state of the plugin, because
// the call is repeated with that state.
func recordPluginAnswer(status *argov1.StepPluginStatus, answer release.Answer) {
	ended := metav1.NewTime(answer.Ended.Truncate(time.Second))
	status.UpdatedAt, status.Backoff = &ended, ""
	status.Executions++
	reply, ok := answer.Detail.(PluginReply)
	if !ok {
		status.Phase, status.Message = argov1.StepPluginError, answer.Text
		status.Backoff = argov1.DurationString(pluginRetryInterval.String())
		return
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
}

// newEndedStatus returns the status of Abort or Terminate. These operations are called once, so that one that is still
// running counts as failed.
func newEndedStatus(run argov1.StepPluginStatus, operation argov1.StepPluginOperation, answer release.Answer) argov1.StepPluginStatus {
	status := argov1.StepPluginStatus{
		Index: run.Index, Name: run.Name, Operation: operation, Phase: argov1.StepPluginSuccessful,
		StartedAt: new(metav1.NewTime(answer.Began.Truncate(time.Second))), FinishedAt: new(metav1.NewTime(answer.Ended.Truncate(time.Second))),
	}
	reply, ok := answer.Detail.(PluginReply)
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
	reply, ok := answer.Detail.(PluginReply)
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
func pluginSuccessful(v StepState) release.Gate {
	if v.PluginGate != nil {
		return *v.PluginGate
	}
	s := v.pluginStatus()
	switch {
	case s != nil && s.Disabled:
		return release.NewPassingGate(GatePlugin, s.Name+" is disabled")
	case s != nil && s.Phase == argov1.StepPluginSuccessful:
		return release.NewPassingGate(GatePlugin, s.Message)
	case s != nil && s.Phase == argov1.StepPluginFailed:
		return release.NewFailedGate(GatePlugin, release.ByUser, s.Message)
	default:
		return release.NewWaitingGate(GatePlugin, release.ByCluster, v.Step.Plugin.Name+" is not called yet")
	}
}

// pluginStatus returns the status of the plugin of the step; nil: it was not called.
func (v StepState) pluginStatus() *argov1.StepPluginStatus {
	for i, s := range v.Status.Canary.StepPluginStatuses {
		if s.Index == v.Index && s.Operation == argov1.StepPluginRun {
			return &v.Status.Canary.StepPluginStatuses[i]
		}
	}
	return nil
}
