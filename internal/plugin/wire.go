package plugin

import (
	"encoding/gob"
	"encoding/json"
	"errors"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// magicCookieKey is the variable that identifies the controller to a plugin of Argo Rollouts.
const magicCookieKey = "ARGO_ROLLOUTS_RPC_PLUGIN"

// interfaces are the value of the magic cookie and the name of the interface of each kind.
var interfaces = map[Kind]struct{ cookie, name string }{
	Step:   {"step", "RpcStepPlugin"},
	Metric: {"metricprovider", "RpcMetricProviderPlugin"},
	Router: {"trafficrouter", "RpcTrafficRouterPlugin"},
}

// The types below have the fields of the types that plugins decode. The encoding identifies fields by their names in Go, so the
// types of package argov1 are used as they are.
type (
	rpcError struct{ ErrorString string }

	stepContext struct {
		PluginName     string
		Config, Status json.RawMessage
	}
	stepRunArgs struct {
		Rollout *argov1.Rollout
		Context *stepContext
	}
	stepTerminateArgs struct {
		Rollout *argov1.Rollout
		Context *stepContext
	}
	stepAbortArgs struct {
		Rollout *argov1.Rollout
		Context *stepContext
	}
	stepResult struct {
		Phase        string
		Message      string
		RequeueAfter time.Duration
		Status       json.RawMessage
	}
	stepResponse struct {
		Result stepResult
		Error  rpcError
	}

	metricRunArgs struct {
		AnalysisRun *argov1.AnalysisRun
		Metric      argov1.Metric
	}
	metricResumeArgs struct {
		AnalysisRun *argov1.AnalysisRun
		Metric      argov1.Metric
		Measurement argov1.Measurement
	}
	metricGarbageCollectArgs struct {
		AnalysisRun *argov1.AnalysisRun
		Metric      argov1.Metric
		Limit       int
	}
	metricMetadataArgs struct{ Metric argov1.Metric }

	routerHashArgs struct {
		Rollout                argov1.Rollout
		CanaryHash, StableHash string
		AdditionalDestinations []argov1.WeightDestination
	}
	routerWeightArgs struct {
		Rollout                argov1.Rollout
		DesiredWeight          int32
		AdditionalDestinations []argov1.WeightDestination
	}
	routerHeaderArgs struct {
		Rollout        argov1.Rollout
		SetHeaderRoute argov1.SetHeaderRoute
	}
	routerMirrorArgs struct {
		Rollout        argov1.Rollout
		SetMirrorRoute argov1.SetMirrorRoute
	}
	routerRemoveArgs     struct{ Rollout argov1.Rollout }
	routerVerifyResponse struct {
		Verified int32
		Err      rpcError
	}
)

// asError returns the error, shortened for users; nil: there is none.
func (e rpcError) asError() error {
	if e.ErrorString == "" {
		return nil
	}
	return errors.New(release.Truncate(e.ErrorString, maxTextBytes))
}

// registerWireTypes registers the names by which plugins find the types of arguments. Repeated registration has no effect.
func registerWireTypes() {
	for name, value := range map[string]any{
		"step.RunArgs": new(stepRunArgs), "step.TerminateArgs": new(stepTerminateArgs), "step.AbortArgs": new(stepAbortArgs),
		"RunArgs": new(metricRunArgs), "TerminateAndResumeArgs": new(metricResumeArgs), "GarbageCollectArgs": new(metricGarbageCollectArgs),
		"GetMetadataArgs": new(metricMetadataArgs), "UpdateHashArgs": new(routerHashArgs), "SetWeightAndVerifyWeightArgs": new(routerWeightArgs),
		"SetHeaderArgs": new(routerHeaderArgs), "SetMirrorArgs": new(routerMirrorArgs), "RemoveManagedRoutesArgs": new(routerRemoveArgs),
		"RpcError": new(rpcError),
	} {
		gob.RegisterName(name, value)
	}
}
