package plugin

import (
	"context"
	"errors"
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// RouterCall is a call of a router plugin. Its fields are the arguments of the method; those of other methods are ignored.
type RouterCall struct {
	Plugin string
	// Method is one of RemoveManagedRoutes, SetHeaderRoute, SetMirrorRoute, UpdateHash, SetWeight and VerifyWeight.
	Method                 string
	Weight                 int32
	CanaryHash, StableHash string
	Additional             []argov1.WeightDestination
	Header                 *argov1.SetHeaderRoute
	Mirror                 *argov1.SetMirrorRoute
}

// Verification is the result of VerifyWeight, with the numbers of Argo Rollouts. Other numbers mean that the weight is not
// verified.
type Verification int32

// The results of VerifyWeight.
const (
	NotVerified Verification = iota
	Verified
	VerifyNotImplemented
)

// errUnanswered is the cause with which the process of a router plugin ends if it has not answered a call in time. The call might
// otherwise take effect after a later one, and restore an earlier weight.
var errUnanswered = errors.New("it has not answered a call, which must not take effect later")

// CallRouter calls a router plugin. The result is that of VerifyWeight. The error is a RefusedError or a CallError.
func (h *Host) CallRouter(ctx context.Context, rollout *argov1.Rollout, c RouterCall) (Verification, error) {
	args, err := c.wireArgs(*wireRollout(rollout))
	if err != nil {
		return NotVerified, &RefusedError{c.Plugin, err}
	}
	key := pluginKey{Router, c.Plugin}
	if c.Method == "VerifyWeight" {
		var verified routerVerifyResponse
		if err := h.call(ctx, key, rollout.Namespace, c.Method, args, &verified, func() error { return verified.Err.asError() }); err != nil {
			return NotVerified, err
		}
		return Verification(verified.Verified), nil
	}
	var failed rpcError
	return NotVerified, h.call(ctx, key, rollout.Namespace, c.Method, args, &failed, func() error { return failed.asError() })
}

// wireArgs returns the arguments in the form that plugins decode.
func (c RouterCall) wireArgs(rollout argov1.Rollout) (any, error) {
	switch {
	case c.Method == "RemoveManagedRoutes":
		return routerRemoveArgs{rollout}, nil
	case c.Method == "UpdateHash":
		return routerHashArgs{rollout, c.CanaryHash, c.StableHash, c.Additional}, nil
	case c.Method == "SetWeight", c.Method == "VerifyWeight":
		return routerWeightArgs{rollout, c.Weight, c.Additional}, nil
	case c.Method == "SetHeaderRoute" && c.Header != nil:
		return routerHeaderArgs{rollout, *c.Header}, nil
	case c.Method == "SetMirrorRoute" && c.Mirror != nil:
		return routerMirrorArgs{rollout, *c.Mirror}, nil
	default:
		return nil, fmt.Errorf("the call %s has no arguments", c.Method)
	}
}

// restartAfterLateCall ends the process of a router plugin that has not answered a call within its timeout. It reports false for
// another kind of plugin, and if the caller gave up.
func restartAfterLateCall(caller context.Context, kind Kind, p *process) bool {
	if kind != Router || caller.Err() != nil {
		return false
	}
	p.end(errUnanswered)
	return true
}
