package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// StepPlugins is the class of releases with steps that a plugin executes.
const StepPlugins sim.FaultClass = "step-plugin"

// stepPluginName is the plugin of all these steps.
const stepPluginName = "sim/plugin"

// maxPluginCalls is the number of calls of a step after which the plugin is successful, unless there is a fault.
const maxPluginCalls = 3

// addPluginSteps inserts steps of a plugin.
func (r *Release) addPluginSteps(s *sim.Stream) {
	c := r.Spec.Strategy.Canary
	for range s.Int(1, 2) {
		step := argov1.CanaryStep{Plugin: &argov1.PluginStep{Name: stepPluginName, Config: json.RawMessage(`{"size":1}`)}}
		c.Steps = slices.Insert(c.Steps, s.Int(0, len(c.Steps)), step)
	}
}

// executeStep returns how the plugin executes a call of a step.
func (e *externalServices) executeStep(query queryrunner.RunningQuery, request controller.StepPluginRequest) pluginExecution {
	execution := pluginExecution{method: "Run", describe: func(answer release.Answer) string {
		reply, _ := answer.Detail.(rollout.StepPluginReply)
		return fmt.Sprintf("%s of step %d: %s %s%s", request.Operation, request.Step, answer.Outcome, reply.Phase, answer.Text)
	}}
	execution.after, execution.answer = e.drawPluginAnswer(query, request)
	return execution
}

// drawPluginAnswer returns the answer of the plugin, and the delay after which it arrives. The faults are those of all external
// services.
func (e *externalServices) drawPluginAnswer(query queryrunner.RunningQuery, request controller.StepPluginRequest) (time.Duration, release.Answer) {
	s := e.Services.AnswerStream(query.Key.Name + "/" + query.Query.ID)
	after, late := s.Skewed(20*time.Millisecond, 2*time.Second), s.Between(5*time.Second, 40*time.Second)
	running, requeue := s.Chance(0.5), sim.Pick(s, 0, 15*time.Second, 45*time.Second)
	var state struct {
		Calls int `json:"calls"`
	}
	if len(request.State) > 0 {
		if err := json.Unmarshal(request.State, &state); err != nil {
			e.World.Violate("simulator", "state %s: %v", request.State, err)
		}
	}
	state.Calls++
	text, _ := json.Marshal(state) // two fields
	reply := rollout.StepPluginReply{Phase: argov1.StepPluginSuccessful, Message: "done", State: text}
	if running && request.Operation == argov1.StepPluginRun && state.Calls < maxPluginCalls {
		reply.Phase, reply.RequeueAfter = argov1.StepPluginRunning, requeue
	}
	switch actors.DrawFault(e.World, s, measurementFaultRate, actors.MetricFaults...) {
	case actors.MetricHang:
		return pluginTimeout, release.Answer{Outcome: release.Unreachable, Text: "Run rpc call error: no answer within 1m0s"}
	case actors.MetricError:
		return after, release.Answer{Outcome: release.Unreachable, Text: "Run rpc call error: connection is shut down"}
	case actors.MetricNoData:
		return after, release.Answer{Outcome: release.Broken, Text: "it cannot be started"}
	case actors.MetricNaN:
		reply.Phase = "Purple"
	case actors.MetricStale:
		reply.Phase = argov1.StepPluginFailed
	case actors.MetricLate:
		after = late
	default: // no fault
	}
	return after, release.Answer{Outcome: release.Yes, Detail: reply}
}
