package canary

import (
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// The faults of webhook receivers.
const (
	HookNo    sim.FaultClass = "hook-no"    // it rejects the call without a reason
	Hook5xx   sim.FaultClass = "hook-5xx"   // it answers 503, to all attempts
	HookHang  sim.FaultClass = "hook-hang"  // it never answers
	HookReset sim.FaultClass = "hook-reset" // it handles the call, and the answer is lost
)

var hookFaults = []sim.FaultClass{HookNo, Hook5xx, HookHang, HookReset}

// Timeouts and retries that internal/canary/controller, internal/hook and internal/metric document.
const (
	hookTimeout   = 10 * time.Second
	metricTimeout = 5 * time.Second
	noDataPause   = 3 * time.Second
	noDataRetries = 3
)

// answerFaultRate is the probability with which each selected class of faults affects an answer.
const answerFaultRate = 0.15

// externalServices answer the queries of a release: webhook receivers and metrics services. They know the true properties of
// each version, and report them unless a fault is drawn.
type externalServices struct {
	*Canaries
	gates map[string]*gate
}

// gate is an approval that users grant and revoke.
type gate struct {
	opens, closes time.Time
	// never means that it is never opened.
	never bool
}

// reply is an answer and the delay after which it arrives.
type reply struct {
	after  time.Duration
	answer release.Answer
}

// answer delivers a query to its receiver, and schedules the answer.
func (e *externalServices) answer(p *process, query queryrunner.RunningQuery) {
	call, received := e.Services.Receive(p.instance, p.queries, query, queryName(query))
	if !received {
		return
	}
	call.Then, call.Flush = func(do func()) { do() }, p.send
	call.Describe = func(answer release.Answer) string {
		return fmt.Sprintf("%s answers %s", query.Query.ID, answerText(answer))
	}
	reply := e.drawReply(e.releaseOf(query.Key.NamespacedName), e.storedCanary(query.Key.NamespacedName), query)
	if call.Scheduled(sim.LoseAnswer) {
		reply.answer = release.Answer{Outcome: release.Unreachable, Text: "connection reset by peer"}
	}
	call.AnswerAfter(reply.after, reply.answer)
}

// queryName returns the name of a query. For a hook it consists of what the receiver observes.
func queryName(query queryrunner.RunningQuery) string {
	if q, ok := query.Query.Request.(canary.HookQuery); ok {
		return fmt.Sprintf("%s hook %s %s", q.Hook.Type, q.Hook.Name, q.Key)
	}
	return query.Query.ID
}

func answerText(a release.Answer) string {
	if a.Outcome == release.Measured {
		return fmt.Sprintf("%.2f", a.Value)
	}
	return strings.TrimSuffix(string(a.Outcome)+": "+a.Text, ": ")
}

// releaseOf returns the release of a Canary. A second Canary for one target belongs to the same release.
func (k *Canaries) releaseOf(key types.NamespacedName) *Release {
	for _, r := range k.Releases {
		if r.Key == key || r.Key.Name == strings.TrimSuffix(key.Name, secondCanary) {
			return r
		}
	}
	return nil
}

func (e *externalServices) drawReply(r *Release, c *flaggerv1.Canary, query queryrunner.RunningQuery) reply {
	s := e.Services.AnswerStream(query.Key.Name + "/" + string(query.Key.UID) + "/" + query.Query.ID)
	usual := s.Skewed(20*time.Millisecond, 2*time.Second)
	if r == nil || c == nil {
		return reply{usual, release.Answer{Outcome: release.Unreachable, Text: "get Canary " + query.Key.Name + ": not found"}}
	}
	switch q := query.Query.Request.(type) {
	case canary.HookQuery:
		return e.answerHook(s, usual, r, q)
	case canary.MetricQuery:
		return e.answerMetricQuery(s, usual, r, c, q.Check)
	default: // a query whether the metric sources can be reached
		if actors.DrawFault(e.World, s, answerFaultRate, actors.MetricFaults...) != "" {
			return reply{usual, release.Answer{Outcome: release.No, Text: "prometheus not avaiable: 503"}}
		}
		return reply{usual, release.Answer{Outcome: release.Yes}}
	}
}

// answerHook answers a call of a webhook, including all its attempts.
func (e *externalServices) answerHook(s *sim.Stream, usual time.Duration, r *Release, q canary.HookQuery) reply {
	timeout := hookTimeout
	if parsed, err := time.ParseDuration(q.Hook.Timeout); err == nil {
		timeout = parsed
	}
	attempts := q.Hook.Retries + 1
	waits := time.Second * time.Duration(1<<q.Hook.Retries-1) // 1 s, 2 s, 4 s between the attempts
	gaveUp := func(why string) release.Answer {
		return release.Answer{Outcome: release.No, Text: fmt.Sprintf("POST http://hooks.example giving up after %d attempt(s): %s", attempts, why)}
	}
	approves := e.hookPasses(s, r, q)
	switch actors.DrawFault(e.World, s, answerFaultRate, hookFaults...) {
	case HookNo:
		return reply{usual, release.Answer{Outcome: release.No, Text: "not now"}}
	case Hook5xx:
		return reply{usual*time.Duration(attempts) + waits, gaveUp("503 Service Unavailable")}
	case HookHang:
		return reply{timeout*time.Duration(attempts) + waits, gaveUp(fmt.Sprintf("no answer within %s", timeout))}
	case HookReset:
		return reply{usual*time.Duration(attempts) + waits, gaveUp("connection reset by peer")}
	default:
	}
	if approves {
		return reply{usual, release.Answer{Outcome: release.Yes}}
	}
	return reply{usual, release.Answer{Outcome: release.No, Text: "not approved"}}
}

// hookPasses returns the answer of a hook without faults.
func (e *externalServices) hookPasses(s *sim.Stream, r *Release, q canary.HookQuery) bool {
	switch q.Hook.Type {
	case flaggerv1.ConfirmRolloutHook, flaggerv1.ConfirmTrafficIncreaseHook, flaggerv1.ConfirmPromotionHook, flaggerv1.RollbackHook:
		return e.isGateOpen(r, q.Hook.CanaryWebhook)
	case flaggerv1.PostRolloutHook:
		return true
	default: // a test of the version
		v := r.Known[e.targetVersion(r)]
		flaky := s.Chance(0.1)
		return v == nil || v.Good || !v.Tested && !flaky
	}
}

// isGateOpen reports whether users approve a gate. They approve it some time after the first query, and revoke the approval
// later.
func (e *externalServices) isGateOpen(r *Release, hook flaggerv1.CanaryWebhook) bool {
	name := gateName(r, hook)
	now, g := e.World.Now(), e.gates[name]
	if g == nil {
		g = e.drawGate(name, hook.Type)
		e.gates[name] = g
	}
	if e.story == nil && now.After(g.closes) {
		s := e.World.Draws.Stream(fmt.Sprintf("gate/%s/%d", name, g.closes.UnixNano()))
		g.opens = g.closes.Add(s.Between(0, 5*time.Minute))
		g.closes = g.opens.Add(s.Between(time.Minute, 20*time.Minute))
	}
	switch {
	case g.never:
		return false
	case e.Stopped && e.story == nil:
		return hook.Type != flaggerv1.RollbackHook
	default:
		return !now.Before(g.opens) && now.Before(g.closes)
	}
}

func gateName(r *Release, hook flaggerv1.CanaryWebhook) string {
	return r.Key.Name + "/" + string(hook.Type) + "/" + hook.URL
}

// neverApproved reports whether a release waits for an approval of its start that is never granted. Earlier gates may have to
// open first.
func (e *externalServices) neverApproved(c *flaggerv1.Canary) bool {
	r := e.releaseOf(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	if r == nil || c.Spec.Analysis == nil {
		return false
	}
	namesakes := map[string]int{}
	for _, hook := range c.Spec.Analysis.Webhooks {
		name := string(hook.Type) + "/" + hook.Name
		if namesakes[name]++; namesakes[name] > 1 {
			name = fmt.Sprintf("%s#%d", name, namesakes[name])
		}
		if g := e.gates[gateName(r, hook)]; hook.Type == flaggerv1.ConfirmRolloutHook && g != nil && g.never {
			waits := firstUnmetGate(c, string(hook.Type)+"/")
			return waits == nil || waits.Name == name
		}
	}
	return false
}

func (e *externalServices) drawGate(name string, hookType flaggerv1.HookType) *gate {
	s, now := e.World.Draws.Stream("gate/"+name), e.World.Now()
	if e.story != nil {
		return &gate{opens: now.Add(25 * time.Second), closes: now.Add(24 * time.Hour)}
	}
	g := &gate{opens: now.Add(s.Skewed(0, 5*time.Minute))}
	g.closes = g.opens.Add(s.Between(time.Minute, 20*time.Minute))
	switch hookType {
	case flaggerv1.ConfirmRolloutHook:
		g.never = s.Chance(0.1)
	case flaggerv1.RollbackHook:
		g.never = s.Chance(0.8)
	default: // a gate within an analysis opens eventually: the analysis continues while it is closed
	}
	return g
}

// answerMetricQuery answers a metric query, including all its attempts.
func (e *externalServices) answerMetricQuery(s *sim.Stream, usual time.Duration, r *Release, c *flaggerv1.Canary, check canary.Check) reply {
	query := "ask(" + check.Metric.Name + ")"
	none := func(text string) reply {
		return reply{(noDataRetries+1)*usual + noDataRetries*noDataPause, release.Answer{Outcome: release.NoData, Text: text, Query: query}}
	}
	failed := func(after time.Duration, outcome release.Outcome, text string) reply {
		return reply{after, release.Answer{Outcome: outcome, Text: text, Query: query}}
	}
	what := s.Int(0, 2)
	value, late := e.metricValue(s, r, r.Known[e.targetVersion(r)], c, check), s.Between(2*time.Second, metricTimeout)
	stale := value
	if n := len(r.Shipped); n > 1 {
		stale = e.metricValue(s, r, r.Known[r.Shipped[n-2]], c, check)
	}
	measured := release.Answer{Outcome: release.Measured, Value: value, Query: query}
	switch actors.DrawFault(e.World, s, answerFaultRate, actors.MetricFaults...) {
	case actors.MetricNoData:
		return none("no values found")
	case actors.MetricNaN: // the client treats it as no data
		return none("no values found")
	case actors.MetricError:
		switch what {
		case 0:
			return failed(usual, release.Unreachable, "prometheus.example: 503 Service Unavailable")
		case 1:
			return failed(usual, release.Broken, "prometheus.example: 400 Bad Request: bad_data")
		default:
			return failed(usual, release.Unreachable, "connection refused")
		}
	case actors.MetricHang:
		return failed(metricTimeout, release.Unreachable, "no answer within 5s")
	case actors.MetricLate:
		return reply{late, measured}
	case actors.MetricStale:
		measured.Value = stale
	default:
	}
	return reply{usual, measured}
}

// metricValue returns the value that a service measures for a version: a good value if the version is good at its current
// weight.
func (e *externalServices) metricValue(s *sim.Stream, r *Release, v *actors.Version, c *flaggerv1.Canary, check canary.Check) float64 {
	if v == nil {
		v = &actors.Version{Good: true}
	}
	good := v.Good || c.Status.CanaryWeight < v.BadFromWeight && r.Strategy == canary.Weighted
	if noisy := s.Chance(v.Noise); noisy {
		good = !good
	}
	f := s.Between(0, time.Second).Seconds() // from 0 to 1
	low, high := goodRange(check.Metric)
	switch {
	case good && !math.IsInf(low, 0) && !math.IsInf(high, 0):
		return low + f*(high-low)
	case good && !math.IsInf(low, 0):
		return low + f
	case good && !math.IsInf(high, 0):
		return high - f*math.Abs(high)
	case good:
		return f
	case !math.IsInf(low, 0):
		return low - 1 - f*10
	default:
		return high + 1 + f*10
	}
}

// goodRange returns the range of good values.
func goodRange(m flaggerv1.CanaryMetric) (low, high float64) {
	low, high = math.Inf(-1), math.Inf(1)
	switch {
	case m.ThresholdRange == nil && m.Name == canary.SuccessRate:
		low = m.Threshold
	case m.ThresholdRange == nil:
		high = m.Threshold
	default:
		if m.ThresholdRange.Min != nil {
			low = *m.ThresholdRange.Min
		}
		if m.ThresholdRange.Max != nil {
			high = *m.ThresholdRange.Max
		}
	}
	return low, high
}
