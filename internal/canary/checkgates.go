package canary

import (
	"fmt"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// samplesBelongToRevision delays the evaluation of the checks, not the weight, while the range of a query still includes requests
// that the target served before this release.
func samplesBelongToRevision(s Snapshot) release.Gate {
	last := s.serin().LastTraffic
	if last == nil || len(s.Plan.Checks) == 0 {
		return release.NewPassingGate("old-samples", "")
	}
	until := s.clampToNow(last.Time).Add(s.Plan.longestRange())
	if s.Now.Before(until) {
		return release.NewTimedGate("old-samples", until, fmt.Sprintf("the metrics still include requests from before this release until %s", until.UTC().Format(time.TimeOnly)))
	}
	return release.NewPassingGate("old-samples", "")
}

// metricPasses is the gate of one check. Its first final answer is valid for the whole window.
func metricPasses(check Check) gate {
	return func(s Snapshot) release.Gate {
		name, query := check.Metric.Name, metricQuery(s, check)
		answer, ok := s.Answers.AnswerTo(query)
		if !ok {
			query.Request = MetricQuery{Check: check}
			g := release.NewQueryGate(name, query, "waiting for the query result")
			g.Concurrent = true
			return g
		}
		g := release.Gate{Name: name, Query: answer.Query, Answer: &answer}
		switch answer.Outcome {
		case release.Measured:
			result := evaluateCheck(check, answer.Value)
			g.Value, g.Limit, g.Verdict, g.Message = result.value, result.limit, release.Pass, result.value+" is within the limit"
			if !result.ok {
				g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, result.text
				g.Events = []release.Event{{Type: release.Warning, Message: fmt.Sprintf("Halt %s advancement %s", s.Plan.qualifiedName(), result.text)}}
			}
			return g
		case release.Unreachable:
			if wait, pending := providerUnreachable(s, query, check, answer); pending {
				wait.Query, wait.Answer = answer.Query, &answer
				return wait
			}
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, answer.Text
			g.Events = []release.Event{queryFailedEvent(check, answer)}
			return g
		case release.NoData:
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, noDataMessage
			g.Events = []release.Event{noValuesEvent(s.Plan, check, answer.Text)}
			if cause := noDataCause(s, answer); cause != "" {
				g.Message += ": " + cause
				g.Events = append(g.Events, release.Event{Type: release.Warning, Message: name + ": " + g.Message, ObjectOnly: true})
			}
			return g
		default: // Broken: only the user or another window changes that
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, answer.Text
			g.Events = []release.Event{queryFailedEvent(check, answer)}
			return g
		}
	}
}

// providerUnreachable returns the gate that keeps the window open during the grace period of an unreachable provider; false: the
// grace period is over, and the check has failed.
func providerUnreachable(s Snapshot, query release.Query, check Check, answer release.Answer) (release.Gate, bool) {
	countsFrom := providerUnreachableSince(s, answer).Add(unreachableGrace)
	if !s.Now.Before(countsFrom) {
		return release.Gate{}, false
	}
	nextQuery := s.clampToNow(answer.Began).Add(min(requeryInterval, s.Plan.Interval))
	message := fmt.Sprintf("the metrics provider is unreachable (%s): restore it, or correct its address; this counts as a failed check from %s", answer.Text, countsFrom.UTC().Format(time.TimeOnly))
	if s.Now.Before(nextQuery) {
		g := release.NewWaitingGate(providerUnreachableGate, release.ByAnswer, message)
		g.Until = nextQuery
		return g, true
	}
	query.Since, query.Request = nextQuery, MetricQuery{Check: check}
	return release.NewQueryGate(providerUnreachableGate, query, message), true
}

// providerUnreachableSince returns the time since which the provider has been unreachable.
func providerUnreachableSince(s Snapshot, answer release.Answer) time.Time {
	if since := s.serin().Unreachable; since != nil {
		return s.clampToNow(since.Time)
	}
	return s.clampToNow(answer.Began)
}
