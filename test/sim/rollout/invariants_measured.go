package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// measurement identifies a measurement of a metric of a run by its number.
type measurement struct {
	run    types.UID
	metric string
	number int
}

func (m measurement) String() string { return fmt.Sprintf("measurement %d of %s", m.number, m.metric) }

// requestOf returns the request of a query.
func requestOf(h actors.QuerySent) analysis.MeasurementRequest {
	request, _ := h.Query.Request.(analysis.MeasurementRequest)
	return request
}

// isPluginCall reports whether an event is about a call of a step plugin or a router plugin, which is not a measurement.
func isPluginCall(event any) bool {
	query, _ := event.(actors.QuerySent)
	if h, ok := event.(actors.QueryAnswered); ok {
		query = h.QuerySent
	}
	switch query.Query.Request.(type) {
	case controller.StepPluginRequest, controller.RouterPluginRequest:
		return true
	default:
		return false
	}
}

func measurementOf(h actors.QuerySent) measurement {
	request := requestOf(h)
	return measurement{h.Key.UID, request.Metric.Name, request.Number}
}

// phaseOf returns the phase of the measurement that an answer contains.
func phaseOf(h actors.QueryAnswered) argov1.AnalysisPhase {
	result, _ := h.Answer.Detail.(analysis.MeasurementResult)
	return result.Phase
}

// measurementsCountedOnce is I4.
type measurementsCountedOnce struct {
	*ledger
	oracle.EventsOnly

	// byQuery contains the measurement of each query ID; answers contains what each process received.
	byQuery map[string]measurement
	answers map[string]map[measurement][]argov1.AnalysisPhase
	// consecutiveErrors counts the consecutive measurements that ended in an error.
	consecutiveErrors map[measurement]int
}

func (c *measurementsCountedOnce) Observe(event any) {
	switch h := event.(type) {
	case sim.ProcessStarted:
		delete(c.answers, h.Instance)
	case actors.QuerySent:
		if c.byQuery == nil {
			c.byQuery, c.answers, c.consecutiveErrors = map[string]measurement{}, map[string]map[measurement][]argov1.AnalysisPhase{}, map[measurement]int{}
		}
		c.byQuery[h.Query.ID] = measurementOf(h)
	case actors.QueryAnswered:
		if c.answers[h.Instance] == nil {
			c.answers[h.Instance] = map[measurement][]argov1.AnalysisPhase{}
		}
		m := c.byQuery[h.Query.ID]
		c.answers[h.Instance][m] = append(c.answers[h.Instance][m], phaseOf(h))
	case oracle.Write:
		if h.BySerin && h.Kind == runKind && h.Type == store.Modified {
			c.checkResults(h)
		}
	}
}

// checkResults compares the measurements in the status of a run with the answers.
func (c *measurementsCountedOnce) checkResults(h oracle.Write) {
	before, after := actors.Typed[*argov1.AnalysisRun](c.World, h.Old), actors.Typed[*argov1.AnalysisRun](c.World, h.New)
	ends := before.Spec.Terminate || after.Spec.Terminate
	for _, result := range before.Status.MetricResults {
		ends = ends || result.Phase.Completed() && result.Phase != argov1.AnalysisPhaseSuccessful
	}
	for _, metric := range after.Spec.Metrics {
		was, is := resultOf(before, metric.Name), resultOf(after, metric.Name)
		c.checkCounts(h, was, is, metric.Name)
		if why := wrongPhaseReason(metric, is, c.consecutiveErrors[measurement{h.New.UID(), metric.Name, 0}], ends); why != "" {
			c.Violate("I4", h.Key.Name, "metric %s is %q, although %s", metric.Name, is.Phase, why)
		}
	}
	if phase := after.Status.Phase; phase == argov1.AnalysisPhaseSuccessful || phase == argov1.AnalysisPhaseFailed {
		c.checkRunPhase(h, after)
	}
}

func resultOf(run *argov1.AnalysisRun, metric string) argov1.MetricResult {
	for _, result := range run.Status.MetricResults {
		if result.Name == metric {
			return result
		}
	}
	return argov1.MetricResult{}
}

// checkCounts checks that one write counts at most one further measurement of a metric, with the result that the process
// received.
func (c *measurementsCountedOnce) checkCounts(h oracle.Write, was, is argov1.MetricResult, metric string) {
	number := int(was.Count + was.Error)
	row, total := measurement{h.New.UID(), metric, 0}, int32(0)
	for _, more := range []struct {
		n     int32
		phase argov1.AnalysisPhase
	}{
		{is.Successful - was.Successful, argov1.AnalysisPhaseSuccessful},
		{is.Failed - was.Failed, argov1.AnalysisPhaseFailed},
		{is.Inconclusive - was.Inconclusive, argov1.AnalysisPhaseInconclusive},
		{is.Error - was.Error, argov1.AnalysisPhaseError},
	} {
		total += more.n
		if more.n == 0 {
			continue
		}
		received := c.answers[h.Actor][measurement{h.New.UID(), metric, number + 1}]
		if more.n != 1 || !slices.Contains(received, more.phase) {
			c.Violate("I4", h.Key.Name, "%d more measurements of %s are counted as %s, but the answers to number %d are %v", more.n, metric, more.phase, number+1, received)
		}
		if c.consecutiveErrors == nil {
			c.consecutiveErrors = map[measurement]int{}
		}
		if c.consecutiveErrors[row]++; more.phase != argov1.AnalysisPhaseError {
			c.consecutiveErrors[row] = 0
		}
	}
	if total > 1 || is.Count-was.Count != total-(is.Error-was.Error) {
		c.Violate("I4", h.Key.Name, "%d measurements of %s were counted at once, and the count went from %d to %d", total, metric, was.Count, is.Count)
	}
}

// wrongPhaseReason returns why the phase of a metric contradicts its counts and limits, as Argo Rollouts defines them, or "".
// ends reports whether the metric may end before all measurements were made.
func wrongPhaseReason(m argov1.Metric, is argov1.MetricResult, consecutiveErrors int, ends bool) string {
	failed, undecided, broken := int(is.Failed) > intOr(m.FailureLimit, 0), int(is.Inconclusive) > intOr(m.InconclusiveLimit, 0), consecutiveErrors > intOr(m.ConsecutiveErrorLimit, 4)
	count := intOr(m.Count, 0)
	enough := count > 0 && int(is.Count) >= count
	inProgress := len(is.Measurements) > 0 && !is.Measurements[len(is.Measurements)-1].Phase.Completed()
	switch is.Phase {
	case argov1.AnalysisPhaseSuccessful:
		if failed || undecided || broken {
			return "a limit is exceeded"
		}
		if !enough && !ends {
			return "not everything was measured"
		}
	case argov1.AnalysisPhaseFailed:
		if !failed {
			return "no limit of failures is exceeded"
		}
	case argov1.AnalysisPhaseInconclusive:
		if !undecided {
			return "no limit of inconclusive measurements is exceeded"
		}
	case argov1.AnalysisPhaseError:
		if !broken {
			return "no limit of errors is exceeded"
		}
	default:
		if !inProgress && (failed || undecided || broken) {
			return "a limit is exceeded"
		}
		if !inProgress && enough {
			return "everything was measured"
		}
	}
	return ""
}

func intOr(value *intstr.IntOrString, fallback int) int {
	if value == nil {
		return fallback
	}
	return value.IntValue()
}

// checkRunPhase checks that a run is successful when all its metrics are, and failed when one of them is.
func (c *measurementsCountedOnce) checkRunPhase(h oracle.Write, run *argov1.AnalysisRun) {
	failed, all := false, len(run.Spec.Metrics) > 0
	for _, metric := range run.Spec.Metrics {
		phase := resultOf(run, metric.Name).Phase
		failed, all = failed || phase == argov1.AnalysisPhaseFailed, all && phase == argov1.AnalysisPhaseSuccessful
	}
	if successful := run.Status.Phase == argov1.AnalysisPhaseSuccessful; successful && !all || !successful && !failed {
		c.Violate("I4", h.Key.Name, "it is %s, which contradicts its metrics: %+v", run.Status.Phase, run.Status.MetricResults)
	}
}

// measurementTimes records when measurements were sent, for I11 and I14.
type measurementTimes struct {
	*ledger

	sentAt map[measurement]time.Time
	failed map[measurement]bool
	ids    map[string]measurement
	// stored contains when the result of each measurement was stored.
	stored map[measurement]time.Time
}

func newMeasurementTimes(l *ledger) *measurementTimes {
	return &measurementTimes{ledger: l, sentAt: map[measurement]time.Time{}, failed: map[measurement]bool{}, ids: map[string]measurement{}, stored: map[measurement]time.Time{}}
}

// errorRetryInterval is the interval after which Argo Rollouts repeats a measurement that ended in an error.
const errorRetryInterval = 10 * time.Second

// queries returns the facts for I11.
func (c *measurementTimes) queries(event any) []oracle.Query {
	if isPluginCall(event) {
		return nil
	}
	switch h := event.(type) {
	case actors.QueryAnswered:
		if phaseOf(h) == argov1.AnalysisPhaseError {
			c.failed[c.ids[h.Query.ID]] = true
		}
	case oracle.Write:
		if h.Kind == runKind && h.Type == store.Modified {
			c.recordStored(actors.Typed[*argov1.AnalysisRun](c.World, h.New))
		}
	case actors.QuerySent:
		this := measurementOf(h)
		c.ids[h.Query.ID] = this
		if requestOf(h).InProgress != nil {
			return nil // a measurement in progress is queried repeatedly
		}
		query := oracle.Query{Release: h.Key.Name, What: measurementOf(h).String(), By: h.Instance, Key: this, Done: c.stored[this]}
		if _, again := c.sentAt[this]; !again {
			c.sentAt[this] = c.Now()
		}
		if !c.Clocks.Changed {
			query.Since, query.Interval = c.previousAndInterval(h)
		}
		return []oracle.Query{query}
	}
	return nil
}

// recordStored records which measurements of a run are in its status.
func (c *measurementTimes) recordStored(run *argov1.AnalysisRun) {
	for _, result := range run.Status.MetricResults {
		for number := 1; number <= int(result.Count+result.Error); number++ {
			if m := (measurement{run.UID, result.Name, number}); c.stored[m].IsZero() {
				c.stored[m] = c.Now()
			}
		}
	}
}

// intervals returns the facts for I14: intervals that ended after a clock was set.
func (c *measurementTimes) intervals(event any) []oracle.Period {
	h, ok := event.(actors.QuerySent)
	if !ok || isPluginCall(event) || requestOf(h).InProgress != nil || !c.Clocks.Changed {
		return nil
	}
	since, interval := c.previousAndInterval(h)
	return []oracle.Period{{Release: h.Key.Name, What: measurementOf(h).String() + " was sent", Began: since, Length: interval}}
}

// previousAndInterval returns when the previous measurement was sent, and the interval after which this one is due. Times in a
// status are whole seconds.
func (c *measurementTimes) previousAndInterval(h actors.QuerySent) (since time.Time, interval time.Duration) {
	before := measurementOf(h)
	before.number--
	interval, err := time.ParseDuration(string(requestOf(h).Metric.Interval))
	if err != nil {
		interval = errorRetryInterval
	} else if c.failed[before] {
		interval = min(interval, errorRetryInterval)
	}
	return c.sentAt[before], interval - time.Second
}
