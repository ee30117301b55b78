package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// History is the document of history -o json and -o yaml. Fields are added to it, never renamed or removed.
type History struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Releases are the releases that are known, newest first. The first one may be in progress.
	Releases []PastRelease `json:"releases"`
}

// PastRelease is one release in a history.
type PastRelease struct {
	// Revision is Serin's hash of a Canary's target, or the revision number of a Rollout.
	Revision string   `json:"revision"`
	Images   []string `json:"images,omitempty"`
	// Start is when the release began; that of an earlier revision of a Rollout, when its ReplicaSet was created.
	Start time.Time `json:"start"`
	// End is zero if the release is in progress, and for an earlier revision of a Rollout, whose objects do not contain it.
	End time.Time `json:"end,omitzero"`
	// Result is promoted, unanalyzed, failed, canceled, superseded or in progress; empty: not known. A Rollout retains only the
	// results of its stable and of its current revision, and failures while their AnalysisRuns exist.
	Result string `json:"result,omitempty"`
	// MaxWeight is the highest weight of a Canary, in percent.
	MaxWeight int `json:"maxWeight,omitempty"`
	// Cause is why it failed.
	Cause *flaggerv1.ReleaseCause `json:"cause,omitempty"`
	// Command is the last command of a user that was executed, for example abort, or approve GATE.
	Command string `json:"command,omitempty"`
	// CommandBy is the user who sent it and the reason, as USER: REASON; empty: not known.
	CommandBy string `json:"commandBy,omitempty"`
}

// InProgress is the result of a release that has not ended.
const InProgress = "in progress"

// CanaryHistory returns the releases in the status of a Canary.
func CanaryHistory(object *flaggerv1.Canary) History {
	h := History{Kind: KindCanary, Namespace: object.Namespace, Name: object.Name, Releases: []PastRelease{}}
	if object.Status.Serin == nil {
		return h
	}
	if current := object.Status.Serin.Release; current != nil {
		h.Releases = append(h.Releases, pastRelease(*current))
	}
	for _, record := range object.Status.Serin.History {
		h.Releases = append(h.Releases, pastRelease(record))
	}
	return h
}

// RequestText describes who sent the last command and why; empty: not known.
func (r PastRelease) RequestText() string {
	if r.Command == "" || r.CommandBy == "" {
		return ""
	}
	return r.Command + " requested by " + r.CommandBy
}

func pastRelease(r flaggerv1.ReleaseRecord) PastRelease {
	past := PastRelease{
		Revision: r.Revision, Images: r.Images, Start: toUTC(r.Start.Time), Result: cmp.Or(r.Result, InProgress),
		MaxWeight: r.MaxWeight, Cause: r.Cause, Command: r.Command, CommandBy: r.CommandBy,
	}
	if r.End != nil {
		past.End = toUTC(r.End.Time)
	}
	return past
}

// RolloutHistory returns the releases of a Rollout, of which its ReplicaSets and AnalysisRuns remain.
func RolloutHistory(object *argov1.Rollout, sets []appsv1.ReplicaSet, runs []argov1.AnalysisRun) History {
	h := History{Kind: KindRollout, Namespace: object.Namespace, Name: object.Name, Releases: []PastRelease{}}
	for i := range sets {
		h.Releases = append(h.Releases, rolloutRelease(object, &sets[i], runs))
	}
	slices.SortStableFunc(h.Releases, func(a, b PastRelease) int { return cmp.Compare(revisionNumber(b), revisionNumber(a)) })
	return h
}

func revisionNumber(r PastRelease) int64 { return parseRevision(r.Revision) }

func rolloutRelease(object *argov1.Rollout, set *appsv1.ReplicaSet, runs []argov1.AnalysisRun) PastRelease {
	r := PastRelease{Revision: set.Annotations[argov1.RevisionAnnotation], Images: ImagesOf(set.Spec.Template), Start: toUTC(set.CreationTimestamp.Time)}
	status, hash := object.Status, set.Labels[argov1.PodTemplateHashLabel]
	if hash == status.CurrentPodHash {
		r = r.withDuration(status)
	}
	isFirst := !rollout.WasHealthy(status) // it is the stable one from the beginning
	switch {
	case hash == status.CurrentPodHash && rollout.IsTimedOut(status) && (hash != status.StableRS || isFirst):
		r.Result, r.Cause = string(release.EndingFailed), &flaggerv1.ReleaseCause{Message: status.Message}
		return r // a retry has the failed runs of the earlier attempts
	case hash == status.StableRS && hash == status.CurrentPodHash && isFirst:
		r.Result = InProgress
	case hash == status.StableRS && isFirst: // it is not known whether it ever served
		return r
	case hash == status.StableRS:
		r.Result = string(release.EndingPromoted)
	case hash == status.CurrentPodHash && status.Abort:
		r.Result, r.Cause = string(release.EndingFailed), &flaggerv1.ReleaseCause{Message: cmp.Or(status.Message, "the release was aborted")}
	case hash == status.CurrentPodHash:
		r.Result = InProgress
	}
	if r.Result == string(release.EndingPromoted) || r.Result == InProgress { // a retry has the failed runs of the earlier attempts
		return r
	}
	if cause := failedAnalysis(hash, runs); cause != nil {
		r.Result, r.Cause = string(release.EndingFailed), cause
	}
	return r
}

// withDuration returns the release of the current revision with its start and end, if the status records them: the ReplicaSet of a revision
// that is released again is older. The record of the previous release remains when the stable revision returns without a release, and
// continues if that happens during a release.
func (r PastRelease) withDuration(status argov1.RolloutStatus) PastRelease {
	d := status.Duration
	if d == nil || d.RolloutStartedAt == nil {
		return r
	}
	var completion argov1.CompletionStatus
	if d.CompletionStatus != nil {
		completion = *d.CompletionStatus
	}
	switch {
	case completion == argov1.CompletionAborted && !status.Abort, completion == argov1.CompletionSuperseded:
		return r
	case completion == argov1.CompletionFastRolledBack && d.FinishedAt != nil: // it returns at once
		r.Start = toUTC(d.FinishedAt.Time)
		return r
	}
	r.Start = toUTC(d.RolloutStartedAt.Time)
	if d.FinishedAt != nil {
		r.End = toUTC(d.FinishedAt.Time)
	}
	return r
}

// failedAnalysis returns the failure of the newest failed AnalysisRun of a revision; nil: none failed.
func failedAnalysis(hash string, runs []argov1.AnalysisRun) *flaggerv1.ReleaseCause {
	var newest *argov1.AnalysisRun
	for i := range runs {
		run := &runs[i]
		if run.Labels[argov1.PodTemplateHashLabel] == hash && isFailed(run.Status.Phase) && (newest == nil || newest.CreationTimestamp.Before(&run.CreationTimestamp)) {
			newest = run
		}
	}
	if newest == nil {
		return nil
	}
	cause := &flaggerv1.ReleaseCause{Message: cmp.Or(newest.Status.Message, fmt.Sprintf("AnalysisRun %s: %s", newest.Name, newest.Status.Phase))}
	for i := range newest.Spec.Metrics {
		metric := new(resolveMetric(newest.Spec.Metrics[i], newest.Spec.Args))
		if result := metricResult(newest, metric.Name); isFailed(result.Phase) && !result.DryRun {
			gate := newMetricGate(metric, result, release.Fail)
			cause.Gate, cause.Value, cause.Limit, cause.Query = result.Name, gate.Value, gate.Limit, analysis.ResolvedQuery(result)
			break
		}
	}
	return cause
}

func isFailed(phase argov1.AnalysisPhase) bool {
	return phase == argov1.AnalysisPhaseFailed || phase == argov1.AnalysisPhaseError
}
