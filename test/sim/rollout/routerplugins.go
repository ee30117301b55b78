package rollout

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// RouterPlugins is the class of releases whose traffic is also routed by a plugin.
const RouterPlugins sim.FaultClass = "router-plugin"

// routerPluginName is that plugin.
const routerPluginName = "sim/router"

// routerPluginFaultRate is the probability with which each selected class of faults affects a query.
const routerPluginFaultRate = 0.15

// routerCalled is the event that the plugin has executed calls: all of the request, or those before a fault.
type routerCalled struct {
	key      queryrunner.Key
	request  controller.RouterPluginRequest
	executed []rollout.RouterCall
}

// addRouterPlugin adds the plugin to the routers of a release.
func (r *Release) addRouterPlugin(*sim.Stream) {
	routing := r.Spec.Strategy.Canary.TrafficRouting
	if routing.Plugins == nil {
		routing.Plugins = map[string]json.RawMessage{}
	}
	routing.Plugins[routerPluginName] = json.RawMessage(`{"edge":"a"}`)
}

// executeRoute returns how the plugin executes the calls for a route. They are executed at once: a fault decides how many of them,
// and what Serin learns about it.
func (e *externalServices) executeRoute(query queryrunner.RunningQuery, request controller.RouterPluginRequest) pluginExecution {
	execution := pluginExecution{method: "SetWeight", describe: func(answer release.Answer) string {
		return fmt.Sprintf("%s: %s %v%s", query.Query.ID, answer.Outcome, answer.Detail, answer.Text)
	}}
	executed := 0
	executed, execution.after, execution.answer = e.drawRouterAnswer(query, request)
	execution.effect = routerCalled{query.Key, request, request.Calls[:executed]}
	return execution
}

// drawRouterAnswer returns how many calls the plugin executes, the delay after which it answers, and the answer. The faults are those
// of all external services.
func (e *externalServices) drawRouterAnswer(query queryrunner.RunningQuery, request controller.RouterPluginRequest) (int, time.Duration, release.Answer) {
	s := e.Services.AnswerStream(query.Key.Name + "/" + query.Query.ID)
	after, late := s.Skewed(20*time.Millisecond, 2*time.Second), s.Between(5*time.Second, 40*time.Second)
	part, lags := s.Int(0, len(request.Calls)), s.Chance(0.3)
	answer := release.Answer{Outcome: release.Yes}
	if request.Calls[0].Method == rollout.RouterVerifyWeight {
		answer.Detail = rollout.RouterVerified
		if lags {
			answer.Detail = rollout.RouterNotVerified
		}
	}
	switch actors.DrawFault(e.World, s, routerPluginFaultRate, actors.MetricFaults...) {
	case actors.MetricHang: // the host ends the process then
		return part, pluginTimeout, release.Answer{Outcome: release.Unreachable, Text: "SetWeight rpc call error: no answer within 1m0s"}
	case actors.MetricError:
		return part, after, release.Answer{Outcome: release.Unreachable, Text: "SetWeight rpc call error: connection is shut down"}
	case actors.MetricNoData:
		return 0, after, release.Answer{Outcome: release.Broken, Text: "it cannot be started"}
	case actors.MetricNaN:
		if answer.Detail != nil {
			answer.Detail = rollout.RouterVerification("purple")
		}
	case actors.MetricLate:
		after = late
	default: // no fault
	}
	return len(request.Calls), after, answer
}
