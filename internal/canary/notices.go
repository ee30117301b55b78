package canary

import (
	"fmt"
	"slices"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// A notice is a gate that passes: it describes a setting that the user should correct, although Serin releases with it as
// Flagger does. Notices are part of every decision, so that users find them before, during and after a release.

// NoAnalysisMessage is the message about a Canary without spec.analysis.
const NoAnalysisMessage = "no spec.analysis: new versions are promoted as soon as their pods are ready"

// withNotices adds the notices to a decision.
func withNotices(s Snapshot, d Decision) Decision {
	if s.Deleting {
		return d
	}
	all := settingNotices(&s.Plan)
	all = append(all, missingReferences(s, d.Status.Phase)...)
	if message := formerTargetMessage(s); message != "" {
		all = append(all, release.NewNotice("former-target", message))
	}
	for _, message := range s.MissingAlertProviders {
		all = append(all, reportedOnce(release.NewNotice("references", message)))
	}
	overdue, due := s.isReportOverdue()
	if overdue {
		all = append(all, reportedOnce(release.NewNotice("route", s.Route.Unreported.Message)))
	} else {
		d = wakeNoLaterThan(d, due)
	}
	if len(all) == 0 {
		return d
	}
	d.Gates, d.Events = slices.Clone(d.Gates), slices.Clone(d.Events)
	for _, notice := range all {
		waiting := slices.ContainsFunc(d.Gates, func(g release.Gate) bool { return g.Verdict == release.Wait && g.Message == notice.Message })
		if !waiting { // otherwise a gate of the release waits for the same
			d.Gates = append(d.Gates, notice)
		}
		d.Events = append(d.Events, notice.Events...)
	}
	return d
}

// missingReferences are the notices about metric templates that do not exist. A release starts without them, as in Flagger, and its
// checks fail: until it starts, an event reports that.
func missingReferences(s Snapshot, phase flaggerv1.CanaryPhase) release.Gates {
	if s.Plan.SkipAnalysis {
		return nil
	}
	var all release.Gates
	for _, message := range s.MissingReferences {
		message += ". Create it, or correct spec.analysis.metrics"
		if hasDeadline(phase) { // the failed checks have events
			all = append(all, release.NewNotice("references", message))
			continue
		}
		all = append(all, reportedOnce(release.NewNotice("references", "A release would fail its checks: "+message)))
	}
	return all
}

// formerTargetMessage describes what a change of spec.targetRef waits for; empty: nothing.
func formerTargetMessage(s Snapshot) string {
	switch {
	case s.NextTarget != "" && hasDeadline(s.Status.Phase):
		return fmt.Sprintf("spec.targetRef was changed to %s, which is initialized when the release of %s has ended", s.NextTarget, s.Plan.targetName())
	case s.Status.Phase == flaggerv1.CanaryPhaseInitializing && s.targetReplaced() && s.Workload.ServicesSelectOther:
		return fmt.Sprintf("the primary of the former target %s serves until %s is ready", s.recordedTarget(), s.Plan.primaryName())
	default:
		return ""
	}
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

// reportedOnce adds the event on the Canary that reports a notice once.
func reportedOnce(g release.Gate) release.Gate {
	g.Events = []release.Event{{Type: release.Warning, Message: g.Message, Persistent: true, ObjectOnly: true}}
	return g
}
