package analysis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot is all that is known about a run at one moment.
type Snapshot struct {
	Now    time.Time
	UID    types.UID
	Spec   argov1.AnalysisRunSpec
	Status argov1.AnalysisRunStatus
	// Answers to the questions of earlier decisions, by their IDs.
	Answers map[string]Answer
	// Settled names the metrics whose measurement under way is known to be over: it is looked at now.
	Settled map[string]bool
	// JobsGoOn is true while a Job of a run goes on that is over.
	JobsGoOn bool
}

// Answer is what became of one measurement.
type Answer struct {
	Began, Ended time.Time
	// Judged is what the measurement has come to; Running: it is looked at again at Resume.
	Judged argov1.AnalysisPhase
	// Message says why, without secrets.
	Message string
	// Text is the value as it is shown, without secrets.
	Text string
	// Metadata of the provider; nil: what was known before stays.
	Metadata map[string]string
	// Resume is when a measurement that is Running is looked at again.
	Resume time.Time
}

// Question asks for one measurement.
type Question struct {
	// Metric by its name in the spec, with the arguments that are no secrets.
	Metric argov1.Metric
	// Under is the measurement to look at again; nil: a new one is made.
	Under *argov1.Measurement
	// Number of the measurement within its metric, from 1, also over those that went wrong.
	Number int
	// Terminate asks for the end of that measurement.
	Terminate bool
}

// RunDeleted is an effect: the run is kept no longer.
type RunDeleted struct{}

func (RunDeleted) String() string { return "run deleted" }

// Forgotten is an effect: what measurements that are not kept any more have left behind is deleted.
type Forgotten struct {
	Metric       string
	Measurements []argov1.Measurement
}

func (f Forgotten) String() string {
	return fmt.Sprintf("%d measurements of %s forgotten", len(f.Measurements), f.Metric)
}

// Swept is an effect: no Job of the run goes on. A measurement may have begun whose answer never came.
type Swept struct{}

func (Swept) String() string { return "no Job goes on" }

// Decision is what follows from a snapshot of a run.
type Decision = release.Decision[argov1.AnalysisRunStatus]

// pause before a measurement is repeated that went wrong, or that has no interval.
const pause = 10 * time.Second

// minInterval is the shortest time between two measurements of a metric, whatever its interval says: each one is a call to a
// service and a write of the status. Argo Rollouts has no minimum.
const minInterval = time.Second

// intervalOf returns the time between the measurements of a metric; 0: it has no interval. short: the metric asks for less
// than the minimum.
func intervalOf(m argov1.Metric) (interval time.Duration, short bool) {
	interval, _ = duration(m.Interval)
	if interval != 0 && interval < minInterval {
		return minInterval, true
	}
	return interval, false
}

// Next decides what a run needs now. It is total: a snapshot that no healthy cluster shows has an answer too.
func Next(s Snapshot) Decision {
	if s.Status.Phase.Completed() {
		return ended(s)
	}
	r := &run{s: s, d: Decision{Status: *s.Status.DeepCopy()}}
	status := &r.d.Status
	if status.StartedAt == nil {
		status.StartedAt = new(metav1.NewTime(s.Now))
	}
	present(status, s.Now)
	if strings.HasPrefix(status.Message, faultPrefix) {
		status.Message = "" // it is mended
	}
	metrics, err := resolved(s.Spec)
	if err == nil {
		err = invalid(Validate(s.Spec, metrics))
	}
	if err != nil {
		return r.complete(argov1.AnalysisPhaseError, err.Error())
	}
	if s.Status.StartedAt == nil {
		r.reportShortIntervals(metrics)
	}
	r.terminating = s.Spec.Terminate || slices.ContainsFunc(status.MetricResults, func(m argov1.MetricResult) bool { return !m.DryRun && bad(m.Phase) })
	for _, m := range metrics {
		r.measure(m)
	}
	decide, recorded := summaries(status.MetricResults)
	status.RunSummary, status.DryRunSummary = decide, &recorded
	phase := conclude(status.MetricResults)
	if !phase.Completed() {
		status.Phase = phase
		return r.d
	}
	return r.complete(phase, "")
}

// faultPrefix begins the message of a run that Serin itself failed at.
const faultPrefix = "Fault: "

// Faulted is the decision about a run at which a pass of Serin itself broke, before or after it was decided about: all that
// is known of it is its status. The next pass that comes through takes the sentence away again.
func Faulted(status argov1.AnalysisRunStatus, sentence string) Decision {
	d := Decision{
		Status: *status.DeepCopy(), Gates: release.Gates{release.Fails("fault", release.ByPerson, sentence)},
		Events: []release.Event{{Type: release.Warning, Reason: "ReconciliationError", Message: sentence, Standing: true}},
	}
	if !status.Phase.Completed() {
		d.Status.Message = faultPrefix + sentence
	}
	return d
}

// patience is for how long a measurement under way is left alone at most.
const patience = time.Hour

// present takes what a status says of the future for the present: a clock was set back since it was written, and what
// counts from there would otherwise wait for as long as that.
func present(status *argov1.AnalysisRunStatus, now time.Time) {
	if status.StartedAt.After(now) {
		status.StartedAt = new(metav1.NewTime(now))
	}
	for i := range status.MetricResults {
		newest := last(&status.MetricResults[i])
		switch {
		case newest == nil:
		case newest.FinishedAt != nil && newest.FinishedAt.After(now):
			newest.FinishedAt = new(metav1.NewTime(now))
		case !newest.Phase.Completed() && newest.ResumeAt != nil && newest.ResumeAt.After(now.Add(patience)):
			newest.ResumeAt = new(metav1.NewTime(now))
		}
	}
}

func resolved(spec argov1.AnalysisRunSpec) ([]argov1.Metric, error) {
	out, room := make([]argov1.Metric, 0, len(spec.Metrics)), maxResolved
	for _, m := range spec.Metrics {
		m, err := resolvedWithin(&room, m, spec.Args, nil)
		if err != nil {
			return nil, fmt.Errorf("Unable to resolve metric arguments: %w", err) //nolint:staticcheck // the text is part of the API
		}
		out = append(out, m)
	}
	return out, nil
}

func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("Analysis spec invalid: %w", err) //nolint:staticcheck // the text is part of the API
}

// run is a decision in the making.
type run struct {
	s           Snapshot
	d           Decision
	terminating bool
}

// HasJobs is true of a run that measures by Jobs.
func HasJobs(spec argov1.AnalysisRunSpec) bool {
	return slices.ContainsFunc(spec.Metrics, func(m argov1.Metric) bool { return m.Provider.Job != nil })
}

// complete ends the run.
func (r *run) complete(phase argov1.AnalysisPhase, message string) Decision {
	status := &r.d.Status
	if status.Message == "" {
		status.Message = message
	}
	if status.Message == "" && r.s.Spec.Terminate {
		status.Message = "Run Terminated"
	}
	status.Phase, status.CompletedAt = phase, new(metav1.NewTime(r.s.Now))
	r.tell("AnalysisRun", "Analysis Completed. Result: "+string(phase), phase)
	if HasJobs(r.s.Spec) {
		r.d.Effects = append(r.d.Effects, Swept{})
	}
	r.d.Probes, r.d.Wake = nil, r.s.Now // how long it is kept is decided next
	return r.d
}

// tell says what something has come to, in an event whose reason is its kind and its phase.
func (r *run) tell(of, message string, phase argov1.AnalysisPhase) {
	kind := release.Normal
	if phase == argov1.AnalysisPhaseFailed || phase == argov1.AnalysisPhaseError {
		kind = release.Warning
	}
	r.d.Events = append(r.d.Events, release.Event{Type: kind, Reason: of + string(phase), Message: message, Phase: string(phase)})
}

// reportShortIntervals reports the metrics that are measured less often than they ask for.
func (r *run) reportShortIntervals(metrics []argov1.Metric) {
	for _, m := range metrics {
		if _, short := intervalOf(m); short {
			r.d.Events = append(r.d.Events, release.Event{Type: release.Warning, Reason: "IntervalTooShort", Message: fmt.Sprintf(
				"Metric '%s' is measured every %s: its interval %s is below the minimum", m.Name, minInterval, m.Interval)})
		}
	}
}

// result is what was measured of a metric so far.
func (r *run) result(m argov1.Metric) *argov1.MetricResult {
	results := &r.d.Status.MetricResults
	i := slices.IndexFunc(*results, func(result argov1.MetricResult) bool { return result.Name == m.Name })
	if i < 0 {
		i = len(*results)
		*results = append(*results, argov1.MetricResult{Name: m.Name, Phase: argov1.AnalysisPhasePending})
	}
	(*results)[i].DryRun = dry(r.s.Spec, m.Name)
	return &(*results)[i]
}

// measure takes what was answered about a metric, judges it, and asks what is due.
func (r *run) measure(m argov1.Metric) {
	result := r.result(m)
	if result.Phase.Completed() {
		r.gate(release.Passes(m.Name, string(result.Phase)))
		return
	}
	question, due, ok := r.due(m, result)
	if ok && !due.After(r.s.Now) {
		probe := release.Probe{ID: r.id(m, result, question), Question: question}
		if answer, answered := r.s.Answers[probe.ID]; answered && !answer.Ended.IsZero() {
			r.take(m, result, question, answer)
			question, due, ok = r.due(m, result)
			probe = release.Probe{ID: r.id(m, result, question), Question: question}
		}
		if ok && !due.After(r.s.Now) {
			r.gate(release.Asks(m.Name, probe, "being measured"))
			r.d.Probes = append(r.d.Probes, probe)
		}
	}
	if ok && due.After(r.s.Now) {
		text := "measured at " + due.UTC().Format(time.RFC3339)
		if _, short := intervalOf(m); short {
			text += fmt.Sprintf("; the interval %s is below the minimum of %s", m.Interval, minInterval)
		}
		r.gate(release.WaitsUntil(m.Name, due, text))
		if r.d.Wake.IsZero() || due.Before(r.d.Wake) {
			r.d.Wake = due
		}
	}
	r.assess(m, result)
}

func (r *run) gate(g release.Gate) { r.d.Gates = append(r.d.Gates, g) }

// id names a measurement within its run, so that it is made once however often it is asked for.
func (r *run) id(m argov1.Metric, result *argov1.MetricResult, q Question) string {
	id := fmt.Sprintf("%s/%s/%d", r.s.UID, m.Name, result.Count+result.Error)
	switch {
	case q.Terminate:
		return id + "/terminate"
	case q.Under != nil && q.Under.ResumeAt != nil:
		return id + "/" + q.Under.ResumeAt.UTC().Format(time.RFC3339)
	default:
		return id
	}
}

// due is the next measurement of a metric and when it is made; not ok: none is.
func (r *run) due(m argov1.Metric, result *argov1.MetricResult) (q Question, at time.Time, ok bool) {
	newest, l := last(result), limitsOf(m)
	q.Metric, q.Number = m, int(result.Count+result.Error)+1
	switch {
	case newest != nil && !newest.Phase.Completed():
		q.Under, q.Terminate = newest, r.terminating
		if newest.ResumeAt != nil && !r.terminating && !r.s.Settled[m.Name] {
			at = newest.ResumeAt.Time
		}
		return q, at, true
	case r.terminating:
		return q, at, false
	case newest == nil:
		delay, _ := duration(m.InitialDelay)
		return q, r.d.Status.StartedAt.Add(delay), true
	}
	if phase, _ := assessed(m, result, false); phase.Completed() || l.wanted(m) > 0 && int(result.Count) >= l.wanted(m) {
		return q, at, false
	}
	interval, _ := intervalOf(m)
	if newest.Phase == argov1.AnalysisPhaseError || interval == 0 {
		interval = pause
	}
	if newest.FinishedAt == nil { // somebody wrote it by hand
		return q, r.s.Now, true
	}
	return q, newest.FinishedAt.Add(interval), true
}

// take puts an answer into the status.
func (r *run) take(m argov1.Metric, result *argov1.MetricResult, q Question, a Answer) {
	measured := argov1.Measurement{
		Phase: a.Judged, Message: a.Message, Value: a.Text, Metadata: a.Metadata, StartedAt: new(metav1.NewTime(a.Began)),
	}
	if q.Under != nil {
		measured.StartedAt = q.Under.StartedAt
		if a.Metadata == nil {
			measured.Metadata = q.Under.Metadata
		}
		result.Measurements = result.Measurements[:len(result.Measurements)-1]
	}
	if q.Terminate && (measured.Phase == argov1.AnalysisPhaseSuccessful || measured.Phase == argov1.AnalysisPhaseInconclusive) {
		measured.Message = "Metric Terminated"
	}
	if measured.Phase.Completed() {
		measured.FinishedAt = new(metav1.NewTime(a.Ended))
		add(result, measured.Phase)
		result.Message = measured.Message
	} else {
		measured.ResumeAt = new(metav1.NewTime(resume(q.Under, a)))
	}
	result.Metadata = described(m)
	result.Measurements = append(result.Measurements, measured)
	if surplus := len(result.Measurements) - retention(r.s.Spec, m.Name); surplus > 0 {
		r.d.Effects = append(r.d.Effects, Forgotten{Metric: m.Name, Measurements: slices.Clone(result.Measurements[:surplus])})
		result.Measurements = slices.Delete(result.Measurements, 0, surplus)
	}
}

// resume is when a measurement is looked at again: never in the second of the last look, by which the question is named.
func resume(under *argov1.Measurement, a Answer) time.Time {
	at := a.Resume
	if at.IsZero() {
		at = a.Ended.Add(pause)
	}
	if under != nil && under.ResumeAt != nil && !at.Truncate(time.Second).After(under.ResumeAt.Time) {
		at = under.ResumeAt.Add(time.Second)
	}
	return at
}

// described is what the API promises to tell of a metric: its query, with the values of its arguments.
func described(m argov1.Metric) map[string]string {
	switch p := m.Provider; {
	case p.Prometheus != nil && p.Prometheus.Query != "":
		return map[string]string{"ResolvedPrometheusQuery": p.Prometheus.Query}
	case p.NewRelic != nil && p.NewRelic.Query != "":
		return map[string]string{"ResolvedNewRelicQuery": p.NewRelic.Query}
	default:
		return nil
	}
}

// assess gives a metric its phase, and the run its message where the metric came to a bad end.
func (r *run) assess(m argov1.Metric, result *argov1.MetricResult) {
	phase, cause := assessed(m, result, r.terminating)
	result.Phase = phase
	if !phase.Completed() {
		return
	}
	r.tell("Metric", fmt.Sprintf("Metric '%s' Completed. Result: %s", m.Name, phase), phase)
	if cause == "" {
		return
	}
	if r.d.Wake = r.s.Now; result.DryRun {
		result.Message = fmt.Sprintf("Metric assessed %s due to %s", phase, cause)
		return
	}
	message := fmt.Sprintf("Metric %q assessed %s due to %s", m.Name, phase, cause)
	if result.Message != "" {
		message += fmt.Sprintf(": \"Error Message: %s\"", result.Message)
	}
	r.d.Status.Message = message
}

// ended is a run that is over: it is deleted when it was kept for as long as its spec says.
func ended(s Snapshot) Decision {
	d := Decision{Status: s.Status}
	if s.JobsGoOn { // it was being made when the run came to its end
		d.Effects = append(d.Effects, Swept{})
	}
	keep := s.Spec.TTLStrategy
	if keep == nil || s.Status.CompletedAt == nil {
		return d
	}
	seconds := keep.SecondsAfterCompletion
	switch {
	case s.Status.Phase == argov1.AnalysisPhaseSuccessful && keep.SecondsAfterSuccess != nil:
		seconds = keep.SecondsAfterSuccess
	case s.Status.Phase == argov1.AnalysisPhaseFailed && keep.SecondsAfterFailure != nil:
		seconds = keep.SecondsAfterFailure
	}
	if seconds == nil {
		return d
	}
	// Whole seconds have to exceed the number.
	until := s.Status.CompletedAt.Add(time.Duration(*seconds+1) * time.Second)
	if s.Now.Before(until) {
		d.Gates = release.Gates{release.WaitsUntil("kept", until, "kept until "+until.UTC().Format(time.RFC3339))}
		d.Wake = until
		return d
	}
	d.Effects = append(d.Effects, RunDeleted{})
	return d
}
