package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/utils/clock"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// RouterPlugins calls the router plugins of Rollouts, outside the workers. Of each Rollout, the calls for one route are in progress
// at a time: calls for the next route begin when those for the previous one have ended.
type RouterPlugins struct {
	// Find returns the configuration of a plugin.
	Find func(name string) rollout.RouterPlugin
	// Calls sends the queries of decisions.
	Calls *queryrunner.Runner
}

// RouterPluginRequest is the request of a query: calls, with the Rollout that the plugin receives.
type RouterPluginRequest struct {
	rollout.RouterCalls
	Object *argov1.Rollout
}

// NewRouterPlugins returns the router plugins of a host. builtIn are the names that need no plugin. onAnswer requeues a Rollout.
func NewRouterPlugins(host *plugin.Host, builtIn []string, clk clock.PassiveClock, onAnswer queryrunner.AnswerFunc) *RouterPlugins {
	poolName := func(request any) string { return request.(RouterPluginRequest).Plugin }
	send := func(ctx context.Context, _ queryrunner.Key, query release.Query) release.Answer {
		return callRouter(ctx, host, query.Request.(RouterPluginRequest))
	}
	return &RouterPlugins{
		Find:  func(name string) rollout.RouterPlugin { return findRouterPlugin(host, name, builtIn) },
		Calls: queryrunner.NewPooled(clk, maxPluginCalls, poolName, send, onAnswer),
	}
}

// findRouterPlugin returns the configuration of a plugin.
func findRouterPlugin(host *plugin.Host, name string, builtIn []string) rollout.RouterPlugin {
	item, err := host.Find(plugin.Router, name)
	switch {
	case errors.Is(err, plugin.ErrNotConfigured):
		return rollout.RouterPlugin{Refusal: fmt.Sprintf("%v, or use a router that is built in: %s", err, strings.Join(builtIn, ", "))}
	case err != nil:
		return rollout.RouterPlugin{Refusal: err.Error()}
	case item.Disabled:
		return rollout.RouterPlugin{Refusal: fmt.Sprintf("%s: disabled: remove disabled from %s of the ConfigMap %s, or remove the plugin from spec.strategy.canary.trafficRouting", name, plugin.Router, plugin.ConfigMapName)}
	default:
		return rollout.RouterPlugin{}
	}
}

// callRouter executes calls in order, up to the first that fails.
func callRouter(ctx context.Context, host *plugin.Host, r RouterPluginRequest) release.Answer {
	answer := release.Answer{Outcome: release.Yes}
	for _, call := range r.Calls {
		verified, err := host.CallRouter(ctx, r.Object, plugin.RouterCall{
			Plugin: r.Plugin, Method: string(call.Method), Weight: call.Weight, CanaryHash: call.CanaryHash, StableHash: call.StableHash,
			Additional: call.Additional, Header: call.Header, Mirror: call.Mirror,
		})
		var refused *plugin.RefusedError
		switch {
		case errors.As(err, &refused):
			return release.Answer{Outcome: release.Broken, Text: errors.Unwrap(refused).Error()}
		case err != nil:
			return release.Answer{Outcome: release.Unreachable, Text: err.Error()}
		case call.Method == rollout.RouterVerifyWeight:
			answer.Detail = verificationOf(verified)
		}
	}
	return answer
}

// verificationOf returns the result of VerifyWeight. An unknown number is not a verification.
func verificationOf(v plugin.Verification) rollout.RouterVerification {
	switch v {
	case plugin.Verified:
		return rollout.RouterVerified
	case plugin.VerifyNotImplemented:
		return rollout.RouterVerifyNotImplemented
	case plugin.NotVerified:
		return rollout.RouterNotVerified
	default:
		return rollout.RouterNotVerified
	}
}

// observeRouterPlugins adds the configuration of the plugins that trafficRouting names, and their answers.
func (o *Observer) observeRouterPlugins(_ context.Context, s *observation) error {
	c := s.spec.Strategy.Canary
	if c == nil {
		return nil
	}
	for _, name := range o.Routers.ExternalPlugins(c.TrafficRouting) {
		if s.snapshot.RouterPlugins == nil {
			s.snapshot.RouterPlugins = map[string]rollout.RouterPlugin{}
		}
		s.snapshot.RouterPlugins[name] = o.findRouterPlugin(s, name)
	}
	if o.RouterPlugins != nil && s.snapshot.RouterPlugins != nil {
		answers := o.RouterPlugins.Calls.Answers(queryrunner.Key{NamespacedName: s.key(), UID: s.object.UID})
		if s.snapshot.Answers == nil {
			s.snapshot.Answers = release.Answers{}
		}
		maps.Copy(s.snapshot.Answers, answers) // the IDs of step plugins differ
	}
	return nil
}

func (o *Observer) findRouterPlugin(s *observation, name string) rollout.RouterPlugin {
	switch {
	case o.RouterPlugins != nil:
		return o.RouterPlugins.Find(name)
	case !o.AnswersFromStatus:
		return rollout.RouterPlugin{Refusal: fmt.Sprintf(textPluginsOff, name)}
	}
	return rollout.RouterPlugin{Refusal: s.shownRefusal(rollout.GateRouterPlugin)}
}
