package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/utils/clock"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// maxPluginCalls is the number of calls of one plugin that are in progress at a time. Namespaces share it.
const maxPluginCalls = 32

// StepPlugins calls the step plugins of Rollouts, outside the workers.
type StepPlugins struct {
	// Find returns the configuration of a plugin.
	Find func(name string) rollout.StepPlugin
	// Calls sends the queries of decisions.
	Calls *queryrunner.Runner
}

// StepPluginRequest is the request of a query: a call, with the Rollout that the plugin receives.
type StepPluginRequest struct {
	rollout.StepPluginCall
	Object *argov1.Rollout
}

// NewStepPlugins returns the step plugins of a host. onAnswer requeues a Rollout.
func NewStepPlugins(host *plugin.Host, clk clock.PassiveClock, onAnswer queryrunner.AnswerFunc) *StepPlugins {
	poolName := func(request any) string { return request.(StepPluginRequest).Plugin }
	send := func(ctx context.Context, _ queryrunner.Key, query release.Query) release.Answer {
		request := query.Request.(StepPluginRequest)
		return callPlugin(ctx, host, request)
	}
	return &StepPlugins{
		Find:  func(name string) rollout.StepPlugin { return findPlugin(host, name) },
		Calls: queryrunner.NewPooled(clk, maxPluginCalls, poolName, send, onAnswer),
	}
}

// findPlugin returns the configuration of a plugin.
func findPlugin(host *plugin.Host, name string) rollout.StepPlugin {
	item, err := host.Find(plugin.Step, name)
	if err != nil {
		return rollout.StepPlugin{Refusal: err.Error()}
	}
	return rollout.StepPlugin{Disabled: item.Disabled}
}

// callPlugin calls a plugin.
func callPlugin(ctx context.Context, host *plugin.Host, r StepPluginRequest) release.Answer {
	result, err := host.CallStep(ctx, r.Object, plugin.StepCall{Plugin: r.Plugin, Operation: r.Operation, Config: r.Config, State: r.State})
	var refused *plugin.RefusedError
	switch {
	case errors.As(err, &refused):
		return release.Answer{Outcome: release.Broken, Text: errors.Unwrap(refused).Error()}
	case err != nil:
		return release.Answer{Outcome: release.Unreachable, Text: err.Error()}
	default:
		return release.Answer{Outcome: release.Yes, Detail: rollout.StepPluginReply{
			Phase: argov1.StepPluginPhase(result.Phase), Message: result.Message, RequeueAfter: result.RequeueAfter, State: result.State,
		}}
	}
}

// textPluginsOff explains why no plugin is called.
const textPluginsOff = "%s: plugins are off: start the controller with --allow-plugins, see docs/plugins.md"

// observeStepPlugins adds the configuration of the plugins that the steps name, and their answers.
func (o *Observer) observeStepPlugins(_ context.Context, s *observation) error {
	c := s.spec.Strategy.Canary
	if c == nil {
		return nil
	}
	for _, step := range c.Steps {
		if step.Plugin == nil {
			continue
		}
		if s.snapshot.StepPlugins == nil {
			s.snapshot.StepPlugins = map[string]rollout.StepPlugin{}
		}
		s.snapshot.StepPlugins[step.Plugin.Name] = o.findStepPlugin(s, step.Plugin.Name)
	}
	if o.StepPlugins != nil && s.snapshot.StepPlugins != nil {
		s.snapshot.Answers = o.StepPlugins.Calls.Answers(queryrunner.Key{NamespacedName: s.key(), UID: s.object.UID})
	}
	return nil
}

func (o *Observer) findStepPlugin(s *observation, name string) rollout.StepPlugin {
	switch {
	case o.StepPlugins != nil:
		return o.StepPlugins.Find(name)
	case !o.AnswersFromStatus:
		return rollout.StepPlugin{Refusal: fmt.Sprintf(textPluginsOff, name)}
	}
	return rollout.StepPlugin{Refusal: s.shownRefusal(rollout.StepPluginGate)}
}

// shownRefusal returns the reason that the process which calls the plugins has written into the gate of the status; empty: none.
func (s *observation) shownRefusal(gateName string) string {
	for _, gate := range shownGates(s.object.Status) {
		if gate.Name == gateName && gate.Verdict == string(release.Fail) {
			return gate.Message
		}
	}
	return ""
}

// submitPluginCalls sends the calls of plugins in a decision, after the status is written: it contains the step and the route that they
// are for. Each plugin receives the Rollout with that status.
func (r *Reconciler) submitPluginCalls(ctx context.Context, s *observation, d rollout.Decision) error {
	var steps, routes []release.Query
	for _, query := range d.Queries {
		switch request := query.Request.(type) {
		case rollout.StepPluginCall:
			query.Request = StepPluginRequest{request, s.objectForPlugins()}
			steps = append(steps, query)
		case rollout.RouterCalls:
			query.Request = RouterPluginRequest{request, s.objectForPlugins()}
			routes = append(routes, query)
		}
	}
	if err := r.frame.VerifyBeforeQueries(ctx, s.object, slices.Concat(steps, routes)); err != nil {
		return err
	}
	key := queryrunner.Key{NamespacedName: s.key(), UID: s.object.UID}
	var err error
	if r.RouterPlugins != nil {
		err = r.RouterPlugins.Calls.Submit(key, routes)
	}
	if r.StepPlugins != nil {
		err = errors.Join(err, r.StepPlugins.Calls.Submit(key, steps))
	}
	return err
}

// objectForPlugins returns the Rollout that a plugin receives. Its template may be that of a workload.
func (s *observation) objectForPlugins() *argov1.Rollout {
	object := s.object.DeepCopy()
	object.Spec = *s.spec.DeepCopy()
	return object
}
