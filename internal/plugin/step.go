package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// maxStateBytes is the maximum size of the state of a step, which is stored in the Rollout.
const maxStateBytes = 64 << 10

// StepCall is a call of a step plugin.
type StepCall struct {
	Plugin    string
	Operation argov1.StepPluginOperation
	// Config is that of the step, State the state that the plugin returned last.
	Config, State json.RawMessage
}

// StepResult is the result of a call.
type StepResult struct {
	Phase, Message string
	RequeueAfter   time.Duration
	State          json.RawMessage
}

// CallStep calls a step plugin. The error is a RefusedError or a CallError.
func (h *Host) CallStep(ctx context.Context, rollout *argov1.Rollout, c StepCall) (StepResult, error) {
	sent, stepCtx := wireRollout(rollout), &stepContext{PluginName: c.Plugin, Config: c.Config, Status: c.State}
	var args any
	switch c.Operation {
	case argov1.StepPluginRun:
		args = stepRunArgs{sent, stepCtx}
	case argov1.StepPluginTerminate:
		args = stepTerminateArgs{sent, stepCtx}
	case argov1.StepPluginAbort:
		args = stepAbortArgs{sent, stepCtx}
	default:
		return StepResult{}, &RefusedError{c.Plugin, fmt.Errorf("unknown operation %s", c.Operation)}
	}
	var reply stepResponse
	check := func() error { return cmp.Or(reply.Error.asError(), checkState(reply.Result.Status)) }
	if err := h.call(ctx, pluginKey{Step, c.Plugin}, rollout.Namespace, string(c.Operation), args, &reply, check); err != nil {
		return StepResult{}, err
	}
	return StepResult{
		Phase: release.Truncate(reply.Result.Phase, maxTextBytes), Message: release.Truncate(reply.Result.Message, maxTextBytes),
		RequeueAfter: reply.Result.RequeueAfter, State: reply.Result.Status,
	}, nil
}

// checkState returns the reason why the API server would reject the state of a step.
func checkState(state json.RawMessage) error {
	if len(state) == 0 {
		return nil
	}
	var object map[string]any
	switch {
	case len(state) > maxStateBytes:
		return fmt.Errorf("the returned status has %d bytes: a plugin must return at most %d", len(state), maxStateBytes)
	case json.Unmarshal(state, &object) != nil:
		return errors.New("the returned status is not a JSON object")
	default:
		return nil
	}
}

// wireRollout returns a Rollout without what only Serin knows.
func wireRollout(rollout *argov1.Rollout) *argov1.Rollout {
	out := rollout.DeepCopy()
	out.Unreadable, out.Status.Serin = nil, nil
	out.ManagedFields = nil
	return out
}
