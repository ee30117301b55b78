package cluster

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

// Route is a release as those see it who send requests to it.
type Route struct {
	Release   types.NamespacedName
	Namespace string
	// Provider is kubernetes, istio, or gatewayapi with a version.
	Provider string
	// Apex is the Service that clients call, and the name of the route; Primary and Canary are the other Services.
	Apex, Primary, Canary string
}

func (r Route) services() []string { return []string{r.Primary, r.Canary, r.Apex} }

// Gateway is the data plane: what routes requests, in two replicas that follow the API server each with a lag of its own.
// A replica learns things in the order in which they were written, as those do that have them from one control plane: what
// was published before a route was written is known before the route.
type Gateway struct {
	world    *sim.World
	cluster  *Cluster
	routes   func() []Route
	replicas []*replica
	// reports is true when Gateway API routes get a status.
	reports bool
	draws   *sim.Stream
	writer  client.Client
	// moved is when the route of a release was last written.
	moved map[types.NamespacedName]time.Time
}

// replicasOfGateway converge one after the other.
const replicasOfGateway = 2

// replica is one half of the data plane.
type replica struct {
	index int
	draws *sim.Stream
	// until is when the last of what is on the way arrives.
	until time.Time
	views map[types.NamespacedName]*view
}

// view is what a replica knows of a release.
type view struct {
	route     *store.Version // of the provider's kind; nil: none
	selectors map[string]map[string]any
	slices    map[types.NamespacedName]*store.Version
	told      Traffic
	lost      []Lost
}

// NewGateway starts the data plane for the routes, of which there may be more or fewer later.
func NewGateway(w *sim.World, c *Cluster, routes func() []Route) *Gateway {
	g := &Gateway{
		world: w, cluster: c, routes: routes, draws: w.Draws.Stream("gateway"), writer: w.Server.Client("gateway"),
		moved: map[types.NamespacedName]time.Time{},
	}
	g.reports = g.draws.Chance(0.7)
	for i := range replicasOfGateway {
		g.replicas = append(g.replicas, &replica{
			index: i, draws: w.Draws.Stream(fmt.Sprintf("gateway/%d", i)), views: map[types.NamespacedName]*view{},
		})
	}
	w.Subscribe(g.see)
	c.watchers = append(c.watchers, g.lookedAt)
	return g
}

// D is what each replica does with the requests of a release.
func (g *Gateway) D(release types.NamespacedName) []Traffic {
	for _, route := range g.routes() {
		if route.Release != release {
			continue
		}
		var all []Traffic
		for _, r := range g.replicas {
			v := g.view(r, route)
			now := v.told.clone()
			for _, share := range now.shares() {
				g.count(route, v, share)
			}
			all = append(all, now)
		}
		return all
	}
	return nil
}

// Weight is the greatest share that requests to a Service have in any rule, in hundredths of all.
func (t Traffic) Weight(service string) int {
	most := 0
	for _, shares := range t.rules() {
		sum, of := 0, 0
		for _, share := range shares {
			sum += share.Weight
			if share.Service == service {
				of += share.Weight
			}
		}
		if sum > 0 {
			most = max(most, (100*of+sum-1)/sum)
		}
	}
	return most
}

func (t Traffic) rules() [][]Share { return append([][]Share{t.Weights}, t.Matched...) }

// shares are those of all rules.
func (t Traffic) shares() []*Share {
	var all []*Share
	for _, shares := range t.rules() {
		for i := range shares {
			all = append(all, &shares[i])
		}
	}
	return all
}

// same compares what a replica does, without what becomes of it.
func (t Traffic) same(o Traffic) bool {
	a, b := t.shares(), o.shares()
	return t.Release == o.Release && t.Routed == o.Routed && slices.Equal(t.Mirrored, o.Mirrored) &&
		len(t.Weights) == len(o.Weights) && len(t.Matched) == len(o.Matched) &&
		slices.EqualFunc(a, b, func(x, y *Share) bool { return x.Service == y.Service && x.Weight == y.Weight && x.Known == y.Known })
}

func (t Traffic) clone() Traffic {
	t.Weights = slices.Clone(t.Weights)
	t.Matched = slices.Clone(t.Matched)
	for i := range t.Matched {
		t.Matched[i] = slices.Clone(t.Matched[i])
	}
	return t
}

// see follows the API server.
func (g *Gateway) see(event any) {
	wrote, ok := event.(sim.ObjectWritten)
	if !ok {
		return
	}
	e := wrote.Event
	switch e.Kind {
	case virtualServiceKind, httpRouteKind:
		if e.Type == store.Modified && e.New.Generation() == e.Old.Generation() {
			return
		}
	case serviceKind, sliceKind:
	default:
		return
	}
	for _, route := range g.routes() {
		if route.Namespace != e.Key.Namespace || !route.means(e) {
			continue
		}
		if e.Kind == route.kind() {
			g.moved[route.Release] = g.world.Now()
		}
		for _, r := range g.replicas {
			g.send(r, route, e)
		}
		if e.Kind == serviceKind {
			g.look(route) // in truth, what is behind it changed at once
		}
	}
}

// means is true when an object is about the release.
func (r Route) means(e *store.Event) bool {
	switch e.Kind {
	case serviceKind:
		return slices.Contains(r.services(), e.Key.Name)
	case sliceKind:
		return slices.Contains(r.services(), e.New.Meta().Labels[serviceLabel])
	default:
		return e.Kind == r.kind() && e.Key.Name == r.Apex
	}
}

// send lets a replica hear of a change, after all that it has not heard of yet.
func (g *Gateway) send(r *replica, route Route, e *store.Event) {
	if r.views[route.Release] == nil { // it knows the previous route, and not yet this one
		first := g.prime(r, route)
		first.learn(e.Kind, e.Key, e.Old)
		g.decide(r, route, first)
	}
	v := g.view(r, route)
	wait, late := r.draws.Skewed(20*time.Millisecond, Followed), r.draws.Skewed(time.Second, Late)
	if g.world.Faults.Inject(LateGateways) {
		wait += late
	}
	at := g.world.Now().Add(wait)
	if at.Before(r.until) {
		at = r.until
	}
	r.until = at
	g.cluster.plan(at.Sub(g.world.Now()), func() {
		now := e.New
		if e.Type == store.Deleted {
			now = nil
		}
		v.learn(e.Kind, e.Key, now)
		g.decide(r, route, v)
		if e.Kind == httpRouteKind {
			g.accept(route, e)
		}
	})
}

// learn takes an object for what it is now; nil: it is gone.
func (v *view) learn(kind schema.GroupKind, key types.NamespacedName, now *store.Version) {
	switch kind {
	case serviceKind:
		v.selectors[key.Name] = nil
		if now != nil {
			v.selectors[key.Name] = selectorIn(now)
		}
	case sliceKind:
		v.slices[key] = now
	default:
		v.route = now
	}
}

// kind of the route object; none for a provider without one.
func (r Route) kind() schema.GroupKind {
	provider, _, _ := strings.Cut(r.Provider, ":")
	switch provider {
	case "istio":
		return virtualServiceKind
	case "gatewayapi":
		return httpRouteKind
	default:
		return schema.GroupKind{}
	}
}

// view is what a replica knows.
func (g *Gateway) view(r *replica, route Route) *view {
	if known := r.views[route.Release]; known != nil {
		return known
	}
	v := g.prime(r, route)
	g.decide(r, route, v)
	return v
}

// prime begins a view, with everything that is there.
func (g *Gateway) prime(r *replica, route Route) *view {
	v := &view{selectors: map[string]map[string]any{}, slices: map[types.NamespacedName]*store.Version{}}
	r.views[route.Release] = v
	v.route = g.world.Server.Peek(route.kind(), types.NamespacedName{Namespace: route.Namespace, Name: route.Apex})
	for _, name := range route.services() {
		v.selectors[name] = g.cluster.selectorOf(route.Namespace, name)
	}
	for _, slice := range g.published(route) {
		v.slices[slice.Key()] = slice
	}
	return v
}

// published are the slices of a release as they are now.
func (g *Gateway) published(route Route) []*store.Version {
	return slices.DeleteFunc(g.world.Server.All(sliceKind), func(slice *store.Version) bool {
		return slice.Key().Namespace != route.Namespace || !slices.Contains(route.services(), slice.Meta().Labels[serviceLabel])
	})
}

// decide determines where requests go, and publishes it if it has changed.
func (g *Gateway) decide(r *replica, route Route, v *view) {
	now := Traffic{Release: route.Release, At: v.told.At, Replica: r.index}
	rules := rulesOf(v.route)
	now.Routed = len(rules) > 0
	if !now.Routed {
		now.Weights = []Share{{Service: v.meant(route), Weight: 100, via: route.Apex}}
	}
	for i, rule := range rules {
		shares := make([]Share, 0, len(rule.weights))
		for _, w := range rule.weights {
			shares = append(shares, Share{Service: w.service, Weight: w.share, via: w.service})
		}
		if i == len(rules)-1 {
			now.Weights = shares
		} else {
			now.Matched = append(now.Matched, shares)
		}
		for _, service := range rule.mirrored {
			if !slices.Contains(now.Mirrored, service) {
				now.Mirrored = append(now.Mirrored, service)
			}
		}
	}
	for _, share := range now.shares() {
		g.count(route, v, share)
	}
	if !now.same(v.told) {
		now.At = g.world.Now()
		if was := v.told.String(); now.String() != was {
			g.world.Trace("  gateway %d: %s", r.index, now)
		}
		v.told = now
		g.world.Publish(now)
	}
	g.lose(r, route, v)
}

// meant is the Service that selects what the apex selects, as far as the replica knows.
func (v *view) meant(route Route) string {
	apex := v.selectors[route.Apex]
	for _, name := range []string{route.Primary, route.Canary} {
		if len(apex) > 0 && reflect.DeepEqual(apex, v.selectors[name]) {
			return name
		}
	}
	return route.Apex
}

func (g *Gateway) count(route Route, v *view, share *Share) {
	known := v.known(share.via)
	share.Known, share.Answering, share.Ready = len(known), 0, 0
	for _, name := range known {
		if p := g.cluster.pods[name]; p != nil && p.answers {
			share.Answering++
		}
	}
	for p := range g.cluster.behind(route.Namespace, g.cluster.selectorOf(route.Namespace, share.via)) {
		if p.ready && p.answers {
			share.Ready++
		}
	}
}

// known are the pods of a Service that a replica sends requests to: those that are ready, and where there are none, those
// that are terminating and still serve.
func (v *view) known(service string) []string {
	var ready, ending []string
	for _, slice := range v.slices {
		if slice == nil || slice.Meta().Labels[serviceLabel] != service {
			continue
		}
		for _, endpoint := range objects(slice.Content(), "endpoints") {
			conditions, name := object(endpoint, "conditions"), text(object(endpoint, "targetRef"), "name")
			switch {
			case conditions["ready"] == true:
				ready = append(ready, name)
			case conditions["serving"] == true && conditions["terminating"] == true:
				ending = append(ending, name)
			}
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return ending
}

// lookedAt is called when the set of answering pods has changed in a namespace.
func (g *Gateway) lookedAt(namespace string) {
	for _, route := range g.routes() {
		if route.Namespace == namespace {
			g.look(route)
		}
	}
}

func (g *Gateway) look(route Route) {
	for _, r := range g.replicas {
		g.lose(r, route, g.view(r, route))
	}
}

// lose reports of requests that are lost, and of losses that are over.
func (g *Gateway) lose(r *replica, route Route, v *view) {
	var lost []Lost
	for _, share := range v.told.shares() {
		loss, ok := g.lossOf(r, route, v, *share)
		if ok && !slices.ContainsFunc(lost, func(l Lost) bool { return l.Service == loss.Service }) {
			lost = append(lost, loss)
		}
	}
	was := v.lost
	v.lost = lost
	for _, before := range was {
		if !slices.ContainsFunc(lost, func(l Lost) bool { return l.Service == before.Service && l.Why == before.Why }) {
			g.world.Publish(Restored{Lost: before, Until: g.world.Now()})
		}
	}
	for i, loss := range lost {
		at := slices.IndexFunc(was, func(l Lost) bool { return l.Service == loss.Service && l.Why == loss.Why })
		if at >= 0 {
			lost[i].Since = was[at].Since
			continue
		}
		g.world.Trace("  gateway %d: requests to %s are lost: %s", r.index, loss.Service, loss.Why)
		g.world.Publish(loss)
	}
}

func (g *Gateway) lossOf(r *replica, route Route, v *view, share Share) (Lost, bool) {
	if share.Weight == 0 || !slices.Contains(route.services(), share.via) {
		return Lost{}, false
	}
	g.count(route, v, &share)
	if share.Answering > 0 || !g.elsewhere(route, share) {
		return Lost{}, false
	}
	loss := Lost{
		Release: route.Release, Service: share.Service, Replica: r.index, Since: g.world.Now(), Known: share.Known,
		Answering: g.answering(route, share.via), Left: g.left(route, share),
	}
	now := view{slices: map[types.NamespacedName]*store.Version{}}
	for _, slice := range g.published(route) {
		now.slices[slice.Key()] = slice
	}
	loss.Published = len(now.known(share.via))
	switch {
	case loss.Answering == 0:
		loss.Why = NoPods
	case loss.Known == 0:
		loss.Why = NotKnown
	default:
		loss.Why = Gone
	}
	return loss, true
}

// answering counts the pods behind a Service that answer.
func (g *Gateway) answering(route Route, service string) int {
	n := 0
	for p := range g.cluster.behind(route.Namespace, g.cluster.selectorOf(route.Namespace, service)) {
		if p.answers {
			n++
		}
	}
	return n
}

// elsewhere is true when another Service of the release has pods that answer.
func (g *Gateway) elsewhere(route Route, share Share) bool {
	for _, name := range []string{route.Primary, route.Canary} {
		if name != share.Service && g.answering(route, name) > 0 {
			return true
		}
	}
	return false
}

// left is since when what is written sends nothing to a Service any more.
func (g *Gateway) left(route Route, share Share) time.Time {
	written := rulesOf(g.world.Server.Peek(route.kind(), types.NamespacedName{Namespace: route.Namespace, Name: route.Apex}))
	for _, rule := range written {
		if slices.ContainsFunc(rule.weights, func(w weight) bool { return w.service == share.via && w.share > 0 }) {
			return time.Time{}
		}
	}
	if len(written) == 0 && share.via == route.Apex {
		return time.Time{}
	}
	return g.moved[route.Release]
}

// accept writes into the status of a Gateway API route that it is served, once both replicas serve it.
func (g *Gateway) accept(route Route, e *store.Event) {
	generation := e.New.Generation()
	if !g.reports || e.Type == store.Deleted || slices.ContainsFunc(g.replicas, func(r *replica) bool {
		seen := g.view(r, route).route
		return seen == nil || seen.UID() != e.New.UID() || seen.Generation() < generation
	}) {
		return
	}
	g.cluster.plan(g.draws.Skewed(10*time.Millisecond, time.Second), func() {
		v := g.world.Server.Peek(httpRouteKind, e.Key)
		if v == nil || v.UID() != e.New.UID() || v.Generation() != generation {
			return // a newer one is on its way
		}
		var parents []any
		for _, parent := range objects(object(v.Content(), "spec"), "parentRefs") {
			parents = append(parents, map[string]any{
				"parentRef": parent, "controllerName": "gateway.example.com/controller",
				"conditions": []any{map[string]any{
					"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": generation,
					"lastTransitionTime": stamp(v.Meta().CreationTimestamp.Time),
				}},
			})
		}
		obj := written(v)
		obj.Object["status"] = map[string]any{"parents": parents}
		g.cluster.wrote("the status of HTTPRoute "+e.Key.Name, g.writer.Status().Update(background(), obj))
	})
}

// String says for users where requests go.
func (t Traffic) String() string {
	var out strings.Builder
	out.WriteString(t.Release.Name)
	for i, shares := range t.rules() {
		if i > 0 {
			out.WriteString(", for some")
		}
		for _, share := range shares {
			fmt.Fprintf(&out, " %s=%d", share.Service, share.Weight)
		}
	}
	if !t.Routed {
		out.WriteString(" without a route")
	}
	if len(t.Mirrored) > 0 {
		out.WriteString(", copied to " + strings.Join(t.Mirrored, ", "))
	}
	return out.String()
}
