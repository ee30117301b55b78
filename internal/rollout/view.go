package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// View describes the release of a Rollout to users. unread are the parts of the snapshot that could not be read: if
// there are any, the view is based on the status only.
func View(s Snapshot, unread ...release.Part) release.View {
	kinds := GateKinds()
	if len(unread) > 0 {
		v := newView(s, storedGates(s.Status, kinds, func(string) bool { return true }))
		if len(v.Gates) > 0 {
			v.Upcoming = timedSteps(s, &v)
		}
		return v
	}
	s, gates := decideForView(s)
	// Only the reconciler knows that the API server rejected a ReplicaSet.
	views := storedGates(s.Status, kinds, func(name string) bool { return name == "refused" })
	for _, gate := range gates {
		views = append(views, viewOf(gate, s, kinds))
	}
	v := newView(s, views)
	v.Upcoming = timedSteps(s, &v)
	return v
}

// ViewWithOtherController describes a Rollout that another controller reconciles. sign describes how that controller was
// detected; its gates and its next steps are unknown. until is the time at which the sign expires; zero: never.
func ViewWithOtherController(s Snapshot, sign string, until time.Time) release.View {
	v := newView(s, []release.GateView{viewOf(OtherControllerGate(sign, until), s, GateKinds())})
	if v.Result == release.RolledBack {
		v.State = release.Idle
	}
	return v
}

func newView(s Snapshot, gates []release.GateView) release.View {
	index, total := StepPosition(s.Spec, s.Status)
	v := release.View{
		Phase: string(s.Status.Phase), Since: phaseSince(s.Status), Message: s.Status.Message, Revision: s.Hash, Promoted: s.Status.StableRS,
		TimedOut: IsTimedOut(s.Status) && s.Status.CurrentPodHash == s.Hash, Weight: int(TrafficShare(s)), TotalSteps: total, Gates: gates, ApprovalGates: approvalGates(s.Spec),
	}
	if index != nil && !isAborted(s) {
		v.Step = min(int(*index)+1, total)
	}
	switch {
	case isReleased(s):
		v.Result = release.Promoted
	case isAborted(s):
		v.Result = release.RolledBack
	}
	v.State = stateOf(s, &v)
	return v
}

// stateOf returns the state of a release. An aborted release is idle as soon as all traffic has returned to the stable
// revision.
func stateOf(s Snapshot, v *release.View) release.State {
	aborted := v.Result == release.RolledBack
	switch {
	case v.Result == release.Promoted, aborted && len(remainingSteps(s)) == 0:
		return release.Idle
	case aborted && !s.Spec.Paused:
		return release.RollingBack
	case v.WaitsForUser():
		return release.WaitsForUser
	default:
		return release.InProgress
	}
}

// timedSteps returns the steps that follow, with their earliest times. The first one follows the gates that time opens.
func timedSteps(s Snapshot, v *release.View) []release.Step {
	if v.State == release.Idle || v.TimedOut { // without progress, an estimate would be wrong
		return nil
	}
	var steps []release.Step
	at := v.TimedGatesOpenAt(s.Now)
	for _, step := range remainingSteps(s) {
		steps = append(steps, release.Step{Text: step.text, Weight: int(step.weight), At: at})
		at = at.Add(step.duration)
	}
	return steps
}

// maxRecordings is the maximum number of consecutive decisions that only write the status.
const maxRecordings = 5

// decideForView returns the snapshot with the status that follows from it, and the gates before the next step.
func decideForView(s Snapshot) (Snapshot, release.Gates) {
	var d Decision
	for range maxRecordings {
		d = Next(s)
		isSettled := len(d.Gates) > 0 || equality.Semantic.DeepEqual(d.Status, s.Status)
		s.Status = d.Status
		if isSettled {
			break
		}
	}
	return s, d.Gates
}

// viewOf returns the view of a gate. It omits the time at which a gate that the cluster opens is evaluated again.
func viewOf(gate release.Gate, s Snapshot, kinds release.GateKinds) release.GateView {
	if gate.Opener == release.ByCluster {
		gate.Until = time.Time{}
	}
	return release.GateView{Gate: gate, Kind: kinds.Of(gate.Name), Run: analysisRunOfGate(gate.Name, s)}
}

// storedGates returns the gates in the status with these names.
func storedGates(status argov1.RolloutStatus, kinds release.GateKinds, include func(name string) bool) []release.GateView {
	if status.Serin == nil {
		return nil
	}
	var views []release.GateView
	for _, g := range status.Serin.Gates {
		if !include(g.Name) {
			continue
		}
		views = append(views, release.GateView{
			Gate: release.Gate{
				Name: g.Name, Verdict: release.Verdict(g.Verdict), Message: g.Message, Opener: release.Opener(g.Opener), Until: timeOf(g.Until),
				Value: g.Value, Limit: g.Limit, Query: g.Query,
			},
			Kind: kinds.Of(g.Name), Since: timeOf(g.Since),
		})
	}
	return views
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// analysisRunOfGate returns the name of the AnalysisRun that a gate evaluates; empty: none. For an abort, it is the run that
// caused it.
func analysisRunOfGate(gate string, s Snapshot) string {
	var recordedRun *argov1.RolloutAnalysisRunStatus
	switch gate {
	case "analysis":
		recordedRun = s.Status.Canary.CurrentStepAnalysisRunStatus
	case "background":
		recordedRun = s.Status.Canary.CurrentBackgroundAnalysisRunStatus
	case "pre-promotion":
		recordedRun = s.Status.BlueGreen.PrePromotionAnalysisRunStatus
	case "post-promotion":
		recordedRun = s.Status.BlueGreen.PostPromotionAnalysisRunStatus
	case "aborted":
		return newestFailedRun(s)
	}
	if recordedRun == nil {
		return ""
	}
	return recordedRun.Name
}

// newestFailedRun returns the newest failed AnalysisRun of the new revision.
func newestFailedRun(s Snapshot) string {
	var newest AnalysisRun
	for _, run := range s.AnalysisRuns {
		failed := run.Phase == argov1.AnalysisPhaseFailed || run.Phase == argov1.AnalysisPhaseError
		if failed && run.Hash == s.Hash && (newest.Name == "" || newest.Created.Before(run.Created)) {
			newest = run
		}
	}
	return newest.Name
}

// phaseSince returns when the release entered its phase, if the status shows it; zero: unknown.
func phaseSince(status argov1.RolloutStatus) time.Time {
	condition := argov1.RolloutProgressing
	switch {
	case status.Phase == argov1.RolloutPhasePaused && len(status.PauseConditions) > 0:
		return status.PauseConditions[0].StartTime.Time
	case status.Phase == argov1.RolloutPhaseDegraded && status.AbortedAt != nil:
		return status.AbortedAt.Time
	case status.Phase == argov1.RolloutPhaseHealthy:
		return releaseEnd(status)
	case status.Phase == argov1.RolloutPhaseProgressing && status.Duration != nil && status.Duration.RolloutStartedAt != nil:
		return status.Duration.RolloutStartedAt.Time
	}
	if c := conditions(status.Conditions).find(condition); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// releaseEnd returns when the last release was promoted and had all its pods, if the status shows it; zero: unknown. The condition Healthy
// changes later: when the pods of the previous revision have ended.
func releaseEnd(status argov1.RolloutStatus) time.Time {
	var end time.Time
	if c := conditions(status.Conditions).find(argov1.RolloutCompleted); c != nil && c.Status == conditionStatus(true) {
		end = c.LastTransitionTime.Time
	}
	if d := status.Duration; d != nil && d.FinishedAt != nil {
		end = release.LaterOf(end, d.FinishedAt.Time)
	}
	if c := conditions(status.Conditions).find(argov1.RolloutHealthy); end.IsZero() && c != nil && c.Status == conditionStatus(true) {
		end = c.LastTransitionTime.Time
	}
	return end
}

// TrafficShare returns the share of the requests that the new revision receives, in percent: by the weight of the router, by
// the selector of the active Service, or otherwise by the available pods. It is 0 if there is no other revision.
func TrafficShare(s Snapshot) int32 {
	f := observeFacts(s)
	weights := f.Status.Canary.Weights
	switch {
	case isPromoted(f.Status) && f.Status.CurrentPodHash == s.Hash, f.Status.StableRS == "", f.Status.CurrentPodHash != s.Hash:
		return 0
	case s.Spec.Strategy.BlueGreen != nil && f.Status.BlueGreen.ActiveSelector == f.Hash:
		return pods.DefaultMaxWeight
	case s.Spec.Strategy.BlueGreen != nil:
		return 0
	case f.usesRouter() && weights != nil:
		return weights.Canary.Weight * pods.DefaultMaxWeight / max(pods.MaxWeight(s.Spec.Strategy.Canary), 1)
	case f.usesRouter():
		return 0
	}
	total := int32(0)
	for _, rs := range f.ReplicaSets {
		total += rs.Available
	}
	return f.new.Available * pods.DefaultMaxWeight / max(total, 1)
}

// isReleased reports whether the newest revision is the stable one and has all its pods, regardless of spec.paused.
func isReleased(s Snapshot) bool {
	spec := s.Spec
	spec.Paused = false
	phase, _ := phaseOf(spec, s.Status)
	return s.ValidationError == "" && isPromoted(s.Status) && s.Status.CurrentPodHash == s.Hash && phase == argov1.RolloutPhaseHealthy
}

// IsTimedOut reports whether a Rollout is degraded because it exceeded its progress deadline. It recovers if its pods become
// available later.
func IsTimedOut(status argov1.RolloutStatus) bool {
	all := conditions(status.Conditions)
	progress := all.find(argov1.RolloutProgressing)
	return status.Phase == argov1.RolloutPhaseDegraded && progress != nil && progress.Reason == reasonDeadlineExceeded && all.find(argov1.RolloutInvalidSpec) == nil
}

// WasHealthy reports whether any revision of a Rollout ever had all its pods: the condition exists since then. The first revision is the
// stable one from the beginning, also if none of its pods ever runs.
func WasHealthy(status argov1.RolloutStatus) bool {
	return status.Phase == argov1.RolloutPhaseHealthy || conditions(status.Conditions).find(argov1.RolloutHealthy) != nil
}

// isAborted reports whether the release of the current template was aborted.
func isAborted(s Snapshot) bool {
	return s.Status.Abort && s.Status.CurrentPodHash == s.Hash && !isPromoted(s.Status)
}

// StepPosition returns the number of steps of a release and the current one, counted from 0; nil: none.
func StepPosition(spec argov1.RolloutSpec, status argov1.RolloutStatus) (index *int32, total int) {
	if spec.Strategy.Canary == nil {
		return nil, 0
	}
	return clampStepIndex(spec.Strategy.Canary.Steps, status.CurrentStepIndex), len(spec.Strategy.Canary.Steps)
}
