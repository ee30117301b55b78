package canary

import (
	"slices"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// A notice is a gate that passes: it describes a setting that the user should correct, although Serin releases with it as
// Flagger does. Notices are part of every decision, so that users find them before, during and after a release.

// NoAnalysisMessage is the message about a Canary without spec.analysis.
const NoAnalysisMessage = "no spec.analysis: new versions are promoted as soon as their pods are ready"

// UnreportedAfter is how long a router may take to report on a route before that is a notice.
const UnreportedAfter = 30 * time.Second

// withNotices adds the notices to a decision.
func withNotices(s Snapshot, d Decision) Decision {
	if s.Deleting {
		return d
	}
	all := settingNotices(&s.Plan)
	if failed := d.Gates.Named("references"); failed == nil { // otherwise the gate that is closed before a release
		for _, message := range s.MissingReferences {
			all = append(all, release.NewNotice("references", message))
		}
	}
	for _, message := range s.MissingAlertProviders {
		all = append(all, noticeWithEvent("references", message))
	}
	unreported, due := unreportedNotice(s)
	all = append(all, unreported...)
	d = wakeNoLaterThan(d, due)
	if len(all) == 0 {
		return d
	}
	d.Gates = slices.Concat(d.Gates, all)
	d.Events = slices.Clone(d.Events)
	for _, notice := range all {
		d.Events = append(d.Events, notice.Events...)
	}
	return d
}

// settingNotices are the notices about the spec. Their events are those of the start of a release.
func settingNotices(p *Plan) release.Gates {
	var all release.Gates
	for _, message := range p.SettingWarnings() {
		all = append(all, release.NewNotice("plan", message))
	}
	return all
}

// SettingWarnings returns messages about settings that the user should correct, although Serin releases with them.
func (p *Plan) SettingWarnings() []string {
	switch {
	case p.NoAnalysis:
		return []string{NoAnalysisMessage}
	case p.SkipAnalysis: // no setting of the analysis has an effect
		return nil
	default:
		return p.Warnings
	}
}

// unreportedNotice is the notice about a parent of the route that no router has reported on. It never delays a release: a
// router that routes the traffic without a report must not stop it. due is the time of the notice; zero: it is due, or there is
// none.
func unreportedNotice(s Snapshot) (notice release.Gates, due time.Time) {
	if !s.Plan.HasRouter || s.Route.Unreported.Message == "" {
		return nil, time.Time{}
	}
	if due := s.clampToNow(s.Route.Unreported.Since).Add(UnreportedAfter); s.Now.Before(due) {
		return nil, due
	}
	return release.Gates{noticeWithEvent("route", s.Route.Unreported.Message)}, time.Time{}
}

// noticeWithEvent is a notice that an event on the Canary reports once.
func noticeWithEvent(name, message string) release.Gate {
	g := release.NewNotice(name, message)
	g.Events = []release.Event{{Type: release.Warning, Message: message, Persistent: true, ObjectOnly: true}}
	return g
}
