package main

import (
	"encoding/json"

	"github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	"github.com/argoproj/argo-rollouts/rollout/steps/plugin/rpc"
	"github.com/argoproj/argo-rollouts/utils/plugin/types"
	goplugin "github.com/hashicorp/go-plugin"
)

type step struct{}

func newStepPlugin() goplugin.Plugin { return &rpc.RpcStepPlugin{Impl: step{}} }

func (step) InitPlugin() types.RpcError { return types.RpcError{} }

func (step) Type() string { return "test" }

func (step) Run(rollout *v1alpha1.Rollout, c *types.RpcStepContext) (types.RpcStepResult, types.RpcError) {
	return call("Run", rollout, c)
}

func (step) Terminate(rollout *v1alpha1.Rollout, c *types.RpcStepContext) (types.RpcStepResult, types.RpcError) {
	return call("Terminate", rollout, c)
}

func (step) Abort(rollout *v1alpha1.Rollout, c *types.RpcStepContext) (types.RpcStepResult, types.RpcError) {
	return call("Abort", rollout, c)
}

// call counts the calls of a step in its state.
func call(operation string, rollout *v1alpha1.Rollout, c *types.RpcStepContext) (types.RpcStepResult, types.RpcError) {
	b := parse(c.Config)
	if err := b.act(operation + " " + rollout.Name + " " + string(c.Status)); err.HasError() {
		return types.RpcStepResult{}, err
	}
	result := types.RpcStepResult{Phase: types.PhaseSuccessful, Message: b.message(), RequeueAfter: b.requeue()}
	if b.Phase != "" && operation == "Run" {
		result.Phase = types.StepPhase(b.Phase)
	}
	if b.Behavior == "nonsense" {
		result.Phase, result.Status = "Purple", json.RawMessage(`{"a":`)
		return result, types.RpcError{}
	}
	var state struct {
		Calls   int               `json:"calls"`
		Rollout *v1alpha1.Rollout `json:"rollout,omitempty"`
	}
	if len(c.Status) > 0 {
		if err := json.Unmarshal(c.Status, &state); err != nil {
			return result, types.RpcError{ErrorString: err.Error()}
		}
	}
	state.Calls++
	if b.Echo {
		state.Rollout = rollout
	}
	text, err := json.Marshal(state)
	if err != nil {
		return result, types.RpcError{ErrorString: err.Error()}
	}
	result.Status = text
	if b.Value == "twice" && state.Calls >= 2 {
		result.Phase = types.PhaseSuccessful
	}
	return result, types.RpcError{}
}
