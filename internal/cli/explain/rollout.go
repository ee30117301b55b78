package explain

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// Rollout is an observation of one Rollout.
type Rollout struct {
	SharedObservation

	// Object is the stored Rollout.
	Object *argov1.Rollout
	// Snapshot is the input of the state machine.
	Snapshot rollout.Snapshot
	// Routers are the names of its traffic routers.
	Routers []string
	// Runs are its AnalysisRuns.
	Runs []argov1.AnalysisRun
	// StableImages are the images of its stable revision; none: unknown.
	StableImages []string
	// Assumed lists the parts of the snapshot that could not be read and are derived from the status.
	Assumed []release.Part
}

// Key implements Observation.
func (observed *Rollout) Key() Key {
	return Key{KindRollout, observed.Object.Namespace, observed.Object.Name}
}

// Version implements Observation.
func (observed *Rollout) Version() Version {
	return Version{observed.Object.ResourceVersion, observed.Snapshot.Now}
}

// WithShared implements Observation.
func (observed *Rollout) WithShared(shared SharedObservation) Observation {
	other := *observed
	other.SharedObservation = shared
	return &other
}

// Describe implements Observation.
func (observed *Rollout) Describe(now time.Time) Release {
	s := observed.Snapshot
	s.Now = now
	v := observed.view(s)
	r := newRelease(v, observed.SharedObservation, eventBounds{
		first: "Rollout not completed, started update to revision", last: []string{"Rollout completed update to revision"},
	})
	r.Kind, r.Name, r.Namespace, r.Target = KindRollout, s.Name, s.Namespace, targetName(s)
	r.Provider, r.Strategy = observed.providerName(), strategyName(s.Spec)
	r.Suspended, r.Deleting = s.Spec.Paused, observed.Object.DeletionTimestamp != nil
	r.Step, r.TotalSteps = v.Step, v.TotalSteps
	r.wasHealthy = rollout.WasHealthy(s.Status)
	for _, gate := range v.Gates {
		metrics := observed.metricGates(gate)
		if len(metrics) > 0 { // each of them has its own value
			gate.Value, gate.Limit, gate.Query = "", "", ""
		}
		r.Gates = append(append(r.Gates, newGate(gate, &r, observed.OtherController)), metrics...)
		if gate.Verdict != release.Pass {
			delaySteps(&r, observed.earliestEnd(gate.Run, now))
		}
	}
	messages := make([]string, 0, len(s.Status.Conditions))
	for _, condition := range s.Status.Conditions {
		messages = append(messages, condition.Message)
	}
	r.completeMessages(messages)
	r.nameApprovals()
	return r
}

// delaySteps moves all remaining steps behind the earliest end of an analysis, of which the state machine knows only whether it
// has ended.
func delaySteps(r *Release, end time.Time) {
	if len(r.Steps) == 0 || !end.After(r.Steps[0].At) {
		return
	}
	delay := end.Sub(r.Steps[0].At)
	for i := range r.Steps {
		r.Steps[i].At = toUTC(r.Steps[i].At.Add(delay))
	}
}

// earliestEnd returns the earliest end of an AnalysisRun; now if it is unknown.
func (observed *Rollout) earliestEnd(name string, now time.Time) time.Time {
	run := observed.run(name)
	if run == nil || run.Status.Phase.Completed() {
		return now
	}
	end, started := now, time.Time{}
	if run.Status.StartedAt != nil {
		started = run.Status.StartedAt.Time
	}
	for _, metric := range run.Spec.Metrics {
		end = release.LaterOf(end, analysis.EarliestEnd(resolveMetric(metric, run.Spec.Args), metricResult(run, metric.Name), started, now))
	}
	return end
}

func (observed *Rollout) view(s rollout.Snapshot) release.View {
	if observed.OtherController.Sign != "" {
		return rollout.ViewWithOtherController(s, observed.OtherController.Sign, observed.OtherController.Until)
	}
	return rollout.View(s, observed.Assumed...)
}

func targetName(s rollout.Snapshot) string {
	if ref := s.Spec.WorkloadRef; ref != nil {
		return ref.Kind + "/" + ref.Name
	}
	return argov1.RolloutKind + "/" + s.Name
}

func strategyName(spec argov1.RolloutSpec) string {
	if spec.Strategy.BlueGreen != nil {
		return "blue-green"
	}
	return "canary"
}

// providerName names the component that splits the traffic.
func (observed *Rollout) providerName() string {
	switch {
	case observed.Object.Spec.Strategy.BlueGreen != nil:
		return "service"
	case len(observed.Routers) == 0:
		return "replicas"
	default:
		return strings.Join(observed.Routers, ",")
	}
}

// metricGates returns one gate for each metric of the AnalysisRun that a gate evaluates, with its last value and its limit.
func (observed *Rollout) metricGates(gate release.GateView) []Gate {
	run := observed.run(gate.Run)
	if run == nil {
		return nil
	}
	out := make([]Gate, 0, len(run.Spec.Metrics))
	for _, metric := range run.Spec.Metrics {
		metric = resolveMetric(metric, run.Spec.Args)
		out = append(out, newMetricGate(&metric, metricResult(run, metric.Name), gate.Verdict))
	}
	return out
}

// run returns an AnalysisRun of the Rollout; nil: there is none.
func (observed *Rollout) run(name string) *argov1.AnalysisRun {
	i := slices.IndexFunc(observed.Runs, func(run argov1.AnalysisRun) bool { return run.Name == name })
	if i < 0 {
		return nil
	}
	return &observed.Runs[i]
}

// resolveMetric replaces the references to arguments of a run by their values; those to Secrets by a placeholder. A metric with an
// invalid reference is unchanged.
func resolveMetric(metric argov1.Metric, args []argov1.Argument) argov1.Metric {
	resolved, err := analysis.ResolveMetric(metric, args, nil)
	if err != nil {
		return metric
	}
	return resolved
}

// metricResult returns the result of a metric of the run, whose name may refer to arguments.
func metricResult(run *argov1.AnalysisRun, name string) argov1.MetricResult {
	name = analysis.ResolveMetricName(name, run.Spec.Args)
	i := slices.IndexFunc(run.Status.MetricResults, func(r argov1.MetricResult) bool { return r.Name == name })
	if i < 0 {
		return argov1.MetricResult{Name: name}
	}
	return run.Status.MetricResults[i]
}

// maxValueLength is the maximum length of a measured value in bytes. Some services respond with large documents.
const maxValueLength = 100

// notANumber matches a measured value without a number.
var notANumber = regexp.MustCompile(`\bNaN\b`)

// newMetricGate returns the result of one metric of an AnalysisRun as a gate. A metric of a background analysis that is in
// progress passes, because it delays nothing.
func newMetricGate(metric *argov1.Metric, result argov1.MetricResult, runVerdict release.Verdict) Gate {
	g := Gate{
		Name: metric.Name, Check: true, QueryReceiver: metricProviderName(metric.Provider), Limit: metricLimit(metric), Query: analysis.ResolvedQuery(result),
		Message: countText(result),
	}
	if n := len(result.Measurements); n > 0 {
		last := result.Measurements[n-1]
		g.Value = release.Truncate(last.Value, maxValueLength)
		g.LastVerdict = string(measurementVerdict(last.Phase))
		if last.FinishedAt != nil {
			g.Since = toUTC(last.FinishedAt.Time)
		}
		if last.Message != "" && last.Phase != argov1.AnalysisPhaseSuccessful {
			g.Message += "; the last one: " + strings.TrimSuffix(joinLines(last.Message), ".")
		}
	}
	switch result.Phase {
	case argov1.AnalysisPhaseSuccessful:
		g.Verdict = string(release.Pass)
	case argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseError:
		g.Verdict, g.Opener, g.QueryReceiver = string(release.Fail), string(release.ByUser), ""
		g.Message = cmp.Or(result.Message, g.Message)
	case argov1.AnalysisPhaseInconclusive:
		g.Verdict, g.Opener, g.QueryReceiver = string(release.Wait), string(release.ByUser), ""
		g.Message = cmp.Or(result.Message, g.Message)
	default:
		g.Verdict, g.Opener = string(release.Ask), string(release.ByAnswer)
	}
	if g.LastVerdict == string(release.Fail) && notANumber.MatchString(g.Value) {
		g.Message += "; NaN means that the query divided by zero, such as without requests"
	}
	if result.DryRun || runVerdict == release.Pass && g.Verdict == string(release.Ask) {
		g.Verdict, g.Opener = string(release.Pass), ""
	}
	return g
}

// measurementVerdict converts the phase of a measurement to a verdict; empty: there is no result yet.
func measurementVerdict(phase argov1.AnalysisPhase) release.Verdict {
	switch phase {
	case argov1.AnalysisPhaseSuccessful:
		return release.Pass
	case argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseError, argov1.AnalysisPhaseInconclusive:
		return release.Fail
	default:
		return ""
	}
}

// countText lists the number of measurements with each result.
func countText(r argov1.MetricResult) string {
	parts := []string{fmt.Sprintf("%d successful", r.Successful)}
	for _, other := range []struct {
		count  int32
		result string
	}{{r.Failed, "failed"}, {r.Inconclusive, "inconclusive"}, {r.Error, "with an error"}} {
		if other.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", other.count, other.result))
		}
	}
	text := "measurements: " + strings.Join(parts, ", ")
	if r.DryRun {
		text += " (dry run)"
	}
	return text
}

// metricLimit returns the conditions of a metric and its failure limit.
func metricLimit(m *argov1.Metric) string {
	limit := analysis.Limit(*m)
	if m.FailureLimit != nil {
		limit += fmt.Sprintf(" (failure limit %s)", m.FailureLimit)
	}
	return strings.TrimSpace(limit)
}

// metricProviderName names the service that measures a metric.
func metricProviderName(p argov1.MetricProvider) string {
	switch {
	case p.Prometheus != nil && strings.Contains(p.Prometheus.Address, "{{"), p.Web != nil && strings.Contains(p.Web.URL, "{{"):
		return "the service that its argument names"
	case p.Prometheus != nil && p.Prometheus.Address != "":
		return "Prometheus at " + outbound.Redact(p.Prometheus.Address)
	case p.Prometheus != nil:
		return "the Prometheus of the controller"
	case p.Web != nil:
		return "the service at " + outbound.Redact(p.Web.URL)
	case p.Job != nil:
		return "a Job"
	default:
		return "its metrics provider"
	}
}
