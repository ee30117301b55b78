package rollout

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/condition"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// measurementTimeout is how long a measurement takes without an answer, as internal/analysis/measure promises.
const measurementTimeout = 2 * time.Minute

// measurementFaultRate is the probability with which each selected class of faults affects a measurement.
const measurementFaultRate = 0.1

// externalServices are the metrics services. They know what is true about each version, and say it, or something else.
type externalServices struct {
	*Rollouts
	// pending counts the measurements of each process that have no answer yet.
	pending actors.Pending
	// asked counts those of each name, so that each has choices of its own.
	asked map[string]int
}

func newExternalServices(k *Rollouts) *externalServices {
	return &externalServices{Rollouts: k, pending: actors.Pending{}, asked: map[string]int{}}
}

// deliver lets a question reach whom it is for, and plans the answer. It dies with the process that asked.
func (o *externalServices) deliver(p *process, asked queryrunner.RunningQuery) {
	strikes := o.world.Question(asked.Query.ID)
	if strikes(sim.DieAsking) {
		p.instance.CrashAndRestart("before it asks " + asked.Query.ID)
		return
	}
	question, ok := asked.Query.Request.(analysis.MeasurementRequest)
	if !ok {
		o.world.Violate("simulator", "question %T is unknown", asked.Query.Request)
		return
	}
	o.world.Publish(actors.QuerySent{Instance: p.instance.Name, Of: asked.Key, Query: asked.Query})
	o.pending[p.instance]++
	if question.Metric.Provider.Prometheus == nil { // the real one asks
		ctx := calling(o.logging(context.Background()), call{asked, strikes})
		p.instance.Go("measure "+asked.Query.ID, func() {
			if strikes(sim.DieWaiting) {
				p.instance.After(time.Millisecond, func() { p.instance.CrashAndRestart("while it asks " + asked.Query.ID) })
			}
			o.answer(p, asked, p.measurer.Measure(ctx, asked.Key, asked.Query), strikes)
		})
		return
	}
	after, detail := o.measure(asked, question)
	if strikes(sim.LoseAnswer) {
		detail = analysis.MeasurementResult{Phase: argov1.AnalysisPhaseError, Message: "connection reset by peer"}
	}
	if strikes(sim.DieWaiting) {
		p.instance.After(after/2, func() { p.instance.CrashAndRestart("while it asks " + asked.Query.ID) })
	}
	p.instance.After(after, func() { o.answer(p, asked, release.Answer{Outcome: release.Measured, Detail: detail}, strikes) })
}

// answer brings an answer to the process that asked.
func (o *externalServices) answer(p *process, asked queryrunner.RunningQuery, answer release.Answer, strikes func(sim.Failure) bool) {
	o.pending[p.instance]--
	detail, _ := answer.Detail.(analysis.MeasurementResult)
	o.world.Publish(actors.QueryAnswered{QuerySent: actors.QuerySent{Instance: p.instance.Name, Of: asked.Key, Query: asked.Query}, Answer: answer})
	o.world.Trace("  %s: measured %s: %s %s%s", asked.Key.Name, asked.Query.ID, detail.Phase, detail.Value, detail.Message)
	p.queries.FinishQuery(asked, answer)
	if strikes(sim.DieAnswered) {
		p.instance.After(0, func() { p.instance.CrashAndRestart("once it was answered " + asked.Query.ID) })
		return
	}
	p.instance.After(0, p.ask)
}

// reading is what a metrics service reads off, and after what time.
type reading struct {
	after time.Duration
	value []float64
	// failed is why there is no value; empty: there is one, of which there may be nothing.
	failed string
}

// read lets a metrics service look.
func (o *externalServices) read(asked queryrunner.RunningQuery) reading {
	id := asked.Key.Name + "/" + asked.Query.ID
	o.asked[id]++
	s := o.world.Draws.Stream(fmt.Sprintf("answer/%s/%d", id, o.asked[id]))
	after, late := s.Skewed(20*time.Millisecond, 2*time.Second), s.Between(5*time.Second, 90*time.Second)
	run := actors.Typed[*argov1.AnalysisRun](o.world, o.world.Server.Peek(runKind, asked.Key.NamespacedName))
	if run == nil {
		return reading{after: after, failed: "get AnalysisRun: not found"}
	}
	bad, stale := !o.good(run, s, false), false
	value := []float64{s.Between(0, time.Second).Seconds()}
	switch actors.DrawFault(o.world, s, measurementFaultRate, actors.MetricFaults...) {
	case actors.MetricNoData:
		value = []float64{}
	case actors.MetricNaN:
		value = []float64{nan}
	case actors.MetricError:
		return reading{after: after, failed: "received 503"}
	case actors.MetricHang:
		return reading{after: measurementTimeout, failed: "measurement timed out after 2m0s"}
	case actors.MetricLate:
		after = late
	case actors.MetricStale:
		stale = true
	default: // no fault
	}
	if stale {
		bad = !o.good(run, s, true)
	}
	if bad && len(value) > 0 {
		value[0] += 10
	}
	return reading{after: after, value: value}
}

// measure is what is answered to a question, and after what time.
func (o *externalServices) measure(asked queryrunner.RunningQuery, q analysis.MeasurementRequest) (time.Duration, analysis.MeasurementResult) {
	read := o.read(asked)
	if read.failed != "" {
		return read.after, analysis.MeasurementResult{Phase: argov1.AnalysisPhaseError, Message: read.failed}
	}
	judged, err := condition.EvaluatePhase(context.Background(), read.value, q.Metric.SuccessCondition, q.Metric.FailureCondition)
	answer := analysis.MeasurementResult{Phase: judged, Value: fmt.Sprint(read.value)}
	if err != nil {
		answer.Phase, answer.Message = argov1.AnalysisPhaseError, err.Error()
	}
	return read.after, answer
}

// good is what is true of the version that a run is about, or, where noise has it, the opposite.
func (o *externalServices) good(run *argov1.AnalysisRun, s *sim.Stream, before bool) bool {
	r, v := o.about(run)
	noise := s.Between(0, time.Second).Seconds()
	switch {
	case v == nil:
		return true
	case before:
		i := max(0, len(r.Shipped)-2)
		v = r.Known[r.Shipped[i]]
	}
	good := v.Good || v.From > 0 && o.share(r) < v.From
	if noise < v.Noise {
		good = !good
	}
	return good
}

// about is the version that a run is about, as one of its arguments says; nil: it does not say.
func (o *externalServices) about(run *argov1.AnalysisRun) (*Release, *actors.Version) {
	for _, arg := range run.Spec.Args {
		if arg.Name == hashArgument && arg.Value != nil {
			return o.versionOf(*arg.Value)
		}
	}
	return nil, nil
}

// share is how much of the traffic the newest version has, as far as the status says.
func (o *externalServices) share(r *Release) int {
	c := o.stored(types.NamespacedName{Namespace: actors.Namespace, Name: r.Key.Name})
	switch {
	case c == nil:
		return 0
	case c.Status.Canary.Weights != nil:
		return int(c.Status.Canary.Weights.Canary.Weight)
	case c.Status.Replicas > 0:
		return int(100 * c.Status.UpdatedReplicas / c.Status.Replicas)
	default:
		return 0
	}
}
