package cluster

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

// silence is the time during which no controller reports on routes of the Gateway API.
type silence struct {
	mode SilenceMode
	// next starts the silence that begins with the next change of a route; nil: none does.
	next func()
	// held are the changes of routes that are applied when it ends.
	held []func()
	// count numbers the silences, so that a scheduled end does not end a later one.
	count int
}

// SilenceMode is the reason why no controller reports on routes.
type SilenceMode int

// The reasons. In the last two cases, routes are applied as usual.
const (
	NotSilent         SilenceMode = iota
	ControllerStopped             // no controller runs: gateways continue with the routes that they know
	ReportsLost                   // the controller cannot write the status of routes
	ReportsRemoved                // the controller has removed its reports as well, as for a Gateway that does not exist
)

func (m SilenceMode) String() string {
	return [...]string{"the controller of the Gateway runs", "the controller of the Gateway stops", "routes get no reports", "the reports on routes are removed"}[m]
}

// silences reports whether routes of a kind get no reports.
func (s *silence) silences(kind schema.GroupKind) bool {
	return s.mode != NotSilent && kind == HTTPRouteKind
}

// holds reports whether a change is applied later.
func (s *silence) holds(e *store.Event) bool {
	return s.mode == ControllerStopped && e.Kind == HTTPRouteKind
}

// scheduleSilences schedules silences of gateways that report on routes. Some begin with the next change of a route, which is
// then the first without a report.
func (g *Gateway) scheduleSilences() {
	g.world.ScheduleFaults(SilentGateways, 4*time.Minute, func(s *sim.Stream) {
		mode, length := sim.Pick(s, ControllerStopped, ControllerStopped, ReportsLost, ReportsRemoved), s.Skewed(20*time.Second, 15*time.Minute)
		g.silence.next = func() {
			g.FallSilent(mode)
			which := g.silence.count
			g.world.After(length, func() {
				if g.silence.count == which {
					g.Report()
				}
			})
		}
		if s.Chance(0.4) {
			g.startSilence()
		}
	})
}

// startSilence starts the scheduled silence, if there is one.
func (g *Gateway) startSilence() {
	if start := g.silence.next; start != nil && g.reportsRoutes && g.silence.mode == NotSilent && g.world.Faults.Has(SilentGateways) {
		g.silence.next = nil
		start()
	}
}

// EnableReports makes gateways report on routes.
func (g *Gateway) EnableReports() { g.reportsRoutes = true }

// ReportsRoutes reports whether gateways report on routes, except during a silence.
func (g *Gateway) ReportsRoutes() bool { return g.reportsRoutes }

// FallSilent starts a silence.
func (g *Gateway) FallSilent(mode SilenceMode) {
	g.world.Trace("%s", mode)
	g.silence.mode = mode
	g.silence.count++
	if mode != ReportsRemoved {
		return
	}
	for _, v := range g.reportedRoutes() {
		g.updateStatus(v, map[string]any{"parents": []any{}})
	}
}

// Report ends a silence: all routes are applied, and then reported on.
func (g *Gateway) Report() {
	if g.silence.mode == NotSilent {
		return
	}
	g.world.Trace("%s", NotSilent)
	held := g.silence.held
	g.silence.mode, g.silence.held = NotSilent, nil
	for _, apply := range held {
		apply()
	}
	for _, v := range g.reportedRoutes() {
		e := &store.Event{Type: store.Modified, Kind: v.Kind(), Key: v.Key(), New: v}
		for _, route := range g.routes() {
			if route.concerns(e) {
				g.writeAccepted(route, e)
			}
		}
	}
}

// reportedRoutes returns the existing routes that get reports.
func (g *Gateway) reportedRoutes() []*store.Version {
	var all []*store.Version
	for _, route := range g.routes() {
		if route.kind() != HTTPRouteKind {
			continue
		}
		if v := g.world.Server.Peek(HTTPRouteKind, types.NamespacedName{Namespace: route.Namespace, Name: route.Apex}); v != nil {
			all = append(all, v)
		}
	}
	return all
}
