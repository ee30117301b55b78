package canary

import (
	"fmt"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// samplesBelongToRevision delays the evaluation of the checks, not the weight, while the range of a query still includes requests
// that an earlier revision of the target served.
func samplesBelongToRevision(s Snapshot) release.Gate {
	last := s.serin().LastTraffic
	if last == nil || len(s.Plan.Checks) == 0 {
		return release.NewPassingGate("old-samples", "")
	}
	until := s.clampToNow(last.Time).Add(s.Plan.longestRange())
	if s.Now.Before(until) {
		return release.NewTimedGate("old-samples", until, fmt.Sprintf("the metrics still include an earlier revision until %s", until.UTC().Format(time.TimeOnly)))
	}
	return release.NewPassingGate("old-samples", "")
}

// metricPasses is one check of a window. Its first final answer is valid for the whole window.
func metricPasses(check Check) gate {
	return func(s Snapshot) release.Gate {
		name, p := check.Metric.Name, metricQuery(s, check)
		answer, ok := s.Answers.AnswerTo(p)
		if !ok {
			p.Request = MetricQuery{Check: check}
			return release.NewQueryGate(name, p, "waiting for the query result")
		}
		g := release.Gate{Name: name, Query: answer.Query, Answer: &answer}
		switch answer.Outcome {
		case release.Measured:
			j := judgeValue(check, answer.Value)
			g.Value, g.Limit, g.Verdict, g.Message = j.value, j.limit, release.Pass, j.value+" is within the limit"
			if !j.ok {
				g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, j.text
				g.Events = []release.Event{{Type: release.Warning, Message: fmt.Sprintf("Halt %s advancement %s", s.Plan.qualifiedName(), j.text)}}
			}
			return g
		case release.Unreachable:
			if wait, held := providerUnreachable(s, p, check, answer); held {
				wait.Query, wait.Answer = answer.Query, &answer
				return wait
			}
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, answer.Text
			g.Events = []release.Event{queryFailedText(check, answer)}
			return g
		case release.NoData:
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, "no values found"
			g.Events = []release.Event{noValuesText(s.Plan, check, answer.Text)}
			return g
		default: // Broken: only the user or another window changes that
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, answer.Text
			g.Events = []release.Event{queryFailedText(check, answer)}
			return g
		}
	}
}

// providerUnreachable keeps the window open while an unreachable provider does not count as a failed check yet.
func providerUnreachable(s Snapshot, p release.Query, check Check, answer release.Answer) (release.Gate, bool) {
	counted := providerUnreachableSince(s, answer).Add(unreachableGrace)
	if !s.Now.Before(counted) {
		return release.Gate{}, false
	}
	again := s.clampToNow(answer.Began).Add(min(askAgainInterval, s.Plan.Window))
	message := fmt.Sprintf("the metrics provider is unreachable (%s); this counts as a failed check from %s", answer.Text, counted.UTC().Format(time.TimeOnly))
	if s.Now.Before(again) {
		g := release.NewTimedGate("provider-unreachable", again, message)
		return g, true
	}
	p.Since, p.Request = again, MetricQuery{Check: check}
	return release.NewQueryGate("provider-unreachable", p, message), true
}

// providerUnreachableSince is since when the provider has been unreachable.
func providerUnreachableSince(s Snapshot, answer release.Answer) time.Time {
	if since := s.serin().Unreachable; since != nil {
		return s.clampToNow(since.Time)
	}
	return s.clampToNow(answer.Began)
}
