package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// defaultRunHistoryLimit is the number of successful and of other completed AnalysisRuns that are retained.
const defaultRunHistoryLimit int32 = 5

// analyses are the analyses and the experiment of a release: the result of planAnalyses. Each is nil while there is
// none.
type analyses struct {
	outcome
	// step and experiment belong to the current step, background runs during all steps. pre and post run before and after
	// the switch of a blue-green release.
	step, experiment, background, pre, post *runResult
}

// planAnalyses starts the analyses and the experiment that are due now, terminates all others, and deletes those that
// are no longer needed. deleted are the names of the ReplicaSets that are being deleted.
func planAnalyses(f facts, deleted []string) analyses {
	var a analyses
	if f.Spec.Strategy.Canary != nil {
		a = planCanaryAnalyses(f)
	} else {
		a = planBlueGreenAnalyses(f)
	}
	var runs, experiments []string
	for _, result := range []*runResult{a.step, a.background, a.pre, a.post} {
		if result != nil {
			runs = append(runs, result.Name)
		}
	}
	if a.experiment != nil {
		experiments = append(experiments, a.experiment.Name)
	}
	s := f.Status
	a.outcome = joinOutcomes(a.outcome, terminateUnusedAnalyses(f, runs, experiments), deleteSurplusAnalyses(f, deleted, runs, experiments),
		reportAnalysisPhase(argov1.TypeStep, s.Canary.CurrentStepAnalysisRunStatus, a.step),
		reportAnalysisPhase(argov1.TypeBackground, s.Canary.CurrentBackgroundAnalysisRunStatus, a.background),
		reportAnalysisPhase(argov1.TypePrePromotion, s.BlueGreen.PrePromotionAnalysisRunStatus, a.pre),
		reportAnalysisPhase(argov1.TypePostPromotion, s.BlueGreen.PostPromotionAnalysisRunStatus, a.post))
	return a
}

// shouldSkipAnalyses reports whether a release needs no analyses, or no longer needs them.
func shouldSkipAnalyses(f facts) bool {
	s := f.Status
	return s.Abort || s.PromoteFull || !f.hasDistinctStable() || f.inRollbackWindow || isFastRollback(f)
}

func planCanaryAnalyses(f facts) analyses {
	var a analyses
	if shouldSkipAnalyses(f) {
		return a
	}
	c, s := f.Spec.Strategy.Canary, f.Status
	step, _ := pods.StepAt(c.Steps, s.CurrentStepIndex)
	index := valueOr(s.CurrentStepIndex, 0)
	if step.Analysis != nil && len(step.Analysis.Templates) > 0 {
		run, o := ensureAnalysisRun(f, analysisRequest{
			kind: argov1.TypeStep, step: &index, suffix: fmt.Sprintf("-%d", index), recordedRun: s.Canary.CurrentStepAnalysisRunStatus,
			analysis: *step.Analysis, deferred: len(s.PauseConditions) > 0,
		})
		a.step, a.outcome = run, joinOutcomes(a.outcome, o)
	}
	background, o := planBackgroundAnalysis(f)
	a.background, a.outcome = background, joinOutcomes(a.outcome, o)
	if step.Experiment != nil {
		experiment, o := ensureExperiment(f, *step.Experiment, index)
		a.experiment, a.outcome = experiment, joinOutcomes(a.outcome, o)
	}
	return a
}

// planBackgroundAnalysis plans the background analysis of a release that needs analyses; nil: none is due.
func planBackgroundAnalysis(f facts) (*runResult, outcome) {
	analysis := f.Spec.Strategy.Canary.Analysis
	if analysis == nil || len(analysis.Templates) == 0 || !isBackgroundAnalysisDue(f, *analysis) {
		return nil, outcome{}
	}
	return ensureAnalysisRun(f, analysisRequest{
		kind: argov1.TypeBackground, recordedRun: f.Status.Canary.CurrentBackgroundAnalysisRunStatus, analysis: analysis.RolloutAnalysis,
	})
}

// planBlueGreenAnalyses plans the analyses before and after the switch.
func planBlueGreenAnalyses(f facts) analyses {
	b, s := f.Spec.Strategy.BlueGreen, f.Status.BlueGreen
	if f.Status.AbortedAt != nil && !f.Status.Abort {
		s.PrePromotionAnalysisRunStatus, s.PostPromotionAnalysisRunStatus = nil, nil // from before the retry
	}
	active := f.selectedHash(b.ActiveService)
	a := analyses{pre: resultOfRecordedRun(f, s.PrePromotionAnalysisRunStatus), post: resultOfRecordedRun(f, s.PostPromotionAnalysisRunStatus)}
	if shouldSkipAnalyses(f) {
		return a
	}
	if b.PrePromotionAnalysis != nil && active != f.Hash && active != "" && previewReachable(f) {
		run, o := ensureAnalysisRun(f, analysisRequest{
			kind: argov1.TypePrePromotion, suffix: "-pre", recordedRun: s.PrePromotionAnalysisRunStatus, analysis: *b.PrePromotionAnalysis,
		})
		a.pre, a.outcome = run, joinOutcomes(a.outcome, o)
	}
	if b.PostPromotionAnalysis != nil && active == f.Hash && hasAllPods(f, f.new) && !f.routerUnconfirmed() {
		run, o := ensureAnalysisRun(f, analysisRequest{
			kind: argov1.TypePostPromotion, suffix: "-post", recordedRun: s.PostPromotionAnalysisRunStatus, analysis: *b.PostPromotionAnalysis,
		})
		a.post, a.outcome = run, joinOutcomes(a.outcome, o)
	}
	return a
}

// resultOfRecordedRun returns the result of the AnalysisRun that a status names: of the run itself, or the recorded
// result if the run was deleted.
func resultOfRecordedRun(f facts, status *argov1.RolloutAnalysisRunStatus) *runResult {
	if status == nil {
		return nil
	}
	if run := findAnalysisRun(f, status.Name); run != nil && !run.Deleting {
		return run.analysisResult()
	}
	return &runResult{Name: status.Name, Phase: status.Status, Message: status.Message}
}

// isBackgroundAnalysisDue reports whether the release has reached the step with which the background analysis starts.
func isBackgroundAnalysisDue(f facts, analysis argov1.RolloutAnalysisBackground) bool {
	return len(f.steps()) == 0 || valueOr(f.Status.CurrentStepIndex, 0) >= valueOr(analysis.StartingStep, 0)
}

// analysisRequest is an AnalysisRun that a release needs now.
type analysisRequest struct {
	kind        string
	step        *int32
	suffix      string
	recordedRun *argov1.RolloutAnalysisRunStatus
	analysis    argov1.RolloutAnalysis
	// deferred is true if the AnalysisRun must not be created yet.
	deferred bool
}

// ensureAnalysisRun returns the result of an analysis. If no run is current, it creates one, or uses one that was
// created for this purpose but not recorded in the status.
func ensureAnalysisRun(f facts, r analysisRequest) (*runResult, outcome) {
	var current *AnalysisRun
	if r.recordedRun != nil {
		current = findAnalysisRun(f, r.recordedRun.Name)
	}
	if current != nil && (current.Deleting || current.Step != nil && r.step != nil && *current.Step != *r.step) {
		current = nil
	}
	if current != nil && !shouldRepeatAnalysis(f, current.Phase) || r.deferred || hasPauseReason(f.Status, argov1.PauseReasonInconclusiveAnalysis) {
		if current == nil {
			return nil, outcome{}
		}
		return current.analysisResult(), outcome{}
	}
	if run := findStartedRun(f, r); run != nil {
		return run.analysisResult(), outcome{}
	}
	if name := recordedRunName(f, r); name != "" {
		if f.UnreadableTemplate != "" {
			return &runResult{Name: name}, outcome{}
		}
		return &runResult{Name: name}, outcome{trafficEffects: []release.Effect{AnalysisRunExists{
			Name: name, Hash: f.Hash, Revision: f.new.Revision, Type: r.kind, Step: r.step, Analysis: r.analysis,
			LatestHash: f.new.Hash, StableHash: f.stable.Hash,
		}}}
	}
	base := fmt.Sprintf("%s-%s-%d%s", f.Name, f.Hash, f.new.Revision, r.suffix)
	name := base
	for i := 1; findAnalysisRun(f, name) != nil; i++ {
		name = fmt.Sprintf("%s.%d", base, i)
	}
	// The status records the name before the run is created. Otherwise, another run would be created each time the status
	// cannot be written.
	return &runResult{Name: name, Planned: true}, outcome{}
}

// recordedRunName returns the name that the status records for the run of a request, and that no run has yet; "": there is none.
// The run may exist already: the watch may not have delivered it. Its name therefore does not change because a run with a lower
// number was deleted.
func recordedRunName(f facts, r analysisRequest) string {
	if r.recordedRun == nil || findAnalysisRun(f, r.recordedRun.Name) != nil {
		return ""
	}
	number, named := parseRunName(f, r.recordedRun.Name, r.suffix)
	if !named || number.revision != f.new.Revision {
		return ""
	}
	return r.recordedRun.Name
}

// findStartedRun returns an incomplete run that was created for the purpose of a request; nil: there is none. Its revision may be
// higher: the ReplicaSet of the new revision has a lower one if users deleted the newest ReplicaSets. A run with a lower revision
// is of an earlier release, and one with a lower number than the recorded name was terminated when that name was chosen. The
// list of runs may not show yet that these were terminated.
func findStartedRun(f facts, r analysisRequest) *AnalysisRun {
	var recordedNumber runNumber
	if r.recordedRun != nil && r.recordedRun.Status == "" {
		recordedNumber, _ = parseRunName(f, r.recordedRun.Name, r.suffix)
	}
	lowest := runNumber{revision: f.new.Revision}
	if lowest.isLess(recordedNumber) {
		lowest = recordedNumber
	}
	for i := range f.AnalysisRuns {
		run := &f.AnalysisRuns[i]
		number, named := parseRunName(f, run.Name, r.suffix)
		if named && !number.isLess(lowest) && run.Hash == f.Hash && run.Type == r.kind && !run.Terminated && !run.Deleting && !run.Phase.Completed() {
			return run
		}
	}
	return nil
}

// runNumber is the part of the name of a run that distinguishes it from others with the same purpose.
type runNumber struct {
	revision int64
	// number is not 0 if another run had the name without a number.
	number int
}

func (n runNumber) isLess(other runNumber) bool {
	return n.revision < other.revision || n.revision == other.revision && n.number < other.number
}

// parseRunName parses the name that ensureAnalysisRun gives a run of the new revision: its prefix, a revision, the suffix of its
// purpose, and possibly a number.
func parseRunName(f facts, name, suffix string) (n runNumber, is bool) {
	rest, is := strings.CutPrefix(name, f.Name+"-"+f.Hash+"-")
	rest, number, numbered := strings.Cut(rest, ".")
	revision, hasSuffix := strings.CutSuffix(rest, suffix)
	var err, numberErr error
	n.revision, err = strconv.ParseInt(revision, 10, 64)
	if numbered {
		n.number, numberErr = strconv.Atoi(number)
	}
	return n, is && hasSuffix && err == nil && numberErr == nil
}

func findAnalysisRun(f facts, name string) *AnalysisRun {
	for i := range f.AnalysisRuns {
		if f.AnalysisRuns[i].Name == name {
			return &f.AnalysisRuns[i]
		}
	}
	return nil
}

func (r AnalysisRun) analysisResult() *runResult {
	return &runResult{Name: r.Name, Phase: r.Phase, Message: r.Message, Metric: r.Metric}
}

// shouldRepeatAnalysis reports whether a completed analysis is repeated: the user ended the pause that an inconclusive
// one caused, or retried the release after an abort.
func shouldRepeatAnalysis(f facts, phase argov1.AnalysisPhase) bool {
	s := f.Status
	if s.ControllerPause && !hasPauseReason(s, argov1.PauseReasonCanaryPauseStep) && !hasPauseReason(s, argov1.PauseReasonBlueGreenPause) {
		return phase == argov1.AnalysisPhaseInconclusive
	}
	return s.AbortedAt != nil
}

// findRecordedExperiment returns the Experiment that the status names; nil: none.
func findRecordedExperiment(f facts) *Experiment {
	for i := range f.Experiments {
		if e := &f.Experiments[i]; e.Name == f.Status.Canary.CurrentExperiment && !e.Deleting {
			return e
		}
	}
	return nil
}

// ensureExperiment returns the result of the Experiment of a step. If no Experiment is current, it creates one.
func ensureExperiment(f facts, step argov1.RolloutExperimentStep, index int32) (*runResult, outcome) {
	base := fmt.Sprintf("%s-%s-%d-%d", f.Name, f.Hash, f.new.Revision, index)
	current := findRecordedExperiment(f)
	if current != nil && !isExperimentOfStep(f, *current, index) {
		current = nil
	}
	if current != nil && (!shouldRepeatAnalysis(f, current.Phase) || hasPauseReason(f.Status, argov1.PauseReasonInconclusiveExperiment)) {
		return &runResult{Name: current.Name, Phase: current.Phase, Message: current.Message}, outcome{}
	}
	for _, e := range f.Experiments { // including one with a numbered name
		if isExperimentOfStep(f, e, index) && e.Hash == f.Hash && !e.Phase.Completed() && !e.Terminated && !e.Deleting {
			return &runResult{Name: e.Name, Phase: e.Phase, Message: e.Message}, outcome{}
		}
	}
	if name := recordedExperimentName(f, base); name != "" {
		if f.UnreadableTemplate != "" {
			return &runResult{Name: name}, outcome{}
		}
		return &runResult{Name: name}, outcome{trafficEffects: []release.Effect{ExperimentExists{
			Name: name, Hash: f.Hash, Revision: f.new.Revision, Step: step, Canary: f.new.Name, Stable: f.stable.Name,
		}}}
	}
	name := base
	for i := 1; hasExperiment(f, name); i++ {
		name = fmt.Sprintf("%s-%d", base, i)
	}
	return &runResult{Name: name, Planned: true}, outcome{} // as an AnalysisRun
}

// recordedExperimentName returns the name that the status records for the Experiment of a step, and that no Experiment has yet; "":
// there is none. base is its name without a number. As with an AnalysisRun, the Experiment may exist already.
func recordedExperimentName(f facts, base string) string {
	name := f.Status.Canary.CurrentExperiment
	if hasExperiment(f, name) || name != base && !strings.HasPrefix(name, base+"-") {
		return ""
	}
	return name
}

func hasExperiment(f facts, name string) bool {
	return slices.ContainsFunc(f.Experiments, func(e Experiment) bool { return e.Name == name })
}

// isExperimentOfStep reports whether the name of an Experiment shows that it was created for a step of this template.
// The revision number in the name is ignored: a template that returns has another one.
func isExperimentOfStep(f facts, e Experiment, index int32) bool {
	rest, ok := strings.CutPrefix(e.Name, fmt.Sprintf("%s-%s-", f.Name, f.Hash))
	parts := strings.Split(rest, "-")
	return ok && len(parts) > 1 && parts[1] == strconv.Itoa(int(index))
}

// terminateUnusedAnalyses terminates AnalysisRuns and Experiments that the release no longer needs.
func terminateUnusedAnalyses(f facts, runs, experiments []string) outcome {
	var o outcome
	for _, run := range f.AnalysisRuns {
		if !slices.Contains(runs, run.Name) && !run.Phase.Completed() && !run.Terminated && !run.Deleting {
			o.trafficEffects = append(o.trafficEffects, AnalysisRunTerminated{Name: run.Name})
		}
	}
	for _, experiment := range f.Experiments {
		if !slices.Contains(experiments, experiment.Name) && !experiment.Phase.Completed() && !experiment.Terminated && !experiment.Deleting {
			o.trafficEffects = append(o.trafficEffects, ExperimentTerminated{Name: experiment.Name})
		}
	}
	return o
}

// deleteSurplusAnalyses deletes runs and experiments of revisions that no longer exist, and the oldest beyond the
// history limits.
func deleteSurplusAnalyses(f facts, deleted, runs, experiments []string) outcome {
	var o outcome
	orphaned := func(hash string) bool {
		rs := f.findReplicaSet(hash)
		return !rs.exists() || rs.Deleting || slices.Contains(deleted, rs.Name)
	}
	quota := newHistoryQuota(f)
	for _, run := range sortNewestFirst(f.AnalysisRuns, func(r AnalysisRun) int64 { return r.Created.UnixNano() }) {
		if !slices.Contains(runs, run.Name) && !run.Deleting && (orphaned(run.Hash) || quota.takeExceeds(run.Phase)) {
			o.removalEffects = append(o.removalEffects, AnalysisRunDeleted{Name: run.Name})
		}
	}
	quota = newHistoryQuota(f)
	for _, e := range sortNewestFirst(f.Experiments, func(e Experiment) int64 { return e.Created.UnixNano() }) {
		if !slices.Contains(experiments, e.Name) && !e.Deleting && (orphaned(e.Hash) || quota.takeExceeds(e.Phase)) {
			o.removalEffects = append(o.removalEffects, ExperimentDeleted{Name: e.Name})
		}
	}
	return o
}

// sortNewestFirst returns values in descending order of a key.
func sortNewestFirst[T any](values []T, key func(T) int64) []T {
	values = slices.Clone(values)
	slices.SortStableFunc(values, func(a, b T) int { return cmp.Compare(key(b), key(a)) })
	return values
}

// historyQuota counts the completed runs that are retained.
type historyQuota struct{ successful, other int32 }

func newHistoryQuota(f facts) *historyQuota {
	limits := valueOr(f.Spec.Analysis, argov1.AnalysisRunStrategy{})
	return &historyQuota{
		successful: valueOr(limits.SuccessfulRunHistoryLimit, defaultRunHistoryLimit),
		other:      valueOr(limits.UnsuccessfulRunHistoryLimit, defaultRunHistoryLimit),
	}
}

// takeExceeds counts a run, and reports whether it is beyond the limit.
func (q *historyQuota) takeExceeds(phase argov1.AnalysisPhase) bool {
	if !phase.Completed() {
		return false
	}
	remaining := &q.other
	if phase == argov1.AnalysisPhaseSuccessful {
		remaining = &q.successful
	}
	*remaining--
	return *remaining < 0
}

// reportAnalysisPhase returns the event about a new phase of an AnalysisRun.
func reportAnalysisPhase(kind string, previous *argov1.RolloutAnalysisRunStatus, result *runResult) outcome {
	if result == nil || result.Phase == "" {
		return outcome{}
	}
	before := "NoPreviousStatus"
	if previous != nil && previous.Name == result.Name {
		if previous.Status == result.Phase {
			return outcome{}
		}
		if previous.Status != "" {
			before = string(previous.Status)
		}
	}
	severity := release.Normal
	if result.Phase == argov1.AnalysisPhaseFailed || result.Phase == argov1.AnalysisPhaseError {
		severity = release.Warning
	}
	return outcome{events: []release.Event{{Type: severity, Reason: "AnalysisRun" + string(result.Phase), Message: fmt.Sprintf(
		"%s Analysis Run '%s' Status New: '%s' Previous: '%s'", kind, result.Name, result.Phase, before,
	)}}}
}
