package canary

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// routeReports is I47 for Canaries.
type routeReports struct {
	*ledger

	reports  *oracle.RouteReports
	analyses *analyses
}

func newRouteReports(l *ledger, analyses *analyses) *routeReports {
	c := &routeReports{ledger: l, analyses: analyses}
	c.reports = &oracle.RouteReports{Ledger: l.Ledger, Kind: cluster.HTTPRouteKind, Advances: c.advances, Resumed: c.resumed}
	return c
}

// Observe implements oracle.Checker.
func (c *routeReports) Observe(event any) {
	c.reports.Observe(event)
	c.checkRollback(event)
}

// Finish implements oracle.Checker.
func (*routeReports) Finish() {}

func (r *record) routeKey() oracle.ObjectKey {
	return oracle.KeyOf(r.routeKind(), namespacedName(r, r.apexName()))
}

// advances returns the steps that the status of the route may delay: all but the first.
func (c *routeReports) advances(event any) []oracle.RoutedAdvance {
	s, ok := c.analyses.checkedAdvance(event)
	if !ok || s.first {
		return nil
	}
	return []oracle.RoutedAdvance{{Release: s.record.Name(), Process: s.process, What: s.what, Route: s.record.routeKey()}}
}

// resumed returns the writes that restart a window because the router has applied the route.
func (c *routeReports) resumed(event any) []oracle.Resumption {
	h, ok := event.(canaryWritten)
	if !ok || !h.StatusReported() || h.newRun != nil || !awaitsReport(&h.Before.Status) || awaitsReport(&h.After.Status) || !isAnalysing(h.After.Status.Phase) {
		return nil
	}
	return []oracle.Resumption{{Release: h.Record.Name(), Route: h.Record.routeKey()}}
}

func awaitsReport(s *flaggerv1.CanaryStatus) bool {
	return s.Serin != nil && s.Serin.Window != nil && s.Serin.Window.Unconfirmed
}

// checkRollback is the part of I47 about commands: an abort does not wait for the report of a router.
func (c *routeReports) checkRollback(event any) {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || h.after.canary >= h.before.canary || h.record.run == nil {
		return
	}
	r := h.record
	i := slices.IndexFunc(r.commands, func(g command) bool { return g.verb == canary.CommandAbort && g.at.After(r.run.began) })
	if i < 0 || !r.primary.ready.AlwaysSince(r.commands[i].at.Add(-c.Lag)) || !c.reports.Undisturbed(r.commands[i].at) {
		return
	}
	if wait := c.Now().Sub(r.commands[i].at); wait > 3*c.Lag {
		c.Violate("I47", r.Name(), "a user aborted it, and its traffic was first reduced %s later", wait)
	}
}

// unreportedGateways is I48, evaluated once faults and edits have ended.
func (l *ledger) unreportedGateways() {
	for _, r := range l.All {
		if r.Gone() || r.routeKind() != cluster.HTTPRouteKind || isDeleting(r) || r.canary.Spec.Suspend || r.isStopped() || r.status.Serin == nil {
			continue
		}
		route := l.World.Server.Peek(cluster.HTTPRouteKind, r.routeKey().Key)
		if route == nil || !r.route.found {
			continue
		}
		parents, _, _ := unstructured.NestedSlice(route.Content(), "status", "parents")
		named := slices.ContainsFunc(r.status.Serin.Gates, func(g flaggerv1.GateStatus) bool {
			return slices.Contains([]string{"route", "route-confirmed"}, g.Name) && strings.Contains(g.Message, "no controller has reported")
		})
		if unreported := len(parents) == 0; unreported != named {
			l.Violate("I48", r.Name(), "no controller reports on its route: %t; the status reports that: %t", unreported, named)
		}
	}
}
