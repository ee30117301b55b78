package canary

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// checkSourcesAgain is how soon unavailable metrics providers are checked again before the first release. Available ones are
// checked once.
const checkSourcesAgain = time.Minute

// sourcesQuery checks whether the metrics providers are available.
func sourcesQuery(s Snapshot, since time.Time) release.Query {
	return release.Query{ID: "sources/" + s.UID, Since: since, Request: SourcesQuery{Checks: s.Plan.Checks}}
}

// metricSourcesReachable checks once whether the metrics providers are available. It is informational: a release that cannot be
// measured does not advance later, but the initialisation needs no metrics.
func metricSourcesReachable(s Snapshot) release.Gate {
	if s.Plan.SkipAnalysis {
		return release.NewPassingGate(sourcesGate, "analysis is skipped")
	}
	query := sourcesQuery(s, time.Time{})
	answer, ok := s.Answers.AnswerTo(query)
	switch {
	case !ok:
		return release.NewQueryGate(sourcesGate, query, "checking whether the metrics providers are available")
	case answer.Outcome == release.Yes:
		g := release.NewPassingGate(sourcesGate, "all metrics providers are available")
		g.Events = []release.Event{{Type: release.Normal, Message: "all the metrics providers are available!", Persistent: true}}
		return g
	default:
		g := release.NewNotice(sourcesGate, "some metrics providers are unavailable, initialization continues: "+answer.Text)
		g.Answer = &answer
		g.Events = []release.Event{{Type: release.Warning, Message: "Error checking metric providers: " + answer.Text, Persistent: true, Internal: true}}
		return g
	}
}

// withUnavailableSources adds the notice of unavailableSources, with its query, to a decision that starts no release.
func withUnavailableSources(s Snapshot, d Decision) Decision {
	gates := unavailableSources(s)
	if len(gates) == 0 || d.Status.Phase != s.Status.Phase {
		return d
	}
	d.Gates, d.Queries = slices.Concat(d.Gates, gates), slices.Concat(d.Queries, gates.Queries())
	return wakeNoLaterThan(d, gates.Wake())
}

// unavailableSources is the notice before the first release that the metrics providers were unavailable during the
// initialisation. They are checked again until they are available; nothing is queried for a Canary without that notice. The
// condition Unanswered records it, so that a restart does not query the providers of all Canaries.
func unavailableSources(s Snapshot) release.Gates {
	recorded := findCondition(s.Status, flaggerv1.ConditionUnanswered)
	isRecorded := recorded != nil && recorded.Status == corev1.ConditionTrue && recorded.Reason == reasonProviderUnreachable
	if s.Status.Phase != flaggerv1.CanaryPhaseInitialized || s.Plan.SkipAnalysis || !isRecorded {
		return nil
	}
	last, sent := s.Answers[sourcesQuery(s, time.Time{}).ID]
	query := sourcesQuery(s, time.Time{})
	g := release.NewNotice(sourcesGate, recorded.Message)
	switch {
	case !sent, last.Ended.IsZero():
		g.Pending = &query
		return release.Gates{g}
	case last.Outcome == release.Yes:
		return nil
	}
	next := s.clampToNow(last.Began).Add(checkSourcesAgain)
	g.Message, g.Answer = unavailableSourcesMessage(s, last), &last
	if s.Now.Before(next) {
		g.Until = next
		return release.Gates{g}
	}
	query.Since = next
	g.Pending = &query
	return release.Gates{g}
}
