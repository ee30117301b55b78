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

// Route is a release as seen by its clients.
type Route struct {
	Release   types.NamespacedName
	Namespace string
	// Provider is kubernetes, or a name that RouteKind knows, with a version for gatewayapi.
	Provider string
	// Apex is the Service that clients call, and the name of the route; Primary and Canary are the other Services.
	Apex, Primary, Canary string
}

func (r Route) services() []string { return []string{r.Primary, r.Canary, r.Apex} }

// Gateway is the data plane, which routes requests. Its two replicas observe the API server, each with its own delay. A replica
// observes changes in the order in which they were written, as with a single control plane: endpoints that were published
// before a route was written are known before the route.
type Gateway struct {
	world    *sim.World
	cluster  *Cluster
	routes   func() []Route
	replicas []*replica
	// writesStatus means that routes of Contour and Consul receive a status, reportsRoutes that those of the Gateway API do.
	writesStatus, reportsRoutes bool
	draws                       *sim.Stream
	writer                      client.Client
	// routeWritten is when the route of a release was last written.
	routeWritten map[types.NamespacedName]time.Time
	silence      silence
}

// gatewayReplicas is the number of replicas, which converge independently.
const gatewayReplicas = 2

// replica is one replica of the data plane.
type replica struct {
	index int
	draws *sim.Stream
	// lastDelivery is when the last of the scheduled changes is delivered.
	lastDelivery time.Time
	views        map[types.NamespacedName]*view
}

// view is what a replica knows of a release.
type view struct {
	route     *store.Version // of the provider's kind; nil: none
	upstreams map[string]*store.Version
	selectors map[string]map[string]any
	slices    map[types.NamespacedName]*store.Version
	traffic   Traffic
	lost      []RequestsLost
}

// NewGateway starts the data plane. The set of routes may change later.
func NewGateway(w *sim.World, c *Cluster, routes func() []Route) *Gateway {
	g := &Gateway{
		world: w, cluster: c, routes: routes, draws: w.Draws.Stream("gateway"), writer: w.Server.Client("gateway"),
		routeWritten: map[types.NamespacedName]time.Time{},
	}
	g.writesStatus, g.reportsRoutes = g.draws.Chance(0.7), g.draws.Chance(0.9)
	for i := range gatewayReplicas {
		g.replicas = append(g.replicas, &replica{
			index: i, draws: w.Draws.Stream(fmt.Sprintf("gateway/%d", i)), views: map[types.NamespacedName]*view{},
		})
	}
	w.Subscribe(g.observe)
	c.watchers = append(c.watchers, g.podsChanged)
	g.scheduleSilences()
	return g
}

// Traffic returns where each replica sends the requests of a release.
func (g *Gateway) Traffic(release types.NamespacedName) []Traffic {
	for _, route := range g.routes() {
		if route.Release != release {
			continue
		}
		var all []Traffic
		for _, r := range g.replicas {
			v := g.view(r, route)
			now := v.traffic.clone()
			for _, share := range now.shares() {
				g.countEndpoints(route, v, share)
			}
			all = append(all, now)
		}
		return all
	}
	return nil
}

// Weight returns the maximum share of the requests to a Service in any rule, in percent.
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

// shares returns the shares of all rules.
func (t Traffic) shares() []*Share {
	var all []*Share
	for _, shares := range t.rules() {
		for i := range shares {
			all = append(all, &shares[i])
		}
	}
	return all
}

// equal compares the routing of a replica, without the number of pods that answer.
func (t Traffic) equal(o Traffic) bool {
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

// observe handles the events of the API server.
func (g *Gateway) observe(event any) {
	write, ok := event.(sim.ObjectWritten)
	if !ok {
		return
	}
	e := write.Event
	switch e.Kind {
	case serviceKind, sliceKind, VirtualServiceKind, HTTPRouteKind, OpenShiftRouteKind, HTTPProxyKind, RouteTableKind, ServiceSplitterKind, UpstreamKind:
	default:
		return
	}
	for _, route := range g.routes() {
		if route.Namespace != e.Key.Namespace || !route.concerns(e) {
			continue
		}
		if e.Kind == route.kind() && e.Type == store.Modified && e.New.Generation() == e.Old.Generation() {
			continue // a change of the status
		}
		if e.Kind == route.kind() {
			g.routeWritten[route.Release] = g.world.Now()
		}
		if e.Kind == HTTPRouteKind && e.Type == store.Modified {
			g.startSilence()
		}
		for _, r := range g.replicas {
			g.scheduleDelivery(r, route, e)
		}
		if e.Kind == serviceKind {
			g.updateLosses(route) // the pods behind it have changed immediately
		}
	}
}

// concerns reports whether an object belongs to the release.
func (r Route) concerns(e *store.Event) bool {
	switch e.Kind {
	case serviceKind:
		return slices.Contains(r.services(), e.Key.Name)
	case sliceKind:
		return slices.Contains(r.services(), e.New.Meta().Labels[serviceLabel])
	case UpstreamKind:
		return r.kind() == RouteTableKind
	default:
		return e.Kind == r.kind() && e.Key.Name == r.Apex
	}
}

// scheduleDelivery schedules the delivery of a change to a replica, after all earlier changes.
func (g *Gateway) scheduleDelivery(r *replica, route Route, e *store.Event) {
	if r.views[route.Release] == nil { // it knows the previous state of the object
		first := g.newView(r, route)
		first.update(e.Kind, e.Key, e.Old)
		g.updateTraffic(r, route, first)
	}
	v := g.view(r, route)
	if g.silence.holds(e) {
		g.silence.held = append(g.silence.held, func() { g.scheduleDelivery(r, route, e) })
		return
	}
	wait, late := r.draws.Skewed(20*time.Millisecond, GatewayDelay), r.draws.Skewed(time.Second, FaultDelay)
	if g.world.Faults.Inject(LateGateways) {
		wait += late
		g.rejectFirst(e)
	}
	at := g.world.Now().Add(wait)
	if at.Before(r.lastDelivery) {
		at = r.lastDelivery
	}
	r.lastDelivery = at
	g.cluster.schedule(at.Sub(g.world.Now()), func() {
		now := e.New
		if e.Type == store.Deleted {
			now = nil
		}
		v.update(e.Kind, e.Key, now)
		g.updateTraffic(r, route, v)
		if e.Kind == route.kind() {
			g.writeAccepted(route, e)
		}
	})
}

// update records the new state of an object; nil: it was deleted.
func (v *view) update(kind schema.GroupKind, key types.NamespacedName, now *store.Version) {
	switch kind {
	case serviceKind:
		v.selectors[key.Name] = nil
		if now != nil {
			v.selectors[key.Name] = selectorIn(now)
		}
	case sliceKind:
		v.slices[key] = now
	case UpstreamKind:
		v.upstreams[key.Name] = now
	default:
		v.route = now
	}
}

// kind returns the kind of the route object, or an empty kind.
func (r Route) kind() schema.GroupKind {
	kind, _ := RouteKind(r.Provider)
	return kind
}

// view returns what a replica knows of a release.
func (g *Gateway) view(r *replica, route Route) *view {
	if known := r.views[route.Release]; known != nil {
		return known
	}
	v := g.newView(r, route)
	g.updateTraffic(r, route, v)
	return v
}

// newView returns a view with all existing objects.
func (g *Gateway) newView(r *replica, route Route) *view {
	v := &view{
		selectors: map[string]map[string]any{}, slices: map[types.NamespacedName]*store.Version{}, upstreams: g.storedUpstreams(route),
	}
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

// storedUpstreams returns the current Upstreams, by name.
func (g *Gateway) storedUpstreams(route Route) map[string]*store.Version {
	upstreams := map[string]*store.Version{}
	if route.kind() != RouteTableKind {
		return upstreams
	}
	for _, upstream := range g.world.Server.All(UpstreamKind) {
		if upstream.Key().Namespace == route.Namespace {
			upstreams[upstream.Key().Name] = upstream
		}
	}
	return upstreams
}

// published returns the current EndpointSlices of a release.
func (g *Gateway) published(route Route) []*store.Version {
	return slices.DeleteFunc(g.world.Server.All(sliceKind), func(slice *store.Version) bool {
		return slice.Key().Namespace != route.Namespace || !slices.Contains(route.services(), slice.Meta().Labels[serviceLabel])
	})
}

// updateTraffic determines where requests are sent, and publishes a change.
func (g *Gateway) updateTraffic(r *replica, route Route, v *view) {
	now := Traffic{Release: route.Release, At: v.traffic.At, Replica: r.index}
	rules := rulesOf(v.route, v.upstreams)
	now.Routed = len(rules) > 0
	if !now.Routed {
		now.Weights = []Share{{Service: v.effectiveService(route), Weight: 100, via: route.Apex}}
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
		g.countEndpoints(route, v, share)
	}
	if !now.equal(v.traffic) {
		now.At = g.world.Now()
		if was := v.traffic.String(); now.String() != was {
			g.world.Trace("  gateway %d: %s", r.index, now)
		}
		v.traffic = now
		g.world.Publish(now)
	}
	g.reportLosses(r, route, v)
}

// effectiveService returns the Service that selects the same pods as the apex, as far as the replica knows.
func (v *view) effectiveService(route Route) string {
	apex := v.selectors[route.Apex]
	for _, name := range []string{route.Primary, route.Canary} {
		if len(apex) > 0 && reflect.DeepEqual(apex, v.selectors[name]) {
			return name
		}
	}
	return route.Apex
}

func (g *Gateway) countEndpoints(route Route, v *view, share *Share) {
	known := v.knownPods(share.via)
	share.Known, share.Answering, share.Ready = len(known), 0, 0
	for _, name := range known {
		if p := g.cluster.pods[name]; p != nil && p.answers {
			share.Answering++
		}
	}
	for p := range g.cluster.podsSelected(route.Namespace, g.cluster.selectorOf(route.Namespace, share.via)) {
		if p.ready && p.answers {
			share.Ready++
		}
	}
}

// knownPods returns the pods of a Service to which a replica sends requests: the ready ones or, if there are none, the
// terminating ones that still serve.
func (v *view) knownPods(service string) []string {
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

// podsChanged is called when the set of answering pods in a namespace has changed.
func (g *Gateway) podsChanged(namespace string) {
	for _, route := range g.routes() {
		if route.Namespace == namespace {
			g.updateLosses(route)
		}
	}
}

func (g *Gateway) updateLosses(route Route) {
	for _, r := range g.replicas {
		g.reportLosses(r, route, g.view(r, route))
	}
}

// reportLosses reports new losses of requests, and losses that have ended.
func (g *Gateway) reportLosses(r *replica, route Route, v *view) {
	var lost []RequestsLost
	for _, share := range v.traffic.shares() {
		loss, ok := g.lossOf(r, route, v, *share)
		if ok && !slices.ContainsFunc(lost, func(l RequestsLost) bool { return l.Service == loss.Service }) {
			lost = append(lost, loss)
		}
	}
	was := v.lost
	v.lost = lost
	for _, before := range was {
		if !slices.ContainsFunc(lost, func(l RequestsLost) bool { return l.Service == before.Service && l.Why == before.Why }) {
			g.world.Publish(RequestsRestored{Lost: before, Until: g.world.Now()})
		}
	}
	for i, loss := range lost {
		at := slices.IndexFunc(was, func(l RequestsLost) bool { return l.Service == loss.Service && l.Why == loss.Why })
		if at >= 0 {
			lost[i].Since = was[at].Since
			continue
		}
		g.world.Trace("  gateway %d: requests to %s are lost: %s", r.index, loss.Service, loss.Why)
		g.world.Publish(loss)
	}
}

func (g *Gateway) lossOf(r *replica, route Route, v *view, share Share) (RequestsLost, bool) {
	if share.Weight == 0 || !slices.Contains(route.services(), share.via) {
		return RequestsLost{}, false
	}
	g.countEndpoints(route, v, &share)
	if share.Answering > 0 || !g.otherServiceAnswers(route, share) {
		return RequestsLost{}, false
	}
	loss := RequestsLost{
		Release: route.Release, Service: share.Service, Replica: r.index, Since: g.world.Now(), Known: share.Known,
		Answering: g.answering(route, share.via), TrafficRemoved: g.trafficRemoved(route, share),
	}
	now := view{slices: map[types.NamespacedName]*store.Version{}}
	for _, slice := range g.published(route) {
		now.slices[slice.Key()] = slice
	}
	loss.Published = len(now.knownPods(share.via))
	switch {
	case loss.Answering == 0:
		loss.Why = NoPods
	case loss.Known == 0:
		loss.Why = NoEndpoints
	default:
		loss.Why = StaleEndpoints
	}
	return loss, true
}

// answering counts the pods behind a Service that answer.
func (g *Gateway) answering(route Route, service string) int {
	n := 0
	for p := range g.cluster.podsSelected(route.Namespace, g.cluster.selectorOf(route.Namespace, service)) {
		if p.answers {
			n++
		}
	}
	return n
}

// otherServiceAnswers reports whether another Service of the release has pods that answer.
func (g *Gateway) otherServiceAnswers(route Route, share Share) bool {
	for _, name := range []string{route.Primary, route.Canary} {
		if name != share.Service && g.answering(route, name) > 0 {
			return true
		}
	}
	return false
}

// trafficRemoved returns when the stored route last stopped sending requests to a Service, or zero if it sends requests there.
func (g *Gateway) trafficRemoved(route Route, share Share) time.Time {
	written := rulesOf(g.world.Server.Peek(route.kind(), types.NamespacedName{Namespace: route.Namespace, Name: route.Apex}), g.storedUpstreams(route))
	for _, rule := range written {
		if slices.ContainsFunc(rule.weights, func(w weight) bool { return w.service == share.via && w.share > 0 }) {
			return time.Time{}
		}
	}
	if len(written) == 0 && share.via == route.Apex {
		return time.Time{}
	}
	return g.routeWritten[route.Release]
}

// writeAccepted writes the status of a route once both replicas serve the route, if its API has such a status.
func (g *Gateway) writeAccepted(route Route, e *store.Event) {
	generation := e.New.Generation()
	if !g.reports(e) || slices.ContainsFunc(g.replicas, func(r *replica) bool {
		seen := g.view(r, route).route
		return seen == nil || seen.UID() != e.New.UID() || seen.Generation() < generation
	}) {
		return
	}
	g.cluster.schedule(g.draws.Skewed(10*time.Millisecond, time.Second), func() { g.writeStatus(e, true) })
}

// rejectFirst makes Consul report that it does not accept a change that it applies late.
func (g *Gateway) rejectFirst(e *store.Event) {
	if e.Kind == ServiceSplitterKind && g.reports(e) {
		g.cluster.schedule(0, func() { g.writeStatus(e, false) })
	}
}

// reports reports whether a change of a route changes its status.
func (g *Gateway) reports(e *store.Event) bool {
	switch e.Kind {
	case HTTPRouteKind:
		return g.reportsRoutes && e.Type != store.Deleted
	case HTTPProxyKind, ServiceSplitterKind:
		return g.writesStatus && e.Type != store.Deleted
	default:
		return false
	}
}

// writeStatus writes whether a generation of a route is accepted, unless a newer one is being delivered.
func (g *Gateway) writeStatus(e *store.Event, accepted bool) {
	v := g.world.Server.Peek(e.Kind, e.Key)
	if v == nil || v.UID() != e.New.UID() || v.Generation() != e.New.Generation() || g.silence.silences(e.Kind) {
		return
	}
	condition := map[string]any{
		"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": e.New.Generation(),
		"lastTransitionTime": stamp(v.Meta().CreationTimestamp.Time),
	}
	status := map[string]any{"conditions": []any{condition}}
	switch e.Kind {
	case HTTPProxyKind:
		condition["type"], condition["reason"] = "Valid", "Valid"
		status["currentStatus"] = "valid"
	case ServiceSplitterKind:
		delete(condition, "observedGeneration")
		if condition["type"] = "Synced"; !accepted {
			condition["status"], condition["reason"] = "False", "ConsulAgentError"
		}
	default:
		var parents []any
		for _, parent := range objects(object(v.Content(), "spec"), "parentRefs") {
			parents = append(parents, map[string]any{
				"parentRef": parent, "controllerName": "gateway.example.com/controller", "conditions": []any{condition},
			})
		}
		status = map[string]any{"parents": parents}
	}
	g.updateStatus(v, status)
}

func (g *Gateway) updateStatus(v *store.Version, status map[string]any) {
	obj := editable(v)
	obj.Object["status"] = status
	g.cluster.checkWrite("the status of "+v.Kind().Kind+" "+v.Key().Name, g.writer.Status().Update(background(), obj))
}

// String describes the routing for the trace.
func (t Traffic) String() string {
	var out strings.Builder
	out.WriteString(t.Release.Name)
	for i, shares := range t.rules() {
		if i > 0 {
			out.WriteString(", for some clients")
		}
		for _, share := range shares {
			fmt.Fprintf(&out, " %s=%d", share.Service, share.Weight)
		}
	}
	if !t.Routed {
		out.WriteString(" without a route")
	}
	if len(t.Mirrored) > 0 {
		out.WriteString(", mirrored to " + strings.Join(t.Mirrored, ", "))
	}
	return out.String()
}
