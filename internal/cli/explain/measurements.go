package explain

import (
	"slices"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// Series are the measured values of one check over time.
type Series struct {
	// Name of the check; Run is the AnalysisRun of a Rollout to which it belongs.
	Name string `json:"name"`
	Run  string `json:"run,omitempty"`
	// Version is the version that the query names; empty: it names none, or both.
	Version MeasuredVersion `json:"version,omitempty"`
	// Subject is what is measured: the name without the words for versions. Series of both versions have the same subject.
	Subject string `json:"subject"`
	// Limit of the check, and its query with resolved variables. Bounds are the numbers in the limit, in the unit of the values.
	Limit  string    `json:"limit,omitempty"`
	Bounds []float64 `json:"bounds,omitempty"`
	Query  string    `json:"query,omitempty"`
	// Unit of the numbers: %, s, or empty.
	Unit string `json:"unit,omitempty"`
	// Points are sorted by time.
	Points []Point `json:"points"`
}

// Point is one measured value.
type Point struct {
	At time.Time `json:"at"`
	// Value as the metrics provider returned it; empty: it returned none. Number is the number in it; nil: there is none.
	Value  string   `json:"value,omitempty"`
	Number *float64 `json:"number,omitempty"`
	// Verdict is pass or fail; empty: neither.
	Verdict string `json:"verdict,omitempty"`
	// Message explains a missing value.
	Message string `json:"message,omitempty"`
}

// MeasuredVersion is one of the two versions of a release.
type MeasuredVersion string

// The versions.
const (
	NewVersion    MeasuredVersion = "new"
	StableVersion MeasuredVersion = "stable"
)

// versionIn returns the version that a query names: the one whose names it contains. The names of one version may begin with those
// of the other, as cart-primary begins with cart.
func versionIn(query string, newNames, stableNames []string) MeasuredVersion {
	rest, isStable := query, false
	for _, name := range stableNames {
		if name != "" && strings.Contains(rest, name) {
			rest, isStable = strings.ReplaceAll(rest, name, ""), true
		}
	}
	isNew := slices.ContainsFunc(newNames, func(name string) bool { return name != "" && strings.Contains(rest, name) })
	switch {
	case isNew && !isStable:
		return NewVersion
	case isStable && !isNew:
		return StableVersion
	default:
		return ""
	}
}

// versionWords are the words in the names of checks that distinguish versions.
var versionWords = []string{"baseline", "canary", "current", "latest", "new", "primary", "stable"}

// subjectOf returns the name of a check without the words for versions.
func subjectOf(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '_' || r == ' ' })
	words = slices.DeleteFunc(words, func(word string) bool { return slices.Contains(versionWords, strings.ToLower(word)) })
	if len(words) == 0 {
		return name
	}
	return strings.Join(words, "-")
}

// finish derives the subject, the unit, the bounds and the numbers of a series. A value in another unit than the first one is not
// comparable and has no number.
func (s Series) finish() Series {
	s.Subject = subjectOf(s.Name)
	isKnown := false
	for i := range s.Points {
		point := &s.Points[i]
		if point.Number != nil {
			isKnown = true
			continue
		}
		n, ok := parseNumber(point.Value)
		if !ok || isKnown && n.unit != s.Unit {
			continue
		}
		s.Unit, isKnown = n.unit, true
		point.Number = &n.value
	}
	s.Bounds = boundsIn(s.Limit, s.Unit)
	return s
}

// Measurements implements Observation. The status of a Canary contains only the last value of each check, without its time.
func (observed *Canary) Measurements(r *Release) []Series {
	var out []Series
	for _, gate := range r.Gates {
		if !gate.Check || gate.Value == "" && gate.LastVerdict == "" {
			continue
		}
		point := Point{Value: gate.Value, Verdict: gate.LastVerdict}
		if gate.Verdict == string(release.Pass) || gate.Verdict == string(release.Fail) {
			point.Verdict = gate.Verdict
		}
		if gate.Value == "" {
			point.Message = gate.Message
			if _, last, ok := strings.Cut(gate.Message, lastAnswer); ok {
				point.Message = last
			}
		}
		out = append(out, Series{Name: gate.Name, Version: observed.versionOf(gate), Limit: gate.Limit, Query: gate.Query, Points: []Point{point}}.finish())
	}
	return out
}

// lastAnswer precedes the last answer in the message of a check that is measured again.
const lastAnswer = "; the last answer: "

// versionOf returns the version that a check measures. Those that are built in measure the canary.
func (observed *Canary) versionOf(gate Gate) MeasuredVersion {
	plan := observed.Snapshot.Plan
	if slices.ContainsFunc(plan.Checks, func(check canary.Check) bool { return check.Metric.Name == gate.Name && check.Source == canary.Builtin }) {
		return NewVersion
	}
	if plan.Target == "" {
		return ""
	}
	return versionIn(gate.Query, []string{plan.Target}, []string{plan.Target + "-primary"})
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
			if observed.Snapshot.Hash != observed.Snapshot.Status.StableRS {
				s.Version = versionIn(s.Query, []string{observed.Snapshot.Hash}, []string{observed.Snapshot.Status.StableRS})
			}
			for _, m := range result.Measurements {
				if m.FinishedAt == nil {
					continue
				}
				s.Points = append(s.Points, Point{
					At: toUTC(m.FinishedAt.Time), Value: release.Truncate(strings.TrimSpace(m.Value), maxValueLength), Verdict: string(measurementVerdict(m.Phase)), Message: m.Message,
				})
			}
			out = append(out, s.finish())
		}
	}
	return out
}

// maxPoints is the maximum number of points of a series that a Recorder retains, maxSeries that of series.
const (
	maxPoints = 300
	maxSeries = 100
)

// WeightPoint is the share of requests of the new revision from a time on.
type WeightPoint struct {
	At     time.Time `json:"at"`
	Weight int       `json:"weight"`
}

// Recorder records what the status of a release contains only for the moment: weights, and the values of checks. A recording begins
// with the release, or with the first observation of it, and is bounded. The zero value is ready for use.
type Recorder struct {
	run    string
	Weight []WeightPoint
	Series []Series
	// isInterrupted is true if the release was not observed before the next state.
	isInterrupted bool
	// window is the start of the current observation window of a Canary; zero: none is open.
	window time.Time
}

// Interrupt records that the release is not observed until the next call of Record, so that values in between may be missing.
func (rec *Recorder) Interrupt() { rec.isInterrupted = true }

// Record adds the state of a release at that time.
func (rec *Recorder) Record(observed Observation, r *Release, now time.Time) {
	if run := r.Run + " " + r.Revision; run != rec.run {
		*rec = Recorder{run: run}
	}
	if n := len(rec.Weight); n == 0 || rec.Weight[n-1].Weight != r.Weight {
		rec.Weight = lastPoints(append(rec.Weight, WeightPoint{At: now.UTC(), Weight: r.Weight}), maxPoints)
	}
	before := rec.window
	rec.window = time.Time{}
	if r.Window != nil {
		rec.window = r.Window.Start
	}
	for _, s := range observed.Measurements(r) {
		rec.recordSeries(s, !before.IsZero() && !before.Equal(rec.window), now.UTC())
	}
	rec.isInterrupted = false
}

// recordSeries adds the points of a series that are newer than the recorded ones. A point without a time was measured now if its
// window has just ended, or if it differs from the last one: a check has one value for each window.
func (rec *Recorder) recordSeries(s Series, windowEnded bool, now time.Time) {
	i := slices.IndexFunc(rec.Series, func(known Series) bool { return known.Name == s.Name && known.Run == s.Run })
	if i < 0 {
		rec.Series = lastPoints(append(rec.Series, Series{Name: s.Name, Run: s.Run, Points: []Point{}}), maxSeries)
		i = len(rec.Series) - 1
	}
	recorded := rec.Series[i].Points
	for _, point := range s.Points {
		var last *Point
		if n := len(recorded); n > 0 {
			last = &recorded[n-1]
		}
		if point.At.IsZero() {
			if last != nil && !windowEnded && last.Value == point.Value && last.Verdict == point.Verdict {
				continue
			}
			if last != nil && rec.isInterrupted && last.At.Before(now) {
				recorded = append(recorded, Point{At: now.Add(-time.Millisecond), Message: "not observed by the dashboard"})
			}
			point.At = now
		}
		if last == nil || last.At.Before(point.At) {
			point.Number = nil // its unit may not be that of the series
			recorded = lastPoints(append(recorded, point), maxPoints)
		}
	}
	s.Points, s.Unit = recorded, rec.Series[i].Unit
	rec.Series[i] = s.finish()
}

func lastPoints[T any](points []T, limit int) []T { return points[max(0, len(points)-limit):] }
