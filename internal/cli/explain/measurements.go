package explain

import (
	"slices"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/release"
)

// Series are the measured values of one check over time.
type Series struct {
	// Name of the check; Run is the AnalysisRun of a Rollout to which it belongs.
	Name string `json:"name"`
	Run  string `json:"run,omitempty"`
	// Limit of the check, and its query with resolved variables.
	Limit string `json:"limit,omitempty"`
	Query string `json:"query,omitempty"`
	// Points are sorted by time.
	Points []Point `json:"points"`
}

// Point is one measured value.
type Point struct {
	At time.Time `json:"at"`
	// Value as the metrics provider returned it; empty: it returned none.
	Value string `json:"value,omitempty"`
	// Verdict is pass or fail; empty: neither.
	Verdict string `json:"verdict,omitempty"`
	// Message explains a missing value.
	Message string `json:"message,omitempty"`
}

// Measurements implements Observation. The status of a Canary contains only the last value of each check.
func (observed *Canary) Measurements(r *Release) []Series {
	var out []Series
	for _, gate := range r.Gates {
		if !gate.Check || gate.Value == "" && gate.LastVerdict == "" {
			continue
		}
		verdict := gate.LastVerdict
		if gate.Verdict == string(release.Pass) || gate.Verdict == string(release.Fail) {
			verdict = gate.Verdict
		}
		out = append(out, Series{Name: gate.Name, Limit: gate.Limit, Query: gate.Query, Points: []Point{{At: gate.Since, Value: gate.Value, Verdict: verdict}}})
	}
	return out
}

// Measurements implements Observation: those of the AnalysisRuns of the current revision, of which each retains the last ones.
func (observed *Rollout) Measurements(*Release) []Series {
	current := map[string]bool{}
	for _, run := range observed.Snapshot.AnalysisRuns {
		current[run.Name] = run.Hash == observed.Snapshot.Hash
	}
	var out []Series
	for i := range observed.Runs {
		run := &observed.Runs[i]
		if !current[run.Name] {
			continue
		}
		for _, metric := range run.Spec.Metrics {
			metric, result := resolveMetric(metric, run.Spec.Args), metricResult(run, metric.Name)
			s := Series{Name: metric.Name, Run: run.Name, Limit: metricLimit(&metric), Query: analysis.ResolvedQuery(result), Points: []Point{}}
			for _, m := range result.Measurements {
				if m.FinishedAt == nil {
					continue
				}
				s.Points = append(s.Points, Point{
					At: toUTC(m.FinishedAt.Time), Value: release.Truncate(strings.TrimSpace(m.Value), maxValueLength), Verdict: string(measurementVerdict(m.Phase)), Message: m.Message,
				})
			}
			out = append(out, s)
		}
	}
	return out
}

// maxPoints is the maximum number of points of a series that a Recorder retains.
const maxPoints = 500

// WeightPoint is the share of requests of the new revision from a time on.
type WeightPoint struct {
	At     time.Time `json:"at"`
	Weight int       `json:"weight"`
}

// Recorder records what the status of a release contains only for the moment: weights, and the values of checks. A recording begins
// with the release, or with the first observation of it. The zero value is ready for use.
type Recorder struct {
	run    string
	Weight []WeightPoint
	Series []Series
}

// Record adds the state of a release at that time.
func (rec *Recorder) Record(observed Observation, r *Release, now time.Time) {
	if run := r.Run + " " + r.Revision; run != rec.run {
		*rec = Recorder{run: run}
	}
	if n := len(rec.Weight); n == 0 || rec.Weight[n-1].Weight != r.Weight {
		rec.Weight = lastPoints(append(rec.Weight, WeightPoint{At: now.UTC(), Weight: r.Weight}))
	}
	for _, s := range observed.Measurements(r) {
		i := slices.IndexFunc(rec.Series, func(known Series) bool { return known.Name == s.Name && known.Run == s.Run })
		if i < 0 {
			rec.Series = append(rec.Series, s)
			continue
		}
		known := &rec.Series[i]
		known.Limit, known.Query = s.Limit, s.Query
		for _, point := range s.Points {
			if n := len(known.Points); n == 0 || known.Points[n-1].At.Before(point.At) {
				known.Points = lastPoints(append(known.Points, point))
			}
		}
	}
}

func lastPoints[T any](points []T) []T { return points[max(0, len(points)-maxPoints):] }
