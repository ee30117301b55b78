package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// RouterPlugin is a router plugin as the controller is configured.
type RouterPlugin struct {
	// Refusal is the reason why the plugin cannot be called, with its remedy; empty: it can.
	Refusal string
}

// RouterMethod is a method of a router plugin.
type RouterMethod string

// The methods that a route consists of, and the one that verifies it.
const (
	RouterRemoveManagedRoutes RouterMethod = "RemoveManagedRoutes"
	RouterSetHeaderRoute      RouterMethod = "SetHeaderRoute"
	RouterSetMirrorRoute      RouterMethod = "SetMirrorRoute"
	RouterUpdateHash          RouterMethod = "UpdateHash"
	RouterSetWeight           RouterMethod = "SetWeight"
	RouterVerifyWeight        RouterMethod = "VerifyWeight"
)

// RouterCall is one call of a router plugin. Its fields are the arguments of the method.
type RouterCall struct {
	Method                 RouterMethod
	Weight                 int32
	CanaryHash, StableHash string
	Additional             []argov1.WeightDestination
	Header                 *argov1.SetHeaderRoute
	Mirror                 *argov1.SetMirrorRoute
}

// RouterCalls is the request of a query: the calls of one plugin, in order, up to the first that fails. They may be
// repeated, because a process can stop between any two of them.
type RouterCalls struct {
	Plugin string
	// Route is the desired route that the calls set or verify.
	Route TrafficRouted
	Calls []RouterCall
}

// RouterVerification is the result of VerifyWeight. It is the detail of an answer to RouterCalls with the outcome Yes.
type RouterVerification string

// The results of VerifyWeight. A plugin that does not implement it is not asked again about the same route.
const (
	RouterVerified             RouterVerification = "verified"
	RouterNotVerified          RouterVerification = "not-verified"
	RouterVerifyNotImplemented RouterVerification = "not-implemented"
)

// The reasons of events are those of Argo Rollouts.
const (
	reasonRoutingError = "TrafficRoutingError"
	reasonVerifyError  = "WeightVerifyError"
)

// GateRouterPlugin is the name of the gate of a router plugin that has not confirmed the desired route.
const GateRouterPlugin = "router-plugin"

// routerPluginPlan is the state of the router plugins for the desired route. The zero value means that there are none, or
// that there is no desired route.
type routerPluginPlan struct {
	outcome
	// planned is true if there are router plugins and a desired route.
	planned bool
	// route is the route for the status.
	route argov1.RouterPluginsStatus
	// verifies is true if the answers of this process contain a verification by a plugin.
	verifies bool
	// answered is true if the answers of this process confirm the route, and not only the status.
	answered bool
}

// planRouterPlugins derives the calls that the desired route requires, records their answers, and decides about the next
// query. Plugins are called one after the other, in the order of their names, as Argo Rollouts does it in one
// reconciliation.
//
// A plugin is imperative, and its calls end at an unknown time. The status therefore contains the route, and whether it is
// confirmed, before the first call for it: a process that takes over repeats the calls, and until they are confirmed no pods
// are removed that an earlier route may lead to.
func planRouterPlugins(f facts, route TrafficRouted) routerPluginPlan {
	if len(f.RouterPlugins) == 0 {
		return routerPluginPlan{}
	}
	p := routerPluginPlan{planned: true, answered: true, route: routeOfPlugins(f.Status)}
	if identity := routeIdentity(f.Spec.Strategy.Canary.TrafficRouting.Plugins, f.RouterPlugins, route); identity != p.route.Route {
		p.route = argov1.RouterPluginsStatus{Route: identity, Number: p.route.Number + 1}
	}
	for _, name := range slices.Sorted(maps.Keys(f.RouterPlugins)) {
		q := pluginRoute{f: f, plugin: name, identity: fmt.Sprintf("%s-%d", p.route.Route, p.route.Number), route: route}
		if gate := q.confirm(&p); gate != nil {
			p.gates, p.answered = append(p.gates, *gate), false
			break
		}
	}
	// A process that takes over repeats the calls once, in case the route was changed outside. Until then the
	// confirmation in the status applies.
	p.route.Confirmed = p.route.Confirmed || p.answered
	return p
}

// pluginRoute is the desired route for one plugin.
type pluginRoute struct {
	f        facts
	plugin   string
	identity string
	route    TrafficRouted
}

// confirm returns the gate of a plugin that has not confirmed the route; nil: it has.
func (q pluginRoute) confirm(p *routerPluginPlan) *release.Gate {
	if refusal := q.f.RouterPlugins[q.plugin].Refusal; refusal != "" {
		return q.failed(p, reasonRoutingError, refusal, q.f.Now.Add(pluginRetryInterval))
	}
	id := q.idPrefix() + q.identity
	apply := release.Query{
		ID: id, Since: q.endOfOtherRoutes(), Request: RouterCalls{Plugin: q.plugin, Route: q.route, Calls: routeCalls(q.f.steps(), q.route)},
	}
	applied, gate := q.answerOrGate(p, apply, reasonRoutingError, fmt.Sprintf("%s is setting weight %d", q.plugin, q.route.Weights.Canary.Weight))
	if gate != nil {
		return gate
	}
	verify := release.Query{ID: id + "/verify", Since: applied.Ended, Request: RouterCalls{Plugin: q.plugin, Route: q.route, Calls: []RouterCall{{
		Method: RouterVerifyWeight, Weight: q.route.Weights.Canary.Weight, Additional: q.route.Weights.Additional,
	}}}}
	verified, gate := q.answerOrGate(p, verify, reasonVerifyError, fmt.Sprintf("%s is verifying weight %d", q.plugin, q.route.Weights.Canary.Weight))
	if gate != nil {
		return gate
	}
	switch verified.Detail {
	case RouterVerified:
		p.verifies = true
		return nil
	case RouterVerifyNotImplemented:
		return nil
	default: // a value that Argo Rollouts does not define counts as not verified, too
		verify.Since = verified.Ended.Add(routerRetryInterval)
		if q.f.Now.Before(verify.Since) {
			gate := release.NewTimedGate(GateRouterPlugin, verify.Since, fmt.Sprintf("%s has set weight %d, but not verified it yet; next call at %s", q.plugin, q.route.Weights.Canary.Weight, verify.Since.UTC().Format(time.TimeOnly)))
			return &gate
		}
		gate := release.NewQueryGate(GateRouterPlugin, verify, fmt.Sprintf("%s is verifying weight %d", q.plugin, q.route.Weights.Canary.Weight))
		return &gate
	}
}

// answerOrGate returns the answer to a query whose calls have succeeded, or the gate that sends it or that explains why not.
func (q pluginRoute) answerOrGate(p *routerPluginPlan, query release.Query, reason, progress string) (release.Answer, *release.Gate) {
	answer, answered := q.f.Answers.AnswerTo(query)
	if answered && answer.Outcome == release.Yes {
		return answer, nil
	}
	if answered {
		query.Since = release.LaterOf(query.Since, answer.Ended.Add(pluginRetryInterval))
		if q.f.Now.Before(query.Since) {
			return answer, q.failed(p, reason, q.plugin+": "+answer.Text, query.Since)
		}
	}
	gate := release.NewQueryGate(GateRouterPlugin, query, progress)
	return answer, &gate
}

// failed returns a failed gate that is evaluated again at a time, and adds the event about it. The release is not aborted:
// an abort needs the router, too.
func (q pluginRoute) failed(p *routerPluginPlan, reason, message string, until time.Time) *release.Gate {
	gate := release.NewFailedGate(GateRouterPlugin, release.ByUser, message)
	gate.Until = until
	p.events = append(p.events, release.Event{
		Type: release.Warning, Reason: reason, Persistent: true,
		Message: "Router plugin " + message + ". The calls are repeated every " + pluginRetryInterval.String() + ": see its output in the log of the controller, or correct its configuration",
	})
	return &gate
}

// idPrefix is the beginning of the IDs of all queries to the plugin.
func (q pluginRoute) idPrefix() string { return "router/" + q.plugin + "/" }

// endOfOtherRoutes returns the time after which calls for this route must have begun: that of the last call for another
// route. An answer from before it describes a route that was replaced since. Usually, the number of the route in the ID
// ensures this, but a definition of Argo Rollouts does not store it.
func (q pluginRoute) endOfOtherRoutes() time.Time {
	var last time.Time
	for id, answer := range q.f.Answers {
		route, isRoute := strings.CutPrefix(id, q.idPrefix())
		if isRoute && !strings.HasPrefix(route, q.identity) && !strings.HasSuffix(route, "/verify") {
			last = release.LaterOf(last, answer.Began.Add(time.Nanosecond))
		}
	}
	return last
}

// routeIdentity identifies a route and the configuration of the plugins that it is for.
func routeIdentity(configurations map[string]json.RawMessage, plugins map[string]RouterPlugin, route TrafficRouted) string {
	configured := map[string]json.RawMessage{}
	for name := range plugins {
		configured[name] = configurations[name]
	}
	route.Drained = false // concerns objects that Serin created
	text, err := json.Marshal([]any{route, configured})
	if err != nil { // the configuration comes from a decoded object
		text = fmt.Appendf(nil, "%v %s", route, configured)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// routeCalls returns the calls that set a route, whatever the plugin was asked before: managed routes, revisions, and the
// weight. This is the order of Argo Rollouts.
//
// A weight of 0 is also set before the revisions: otherwise, the previous weight would lead to a new revision, which may
// have no pods yet.
func routeCalls(steps []argov1.CanaryStep, route TrafficRouted) []RouterCall {
	w := route.Weights
	weight := RouterCall{Method: RouterSetWeight, Weight: w.Canary.Weight, Additional: w.Additional}
	calls := managedRouteCalls(steps, route)
	if w.Canary.Weight == 0 && len(w.Additional) == 0 {
		calls = append(calls, weight)
	}
	return append(calls,
		RouterCall{Method: RouterUpdateHash, CanaryHash: w.Canary.PodTemplateHash, StableHash: w.Stable.PodTemplateHash, Additional: w.Additional},
		weight)
}

// managedRouteCalls returns the calls that set the managed routes of a route, and remove all others that the steps name.
func managedRouteCalls(steps []argov1.CanaryStep, route TrafficRouted) []RouterCall {
	if len(route.Headers)+len(route.Mirrors) == 0 {
		return []RouterCall{{Method: RouterRemoveManagedRoutes}}
	}
	desired, removed := map[string]bool{}, map[string]bool{}
	for _, h := range route.Headers {
		desired[h.Name] = true
	}
	for _, m := range route.Mirrors {
		desired[m.Name] = true
	}
	var calls []RouterCall
	for _, step := range steps { // without matches, a step removes its route
		if h := step.SetHeaderRoute; h != nil && !desired[h.Name] && !removed[h.Name] {
			removed[h.Name] = true
			calls = append(calls, RouterCall{Method: RouterSetHeaderRoute, Header: &argov1.SetHeaderRoute{Name: h.Name}})
		}
		if m := step.SetMirrorRoute; m != nil && !desired[m.Name] && !removed[m.Name] {
			removed[m.Name] = true
			calls = append(calls, RouterCall{Method: RouterSetMirrorRoute, Mirror: &argov1.SetMirrorRoute{Name: m.Name}})
		}
	}
	for i := range route.Headers {
		calls = append(calls, RouterCall{Method: RouterSetHeaderRoute, Header: &route.Headers[i]})
	}
	for i := range route.Mirrors {
		calls = append(calls, RouterCall{Method: RouterSetMirrorRoute, Mirror: &route.Mirrors[i]})
	}
	return calls
}

// pendingGate returns the gate of a plugin for which the release waits; nil: all have confirmed the route.
func (p routerPluginPlan) pendingGate() *release.Gate {
	if !p.planned || p.route.Confirmed || len(p.gates) == 0 {
		return nil
	}
	return &p.gates[0]
}

// verified returns the value of status.canary.weights.verified: that of the other routers, and of the plugins.
func (p routerPluginPlan) verified(others *bool, previous *argov1.TrafficWeights, unchanged bool) *bool {
	switch {
	case !p.planned, others != nil && !*others:
		return others
	case !p.route.Confirmed:
		return new(false)
	case p.answered && p.verifies:
		return new(true)
	case !p.answered && unchanged && valueOr(previous.Verified, false): // verified before this process started
		return new(true)
	default: // no plugin can verify it
		return others
	}
}

// withRouterPlugins adds the gates and the events of the router plugins.
func (t trafficPlan) withRouterPlugins() trafficPlan {
	t.outcome = joinOutcomes(t.outcome, t.plugins.outcome)
	return t
}

// withRouterPlugins returns the facts with what the router plugins have confirmed about the route of this decision.
func (f facts) withRouterPlugins(p routerPluginPlan) facts {
	if p.planned {
		f.pluginsUnconfirmed = !p.route.Confirmed
	}
	return f
}

// routeOfPlugins returns the route in the status, and whether the router plugins have confirmed it.
func routeOfPlugins(s argov1.RolloutStatus) argov1.RouterPluginsStatus {
	if s.Serin == nil || s.Serin.RouterPlugins == nil {
		return argov1.RouterPluginsStatus{}
	}
	return *s.Serin.RouterPlugins
}

// withRouterPlugins returns the status with the route of the router plugins.
func withRouterPlugins(serin *argov1.SerinStatus, route argov1.RouterPluginsStatus) *argov1.SerinStatus {
	updated := argov1.SerinStatus{}
	if serin != nil {
		updated = *serin
	}
	updated.RouterPlugins = &route
	return &updated
}

// awaitsRouterPlugins reports whether a Service must not select a revision yet, because a router plugin may still send it the
// traffic of an earlier route. The stable revision serves users anyway. A Service without available pods waits for nothing: a fix must
// be deployable even if a plugin confirms no route.
func awaitsRouterPlugins(f facts, service string, rs ReplicaSet) bool {
	from := f.selectedHash(service)
	return f.usesRouter() && f.pluginsUnconfirmed && f.hasDistinctStable() && rs.Hash != f.stable.Hash && from != rs.Hash && f.findReplicaSet(from).Available > 0 &&
		f.Services[service].ManagedBy == f.Name
}
