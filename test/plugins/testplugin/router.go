package main

import (
	"fmt"

	"github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	"github.com/argoproj/argo-rollouts/rollout/trafficrouting/plugin/rpc"
	"github.com/argoproj/argo-rollouts/utils/plugin/types"
	goplugin "github.com/hashicorp/go-plugin"
)

type router struct{}

func newRouterPlugin() goplugin.Plugin { return &rpc.RpcTrafficRouterPlugin{Impl: router{}} }

func (router) InitPlugin() types.RpcError { return types.RpcError{} }

func (router) Type() string { return "test" }

func (router) UpdateHash(r *v1alpha1.Rollout, canary, stable string, additional []v1alpha1.WeightDestination) types.RpcError {
	return route(r).act(fmt.Sprintf("UpdateHash %s %s %d", canary, stable, len(additional)))
}

func (router) SetWeight(r *v1alpha1.Rollout, weight int32, additional []v1alpha1.WeightDestination) types.RpcError {
	return route(r).act(fmt.Sprintf("SetWeight %d %d", weight, len(additional)))
}

func (router) SetHeaderRoute(r *v1alpha1.Rollout, header *v1alpha1.SetHeaderRoute) types.RpcError {
	return route(r).act(fmt.Sprintf("SetHeaderRoute %s %d", header.Name, len(header.Match)))
}

func (router) SetMirrorRoute(r *v1alpha1.Rollout, mirror *v1alpha1.SetMirrorRoute) types.RpcError {
	return route(r).act(fmt.Sprintf("SetMirrorRoute %s %d", mirror.Name, len(mirror.Match)))
}

func (router) VerifyWeight(r *v1alpha1.Rollout, weight int32, _ []v1alpha1.WeightDestination) (types.RpcVerified, types.RpcError) {
	b := route(r)
	if err := b.act(fmt.Sprintf("VerifyWeight %d", weight)); err.HasError() {
		return types.NotVerified, err
	}
	switch b.Value {
	case "verified":
		return types.Verified, types.RpcError{}
	case "not":
		return types.NotVerified, types.RpcError{}
	default:
		return types.NotImplemented, types.RpcError{}
	}
}

func (router) RemoveManagedRoutes(r *v1alpha1.Rollout) types.RpcError {
	return route(r).act("RemoveManagedRoutes")
}

func route(r *v1alpha1.Rollout) behavior {
	for _, config := range r.Spec.Strategy.Canary.TrafficRouting.Plugins {
		return parse(config)
	}
	return behavior{}
}
