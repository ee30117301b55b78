package analysis

import (
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// MaxTextBytes is the maximum size of a value, of a message, and of each metadata entry, in bytes: one object contains ten measurements
// of each metric.
const MaxTextBytes = 4 << 10

// maxResultBytes is the maximum size of the results of all metrics, in bytes. etcd stores no object of more than 1.5 MiB, which also
// contains the spec. A failure that cannot be stored would not end the run, and the release that depends on it would continue.
const maxResultBytes = 512 << 10

// resultOverhead and measurementOverhead are the sizes of a result and of a measurement without their texts, in bytes.
const (
	resultOverhead      = 250
	measurementOverhead = 150
)

// removable is what the result of a metric may lose, because no decision depends on it.
type removable struct {
	result *argov1.MetricResult
	// measurements and metadata are their sizes in bytes; 0: nothing is left to remove.
	measurements, metadata int
	removed                []argov1.Measurement
}

func (r *removable) size() int { return r.measurements + r.metadata }

// removeNext removes the metadata of the metric if it is larger than the measurements, or the oldest measurement. The newest one
// decides about the next one with its phase, its times and, while it is in progress, its metadata: only its texts are removed, after
// its end. removeNext returns the number of removed bytes.
func (r *removable) removeNext() int {
	result, before := r.result, r.size()
	switch {
	case r.metadata > r.measurements:
		result.Metadata, r.metadata = nil, 0
	case len(result.Measurements) > 1:
		oldest := result.Measurements[0]
		result.Measurements, r.removed = result.Measurements[1:], append(r.removed, oldest)
		r.measurements -= measurementSize(oldest)
	default:
		result.Message, r.measurements = "", 0
		newest := newestMeasurement(result)
		if newest == nil {
			break
		}
		if newest.Phase.Completed() {
			r.removed = append(r.removed, *newest)
			newest.Value, newest.Message, newest.Metadata = "", "", nil
		}
		before -= measurementSize(*newest)
	}
	return before - r.size()
}

// limitResults removes measurements of the metric with the largest result, until the results of all metrics fit into the status.
func (r *runDecider) limitResults() {
	results := r.decision.Status.MetricResults
	parts, excess := make([]*removable, len(results)), -maxResultBytes
	for i := range results {
		result := &results[i]
		parts[i] = &removable{result: result, measurements: len(result.Message), metadata: metadataSize(result.Metadata)}
		for _, m := range result.Measurements {
			parts[i].measurements += measurementSize(m)
		}
		excess += resultOverhead + len(result.Name) + parts[i].size()
	}
	for excess > 0 {
		largest := slices.MaxFunc(parts, func(a, b *removable) int { return a.size() - b.size() })
		if largest.size() == 0 {
			break // see OversizedDecision
		}
		excess -= largest.removeNext()
	}
	for _, part := range parts {
		if len(part.removed) > 0 {
			r.decision.Effects = append(r.decision.Effects, MeasurementJobsDeleted{Metric: part.result.Name, Measurements: part.removed})
		}
	}
}

func measurementSize(m argov1.Measurement) int {
	return measurementOverhead + len(m.Value) + len(m.Message) + metadataSize(m.Metadata)
}

func metadataSize(metadata map[string]string) int {
	size := 0
	for key, value := range metadata {
		size += len(key) + len(value) + len(`"":"",`)
	}
	return size
}

// resultsOmitted is the message of a run whose status the API server has refused.
const resultsOmitted = "The results of the metrics are not stored, because the API server refused the AnalysisRun as too large: use fewer metrics or shorter queries"

// OversizedDecision returns the decision in place of one whose status the API server refuses because of its size. The run has
// no results then, so it ends: with the phase of the metrics that are complete if that is unsuccessful, and otherwise as an error.
func OversizedDecision(s Snapshot, refused Decision) Decision {
	r := &runDecider{snapshot: s, decision: refused}
	r.decision.Status = *refused.Status.DeepCopy()
	r.decision.Effects = nil // applied before the status was refused
	status := &r.decision.Status
	complete := slices.DeleteFunc(status.MetricResults, func(m argov1.MetricResult) bool { return !m.Phase.Completed() })
	status.MetricResults = nil
	if !status.Phase.Completed() {
		phase := assessRun(complete)
		if !isUnsuccessful(phase) {
			phase = argov1.AnalysisPhaseError
		}
		r.completeRun(phase, "")
	}
	if status.Message != "" {
		status.Message += ". "
	}
	status.Message += resultsOmitted
	return r.decision
}
