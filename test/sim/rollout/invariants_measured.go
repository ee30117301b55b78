package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// measurement is one of a metric of a run, by its number.
type measurement struct {
	run    types.UID
	metric string
	number int
}

func (m measurement) String() string { return fmt.Sprintf("measurement %d of %s", m.number, m.metric) }

// requestOf is what a query asks for.
func requestOf(h actors.QuerySent) analysis.MeasurementRequest {
	request, _ := h.Query.Request.(analysis.MeasurementRequest)
	return request
}

func measurementOf(h actors.QuerySent) measurement {
	request := requestOf(h)
	return measurement{h.Of.UID, request.Metric.Name, request.Number}
}

// phaseOf is the phase of the measurement that an answer contains.
func phaseOf(h actors.QueryAnswered) argov1.AnalysisPhase {
	result, _ := h.Answer.Detail.(analysis.MeasurementResult)
	return result.Phase
}

// measurementsCountedOnce is I4.
type measurementsCountedOnce struct {
	*ledger
	oracle.EventsOnly

	// asked says of which measurement an ID is; heard is what each process was answered.
	asked map[string]measurement
	heard map[string]map[measurement][]argov1.AnalysisPhase
	// consecutiveErrors is how many measurements in a row have ended in an error.
	consecutiveErrors map[measurement]int
}

func (c *measurementsCountedOnce) Observe(event any) {
	switch h := event.(type) {
	case sim.ProcessStarted:
		delete(c.heard, h.Instance)
	case actors.QuerySent:
		if c.asked == nil {
			c.asked, c.heard, c.consecutiveErrors = map[string]measurement{}, map[string]map[measurement][]argov1.AnalysisPhase{}, map[measurement]int{}
		}
		c.asked[h.Query.ID] = measurementOf(h)
	case actors.QueryAnswered:
		if c.heard[h.Instance] == nil {
			c.heard[h.Instance] = map[measurement][]argov1.AnalysisPhase{}
		}
		of := c.asked[h.Query.ID]
		c.heard[h.Instance][of] = append(c.heard[h.Instance][of], phaseOf(h))
	case oracle.Write:
		if h.BySerin && h.Kind == runKind && h.Type == store.Modified {
			c.recount(h)
		}
	}
}

// recount holds what a write says of the measurements of a run against those that were made.
func (c *measurementsCountedOnce) recount(h oracle.Write) {
	before, after := actors.Typed[*argov1.AnalysisRun](c.World, h.Old), actors.Typed[*argov1.AnalysisRun](c.World, h.New)
	ends := before.Spec.Terminate || after.Spec.Terminate
	for _, result := range before.Status.MetricResults {
		ends = ends || result.Phase.Completed() && result.Phase != argov1.AnalysisPhaseSuccessful
	}
	for _, metric := range after.Spec.Metrics {
		was, is := resultOf(before, metric.Name), resultOf(after, metric.Name)
		c.counts(h, was, is, metric.Name)
		if why := wrongly(metric, is, c.consecutiveErrors[measurement{h.New.UID(), metric.Name, 0}], ends); why != "" {
			c.Violate("I4", h.Key.Name, "metric %s is %q, although %s", metric.Name, is.Phase, why)
		}
	}
	if phase := after.Status.Phase; phase == argov1.AnalysisPhaseSuccessful || phase == argov1.AnalysisPhaseFailed {
		c.sum(h, after)
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

// counts: one write counts at most one more measurement of a metric, as what the process was answered.
func (c *measurementsCountedOnce) counts(h oracle.Write, was, is argov1.MetricResult, metric string) {
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
		heard := c.heard[h.Actor][measurement{h.New.UID(), metric, number + 1}]
		if more.n != 1 || !slices.Contains(heard, more.phase) {
			c.Violate("I4", h.Key.Name, "%d more measurements of %s are %s, and what was answered to number %d is %v", more.n, metric, more.phase, number+1, heard)
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

// wrongly says why a metric has not come to what its counts and limits say, as the API has it; empty: it has. ends is true
// where it may end before all is measured.
func wrongly(m argov1.Metric, is argov1.MetricResult, consecutiveErrors int, ends bool) string {
	failed, undecided, broken := int(is.Failed) > limit(m.FailureLimit, 0), int(is.Inconclusive) > limit(m.InconclusiveLimit, 0), consecutiveErrors > limit(m.ConsecutiveErrorLimit, 4)
	wanted := limit(m.Count, 0)
	enough := wanted > 0 && int(is.Count) >= wanted
	under := len(is.Measurements) > 0 && !is.Measurements[len(is.Measurements)-1].Phase.Completed()
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
		if !under && (failed || undecided || broken) {
			return "a limit is exceeded"
		}
		if !under && enough {
			return "everything was measured"
		}
	}
	return ""
}

func limit(of *intstr.IntOrString, otherwise int) int {
	if of == nil {
		return otherwise
	}
	return of.IntValue()
}

// sum: a run is successful when all its metrics are, and has failed when one has.
func (c *measurementsCountedOnce) sum(h oracle.Write, run *argov1.AnalysisRun) {
	failed, all := false, len(run.Spec.Metrics) > 0
	for _, metric := range run.Spec.Metrics {
		phase := resultOf(run, metric.Name).Phase
		failed, all = failed || phase == argov1.AnalysisPhaseFailed, all && phase == argov1.AnalysisPhaseSuccessful
	}
	if successful := run.Status.Phase == argov1.AnalysisPhaseSuccessful; successful && !all || !successful && !failed {
		c.Violate("I4", h.Key.Name, "it is %s, and its metrics are not: %+v", run.Status.Phase, run.Status.MetricResults)
	}
}

// measurementTimes records when measurements were sent, for I11 and I14.
type measurementTimes struct {
	*ledger

	first map[measurement]time.Time
	wrong map[measurement]bool
	ids   map[string]measurement
}

func newMeasurementTimes(l *ledger) *measurementTimes {
	return &measurementTimes{ledger: l, first: map[measurement]time.Time{}, wrong: map[measurement]bool{}, ids: map[string]measurement{}}
}

// retried is the shortest time after which a measurement is repeated that failed, as the API has it.
const retried = 10 * time.Second

// queries are facts for I11.
func (c *measurementTimes) queries(event any) []oracle.Query {
	switch h := event.(type) {
	case actors.QueryAnswered:
		if phaseOf(h) == argov1.AnalysisPhaseError {
			c.wrong[c.ids[h.Query.ID]] = true
		}
	case actors.QuerySent:
		this := measurementOf(h)
		c.ids[h.Query.ID] = this
		if requestOf(h).InProgress != nil {
			return nil // one that takes long is observed again and again
		}
		query := oracle.Query{Release: h.Of.Name, What: measurementOf(h).String(), By: h.Instance, Key: this}
		if _, again := c.first[this]; !again {
			c.first[this] = c.Now()
		}
		if !c.Clocks.Changed {
			query.Since, query.Interval = c.due(h)
		}
		return []oracle.Query{query}
	}
	return nil
}

// intervals are facts for I14: intervals that ended where a clock was set.
func (c *measurementTimes) intervals(event any) []oracle.Period {
	h, ok := event.(actors.QuerySent)
	if !ok || requestOf(h).InProgress != nil || !c.Clocks.Changed {
		return nil
	}
	since, interval := c.due(h)
	return []oracle.Period{{Release: h.Of.Name, What: measurementOf(h).String() + " was sent", Began: since, Length: interval}}
}

// due is when the measurement before was sent, and how long after that this one is due. Moments in a status are whole seconds.
func (c *measurementTimes) due(h actors.QuerySent) (since time.Time, interval time.Duration) {
	before := measurementOf(h)
	before.number--
	interval, err := time.ParseDuration(string(requestOf(h).Metric.Interval))
	if err != nil {
		interval = retried
	} else if c.wrong[before] {
		interval = min(interval, retried)
	}
	return c.first[before], interval - time.Second
}
