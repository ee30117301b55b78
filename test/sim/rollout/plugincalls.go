package rollout

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/test/sim"
)

const (
	// pluginTimeout is the timeout of a call of a step or router plugin.
	pluginTimeout = time.Minute
	// maxPluginsInFlight is the number of calls in flight, for each of the two kinds of plugins.
	maxPluginsInFlight = 4
)

// pluginExecution is how a plugin executes the calls of a query.
type pluginExecution struct {
	after  time.Duration
	answer release.Answer
	// effect is the event that the plugin has executed calls, or nil.
	effect any
	// method is the last method that is called, for the error of a lost answer.
	method   string
	describe func(release.Answer) string
}

// addPlugins sets the step and router plugins of a process.
func (p *process) addPlugins() {
	p.stepPlugins = &controller.StepPlugins{Find: func(string) rollout.StepPlugin { return rollout.StepPlugin{} }, Calls: p.newPluginCalls()}
	p.routerPlugins = &controller.RouterPlugins{Find: func(string) rollout.RouterPlugin { return rollout.RouterPlugin{} }, Calls: p.newPluginCalls()}
}

// newPluginCalls returns the queue for the calls of one kind of plugins.
func (p *process) newPluginCalls() *queryrunner.Runner {
	enqueue := p.instance.Enqueue
	calls := queryrunner.New(p.instance.Clock, maxPluginsInFlight, nil, func(key types.NamespacedName, _ bool) { enqueue(reconcile.Request{NamespacedName: key}) })
	calls.RequirePermission(func(string) error { return p.instance.CheckLease() })
	return calls
}

// sendPluginCalls sends the calls of all plugins that are queued.
func (p *process) sendPluginCalls() {
	if p.stepPlugins != nil {
		p.sendCalls(p.stepPlugins.Calls)
		p.sendCalls(p.routerPlugins.Calls)
	}
}

func (p *process) sendCalls(calls *queryrunner.Runner) {
	for p.instance.Alive() {
		query, ok := calls.TakeNext(context.Background())
		if !ok {
			return
		}
		p.rollouts.services.callPlugin(p, calls, query)
	}
}

// callPlugin delivers the calls of a query to their plugin, and schedules the answer.
func (e *externalServices) callPlugin(p *process, calls *queryrunner.Runner, query queryrunner.RunningQuery) {
	call, received := e.Services.Receive(p.instance, calls, query, query.Query.ID)
	if !received {
		return
	}
	var execution pluginExecution
	switch request := query.Query.Request.(type) {
	case controller.StepPluginRequest:
		execution = e.executeStep(query, request)
	case controller.RouterPluginRequest:
		execution = e.executeRoute(query, request)
	default:
		e.World.Violate("simulator", "query %T is unknown", query.Query.Request)
		return
	}
	call.Then, call.Flush = func(do func()) { p.instance.After(0, do) }, func() { p.sendCalls(calls) }
	call.Describe = execution.describe
	if call.Scheduled(sim.LoseAnswer) {
		execution.answer = release.Answer{Outcome: release.Unreachable, Text: execution.method + " rpc call error: connection is shut down"}
	}
	if execution.effect != nil {
		e.World.Publish(execution.effect)
	}
	call.AnswerAfter(execution.after, execution.answer)
}
