package rollout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// routerBehavior is how a router plugin of a scenario behaves.
type routerBehavior struct {
	// Error is the error of calls that set the route, Unstartable the reason why there is no call; Hangs is true if there is
	// no answer.
	Error, Unstartable string
	Hangs              bool
	// Verify is the result of VerifyWeight; empty: not implemented. VerifyError is its error.
	Verify      RouterVerification
	VerifyError string
}

// configureRouterPlugin executes the command router-plugin of a scenario.
func (w *world) configureRouterPlugin(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	name := d.CmdArgs[0].Key
	var behavior routerBehavior
	if err := yaml.UnmarshalStrict([]byte(d.Input), &behavior); err != nil {
		d.Fatalf(t, "%v", err)
	}
	if w.routerPlugins == nil {
		w.routerPlugins, w.routerReplies = map[string]RouterPlugin{}, map[string]routerBehavior{}
	}
	w.routerPlugins[name], w.routerReplies[name] = RouterPlugin{}, behavior
	if d.HasArg("refused") {
		w.routerPlugins[name] = RouterPlugin{Refusal: name + " is refused"}
	}
}

// answerRouter returns the answer to calls of a router plugin; false: it hangs.
func (w *world) answerRouter(calls RouterCalls, answer release.Answer) (release.Answer, bool) {
	behavior := w.routerReplies[calls.Plugin]
	verifies := calls.Calls[0].Method == RouterVerifyWeight
	answer.Ended, answer.Outcome = w.now, release.Yes
	switch {
	case behavior.Hangs:
		return answer, false
	case behavior.Unstartable != "":
		answer.Outcome, answer.Text = release.Broken, behavior.Unstartable
	case verifies && behavior.VerifyError != "":
		answer.Outcome, answer.Text = release.Unreachable, behavior.VerifyError
	case verifies:
		answer.Detail = cmp.Or(behavior.Verify, RouterVerifyNotImplemented)
	case behavior.Error != "":
		answer.Outcome, answer.Text = release.Unreachable, behavior.Error
	}
	return answer, true
}

// formatRouterCalls prints calls of a router plugin.
func formatRouterCalls(calls RouterCalls) string {
	var parts []string
	for _, c := range calls.Calls {
		switch c.Method {
		case RouterSetWeight, RouterVerifyWeight:
			parts = append(parts, fmt.Sprintf("%s %d", c.Method, c.Weight))
		case RouterUpdateHash:
			parts = append(parts, fmt.Sprintf("%s %s %s", c.Method, c.CanaryHash, c.StableHash))
		case RouterSetHeaderRoute:
			parts = append(parts, fmt.Sprintf("%s %s %d", c.Method, c.Header.Name, len(c.Header.Match)))
		case RouterSetMirrorRoute:
			parts = append(parts, fmt.Sprintf("%s %s %d", c.Method, c.Mirror.Name, len(c.Mirror.Match)))
		default:
			parts = append(parts, string(c.Method))
		}
		if len(c.Additional) > 0 {
			parts[len(parts)-1] += fmt.Sprintf(" and %v", c.Additional)
		}
	}
	return strings.Join(parts, ", ")
}

// routed returns a route with a weight for the revision v2.
func routed(weight int32, headers ...string) TrafficRouted {
	r := TrafficRouted{MaxWeight: 100, Weights: argov1.TrafficWeights{
		Canary: argov1.WeightDestination{Weight: weight, ServiceName: "canary", PodTemplateHash: "v2"},
		Stable: argov1.WeightDestination{Weight: 100 - weight, ServiceName: "stable", PodTemplateHash: "v1"},
	}}
	for _, name := range headers {
		r.Headers = append(r.Headers, argov1.SetHeaderRoute{Name: name, Match: []argov1.HeaderRoutingMatch{{HeaderName: name}}})
	}
	return r
}

func TestRouteCalls(t *testing.T) {
	steps := []argov1.CanaryStep{
		{SetHeaderRoute: &argov1.SetHeaderRoute{Name: "beta"}},
		{SetMirrorRoute: &argov1.SetMirrorRoute{Name: "copy"}},
		{SetHeaderRoute: &argov1.SetHeaderRoute{Name: "staff"}},
		{SetHeaderRoute: &argov1.SetHeaderRoute{Name: "staff"}},
	}
	mirrored, experiment := routed(5), routed(0)
	mirrored.Mirrors = []argov1.SetMirrorRoute{{Name: "copy", Match: []argov1.RouteMatch{{}}}}
	experiment.Weights.Additional = []argov1.WeightDestination{{Weight: 5, ServiceName: "exp", PodTemplateHash: "e"}}
	for _, test := range []struct {
		name  string
		route TrafficRouted
		want  string
	}{
		{"weight", routed(20), "RemoveManagedRoutes, UpdateHash v2 v1, SetWeight 20"},
		{"no weight: before the revisions, too", routed(0), "RemoveManagedRoutes, SetWeight 0, UpdateHash v2 v1, SetWeight 0"},
		{"all", routed(100), "RemoveManagedRoutes, UpdateHash v2 v1, SetWeight 100"},
		{"one of the routes of the steps: the others are removed", routed(5, "beta"), "SetMirrorRoute copy 0, SetHeaderRoute staff 0, SetHeaderRoute beta 1, UpdateHash v2 v1, SetWeight 5"},
		{"mirror", mirrored, "SetHeaderRoute beta 0, SetHeaderRoute staff 0, SetMirrorRoute copy 1, UpdateHash v2 v1, SetWeight 5"},
		{"experiment", experiment, "RemoveManagedRoutes, UpdateHash v2 v1 and [{5 exp e}], SetWeight 0 and [{5 exp e}]"},
	} {
		if got := formatRouterCalls(RouterCalls{Calls: routeCalls(steps, test.route)}); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestRouteIdentity(t *testing.T) {
	plugins := map[string]RouterPlugin{"acme/a": {}}
	of := func(route TrafficRouted, config string) string {
		return routeIdentity(map[string]json.RawMessage{"acme/a": json.RawMessage(config), "acme/other": json.RawMessage(`{"x":1}`)}, plugins, route)
	}
	drained, pingPong := routed(0), routed(0)
	drained.Drained, pingPong.StablePingPong = true, argov1.Ping
	base := of(routed(0), `{}`)
	if got := of(drained, `{}`); got != base {
		t.Errorf("the end of requests in progress changes the identity: %s", got)
	}
	different := []string{base, of(routed(1), `{}`), of(routed(0, "beta"), `{}`), of(pingPong, `{}`), of(routed(0), `{"route":"b"}`)}
	slices.Sort(different)
	if len(slices.Compact(slices.Clone(different))) != 5 {
		t.Errorf("different routes have the same identity: %v", different)
	}
}

// TestRouterPluginAnswersOfEarlierRoutes: an answer counts only if no call for another route began after it.
func TestRouterPluginAnswersOfEarlierRoutes(t *testing.T) {
	spec := argov1.RolloutSpec{Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{TrafficRouting: &argov1.RolloutTrafficRouting{}}}}
	f := facts{Snapshot: Snapshot{Now: noon, Spec: spec, Answers: release.Answers{}, RouterPlugins: map[string]RouterPlugin{"acme/a": {}}}}
	answerAll := func(route TrafficRouted) (calls []string) {
		for range 5 {
			p := planRouterPlugins(f, route)
			for _, query := range p.gates.Queries() {
				answer := release.Answer{ID: query.ID, Since: query.Since, Began: f.Now, Ended: f.Now, Outcome: release.Yes}
				if request := query.Request.(RouterCalls); request.Calls[0].Method == RouterVerifyWeight {
					answer.Detail = RouterVerified
				} else {
					calls = append(calls, formatRouterCalls(request))
				}
				f.Answers[query.ID] = answer
			}
			f.Status.Serin = &argov1.SerinStatus{RouterPlugins: &p.route}
			if p.answered {
				return calls
			}
		}
		t.Fatal("the route is not confirmed")
		return nil
	}
	var got [][]string
	for _, at := range []time.Duration{0, 0, time.Second} { // also at the same time, as after a clock was set back
		f.Now = noon.Add(at)
		got = append(got, answerAll(routed(20)), answerAll(routed(0)), answerAll(routed(0)))
	}
	up, down := []string{"RemoveManagedRoutes, UpdateHash v2 v1, SetWeight 20"}, []string{"RemoveManagedRoutes, SetWeight 0, UpdateHash v2 v1, SetWeight 0"}
	if diff := gocmp.Diff([][]string{up, down, nil, up, down, nil, up, down, nil}, got); diff != "" {
		t.Errorf("calls of alternating routes (-want +got):\n%s", diff)
	}
}

// sendRouterCalls sends a query to a router plugin, and reports whether it is new.
func (w *world) sendRouterCalls(t testingT, query release.Query, calls RouterCalls) bool {
	t.Helper()
	if _, done := w.answers.AnswerTo(query); done {
		t.Fatalf("%s is asked although its answer is known", query.ID)
	}
	if _, inFlight := w.routerCalls[query.ID]; inFlight {
		return false
	}
	fmt.Fprintf(&w.events, "  calls %s: %s\n", calls.Plugin, formatRouterCalls(calls))
	w.answers[query.ID] = release.Answer{ID: query.ID, Since: query.Since, Began: w.now}
	w.routerCalls[query.ID] = calls
	return true
}

// finishRouterCalls answers the queries in flight, except to plugins that hang.
func (w *world) finishRouterCalls() {
	for id, calls := range w.routerCalls {
		answer, ended := w.answerRouter(calls, w.answers[id])
		if !ended {
			continue
		}
		w.answers[id] = answer
		delete(w.routerCalls, id)
	}
}

// TestRouterPluginRemovedAndAdded: a route has another number than all earlier ones, so that no answer about an earlier route
// counts.
func TestRouterPluginRemovedAndAdded(t *testing.T) {
	w := newWorld(argov1.RolloutSpec{})
	w.spec.Strategy.Canary = &argov1.CanaryStrategy{CanaryService: "canary", StableService: "stable", TrafficRouting: &argov1.RolloutTrafficRouting{}}
	plugins := map[string]RouterPlugin{"acme/edge": {}}
	w.routerReplies = map[string]routerBehavior{}
	var got []argov1.RouterPluginsStatus
	for _, w.routerPlugins = range []map[string]RouterPlugin{plugins, nil, plugins} {
		w.settle(t)
		got = append(got, routeOfPlugins(w.status))
	}
	route := got[0].Route
	want := []argov1.RouterPluginsStatus{{Route: route, Number: 1, Confirmed: true}, {Number: 1}, {Route: route, Number: 2, Confirmed: true}}
	if diff := gocmp.Diff(want, got); diff != "" || route == "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
