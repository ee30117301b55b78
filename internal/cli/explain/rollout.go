package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// Rollout is everything that was observed of one release by a Rollout.
type Rollout struct {
	Context

	// Object is the stored Rollout.
	Object   *argov1.Rollout
	Snapshot rollout.Snapshot
	// Routers that it names.
	Routers []string
	// Runs are its AnalysisRuns.
	Runs []argov1.AnalysisRun
	// Assumed are the parts of the snapshot that could not be read. For them, the values of the status are used.
	Assumed []release.Part
}

// Key names the Rollout.
func (seen *Rollout) Key() Key { return Key{KindRollout, seen.Object.Namespace, seen.Object.Name} }

// Version is that of the object, and of the observation.
func (seen *Rollout) Version() Version {
	return Version{seen.Object.ResourceVersion, seen.Snapshot.Now}
}

// WithContext is the same with other surroundings.
func (seen *Rollout) WithContext(around Context) Observation {
	other := *seen
	other.Context = around
	return &other
}

// Describe describes the release at that time.
func (seen *Rollout) Describe(now time.Time) Release {
	s := seen.Snapshot
	s.Now = now
	v := seen.view(s)
	r := describe(v, seen.Context, "Rollout not completed, started update to revision")
	r.Kind, r.Name, r.Namespace, r.Target = KindRollout, s.Name, s.Namespace, targetOf(s)
	r.Provider, r.Strategy = seen.provider(), strategyOf(s.Spec)
	r.Suspended, r.Deleting = s.Spec.Paused, seen.Object.DeletionTimestamp != nil
	r.Step, r.TotalSteps = v.Step, v.TotalSteps
	for _, gate := range v.Gates {
		metrics := seen.metrics(gate)
		if len(metrics) > 0 { // each of them has its own value
			gate.Value, gate.Limit, gate.Query = "", "", ""
		}
		r.Gates = append(append(r.Gates, newGate(gate, &r, seen.OtherController)), metrics...)
	}
	return r
}

func (seen *Rollout) view(s rollout.Snapshot) release.View {
	if seen.OtherController.Sign != "" {
		return rollout.ViewWithOtherController(s, seen.OtherController.Sign, seen.OtherController.Until)
	}
	return rollout.View(s, seen.Assumed...)
}

func targetOf(s rollout.Snapshot) string {
	if ref := s.Spec.WorkloadRef; ref != nil {
		return ref.Kind + "/" + ref.Name
	}
	return argov1.RolloutKind + "/" + s.Name
}

func strategyOf(spec argov1.RolloutSpec) string {
	if spec.Strategy.BlueGreen != nil {
		return "blue-green"
	}
	return "canary"
}

// provider is the component that splits the traffic.
func (seen *Rollout) provider() string {
	switch {
	case seen.Object.Spec.Strategy.BlueGreen != nil:
		return "service"
	case len(seen.Routers) == 0:
		return "replicas"
	default:
		return strings.Join(seen.Routers, ",")
	}
}

// metrics are the metrics of the AnalysisRun of a gate, with the last values and their limits.
func (seen *Rollout) metrics(gate release.GateView) []Gate {
	i := slices.IndexFunc(seen.Runs, func(run argov1.AnalysisRun) bool { return run.Name == gate.Run })
	if i < 0 {
		return nil
	}
	run := &seen.Runs[i]
	out := make([]Gate, 0, len(run.Spec.Metrics))
	for i := range run.Spec.Metrics {
		metric := &run.Spec.Metrics[i]
		out = append(out, metricGate(metric, resultOfMetric(run, metric.Name), gate.Verdict))
	}
	return out
}

func resultOfMetric(run *argov1.AnalysisRun, name string) argov1.MetricResult {
	i := slices.IndexFunc(run.Status.MetricResults, func(r argov1.MetricResult) bool { return r.Name == name })
	if i < 0 {
		return argov1.MetricResult{Name: name}
	}
	return run.Status.MetricResults[i]
}

// maxValue is the maximum length of a measured value, in bytes: some services respond with whole documents.
const maxValue = 100

// metricGate is the result of one metric of an AnalysisRun. In a background analysis, a metric that is being measured delays
// nothing.
func metricGate(metric *argov1.Metric, result argov1.MetricResult, verdictOfRun release.Verdict) Gate {
	g := Gate{
		Name: metric.Name, Check: true, Asks: sourceOf(metric.Provider), Limit: limitOf(metric), Query: analysis.ResolvedQuery(result),
		Message: countText(result),
	}
	if n := len(result.Measurements); n > 0 {
		last := result.Measurements[n-1]
		g.Value = release.Truncate(last.Value, maxValue)
		g.Last = string(verdictOf(last.Phase))
		if last.FinishedAt != nil {
			g.Since = utc(last.FinishedAt.Time)
		}
	}
	switch result.Phase {
	case argov1.AnalysisPhaseSuccessful:
		g.Verdict = string(release.Pass)
	case argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseError:
		g.Verdict, g.Opener, g.Asks = string(release.Fail), string(release.ByUser), ""
		g.Message = cmp.Or(result.Message, g.Message)
	case argov1.AnalysisPhaseInconclusive:
		g.Verdict, g.Opener, g.Asks = string(release.Wait), string(release.ByUser), ""
		g.Message = cmp.Or(result.Message, g.Message)
	default:
		g.Verdict, g.Opener = string(release.Ask), string(release.ByAnswer)
	}
	if result.DryRun || verdictOfRun == release.Pass && g.Verdict == string(release.Ask) {
		g.Verdict, g.Opener = string(release.Pass), ""
	}
	return g
}

// verdictOf is a measurement as a verdict; empty while there is none.
func verdictOf(phase argov1.AnalysisPhase) release.Verdict {
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

// limitOf returns the conditions of a metric.
func limitOf(m *argov1.Metric) string {
	limit := analysis.Limit(*m)
	if m.FailureLimit != nil {
		limit += fmt.Sprintf(" (failure limit %s)", m.FailureLimit)
	}
	return strings.TrimSpace(limit)
}

// sourceOf is the service that measures a metric.
func sourceOf(p argov1.MetricProvider) string {
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
