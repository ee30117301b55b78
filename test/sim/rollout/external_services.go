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

// measurementTimeout is the timeout of a measurement, as internal/analysis/measure documents.
const measurementTimeout = 2 * time.Minute

// measurementFaultRate is the probability with which each selected class of faults affects a measurement.
const measurementFaultRate = 0.1

// externalServices are the metrics services. They know the true properties of each version, and report them unless a fault is
// drawn.
type externalServices struct {
	*Rollouts
}

// measure delivers a query to its service, and schedules the answer.
func (e *externalServices) measure(p *process, query queryrunner.RunningQuery) {
	request, ok := query.Query.Request.(analysis.MeasurementRequest)
	if !ok {
		e.World.Violate("simulator", "query %T is unknown", query.Query.Request)
		return
	}
	call, received := e.Services.Receive(p.instance, p.queries, query, query.Query.ID)
	if !received {
		return
	}
	call.Then, call.Flush = func(do func()) { p.instance.After(0, do) }, p.sendMeasurements // a task of the process may be running
	call.Describe = func(answer release.Answer) string {
		detail, _ := answer.Detail.(analysis.MeasurementResult)
		return fmt.Sprintf("measured %s: %s %s%s", query.Query.ID, detail.Phase, detail.Value, detail.Message)
	}
	if request.Metric.Provider.Prometheus == nil { // the production code measures
		ctx := withCall(e.withLogger(context.Background()), measurementCall{query, call.Scheduled})
		p.instance.Go("measure "+query.Query.ID, func() {
			call.CrashDuring(time.Millisecond)
			call.Answer(p.measurer.Measure(ctx, query.Key, query.Query))
		})
		return
	}
	after, detail := e.measureQuery(query, request)
	if call.Scheduled(sim.LoseAnswer) {
		detail = analysis.MeasurementResult{Phase: argov1.AnalysisPhaseError, Message: "connection reset by peer"}
	}
	call.AnswerAfter(after, release.Answer{Outcome: release.Measured, Detail: detail})
}

// reading is the value of a metrics service, and the delay after which it arrives.
type reading struct {
	after time.Duration
	value []float64
	// failure is why there is no value; empty: there is one, which may contain no data.
	failure string
}

// drawReading draws what a metrics service returns.
func (e *externalServices) drawReading(query queryrunner.RunningQuery) reading {
	s := e.Services.AnswerStream(query.Key.Name + "/" + query.Query.ID)
	after, late := s.Skewed(20*time.Millisecond, 2*time.Second), s.Between(5*time.Second, 90*time.Second)
	run := actors.Typed[*argov1.AnalysisRun](e.World, e.World.Server.Peek(runKind, query.Key.NamespacedName))
	if run == nil {
		return reading{after: after, failure: "get AnalysisRun: not found"}
	}
	bad, stale := !e.appearsGood(run, s, false), false
	value := []float64{s.Between(0, time.Second).Seconds()}
	switch actors.DrawFault(e.World, s, measurementFaultRate, actors.MetricFaults...) {
	case actors.MetricNoData:
		value = []float64{}
	case actors.MetricNaN:
		value = []float64{nan}
	case actors.MetricError:
		return reading{after: after, failure: "received 503"}
	case actors.MetricHang:
		return reading{after: measurementTimeout, failure: "measurement timed out after 2m0s"}
	case actors.MetricLate:
		after = late
	case actors.MetricStale:
		stale = true
	default: // no fault
	}
	if stale {
		bad = !e.appearsGood(run, s, true)
	}
	if bad && len(value) > 0 {
		value[0] += 10
	}
	return reading{after: after, value: value}
}

// measureQuery returns the answer to a query, and the delay after which it arrives.
func (e *externalServices) measureQuery(query queryrunner.RunningQuery, q analysis.MeasurementRequest) (time.Duration, analysis.MeasurementResult) {
	read := e.drawReading(query)
	if read.failure != "" {
		return read.after, analysis.MeasurementResult{Phase: argov1.AnalysisPhaseError, Message: read.failure}
	}
	phase, err := condition.EvaluatePhase(context.Background(), read.value, q.Metric.SuccessCondition, q.Metric.FailureCondition)
	answer := analysis.MeasurementResult{Phase: phase, Value: fmt.Sprint(read.value)}
	if err != nil {
		answer.Phase, answer.Message = argov1.AnalysisPhaseError, err.Error()
	}
	return read.after, answer
}

// appearsGood reports whether the version that a run analyses is good, or the opposite if noise is drawn.
func (e *externalServices) appearsGood(run *argov1.AnalysisRun, s *sim.Stream, before bool) bool {
	r, v := e.versionOfRun(run)
	noise := s.Between(0, time.Second).Seconds()
	switch {
	case v == nil:
		return true
	case before:
		i := max(0, len(r.Shipped)-2)
		v = r.Known[r.Shipped[i]]
	}
	good := v.Good || v.BadFromWeight > 0 && e.newestShare(r) < v.BadFromWeight
	if noise < v.Noise {
		good = !good
	}
	return good
}

// versionOfRun returns the version that a run analyses according to one of its arguments, or nil.
func (e *externalServices) versionOfRun(run *argov1.AnalysisRun) (*Release, *actors.Version) {
	for _, arg := range run.Spec.Args {
		if arg.Name == hashArgument && arg.Value != nil {
			return e.versionOf(*arg.Value)
		}
	}
	return nil, nil
}

// newestShare returns the share of the traffic of the newest version, as reported by the status.
func (e *externalServices) newestShare(r *Release) int {
	c := e.storedRollout(types.NamespacedName{Namespace: actors.Namespace, Name: r.Key.Name})
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
