package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/rollout"
)

// defaultConsecutiveErrors is the number of consecutive errors that a metric tolerates by default.
const defaultConsecutiveErrors = 4

// maxMeasurements limits the measurements of a played run, because one whose metrics have no count never ends.
const maxMeasurements = 5000

// playedAnalysis is an AnalysisRun of a played release.
type playedAnalysis struct {
	rollout.AnalysisRun

	// spec is empty if the templates are unknown.
	spec argov1.AnalysisRunSpec
	// due is when its metrics have all their measurements; unlimited: it is terminated instead.
	due       time.Time
	unlimited bool
	started   time.Time
	// awaited is true once a decision has waited for it: a run takes longer than a reconciliation.
	awaited bool
	ended   time.Time
	label   string
}

// isDue reports whether the run has all its measurements at a time. One without a limit never has: its release terminates it.
func (a *playedAnalysis) isDue(now time.Time) bool { return !a.unlimited && !now.Before(a.due) }

// startAnalysis returns the AnalysisRun of an effect. Its end is the end of a run that is played by its own state machine.
func (w *rolloutCluster) startAnalysis(e rollout.AnalysisRunExists) *playedAnalysis {
	run := &playedAnalysis{
		AnalysisRun: rollout.AnalysisRun{Name: e.Name, Hash: e.Hash, Type: e.Type, Step: e.Step, Created: w.tick(), Phase: argov1.AnalysisPhaseRunning},
		started:     w.now, due: w.now, label: analysisLabel(e),
	}
	spec, err := w.runSpec(analysis.RunRequest{
		Name: e.Name, Templates: e.Analysis.Templates, RunOptions: analysis.RunOptions{DryRun: e.Analysis.DryRun},
	}, e.Analysis.Args, e.StableHash, e.LatestHash)
	w.play(run, spec, err)
	if run.unlimited && e.Type != argov1.TypeBackground {
		w.addNote(fmt.Sprintf("The %s does not end within %d measurements, or never if a metric has an interval and no count; the plan ends it at once.", run.label, maxMeasurements))
		run.due, run.unlimited = w.now, false
	}
	return run
}

// analysisLabel names an analysis for users.
func analysisLabel(e rollout.AnalysisRunExists) string {
	switch e.Type {
	case argov1.TypeStep:
		if e.Step != nil {
			return "analysis of step " + strconv.Itoa(int(*e.Step)+1)
		}
		return "analysis"
	case argov1.TypeBackground:
		return "background analysis"
	case argov1.TypePrePromotion:
		return "pre-promotion analysis"
	case argov1.TypePostPromotion:
		return "post-promotion analysis"
	default:
		return "analysis"
	}
}

// play sets the end of a run that is played by its own state machine, or notes why it is not played.
func (w *rolloutCluster) play(run *playedAnalysis, spec argov1.AnalysisRunSpec, err error) {
	if err != nil {
		w.addNote(fmt.Sprintf("The %s is not shown and takes no time in the plan: %v.", run.label, err))
		return
	}
	run.spec = spec
	_, due, phase := playAnalysis(spec, w.now, time.Time{}, w.slowest)
	run.due, run.unlimited = due, !phase.Completed()
	if phase.Completed() && phase != argov1.AnalysisPhaseSuccessful {
		w.addNote(fmt.Sprintf("The %s cannot be successful even if all measurements are: its result is %s.", run.label, phase))
	}
}

// runSpec returns the spec of an AnalysisRun as its creator would, with the arguments that the Rollout passes. References to values
// of an Experiment remain.
func (w *rolloutCluster) runSpec(request analysis.RunRequest, args []argov1.AnalysisRunArgument, stable, latest string) (argov1.AnalysisRunSpec, error) {
	if w.in.AnalysisTemplate == nil {
		return argov1.AnalysisRunSpec{}, fmt.Errorf("its templates are not known")
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.in.Rollout)
	if err != nil {
		return argov1.AnalysisRunSpec{}, err
	}
	if request.Args, err = analysis.ResolveRolloutArguments(args, tree, stable, latest); err != nil {
		return argov1.AnalysisRunSpec{}, err
	}
	request.Namespace = w.namespace
	run, err := analysis.NewRun(request, w.in.AnalysisTemplate)
	if err != nil {
		return argov1.AnalysisRunSpec{}, err
	}
	return run.Spec, nil
}

// playAnalysis plays an AnalysisRun from a start until its end, or until a time; zero: no limit. Every measurement succeeds at
// once; slowest: after as many errors as the metric tolerates. It returns the number of measurements of each metric, the end, and
// the phase.
func playAnalysis(spec argov1.AnalysisRunSpec, start, until time.Time, slowest bool) (times map[string]int, end time.Time, phase argov1.AnalysisPhase) {
	s := analysis.Snapshot{Now: start, UID: "plan", Spec: spec, Answers: map[string]analysis.MeasurementResult{}}
	times = map[string]int{}
	measured := 0
	for measured < maxMeasurements {
		d := analysis.Next(s)
		s.Status = d.Status
		if s.Status.Phase.Completed() {
			return times, s.Now, s.Status.Phase
		}
		sent := false
		for _, query := range d.Queries {
			request, isMeasurement := query.Request.(analysis.MeasurementRequest)
			if _, answered := s.Answers[query.ID]; answered || !isMeasurement {
				continue
			}
			sent = true
			times[request.Metric.Name]++
			measured++
			s.Answers[query.ID] = analysis.MeasurementResult{StartedAt: s.Now, FinishedAt: s.Now, Phase: measurementPhase(request.Metric, s.Status, slowest)}
		}
		switch {
		case sent:
		case !d.Wake.After(s.Now), !until.IsZero() && d.Wake.After(until):
			return times, s.Now, s.Status.Phase
		default:
			s.Now = d.Wake
		}
	}
	return times, s.Now, s.Status.Phase
}

// measurementPhase returns the result of a measurement.
func measurementPhase(metric argov1.Metric, status argov1.AnalysisRunStatus, slowest bool) argov1.AnalysisPhase {
	if !slowest {
		return argov1.AnalysisPhaseSuccessful
	}
	limit := int32(defaultConsecutiveErrors)
	if l := metric.ConsecutiveErrorLimit; l != nil {
		limit = int32(l.IntValue()) //nolint:gosec // a count in one object
	}
	i := slices.IndexFunc(status.MetricResults, func(r argov1.MetricResult) bool { return r.Name == metric.Name })
	if limit > 0 && (i < 0 || status.MetricResults[i].ConsecutiveError < limit) {
		return argov1.AnalysisPhaseError
	}
	return argov1.AnalysisPhaseSuccessful
}

// analyses returns all analyses of a played release, in the order in which they start.
func (r *rolloutRun) analyses() []*playedAnalysis {
	runs := slices.Clone(r.cluster.runs)
	for _, x := range r.cluster.experiments {
		runs = append(runs, x.runs...)
	}
	slices.SortStableFunc(runs, func(a, b *playedAnalysis) int { return a.started.Compare(b.started) })
	return runs
}

// queries returns the measurements of all analyses of a played release.
func (r *rolloutRun) queries() []Query {
	var out []Query
	for _, run := range r.analyses() {
		if len(run.spec.Metrics) == 0 {
			continue
		}
		until := run.ended
		if until.IsZero() {
			until = r.cluster.now
		}
		times, _, _ := playAnalysis(run.spec, run.started, until, false)
		for _, m := range run.spec.Metrics {
			if resolved, err := analysis.ResolveMetric(m, run.spec.Args, nil); err == nil {
				m = resolved
			}
			provider, query := describeProvider(m.Provider)
			out = append(out, Query{
				Metric: m.Name, Provider: provider, Query: query, Limit: analysis.Limit(m), Interval: string(m.Interval), Requests: metricRequests(m), Times: times[m.Name],
				Analysis: run.label,
			})
		}
	}
	return out
}

// describeProvider returns the service that measures a metric and its query. It shows no headers and no bodies, which may contain
// secrets.
func describeProvider(p argov1.MetricProvider) (provider, query string) {
	switch {
	case p.Prometheus != nil:
		provider = "the Prometheus of the controller"
		if p.Prometheus.Address != "" {
			provider = "Prometheus at " + redactAddress(p.Prometheus.Address)
		}
		return provider, strings.TrimSpace(p.Prometheus.Query)
	case p.Web != nil:
		return "web", cmp.Or(string(p.Web.Method), "GET") + " " + redactAddress(p.Web.URL)
	case p.Job != nil:
		return "job", ""
	case p.Datadog != nil:
		return "datadog", strings.TrimSpace(p.Datadog.Query)
	case p.NewRelic != nil:
		return "newRelic", strings.TrimSpace(p.NewRelic.Query)
	case p.Wavefront != nil:
		return "wavefront", strings.TrimSpace(p.Wavefront.Query)
	case p.Graphite != nil:
		return "graphite", strings.TrimSpace(p.Graphite.Query)
	case p.Influxdb != nil:
		return "influxdb", strings.TrimSpace(p.Influxdb.Query)
	case p.SkyWalking != nil:
		return "skywalking", strings.TrimSpace(p.SkyWalking.Query)
	case p.Dynatrace != nil:
		return "dynatrace", strings.TrimSpace(p.Dynatrace.Query)
	case p.Splunk != nil:
		return "splunk", strings.TrimSpace(p.Splunk.Query)
	case p.Stackdriver != nil:
		return "stackdriver", strings.TrimSpace(p.Stackdriver.Query)
	case p.ExternalMetrics != nil:
		return "externalMetrics", strings.TrimSpace(p.ExternalMetrics.Query)
	case p.Keptn != nil:
		return "keptn", strings.TrimSpace(p.Keptn.Query)
	case len(p.Plugin) > 0:
		return "plugin " + strings.Join(slices.Sorted(maps.Keys(p.Plugin)), ", "), ""
	default:
		return providerName(p), ""
	}
}

// redactAddress removes credentials and parameters from an address; one with arguments of the analysis is no URL yet.
func redactAddress(address string) string {
	if strings.Contains(address, "{{") {
		return "the address that its argument names"
	}
	return outbound.Redact(address)
}

// unknownProvider is the name of a provider of which no field is set.
const unknownProvider = "unknown"

// providerName returns the name of the field that is set.
func providerName(p argov1.MetricProvider) string {
	text, err := json.Marshal(p)
	if err != nil {
		return unknownProvider
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return unknownProvider
	}
	for name := range fields {
		return name
	}
	return unknownProvider
}
