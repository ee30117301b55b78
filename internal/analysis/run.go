package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot is the observed state of an AnalysisRun at one time.
type Snapshot struct {
	Now    time.Time
	UID    types.UID
	Spec   argov1.AnalysisRunSpec
	Status argov1.AnalysisRunStatus
	// Answers are the results of the queries of earlier decisions, by the ID of the query.
	Answers map[string]MeasurementResult
	// EndedMeasurements contains the names of metrics whose measurement in progress is known to have ended, for example
	// because its Job is complete: its result is read now, not at the announced time.
	EndedMeasurements map[string]bool
	// HasActiveJobs is true if a Job is still active although the run is complete.
	HasActiveJobs bool
}

// MeasurementResult is the result of one measurement.
type MeasurementResult struct {
	StartedAt, FinishedAt time.Time
	// Phase is the phase of the measurement. A running one is checked again at ResumeAt.
	Phase argov1.AnalysisPhase
	// Message explains the phase. It contains no secrets.
	Message string
	// Value is the measured value in the form that users see. It contains no secrets.
	Value string
	// Metadata that the provider returned; nil: the previous metadata remains.
	Metadata map[string]string
	// MetricMetadata is what a plugin adds to the result of the metric; nil: the previous metadata remains.
	MetricMetadata map[string]string
	// ResumeAt is the time at which a running measurement is checked again.
	ResumeAt time.Time
}

// MeasurementRequest is the content of a query: one measurement.
type MeasurementRequest struct {
	// Metric of the spec, with the values of all arguments except secrets.
	Metric argov1.Metric
	// InProgress is the measurement in progress that is to be checked; nil: a new measurement begins.
	InProgress *argov1.Measurement
	// Number of the measurement within its metric, counted from 1. Measurements with errors count too.
	Number int
	// Terminate is true if the measurement in progress is to be ended.
	Terminate bool
}

// RunDeleted is an effect: the AnalysisRun is deleted, because spec.ttlStrategy has elapsed.
type RunDeleted struct{}

func (RunDeleted) String() string { return "run deleted" }

// MeasurementJobsDeleted is an effect: the Jobs of measurements that the status no longer contains are deleted.
type MeasurementJobsDeleted struct {
	Metric       string
	Measurements []argov1.Measurement
}

func (e MeasurementJobsDeleted) String() string {
	return fmt.Sprintf("Jobs of %d measurements of %s deleted", len(e.Measurements), e.Metric)
}

// ActiveJobsDeleted is an effect: all active Jobs of the run are deleted. A Job may exist that no measurement refers
// to, because the response to its creation was lost.
type ActiveJobsDeleted struct{}

func (ActiveJobsDeleted) String() string { return "active Jobs deleted" }

// Decision is the result of Next: the status, effects, gates, queries and events.
type Decision = release.Decision[argov1.AnalysisRunStatus]

// retryInterval is the time before the next measurement after an error, and of a metric without an interval.
const retryInterval = 10 * time.Second

// minInterval is the minimum interval of a metric: each measurement is a call to a service and a write of the status.
// Argo Rollouts has no minimum.
const minInterval = time.Second

// measurementInterval returns the time between the measurements of a metric; 0: it has no interval. short is true if
// the interval of the metric is below the minimum.
func measurementInterval(m argov1.Metric) (interval time.Duration, tooShort bool) {
	interval, _ = parseDuration(m.Interval)
	if interval != 0 && interval < minInterval {
		return minInterval, true
	}
	return interval, false
}

// Next decides what an AnalysisRun needs now. It is total: it also returns a decision for a snapshot that no healthy
// cluster produces.
func Next(s Snapshot) Decision {
	if s.Status.Phase.Completed() {
		return decideCompletedRun(s)
	}
	r := &runDecider{snapshot: s, decision: Decision{Status: *s.Status.DeepCopy()}}
	status := &r.decision.Status
	if status.StartedAt == nil {
		status.StartedAt = new(metav1.NewTime(s.Now))
	}
	clampFutureTimes(status, s.Now)
	if strings.HasPrefix(status.Message, faultPrefix) {
		status.Message = "" // this reconciliation has not failed
	}
	metrics, err := ValidateRun(s.Spec)
	if err != nil {
		return r.completeRun(argov1.AnalysisPhaseError, err.Error())
	}
	if s.Status.StartedAt == nil {
		r.reportShortIntervals(metrics)
	}
	r.terminating = s.Spec.Terminate || slices.ContainsFunc(status.MetricResults, func(m argov1.MetricResult) bool { return !m.DryRun && isUnsuccessful(m.Phase) })
	for _, m := range metrics {
		r.processMetric(m)
	}
	r.limitResults()
	decide, recorded := summarizeResults(status.MetricResults)
	status.RunSummary, status.DryRunSummary = decide, &recorded
	phase := assessRun(status.MetricResults)
	if !phase.Completed() {
		status.Phase = phase
		return r.decision
	}
	return r.completeRun(phase, "")
}

// faultPrefix is the prefix of the message of a run whose reconciliation failed because of a defect of Serin.
const faultPrefix = "Fault: "

// PanicDecision returns the decision for a run whose reconciliation failed because of a defect of Serin, before or
// after Next was called. Only the status of the run is known then. The next successful reconciliation removes the
// message.
func PanicDecision(status argov1.AnalysisRunStatus, message string) Decision {
	d := Decision{
		Status: *status.DeepCopy(), Gates: release.Gates{release.NewFailedGate("fault", release.ByUser, message)},
		Events: []release.Event{{Type: release.Warning, Reason: "ReconciliationError", Message: message, Persistent: true}},
	}
	if !status.Phase.Completed() {
		d.Status.Message = faultPrefix + message
	}
	return d
}

// maxResumeDelay is the maximum time until a measurement in progress is checked again. A later time in the status means
// that a clock was set back since.
const maxResumeDelay = time.Hour

// clampFutureTimes replaces times in the future by the current time. They exist if a clock was set back after the
// status was written; without the correction, the next measurement would wait until the clock reaches them.
func clampFutureTimes(status *argov1.AnalysisRunStatus, now time.Time) {
	if status.StartedAt.After(now) {
		status.StartedAt = new(metav1.NewTime(now))
	}
	for i := range status.MetricResults {
		newest := newestMeasurement(&status.MetricResults[i])
		switch {
		case newest == nil:
		case newest.FinishedAt != nil && newest.FinishedAt.After(now):
			newest.FinishedAt = new(metav1.NewTime(now))
		case !newest.Phase.Completed() && newest.ResumeAt != nil && newest.ResumeAt.After(now.Add(maxResumeDelay)):
			newest.ResumeAt = new(metav1.NewTime(now))
		}
	}
}

func resolveMetrics(spec argov1.AnalysisRunSpec) ([]argov1.Metric, error) {
	out, remainingBytes := make([]argov1.Metric, 0, len(spec.Metrics)), maxResolvedBytes
	for _, m := range spec.Metrics {
		m, err := resolveMetricWithin(&remainingBytes, m, spec.Args, nil)
		if err != nil {
			return nil, fmt.Errorf("Unable to resolve metric arguments: %w", err) //nolint:staticcheck // the text is part of the API
		}
		out = append(out, m)
	}
	return out, nil
}

func wrapInvalidSpec(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("Analysis spec invalid: %w", err) //nolint:staticcheck // the text is part of the API
}

// runDecider builds the decision about an AnalysisRun.
type runDecider struct {
	snapshot    Snapshot
	decision    Decision
	terminating bool
}

// UsesJobs reports whether a run has metrics with the provider job.
func UsesJobs(spec argov1.AnalysisRunSpec) bool {
	return slices.ContainsFunc(spec.Metrics, func(m argov1.Metric) bool { return m.Provider.Job != nil })
}

// completeRun sets the final phase of the run.
func (r *runDecider) completeRun(phase argov1.AnalysisPhase, message string) Decision {
	status := &r.decision.Status
	if status.Message == "" {
		status.Message = message
	}
	if status.Message == "" && r.snapshot.Spec.Terminate {
		status.Message = "Run Terminated"
	}
	status.Message = release.Truncate(status.Message, MaxTextBytes)
	status.Phase, status.CompletedAt = phase, new(metav1.NewTime(r.snapshot.Now))
	r.addEvent("AnalysisRun", "Analysis Completed. Result: "+string(phase), phase)
	if UsesJobs(r.snapshot.Spec) {
		r.decision.Effects = append(r.decision.Effects, ActiveJobsDeleted{})
	}
	r.decision.Queries, r.decision.Wake = nil, r.snapshot.Now // the next reconciliation decides when to delete the run
	return r.decision
}

// addEvent adds an event about a final phase. The reason consists of the subject, such as AnalysisRun, and the phase.
func (r *runDecider) addEvent(subject, message string, phase argov1.AnalysisPhase) {
	kind := release.Normal
	if phase == argov1.AnalysisPhaseFailed || phase == argov1.AnalysisPhaseError {
		kind = release.Warning
	}
	r.decision.Events = append(r.decision.Events, release.Event{Type: kind, Reason: subject + string(phase), Message: message, Phase: string(phase)})
}

// reportShortIntervals reports the metrics whose interval is below the minimum.
func (r *runDecider) reportShortIntervals(metrics []argov1.Metric) {
	for _, m := range metrics {
		if _, tooShort := measurementInterval(m); tooShort {
			r.decision.Events = append(r.decision.Events, release.Event{Type: release.Warning, Reason: "IntervalTooShort", Message: fmt.Sprintf(
				"Metric '%s' is measured every %s: its interval %s is below the minimum", m.Name, minInterval, m.Interval,
			)})
		}
	}
}

// metricResult returns the result of a metric in the status. It is created if it does not exist.
func (r *runDecider) metricResult(m argov1.Metric) *argov1.MetricResult {
	results := &r.decision.Status.MetricResults
	i := slices.IndexFunc(*results, func(result argov1.MetricResult) bool { return result.Name == m.Name })
	if i < 0 {
		i = len(*results)
		*results = append(*results, argov1.MetricResult{Name: m.Name, Phase: argov1.AnalysisPhasePending})
	}
	(*results)[i].DryRun = isDryRun(r.snapshot.Spec, m.Name)
	return &(*results)[i]
}

// processMetric records the answer about a metric, if there is one, sends the next query if it is due, and assesses the
// metric.
func (r *runDecider) processMetric(m argov1.Metric) {
	result := r.metricResult(m)
	if result.Phase.Completed() {
		r.addGate(release.NewPassingGate(m.Name, string(result.Phase)))
		return
	}
	request, due, ok := r.nextMeasurement(m, result)
	if ok && !due.After(r.snapshot.Now) {
		query := release.Query{ID: r.queryID(m, result, request), Request: request}
		if answer, answered := r.snapshot.Answers[query.ID]; answered && !answer.FinishedAt.IsZero() {
			r.recordResult(m, result, request, answer)
			request, due, ok = r.nextMeasurement(m, result)
			query = release.Query{ID: r.queryID(m, result, request), Request: request}
		}
		if ok && !due.After(r.snapshot.Now) {
			r.addGate(release.NewQueryGate(m.Name, query, "measurement in progress"))
			r.decision.Queries = append(r.decision.Queries, query)
		}
	}
	if ok && due.After(r.snapshot.Now) {
		text := "next measurement at " + due.UTC().Format(time.RFC3339)
		if _, tooShort := measurementInterval(m); tooShort {
			text += fmt.Sprintf("; the interval %s is below the minimum of %s", m.Interval, minInterval)
		}
		r.addGate(release.NewTimedGate(m.Name, due, text))
		if r.decision.Wake.IsZero() || due.Before(r.decision.Wake) {
			r.decision.Wake = due
		}
	}
	r.completeMetric(m, result)
}

func (r *runDecider) addGate(g release.Gate) { r.decision.Gates = append(r.decision.Gates, g) }

// queryID returns the ID of a query. It consists of the number of the measurement and the time of its last check, so
// that a query that is submitted repeatedly is sent only once.
func (r *runDecider) queryID(m argov1.Metric, result *argov1.MetricResult, q MeasurementRequest) string {
	id := fmt.Sprintf("%s/%s/%d", r.snapshot.UID, m.Name, result.Count+result.Error)
	switch {
	case q.Terminate:
		return id + "/terminate"
	case q.InProgress != nil && q.InProgress.ResumeAt != nil:
		return id + "/" + q.InProgress.ResumeAt.UTC().Format(time.RFC3339)
	default:
		return id
	}
}

// nextMeasurement returns the next query about a metric, and when to send it; false: there is none.
func (r *runDecider) nextMeasurement(m argov1.Metric, result *argov1.MetricResult) (q MeasurementRequest, at time.Time, ok bool) {
	newest, l := newestMeasurement(result), newMetricLimits(m)
	q.Metric, q.Number = m, int(result.Count+result.Error)+1
	switch {
	case newest != nil && !newest.Phase.Completed():
		q.InProgress, q.Terminate = newest, r.terminating
		if newest.ResumeAt != nil && !r.terminating && !r.snapshot.EndedMeasurements[m.Name] {
			at = newest.ResumeAt.Time
		}
		return q, at, true
	case r.terminating:
		return q, at, false
	case newest == nil:
		delay, _ := parseDuration(m.InitialDelay)
		return q, r.decision.Status.StartedAt.Add(delay), true
	}
	if phase, _ := assessMetric(m, result, false); phase.Completed() || l.desiredCount(m) > 0 && int(result.Count) >= l.desiredCount(m) {
		return q, at, false
	}
	interval, _ := measurementInterval(m)
	if newest.Phase == argov1.AnalysisPhaseError || interval == 0 {
		interval = retryInterval
	}
	if newest.FinishedAt == nil { // written by a user
		return q, r.snapshot.Now, true
	}
	return q, newest.FinishedAt.Add(interval), true
}

// recordResult records an answer in the status.
func (r *runDecider) recordResult(m argov1.Metric, result *argov1.MetricResult, q MeasurementRequest, a MeasurementResult) {
	measured := argov1.Measurement{
		Phase: a.Phase, Message: a.Message, Value: a.Value, Metadata: a.Metadata, StartedAt: new(metav1.NewTime(a.StartedAt)),
	}
	if q.InProgress != nil {
		measured.StartedAt = q.InProgress.StartedAt
		if a.Metadata == nil {
			measured.Metadata = q.InProgress.Metadata
		}
		result.Measurements = result.Measurements[:len(result.Measurements)-1]
	}
	if q.Terminate && (measured.Phase == argov1.AnalysisPhaseSuccessful || measured.Phase == argov1.AnalysisPhaseInconclusive) {
		measured.Message = "Metric Terminated"
	}
	if measured.Phase.Completed() {
		measured.FinishedAt = new(metav1.NewTime(a.FinishedAt))
		countMeasurement(result, measured.Phase)
		result.Message = measured.Message
	} else {
		measured.ResumeAt = new(metav1.NewTime(nextResumeTime(q.InProgress, a)))
	}
	switch {
	case len(m.Provider.Plugin) == 0:
		result.Metadata = metricMetadata(m)
	case a.MetricMetadata != nil:
		result.Metadata = a.MetricMetadata
	}
	result.Measurements = append(result.Measurements, measured)
	if surplus := len(result.Measurements) - MeasurementLimit(r.snapshot.Spec, m.Name); surplus > 0 {
		r.decision.Effects = append(r.decision.Effects, MeasurementJobsDeleted{Metric: m.Name, Measurements: slices.Clone(result.Measurements[:surplus])})
		result.Measurements = slices.Delete(result.Measurements, 0, surplus)
	}
}

// nextResumeTime returns the time at which a measurement is checked again. It is in a later second than the last check:
// the ID of the query contains that time in seconds, and a query with the same ID would not be sent again.
func nextResumeTime(inProgress *argov1.Measurement, a MeasurementResult) time.Time {
	at := a.ResumeAt
	if at.IsZero() {
		at = a.FinishedAt.Add(retryInterval)
	}
	if inProgress != nil && inProgress.ResumeAt != nil && !at.Truncate(time.Second).After(inProgress.ResumeAt.Time) {
		at = inProgress.ResumeAt.Add(time.Second)
	}
	return at
}

// The keys of metric metadata that Argo Rollouts defines.
const (
	prometheusQueryKey = "ResolvedPrometheusQuery"
	newRelicQueryKey   = "ResolvedNewRelicQuery"
)

// ResolvedQuery returns the query of a metric with the values of its arguments; empty: its provider records none.
func ResolvedQuery(result argov1.MetricResult) string {
	return cmp.Or(result.Metadata[prometheusQueryKey], result.Metadata[newRelicQueryKey])
}

// metricMetadata returns the metadata of a metric that the API defines: the query, with the values of its arguments.
func metricMetadata(m argov1.Metric) map[string]string {
	switch p := m.Provider; {
	case p.Prometheus != nil && p.Prometheus.Query != "":
		return map[string]string{prometheusQueryKey: p.Prometheus.Query}
	case p.NewRelic != nil && p.NewRelic.Query != "":
		return map[string]string{newRelicQueryKey: p.NewRelic.Query}
	default:
		return nil
	}
}

// completeMetric sets the phase of a metric. If a limit is exceeded, it sets the message of the run, or of the metric
// if it is a dry-run metric.
func (r *runDecider) completeMetric(m argov1.Metric, result *argov1.MetricResult) {
	phase, cause := assessMetric(m, result, r.terminating)
	result.Phase = phase
	if !phase.Completed() {
		return
	}
	r.addEvent("Metric", fmt.Sprintf("Metric '%s' Completed. Result: %s", m.Name, phase), phase)
	if cause == "" {
		return
	}
	if r.decision.Wake = r.snapshot.Now; result.DryRun {
		result.Message = fmt.Sprintf("Metric assessed %s due to %s", phase, cause)
		return
	}
	message := fmt.Sprintf("Metric %q assessed %s due to %s", m.Name, phase, cause)
	if result.Message != "" {
		message += fmt.Sprintf(": \"Error Message: %s\"", result.Message)
	}
	r.decision.Status.Message = message
}

// decideCompletedRun decides about a complete run. It is deleted when the time in spec.ttlStrategy has elapsed.
func decideCompletedRun(s Snapshot) Decision {
	d := Decision{Status: s.Status}
	if s.HasActiveJobs { // a Job whose creation was in progress when the run ended
		d.Effects = append(d.Effects, ActiveJobsDeleted{})
	}
	ttl := s.Spec.TTLStrategy
	if ttl == nil || s.Status.CompletedAt == nil {
		return d
	}
	seconds := ttl.SecondsAfterCompletion
	switch {
	case s.Status.Phase == argov1.AnalysisPhaseSuccessful && ttl.SecondsAfterSuccess != nil:
		seconds = ttl.SecondsAfterSuccess
	case s.Status.Phase == argov1.AnalysisPhaseFailed && ttl.SecondsAfterFailure != nil:
		seconds = ttl.SecondsAfterFailure
	}
	if seconds == nil {
		return d
	}
	// Argo Rollouts deletes the run when the number of whole elapsed seconds exceeds the limit.
	until := s.Status.CompletedAt.Add((time.Duration(*seconds) + 1) * time.Second)
	if s.Now.Before(until) {
		d.Gates = release.Gates{release.NewTimedGate("kept", until, "retained until "+until.UTC().Format(time.RFC3339))}
		d.Wake = until
		return d
	}
	d.Effects = append(d.Effects, RunDeleted{})
	return d
}
