package controller

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// maxPluginCalls is the number of calls of one step plugin that are in progress at a time. Namespaces share it.
const maxPluginCalls = 32

// StepPlugins calls the step plugins of Rollouts, outside the workers.
type StepPlugins struct {
	// Find returns the configuration of a plugin.
	Find func(name string) rollout.StepPlugin
	// Calls sends the queries of decisions.
	Calls *queryrunner.Runner
}

// PluginRequest is the request of a query: a call, with the Rollout that the plugin receives.
type PluginRequest struct {
	rollout.PluginCall
	Object *argov1.Rollout
}

// NewStepPlugins returns the step plugins of a host. onAnswer requeues a Rollout.
func NewStepPlugins(host *plugin.Host, clk clock.PassiveClock, onAnswer func(types.NamespacedName)) *StepPlugins {
	poolName := func(request any) string { return request.(PluginRequest).Plugin }
	send := func(ctx context.Context, _ queryrunner.Key, query release.Query) release.Answer {
		request := query.Request.(PluginRequest)
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
func callPlugin(ctx context.Context, host *plugin.Host, r PluginRequest) release.Answer {
	result, err := host.CallStep(ctx, r.Object, plugin.StepCall{Plugin: r.Plugin, Operation: r.Operation, Config: r.Config, State: r.State})
	var refused *plugin.RefusedError
	switch {
	case errors.As(err, &refused):
		return release.Answer{Outcome: release.Broken, Text: errors.Unwrap(refused).Error()}
	case err != nil:
		return release.Answer{Outcome: release.Unreachable, Text: err.Error()}
	default:
		return release.Answer{Outcome: release.Yes, Detail: rollout.PluginReply{
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
	for _, gate := range shownGates(s.object.Status) { // the process that calls the plugin has written why it cannot
		if gate.Name == rollout.GatePlugin && gate.Verdict == string(release.Fail) {
			return rollout.StepPlugin{Refusal: gate.Message}
		}
	}
	return rollout.StepPlugin{}
}

// submitPluginCalls sends the calls of a decision. Each receives the Rollout with the status that was just written.
func (r *Reconciler) submitPluginCalls(ctx context.Context, s *observation, d rollout.Decision) error {
	if r.StepPlugins == nil {
		return nil
	}
	queries := make([]release.Query, 0, len(d.Queries))
	for _, query := range d.Queries {
		call, ok := query.Request.(rollout.PluginCall)
		if !ok {
			continue
		}
		object := s.object.DeepCopy()
		object.Spec = *s.spec.DeepCopy()
		query.Request = PluginRequest{call, object}
		queries = append(queries, query)
	}
	if err := r.frame.VerifyBeforeQueries(ctx, s.object, queries); err != nil {
		return err
	}
	return r.StepPlugins.Calls.Submit(queryrunner.Key{NamespacedName: s.key(), UID: s.object.UID}, queries)
}
