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
	// step and experiment are those of the current step, background runs beside the steps; pre and post are before and
	// after the switch of a blue-green release.
	step, experiment, background, pre, post *Judgement
}

// planAnalyses starts the analyses and the experiment that are due now, terminates all others, and deletes those that
// are not needed anymore. deleted are the names of ReplicaSets that are deleted now.
func planAnalyses(f facts, deleted []string) analyses {
	var a analyses
	if f.Spec.Strategy.Canary != nil {
		a = canaryAnalyses(f)
	} else {
		a = blueGreenAnalyses(f)
	}
	var runs, experiments []string
	for _, j := range []*Judgement{a.step, a.background, a.pre, a.post} {
		if j != nil {
			runs = append(runs, j.Name)
		}
	}
	if a.experiment != nil {
		experiments = append(experiments, a.experiment.Name)
	}
	s := f.Status
	a.outcome = join(a.outcome, terminateOthers(f, runs, experiments), deleteSurplus(f, deleted, runs, experiments),
		reportAnalysis(argov1.TypeStep, s.Canary.CurrentStepAnalysisRunStatus, a.step),
		reportAnalysis(argov1.TypeBackground, s.Canary.CurrentBackgroundAnalysisRunStatus, a.background),
		reportAnalysis(argov1.TypePrePromotion, s.BlueGreen.PrePromotionAnalysisRunStatus, a.pre),
		reportAnalysis(argov1.TypePostPromotion, s.BlueGreen.PostPromotionAnalysisRunStatus, a.post))
	return a
}

// skipsAnalyses reports whether a release needs no analyses, or no longer needs them.
func skipsAnalyses(f facts) bool {
	s := f.Status
	return s.Abort || s.PromoteFull || !f.distinct() || f.inWindow || fastRollback(f)
}

func canaryAnalyses(f facts) analyses {
	var a analyses
	if skipsAnalyses(f) {
		return a
	}
	c, s := f.Spec.Strategy.Canary, f.Status
	step, _ := pods.StepAt(c.Steps, s.CurrentStepIndex)
	index := value(s.CurrentStepIndex, 0)
	if step.Analysis != nil && len(step.Analysis.Templates) > 0 {
		run, o := currentAnalysis(f, requestedAnalysis{
			kind: argov1.TypeStep, step: &index, suffix: fmt.Sprintf("-%d", index), recorded: s.Canary.CurrentStepAnalysisRunStatus,
			of: *step.Analysis, deferred: len(s.PauseConditions) > 0,
		})
		a.step, a.outcome = run, join(a.outcome, o)
	}
	if c.Analysis != nil && len(c.Analysis.Templates) > 0 && backgroundStarted(f, *c.Analysis) {
		run, o := currentAnalysis(f, requestedAnalysis{
			kind: argov1.TypeBackground, recorded: s.Canary.CurrentBackgroundAnalysisRunStatus, of: c.Analysis.RolloutAnalysis,
		})
		a.background, a.outcome = run, join(a.outcome, o)
	}
	if step.Experiment != nil {
		experiment, o := currentExperiment(f, *step.Experiment, index)
		a.experiment, a.outcome = experiment, join(a.outcome, o)
	}
	return a
}

// blueGreenAnalyses are those before and after the switch.
func blueGreenAnalyses(f facts) analyses {
	b, s := f.Spec.Strategy.BlueGreen, f.Status.BlueGreen
	if f.Status.AbortedAt != nil && !f.Status.Abort {
		s.PrePromotionAnalysisRunStatus, s.PostPromotionAnalysisRunStatus = nil, nil // from before the retry
	}
	active := f.selected(b.ActiveService)
	a := analyses{pre: recordedAnalysis(f, s.PrePromotionAnalysisRunStatus), post: recordedAnalysis(f, s.PostPromotionAnalysisRunStatus)}
	if skipsAnalyses(f) {
		return a
	}
	if b.PrePromotionAnalysis != nil && active != f.Hash && active != "" && previewReachable(f) {
		run, o := currentAnalysis(f, requestedAnalysis{
			kind: argov1.TypePrePromotion, suffix: "-pre", recorded: s.PrePromotionAnalysisRunStatus, of: *b.PrePromotionAnalysis,
		})
		a.pre, a.outcome = run, join(a.outcome, o)
	}
	if b.PostPromotionAnalysis != nil && active == f.Hash && complete(f, f.new) && !f.routerLags() {
		run, o := currentAnalysis(f, requestedAnalysis{
			kind: argov1.TypePostPromotion, suffix: "-post", recorded: s.PostPromotionAnalysisRunStatus, of: *b.PostPromotionAnalysis,
		})
		a.post, a.outcome = run, join(a.outcome, o)
	}
	return a
}

// recordedAnalysis returns the result of the AnalysisRun that a status names: of the run itself, or the recorded result
// if the run was deleted.
func recordedAnalysis(f facts, status *argov1.RolloutAnalysisRunStatus) *Judgement {
	if status == nil {
		return nil
	}
	if run := analysisRun(f, status.Name); run != nil && !run.Deleting {
		return run.judgement()
	}
	return &Judgement{Name: status.Name, Phase: status.Status, Message: status.Message}
}

// backgroundStarted reports whether the steps reached the one with which the background analysis starts.
func backgroundStarted(f facts, of argov1.RolloutAnalysisBackground) bool {
	return len(f.steps()) == 0 || value(f.Status.CurrentStepIndex, 0) >= value(of.StartingStep, 0)
}

// requestedAnalysis is an AnalysisRun that a release needs now.
type requestedAnalysis struct {
	kind     string
	step     *int32
	suffix   string
	recorded *argov1.RolloutAnalysisRunStatus
	of       argov1.RolloutAnalysis
	// deferred is true while none is created.
	deferred bool
}

// currentAnalysis returns the result of an analysis. Where none is current, one is created, or one is used that was
// created for this purpose and has not been recorded.
func currentAnalysis(f facts, r requestedAnalysis) (*Judgement, outcome) {
	var current *Run
	if r.recorded != nil {
		current = analysisRun(f, r.recorded.Name)
	}
	if current != nil && (current.Deleting || current.Step != nil && r.step != nil && *current.Step != *r.step) {
		current = nil
	}
	if current != nil && !repeatsAfter(f, current.Phase) || r.deferred || pausedFor(f.Status, argov1.PauseReasonInconclusiveAnalysis) {
		if current == nil {
			return nil, outcome{}
		}
		return current.judgement(), outcome{}
	}
	base := fmt.Sprintf("%s-%s-%d%s", f.Name, f.Hash, f.new.Revision, r.suffix)
	if run := startedAnalysis(f, base, r); run != nil {
		return run.judgement(), outcome{}
	}
	for i := range len(f.Runs) + 1 {
		name := base
		if i > 0 {
			name = fmt.Sprintf("%s.%d", base, i)
		}
		switch run := analysisRun(f, name); {
		case run == nil && (r.recorded == nil || r.recorded.Name != name):
			// The status records the name before the run is created. Otherwise, each time the status cannot be written, another
			// run would be created.
			return &Judgement{Name: name, Planned: true}, outcome{}
		case run == nil:
			return &Judgement{Name: name}, outcome{route: []release.Effect{RunExists{
				Name: name, Hash: f.Hash, Revision: f.new.Revision, Type: r.kind, Step: r.step, Of: r.of,
				Latest: f.new.Hash, Stable: f.stable.Hash,
			}}}
		}
	}
	return nil, outcome{} // more names than runs were tried
}

// startedAnalysis returns a run that was created for a purpose and is not over, under its name or, where that is taken,
// under one with a number; nil: there is none. A run with a lower number than the recorded name was terminated when
// that name was chosen, which its list may not show yet.
func startedAnalysis(f facts, base string, r requestedAnalysis) *Run {
	least := 0
	if r.recorded != nil && r.recorded.Status == "" {
		least, _ = numbered(r.recorded.Name, base)
	}
	for i := range f.Runs {
		run := &f.Runs[i]
		n, named := numbered(run.Name, base)
		if named && n >= least && run.Hash == f.Hash && run.Type == r.kind && !run.Terminated && !run.Deleting && !run.Phase.Completed() {
			return run
		}
	}
	return nil
}

// numbered reports whether a name is the base, or the base with a number.
func numbered(name, base string) (n int, is bool) {
	rest, ok := strings.CutPrefix(name, base)
	if !ok || rest == "" {
		return 0, ok
	}
	number, ok := strings.CutPrefix(rest, ".")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(number)
	return n, err == nil
}

func analysisRun(f facts, name string) *Run {
	for i := range f.Runs {
		if f.Runs[i].Name == name {
			return &f.Runs[i]
		}
	}
	return nil
}

func (r Run) judgement() *Judgement {
	return &Judgement{Name: r.Name, Phase: r.Phase, Message: r.Message, Metric: r.Metric}
}

// repeatsAfter reports whether a completed analysis is repeated: the user ended the pause that an inconclusive one
// caused, or retried the release after an abort.
func repeatsAfter(f facts, phase argov1.AnalysisPhase) bool {
	s := f.Status
	if s.ControllerPause && !pausedFor(s, argov1.PauseReasonCanaryPauseStep) && !pausedFor(s, argov1.PauseReasonBlueGreenPause) {
		return phase == argov1.AnalysisPhaseInconclusive
	}
	return s.AbortedAt != nil
}

// recordedExperiment is the Experiment that the status names; nil: none.
func recordedExperiment(f facts) *Experiment {
	for i := range f.Experiments {
		if e := &f.Experiments[i]; e.Name == f.Status.Canary.CurrentExperiment && !e.Deleting {
			return e
		}
	}
	return nil
}

// currentExperiment returns the result of the Experiment of a step. Where none is current, one is created.
func currentExperiment(f facts, step argov1.RolloutExperimentStep, index int32) (*Judgement, outcome) {
	base := fmt.Sprintf("%s-%s-%d-%d", f.Name, f.Hash, f.new.Revision, index)
	current := recordedExperiment(f)
	if current != nil && !isOfStep(f, *current, index) {
		current = nil
	}
	if current != nil && (!repeatsAfter(f, current.Phase) || pausedFor(f.Status, argov1.PauseReasonInconclusiveExperiment)) {
		return &Judgement{Name: current.Name, Phase: current.Phase, Message: current.Message}, outcome{}
	}
	for _, e := range f.Experiments { // also one that has a number because its name was taken
		if isOfStep(f, e, index) && e.Hash == f.Hash && !e.Phase.Completed() && !e.Terminated && !e.Deleting {
			return &Judgement{Name: e.Name, Phase: e.Phase, Message: e.Message}, outcome{}
		}
	}
	for i := range len(f.Experiments) + 1 {
		name := base
		if i > 0 {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		if !slices.ContainsFunc(f.Experiments, func(e Experiment) bool { return e.Name == name }) {
			return &Judgement{Name: name}, outcome{route: []release.Effect{ExperimentExists{
				Name: name, Hash: f.Hash, Revision: f.new.Revision, Step: step, Canary: f.new.Name, Stable: f.stable.Name,
			}}}
		}
	}
	return nil, outcome{} // more names than experiments were tried
}

// isOfStep reports whether the name of an Experiment says that it was created for a step of this template. The
// revision's number at that time does not matter: it gets another one when the template returns.
func isOfStep(f facts, e Experiment, index int32) bool {
	rest, ok := strings.CutPrefix(e.Name, fmt.Sprintf("%s-%s-", f.Name, f.Hash))
	parts := strings.Split(rest, "-")
	return ok && len(parts) > 1 && parts[1] == strconv.Itoa(int(index))
}

// terminateOthers terminates AnalysisRuns and Experiments that the release no longer needs.
func terminateOthers(f facts, runs, experiments []string) outcome {
	var o outcome
	for _, run := range f.Runs {
		if !slices.Contains(runs, run.Name) && !run.Phase.Completed() && !run.Terminated && !run.Deleting {
			o.route = append(o.route, RunTerminated{Name: run.Name})
		}
	}
	for _, experiment := range f.Experiments {
		if !slices.Contains(experiments, experiment.Name) && !experiment.Phase.Completed() && !experiment.Terminated && !experiment.Deleting {
			o.route = append(o.route, ExperimentTerminated{Name: experiment.Name})
		}
	}
	return o
}

// deleteSurplus deletes runs and experiments of revisions that do not exist anymore, and the oldest beyond the history
// limits.
func deleteSurplus(f facts, deleted, runs, experiments []string) outcome {
	var o outcome
	orphaned := func(hash string) bool {
		rs := f.replicaSet(hash)
		return !rs.exists() || rs.Deleting || slices.Contains(deleted, rs.Name)
	}
	quota := runHistory(f)
	for _, run := range newest(f.Runs, func(r Run) int64 { return r.Created.UnixNano() }) {
		if !slices.Contains(runs, run.Name) && !run.Deleting && (orphaned(run.Hash) || quota.exceededBy(run.Phase)) {
			o.remove = append(o.remove, RunGone{Name: run.Name})
		}
	}
	quota = runHistory(f)
	for _, e := range newest(f.Experiments, func(e Experiment) int64 { return e.Created.UnixNano() }) {
		if !slices.Contains(experiments, e.Name) && !e.Deleting && (orphaned(e.Hash) || quota.exceededBy(e.Phase)) {
			o.remove = append(o.remove, ExperimentGone{Name: e.Name})
		}
	}
	return o
}

// newest returns values in descending order of a key.
func newest[T any](values []T, key func(T) int64) []T {
	values = slices.Clone(values)
	slices.SortStableFunc(values, func(a, b T) int { return cmp.Compare(key(b), key(a)) })
	return values
}

// historyQuota counts down how many completed runs are retained.
type historyQuota struct{ successful, other int32 }

func runHistory(f facts) *historyQuota {
	of := value(f.Spec.Analysis, argov1.AnalysisRunStrategy{})
	return &historyQuota{
		successful: value(of.SuccessfulRunHistoryLimit, defaultRunHistoryLimit),
		other:      value(of.UnsuccessfulRunHistoryLimit, defaultRunHistoryLimit),
	}
}

// exceededBy counts a run, and reports whether it is one more than is retained.
func (q *historyQuota) exceededBy(phase argov1.AnalysisPhase) bool {
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

// reportAnalysis returns the event about the phase that an AnalysisRun reached.
func reportAnalysis(kind string, previous *argov1.RolloutAnalysisRunStatus, result *Judgement) outcome {
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
		"%s Analysis Run '%s' Status New: '%s' Previous: '%s'", kind, result.Name, result.Phase, before)}}}
}
