package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	"github.com/argoproj/argo-rollouts/rollout/trafficrouting/plugin/rpc"
	"github.com/argoproj/argo-rollouts/utils/plugin/types"
	goplugin "github.com/hashicorp/go-plugin"
)

// router writes the route of a Rollout into the file that its configuration names, and its weight into an HTTPRoute.
type router struct{}

// routerState is the content of that file.
type routerState struct {
	Weight  int32    `json:"weight"`
	Canary  string   `json:"canary"`
	Stable  string   `json:"stable"`
	Headers []string `json:"headers"`
	Mirrors []string `json:"mirrors"`
	// Asked is the number of verifications of the weight.
	Asked int `json:"asked"`
}

func newRouterPlugin() goplugin.Plugin { return &rpc.RpcTrafficRouterPlugin{Impl: router{}} }

func (router) InitPlugin() types.RpcError { return types.RpcError{} }

func (router) Type() string { return "test" }

func (router) UpdateHash(r *v1alpha1.Rollout, canary, stable string, additional []v1alpha1.WeightDestination) types.RpcError {
	return change(r, fmt.Sprintf("UpdateHash %s %s %d", canary, stable, len(additional)), func(s *routerState) { s.Canary, s.Stable = canary, stable })
}

func (router) SetWeight(r *v1alpha1.Rollout, weight int32, additional []v1alpha1.WeightDestination) types.RpcError {
	operation := fmt.Sprintf("SetWeight %d %d", weight, len(additional))
	err := change(r, operation, func(s *routerState) { s.Weight, s.Asked = weight, 0 })
	if err.HasError() {
		return err
	}
	b := route(r)
	if err := b.Route.setWeight(r, weight); err.HasError() {
		return err
	}
	b.stall(operation)
	return types.RpcError{}
}

func (router) SetHeaderRoute(r *v1alpha1.Rollout, header *v1alpha1.SetHeaderRoute) types.RpcError {
	return change(r, fmt.Sprintf("SetHeaderRoute %s %d", header.Name, len(header.Match)), func(s *routerState) {
		s.Headers = withRoute(s.Headers, header.Name, len(header.Match) > 0)
	})
}

func (router) SetMirrorRoute(r *v1alpha1.Rollout, mirror *v1alpha1.SetMirrorRoute) types.RpcError {
	return change(r, fmt.Sprintf("SetMirrorRoute %s %d", mirror.Name, len(mirror.Match)), func(s *routerState) {
		s.Mirrors = withRoute(s.Mirrors, mirror.Name, len(mirror.Match) > 0)
	})
}

func withRoute(names []string, name string, exists bool) []string {
	names = slices.DeleteFunc(names, func(other string) bool { return other == name })
	if exists {
		names = append(names, name)
	}
	return names
}

// VerifyWeight verifies the weight of the file. With the value later, it does so when it is asked for the second time.
func (router) VerifyWeight(r *v1alpha1.Rollout, weight int32, _ []v1alpha1.WeightDestination) (types.RpcVerified, types.RpcError) {
	b := route(r)
	if err := b.act(fmt.Sprintf("VerifyWeight %d", weight)); err.HasError() {
		return types.NotVerified, err
	}
	state := readState(b.State)
	state.Asked++
	if err := writeState(b.State, state); err.HasError() {
		return types.NotVerified, err
	}
	switch {
	case b.Value == "verified", b.Value == "later" && state.Asked > 1 && state.Weight == weight:
		return types.Verified, types.RpcError{}
	case b.Value == "not", b.Value == "later":
		return types.NotVerified, types.RpcError{}
	case b.Behavior == "nonsense":
		return 99, types.RpcError{}
	default:
		return types.NotImplemented, types.RpcError{}
	}
}

func (router) RemoveManagedRoutes(r *v1alpha1.Rollout) types.RpcError {
	return change(r, "RemoveManagedRoutes", func(s *routerState) { s.Headers, s.Mirrors = nil, nil })
}

// change changes the route, after the behavior that the test requires.
func change(r *v1alpha1.Rollout, operation string, do func(*routerState)) types.RpcError {
	b := route(r)
	if err := b.act(operation); err.HasError() {
		return err
	}
	state := readState(b.State)
	do(&state)
	return writeState(b.State, state)
}

func readState(file string) routerState {
	var state routerState
	if text, err := os.ReadFile(file); err == nil {
		_ = json.Unmarshal(text, &state)
	}
	return state
}

func writeState(file string, state routerState) types.RpcError {
	if file == "" {
		return types.RpcError{}
	}
	text, err := json.Marshal(state)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(file+".new", file) // the test reads it at any time
	}
	if err != nil {
		return types.RpcError{ErrorString: err.Error()}
	}
	return types.RpcError{}
}

func route(r *v1alpha1.Rollout) behavior {
	for _, config := range r.Spec.Strategy.Canary.TrafficRouting.Plugins {
		return parse(config)
	}
	return behavior{}
}
