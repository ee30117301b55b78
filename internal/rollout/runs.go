package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// defaultRunHistoryLimit is how many AnalysisRuns of either kind are kept.
const defaultRunHistoryLimit int32 = 5

// judges has the analyses and the experiment that are due now, ends all others, and deletes those that nobody needs.
func (p *pass) judges(e *edit) {
	if p.Spec.Strategy.Canary != nil {
		p.canaryJudges()
	} else {
		p.blueGreenJudges()
	}
	var runs, experiments []string
	for _, j := range []*Judgement{p.step.Run, p.background, p.pre, p.post} {
		if j != nil {
			runs = append(runs, j.Name)
		}
	}
	if p.step.Experiment != nil {
		experiments = append(experiments, p.step.Experiment.Name)
	}
	p.endOthers(runs, experiments)
	p.deleteSurplus(runs, experiments)
	s := p.Status
	e.tellOf(argov1.TypeStep, s.Canary.CurrentStepAnalysisRunStatus, p.step.Run)
	e.tellOf(argov1.TypeBackground, s.Canary.CurrentBackgroundAnalysisRunStatus, p.background)
	e.tellOf(argov1.TypePrePromotion, s.BlueGreen.PrePromotionAnalysisRunStatus, p.pre)
	e.tellOf(argov1.TypePostPromotion, s.BlueGreen.PostPromotionAnalysisRunStatus, p.post)
}

// unjudged is true of a release that nothing judges (any more).
func (p *pass) unjudged() bool {
	s := p.Status
	return s.Abort || s.PromoteFull || !p.distinct() || p.inWindow || p.returning()
}

func (p *pass) canaryJudges() {
	if p.unjudged() {
		return
	}
	c, s, step := p.Spec.Strategy.Canary, p.Status, p.step
	if step.Step.Analysis != nil && len(step.Step.Analysis.Templates) > 0 {
		p.step.Run = p.judge(due{
			kind: argov1.TypeStep, step: &step.Index, suffix: fmt.Sprintf("-%d", step.Index), recorded: s.Canary.CurrentStepAnalysisRunStatus,
			of: *step.Step.Analysis, waits: len(s.PauseConditions) > 0,
		})
	}
	if c.Analysis != nil && len(c.Analysis.Templates) > 0 && p.started(*c.Analysis) {
		p.background = p.judge(due{
			kind: argov1.TypeBackground, recorded: s.Canary.CurrentBackgroundAnalysisRunStatus, of: c.Analysis.RolloutAnalysis,
		})
	}
	if step.Step.Experiment != nil {
		p.step.Experiment = p.experiment(*step.Step.Experiment)
	}
}

// started is true from the step on with which an analysis beside the steps begins.
func (p *pass) started(of argov1.RolloutAnalysisBackground) bool {
	return len(p.steps()) == 0 || value(p.Status.CurrentStepIndex, 0) >= value(of.StartingStep, 0)
}

// due is an AnalysisRun that a release needs now.
type due struct {
	kind     string
	step     *int32
	suffix   string
	recorded *argov1.RolloutAnalysisRunStatus
	of       argov1.RolloutAnalysis
	// waits is true while none is made.
	waits bool
}

// judge is what an analysis has come to. Where none is current, one is made, or one is used that was made for this and has
// not been recorded.
func (p *pass) judge(d due) *Judgement {
	var current *Run
	if d.recorded != nil {
		current = p.run(d.recorded.Name)
	}
	if current != nil && (current.Deleting || current.Step != nil && d.step != nil && *current.Step != *d.step) {
		current = nil
	}
	if current != nil && !p.again(current.Phase) || d.waits || heldBy(p.Status, argov1.PauseReasonInconclusiveAnalysis) {
		if current == nil {
			return nil
		}
		return current.judgement()
	}
	base := fmt.Sprintf("%s-%s-%d%s", p.Name, p.Hash, p.new.Revision, d.suffix)
	if run := p.begun(base, d); run != nil {
		return run.judgement()
	}
	for i := range len(p.Runs) + 1 {
		name := base
		if i > 0 {
			name = fmt.Sprintf("%s.%d", base, i)
		}
		switch run := p.run(name); {
		case run == nil && (d.recorded == nil || d.recorded.Name != name):
			// Its name comes first: else a status that cannot be written costs a run each time.
			return &Judgement{Name: name, Planned: true}
		case run == nil:
			p.move = append(p.move, RunExists{
				Name: name, Hash: p.Hash, Revision: p.new.Revision, Type: d.kind, Step: d.step, Of: d.of,
				Latest: p.new.Hash, Stable: p.stable.Hash,
			})
			return &Judgement{Name: name}
		}
	}
	return nil // more names than runs were tried
}

// begun is a run that was made for a purpose and goes on, under its name or, where somebody else has that, under one with
// a number; nil: there is none. One with a lower number than the name that comes next was told to end when that was
// chosen, which its list may not show yet.
func (p *pass) begun(base string, d due) *Run {
	least := 0
	if d.recorded != nil && d.recorded.Status == "" {
		least, _ = numbered(d.recorded.Name, base)
	}
	for i := range p.Runs {
		run := &p.Runs[i]
		n, named := numbered(run.Name, base)
		if named && n >= least && run.Hash == p.Hash && run.Type == d.kind && !run.Terminated && !run.Deleting && !run.Phase.Completed() {
			return run
		}
	}
	return nil
}

// numbered is true of a name, and of one to which a number was added.
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

func (p *pass) run(name string) *Run {
	for i := range p.Runs {
		if p.Runs[i].Name == name {
			return &p.Runs[i]
		}
	}
	return nil
}

func (r Run) judgement() *Judgement {
	return &Judgement{Name: r.Name, Phase: r.Phase, Message: r.Message}
}

// again is true when what was judged is to be judged again: a person ended the pause that an inconclusive judgement
// brought, or began the release again after an abort.
func (p *pass) again(phase argov1.AnalysisPhase) bool {
	s := p.Status
	if s.ControllerPause && !heldBy(s, argov1.PauseReasonCanaryPauseStep) && !heldBy(s, argov1.PauseReasonBlueGreenPause) {
		return phase == argov1.AnalysisPhaseInconclusive
	}
	return s.AbortedAt != nil
}

// experimentNow is the Experiment that the status names; nil without.
func (p *pass) experimentNow() *Experiment {
	for i := range p.Experiments {
		if e := &p.Experiments[i]; e.Name == p.Status.Canary.CurrentExperiment && !e.Deleting {
			return e
		}
	}
	return nil
}

// experiment is what the Experiment of the step has come to. Where none is current, one is made.
func (p *pass) experiment(step argov1.RolloutExperimentStep) *Judgement {
	base := fmt.Sprintf("%s-%s-%d-%d", p.Name, p.Hash, p.new.Revision, p.step.Index)
	current := p.experimentNow()
	if current != nil && !p.ofStep(*current) {
		current = nil
	}
	if current != nil && (!p.again(current.Phase) || heldBy(p.Status, argov1.PauseReasonInconclusiveExperiment)) {
		return &Judgement{Name: current.Name, Phase: current.Phase, Message: current.Message}
	}
	for _, e := range p.Experiments { // also one that got a number, because somebody else has the name
		if p.ofStep(e) && e.Hash == p.Hash && !e.Phase.Completed() && !e.Terminated && !e.Deleting {
			return &Judgement{Name: e.Name, Phase: e.Phase, Message: e.Message}
		}
	}
	for i := range len(p.Experiments) + 1 {
		name := base
		if i > 0 {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		at := slices.IndexFunc(p.Experiments, func(e Experiment) bool { return e.Name == name })
		if at < 0 {
			p.move = append(p.move, ExperimentExists{
				Name: name, Hash: p.Hash, Revision: p.new.Revision, Step: step, Canary: p.new.Name, Stable: p.stable.Name,
			})
			return &Judgement{Name: name}
		}
	}
	return nil // more names than experiments were tried
}

// ofStep is true of an Experiment whose name says that it was made for this step of this template. Which number the revision
// had then is no matter: it gets another one when the template comes back.
func (p *pass) ofStep(e Experiment) bool {
	rest, ok := strings.CutPrefix(e.Name, fmt.Sprintf("%s-%s-", p.Name, p.Hash))
	parts := strings.Split(rest, "-")
	return ok && len(parts) > 1 && parts[1] == strconv.Itoa(int(p.step.Index))
}

// endOthers ends what judges nothing any more.
func (p *pass) endOthers(runs, experiments []string) {
	for _, run := range p.Runs {
		if !slices.Contains(runs, run.Name) && !run.Phase.Completed() && !run.Terminated && !run.Deleting {
			p.move = append(p.move, RunTerminated{Name: run.Name})
		}
	}
	for _, experiment := range p.Experiments {
		if !slices.Contains(experiments, experiment.Name) && !experiment.Phase.Completed() && !experiment.Terminated && !experiment.Deleting {
			p.move = append(p.move, ExperimentTerminated{Name: experiment.Name})
		}
	}
}

// deleteSurplus deletes runs and experiments of revisions that are gone, and the oldest beyond those that are kept.
func (p *pass) deleteSurplus(runs, experiments []string) {
	kept := p.keptRuns()
	for _, run := range newest(p.Runs, func(r Run) int64 { return r.Created.UnixNano() }) {
		if !slices.Contains(runs, run.Name) && !run.Deleting && (p.orphaned(run.Hash) || kept.surplus(run.Phase)) {
			p.down = append(p.down, RunGone{Name: run.Name})
		}
	}
	kept = p.keptRuns()
	for _, e := range newest(p.Experiments, func(e Experiment) int64 { return e.Created.UnixNano() }) {
		if !slices.Contains(experiments, e.Name) && !e.Deleting && (p.orphaned(e.Hash) || kept.surplus(e.Phase)) {
			p.down = append(p.down, ExperimentGone{Name: e.Name})
		}
	}
}

// newest are values in reverse order of a key.
func newest[T any](of []T, key func(T) int64) []T {
	of = slices.Clone(of)
	slices.SortStableFunc(of, func(a, b T) int { return cmp.Compare(key(b), key(a)) })
	return of
}

// orphaned is true of what belongs to a ReplicaSet that is not there any more.
func (p *pass) orphaned(hash string) bool {
	rs := p.set(hash)
	gone := slices.ContainsFunc(p.down, func(e release.Effect) bool {
		goes, ok := e.(ReplicaSetGone)
		return ok && goes.Name == rs.Name
	})
	return !rs.exists() || rs.Deleting || gone
}

// kept counts down how many that have ended are kept.
type kept struct{ successful, other int32 }

func (p *pass) keptRuns() *kept {
	of := value(p.Spec.Analysis, argov1.AnalysisRunStrategy{})
	return &kept{
		successful: value(of.SuccessfulRunHistoryLimit, defaultRunHistoryLimit),
		other:      value(of.UnsuccessfulRunHistoryLimit, defaultRunHistoryLimit),
	}
}

// surplus is true of one more than is kept.
func (k *kept) surplus(phase argov1.AnalysisPhase) bool {
	if !phase.Completed() {
		return false
	}
	left := &k.other
	if phase == argov1.AnalysisPhaseSuccessful {
		left = &k.successful
	}
	*left--
	return *left < 0
}

// tellOf tells people of the phase that an AnalysisRun has come to.
func (e *edit) tellOf(kind string, was *argov1.RolloutAnalysisRunStatus, is *Judgement) {
	if is == nil || is.Phase == "" {
		return
	}
	previous := "NoPreviousStatus"
	if was != nil && was.Name == is.Name {
		if was.Status == is.Phase {
			return
		}
		if was.Status != "" {
			previous = string(was.Status)
		}
	}
	how := release.Normal
	if is.Phase == argov1.AnalysisPhaseFailed || is.Phase == argov1.AnalysisPhaseError {
		how = release.Warning
	}
	e.tell(how, "AnalysisRun"+string(is.Phase), fmt.Sprintf("%s Analysis Run '%s' Status New: '%s' Previous: '%s'", kind, is.Name, is.Phase, previous))
}
