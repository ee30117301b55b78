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

// The faults of those who are asked.
const (
	HookNo    sim.FaultClass = "hook-no"    // it refuses for no reason
	Hook5xx   sim.FaultClass = "hook-5xx"   // it answers 503, to all attempts
	HookHang  sim.FaultClass = "hook-hang"  // it never answers
	HookReset sim.FaultClass = "hook-reset" // it did what it was asked, and the answer is lost
)

var hookFaults = []sim.FaultClass{HookNo, Hook5xx, HookHang, HookReset}

// How those who ask wait, as internal/canary/controller, internal/hook and internal/metric promise.
const (
	hookTimeout   = 10 * time.Second
	metricTimeout = 5 * time.Second
	noDataPause   = 3 * time.Second
	noDataRetries = 3
)

// answerFaultRate is the probability with which each selected class of faults affects an answer.
const answerFaultRate = 0.15

// externalServices answer the queries of a release: receivers of webhooks, and metrics services. They know the true properties of each
// version, and report them, or something else.
type externalServices struct {
	*Canaries
	// pending counts the questions of each process that have no answer yet.
	pending actors.Pending
	gates   map[string]*gate
	// asked counts the calls of each question, so that each has choices of its own.
	asked map[string]int
}

// gate is an approval that users give and revoke.
type gate struct {
	opens, closes time.Time
	// never: it is never opened.
	never bool
}

func newExternalServices(k *Canaries) *externalServices {
	return &externalServices{Canaries: k, pending: actors.Pending{}, gates: map[string]*gate{}, asked: map[string]int{}}
}

// reply is what comes back, and after what time.
type reply struct {
	after  time.Duration
	answer release.Answer
}

// deliver lets a question reach whom it is for, and plans the answer. It dies with the process that asked.
func (o *externalServices) deliver(p *process, asked queryrunner.RunningQuery) {
	key := asked.Key
	strikes := o.world.Question(questionName(asked))
	if strikes(sim.DieAsking) {
		p.instance.CrashAndRestart("before it asks " + asked.Query.ID)
		return
	}
	r := o.releaseOf(key.NamespacedName)
	c := o.stored(key.NamespacedName)
	sent := actors.QuerySent{Instance: p.instance.Name, Of: key, Query: asked.Query}
	o.world.Publish(sent)

	reply := o.reply(r, c, asked)
	if strikes(sim.LoseAnswer) {
		reply.answer = release.Answer{Outcome: release.Unreachable, Text: "connection reset by peer"}
	}
	if strikes(sim.DieWaiting) {
		p.instance.After(reply.after/2, func() { p.instance.CrashAndRestart("while it asks " + asked.Query.ID) })
	}
	o.pending[p.instance]++
	p.instance.After(reply.after, func() {
		o.pending[p.instance]--
		o.world.Publish(actors.QueryAnswered{QuerySent: sent, Answer: reply.answer})
		o.world.Trace("  %s: %s says %s", key.Name, asked.Query.ID, answerText(reply.answer))
		p.queries.FinishQuery(asked, reply.answer)
		if strikes(sim.DieAnswered) {
			p.instance.CrashAndRestart("once it was answered " + asked.Query.ID)
			return
		}
		p.Flush()
	})
}

// questionName says of a question to a hook what its receiver sees of it, and what is asked elsewhere.
func questionName(asked queryrunner.RunningQuery) string {
	if q, ok := asked.Query.Request.(canary.HookQuery); ok {
		return fmt.Sprintf("%s hook %s %s", q.Hook.Type, q.Hook.Name, q.Key)
	}
	return asked.Query.ID
}

func answerText(a release.Answer) string {
	if a.Outcome == release.Measured {
		return fmt.Sprintf("%.2f", a.Value)
	}
	return strings.TrimSuffix(string(a.Outcome)+": "+a.Text, ": ")
}

// releaseOf is the release that a Canary is of. A second Canary for one target is of the same.
func (k *Canaries) releaseOf(key types.NamespacedName) *Release {
	for _, r := range k.releases {
		if r.Key == key || r.Key.Name == strings.TrimSuffix(key.Name, secondCanary) {
			return r
		}
	}
	return nil
}

func (o *externalServices) reply(r *Release, c *flaggerv1.Canary, asked queryrunner.RunningQuery) reply {
	id := asked.Key.Name + "/" + string(asked.Key.UID) + "/" + asked.Query.ID
	o.asked[id]++
	s := o.world.Draws.Stream(fmt.Sprintf("answer/%s/%d", id, o.asked[id]))
	usual := s.Skewed(20*time.Millisecond, 2*time.Second)
	if r == nil || c == nil {
		return reply{usual, release.Answer{Outcome: release.Unreachable, Text: "get Canary " + asked.Key.Name + ": not found"}}
	}
	switch q := asked.Query.Request.(type) {
	case canary.HookQuery:
		return o.hook(s, usual, r, q)
	case canary.MetricQuery:
		return o.measure(s, usual, r, c, q.Check)
	default: // whether the sources can be reached
		if actors.DrawFault(o.world, s, answerFaultRate, actors.MetricFaults...) != "" {
			return reply{usual, release.Answer{Outcome: release.No, Text: "prometheus not avaiable: 503"}}
		}
		return reply{usual, release.Answer{Outcome: release.Yes}}
	}
}

// hook answers a call of a webhook, with all its attempts.
func (o *externalServices) hook(s *sim.Stream, usual time.Duration, r *Release, q canary.HookQuery) reply {
	timeout := hookTimeout
	if parsed, err := time.ParseDuration(q.Hook.Timeout); err == nil {
		timeout = parsed
	}
	attempts := q.Hook.Retries + 1
	waits := time.Second * time.Duration(1<<q.Hook.Retries-1) // 1 s, 2 s, 4 s between the attempts
	gaveUp := func(why string) release.Answer {
		return release.Answer{Outcome: release.No, Text: fmt.Sprintf("POST http://hooks.example giving up after %d attempt(s): %s", attempts, why)}
	}
	approves := o.approves(s, r, q)
	switch actors.DrawFault(o.world, s, answerFaultRate, hookFaults...) {
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

// approves is what a hook would say if nothing failed.
func (o *externalServices) approves(s *sim.Stream, r *Release, q canary.HookQuery) bool {
	switch q.Hook.Type {
	case flaggerv1.ConfirmRolloutHook, flaggerv1.ConfirmTrafficIncreaseHook, flaggerv1.ConfirmPromotionHook, flaggerv1.RollbackHook:
		return o.open(r, q.Hook)
	case flaggerv1.PostRolloutHook:
		return true
	default: // a test of the version
		v := r.Known[o.running(r)]
		flaky := s.Chance(0.1)
		return v == nil || v.Good || !v.Tested && !flaky
	}
}

// open reports whether users approve a gate. They approve it some time after the first query, and change
// their minds later.
func (o *externalServices) open(r *Release, hook flaggerv1.CanaryWebhook) bool {
	name := gateName(r, hook)
	now, g := o.world.Now(), o.gates[name]
	if g == nil {
		g = o.drawGate(name, hook.Type)
		o.gates[name] = g
	}
	if o.story == nil && now.After(g.closes) {
		s := o.world.Draws.Stream(fmt.Sprintf("gate/%s/%d", name, g.closes.UnixNano()))
		g.opens = g.closes.Add(s.Between(0, 5*time.Minute))
		g.closes = g.opens.Add(s.Between(time.Minute, 20*time.Minute))
	}
	switch {
	case g.never:
		return false
	case o.over && o.story == nil:
		return hook.Type != flaggerv1.RollbackHook
	default:
		return !now.Before(g.opens) && now.Before(g.closes)
	}
}

func gateName(r *Release, hook flaggerv1.CanaryWebhook) string {
	return r.Key.Name + "/" + string(hook.Type) + "/" + hook.URL
}

// neverApproved is true when the start of this release is never approved, and it waits for that: earlier gates may
// have to open first.
func (o *externalServices) neverApproved(c *flaggerv1.Canary) bool {
	r := o.releaseOf(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	if r == nil || c.Spec.Analysis == nil {
		return false
	}
	for _, hook := range c.Spec.Analysis.Webhooks {
		if g := o.gates[gateName(r, hook)]; hook.Type == flaggerv1.ConfirmRolloutHook && g != nil && g.never {
			waits := unmet(c, string(hook.Type)+"/")
			return waits == nil || waits.Name == string(hook.Type)+"/"+hook.Name
		}
	}
	return false
}

func (o *externalServices) drawGate(name string, of flaggerv1.HookType) *gate {
	s, now := o.world.Draws.Stream("gate/"+name), o.world.Now()
	if o.story != nil {
		return &gate{opens: now.Add(25 * time.Second), closes: now.Add(24 * time.Hour)}
	}
	g := &gate{opens: now.Add(s.Skewed(0, 5*time.Minute))}
	g.closes = g.opens.Add(s.Between(time.Minute, 20*time.Minute))
	switch of {
	case flaggerv1.ConfirmRolloutHook:
		g.never = s.Chance(0.1)
	case flaggerv1.RollbackHook:
		g.never = s.Chance(0.8)
	default: // a gate within an analysis is opened eventually: while it is closed the analysis continues
	}
	return g
}

// measure answers a query, with all its attempts.
func (o *externalServices) measure(s *sim.Stream, usual time.Duration, r *Release, c *flaggerv1.Canary, check canary.Check) reply {
	query := "ask(" + check.Metric.Name + ")"
	none := func(text string) reply {
		return reply{(noDataRetries+1)*usual + noDataRetries*noDataPause, release.Answer{Outcome: release.NoData, Text: text, Query: query}}
	}
	failed := func(after time.Duration, outcome release.Outcome, text string) reply {
		return reply{after, release.Answer{Outcome: outcome, Text: text, Query: query}}
	}
	what := s.Int(0, 2)
	value, late := o.value(s, r, r.Known[o.running(r)], c, check), s.Between(2*time.Second, metricTimeout)
	stale := value
	if n := len(r.Shipped); n > 1 {
		stale = o.value(s, r, r.Known[r.Shipped[n-2]], c, check)
	}
	measured := release.Answer{Outcome: release.Measured, Value: value, Query: query}
	switch actors.DrawFault(o.world, s, answerFaultRate, actors.MetricFaults...) {
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

// value is what a service measures of a version: good as long as the version is, at the weight that it has.
func (o *externalServices) value(s *sim.Stream, r *Release, v *actors.Version, c *flaggerv1.Canary, check canary.Check) float64 {
	if v == nil {
		v = &actors.Version{Good: true}
	}
	good := v.Good || c.Status.CanaryWeight < v.From && r.Strategy == canary.Weighted
	if noisy := s.Chance(v.Noise); noisy {
		good = !good
	}
	f := s.Between(0, time.Second).Seconds() // from 0 to 1
	low, high := limits(check.Metric)
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

// limits are the bounds of a good value.
func limits(m flaggerv1.CanaryMetric) (low, high float64) {
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
