package rollout

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// blueGreen is a pass over a Rollout with the blue-green strategy.
func (p *pass) blueGreen() Decision {
	p.keep()
	b := p.Spec.Strategy.BlueGreen
	p.releaseServices()
	if p.Router.Left {
		p.move = append(p.move, RouteReleased{Whole: promoted(p.Status)})
	}
	preview := p.preview(b.PreviewService)
	e := p.count()
	switch {
	case p.changed():
		e.selectors(preview, p.selected(b.ActiveService))
		e.reset()
		return p.finish(e)
	case p.rescaled():
		e.selectors(preview, p.selected(b.ActiveService))
		p.scaleBlueGreen()
		return p.finish(e)
	case p.restart(e):
		e.selectors(preview, p.selected(b.ActiveService))
		return p.finish(e)
	}
	p.scaleBlueGreen()
	if p.lags() {
		p.gate(p.unconfirmed(release.WaitsFor("targets", release.ByCluster, "load balancers do not reach the pods of the active Service yet")))
	}
	p.clean()
	p.judges(e)
	e.pauseBlueGreen()
	e.selectors(preview, p.activate())
	p.label()
	e.moveBlueGreen()
	return p.finish(e)
}

// selected is the hash that a Service selects.
func (p *pass) selected(service string) string {
	return p.Services[service].Selector[argov1.PodTemplateHashLabel]
}

// preview lets the preview Service select the new revision, and returns what it selects then.
func (p *pass) preview(service string) string {
	if service == "" {
		return ""
	}
	if p.halted() == "" {
		p.selects(service, p.new, false)
		return p.Hash
	}
	return p.selected(service)
}

// saturated is true of a ReplicaSet with all the pods that the Rollout asks for.
func (p *pass) saturated(rs ReplicaSet) bool {
	return rs.exists() && rs.Spec == p.replicas() && rs.Available == p.replicas() && value(rs.Desired, -1) == p.replicas()
}

// returning is true while a release goes back to a revision whose pods were still there: nothing holds it then. The
// deadline of those pods says so until it is done; one that was set by an abort does not.
func (p *pass) returning() bool {
	s := p.Status
	return p.Spec.Strategy.BlueGreen != nil && p.distinct() && p.new.Delayed() && !s.Abort && s.AbortedAt == nil
}

// fastTracked is true of a release that no pause holds.
func (p *pass) fastTracked() bool {
	active := p.selected(p.Spec.Strategy.BlueGreen.ActiveService)
	return p.returning() || promoted(p.Status) || p.Status.PromoteFull || p.inWindow || active == "" || active == p.Hash
}

// previewPods is how many pods the new revision has now.
func (p *pass) previewPods() int32 {
	b, s := p.Spec.Strategy.BlueGreen, p.Status
	active := p.selected(b.ActiveService)
	switch held := len(s.PauseConditions) > 0; {
	case b.PreviewReplicaCount == nil, !p.set(active).exists(), active == p.Hash, s.PromoteFull:
		return p.replicas()
	case !p.distinct(), p.inWindow, p.returning(): // it goes back to what has served before
		return p.replicas()
	case !held && s.BlueGreen.ScaleUpPreviewCheckPoint:
		return p.replicas()
	default:
		return *b.PreviewReplicaCount
	}
}

// previewReady is true when the new revision has the pods that it shall have before the switch.
func (p *pass) previewReady() bool {
	count := p.Spec.Strategy.BlueGreen.PreviewReplicaCount
	return p.saturated(p.new) && p.new.Spec >= p.previewPods() || count != nil && p.new.Spec == *count && p.new.Available == *count
}

// previewReached is true when they can be reached too.
func (p *pass) previewReached() bool {
	return p.previewReady() && p.previewEndpoints().Verdict == release.Pass
}

// scaleBlueGreen gives each revision its pods.
func (p *pass) scaleBlueGreen() {
	if p.halted() != "" {
		return
	}
	p.stay()
	if p.distinct() {
		p.scale(p.stable, p.replicas())
	}
	if !p.linger() {
		p.scale(p.new, p.previewPods())
	}
	p.scaleWorkload()
	p.drainBlueGreen()
}

// drainBlueGreen takes away the pods of revisions that nobody needs, each after its delay.
func (p *pass) drainBlueGreen() {
	b := p.Spec.Strategy.BlueGreen
	if p.lags() {
		return // requests may still be for them
	}
	if b.PostPromotionAnalysis != nil && b.ScaleDownDelaySeconds == nil && p.distinct() && p.selected(b.ActiveService) == p.Hash {
		return // they may be needed again
	}
	d := Drain{
		Now: p.Now, Limits: p.limits(), Routed: true, Promoted: true,
		Delay: delay(b.ScaleDownDelaySeconds), Most: b.ScaleDownDelayRevisionLimit,
	}
	p.meet(d.delays(p.old(), p.replicas()))
}

// pauseOfBlueGreen is the pause before the switch as the status has it; nil when there is none.
func pauseOfBlueGreen(status argov1.RolloutStatus) *argov1.PauseCondition {
	for i := range status.PauseConditions {
		if status.PauseConditions[i].Reason == argov1.PauseReasonBlueGreenPause {
			return &status.PauseConditions[i]
		}
	}
	return nil
}

// pausing is true where the switch waits for a person, or for a time.
func pausing(b argov1.BlueGreenStrategy) bool {
	return !value(b.AutoPromotionEnabled, true) || b.AutoPromotionSeconds > 0
}

// switchPause is the gate of the pause before the switch.
func (p *pass) switchPause() release.Gate {
	b, s := p.Spec.Strategy.BlueGreen, p.Status
	pause := pauseOfBlueGreen(s)
	switch {
	case p.fastTracked():
		return release.Passes("pause", "nothing holds this release")
	case s.BlueGreen.ScaleUpPreviewCheckPoint:
		return release.Passes("pause", "is over")
	case !pausing(*b):
		return release.Passes("pause", "none is asked for")
	case pause == nil && s.ControllerPause && len(s.PauseConditions) == 0:
		return release.Passes("pause", "ended by a person")
	case pause == nil:
		return release.WaitsFor("pause", release.ByCluster, "begins when the new pods are available and judged")
	case !value(b.AutoPromotionEnabled, true):
		return release.WaitsFor("pause", release.ByPerson, "until a person promotes the rollout")
	}
	end := pausedSince(s, *pause).Add(time.Duration(b.AutoPromotionSeconds) * time.Second)
	if p.Now.After(end) {
		return release.Passes("pause", "is over")
	}
	return release.WaitsUntil("pause", release.Later(end, p.Now).Add(time.Nanosecond), "until "+end.UTC().Format(time.TimeOnly))
}

// prePromotion is the gate of the analysis before the switch.
func (p *pass) prePromotion() release.Gate {
	if pre := p.Spec.Strategy.BlueGreen.PrePromotionAnalysis; pre == nil || p.fastTracked() {
		return release.Passes("pre-promotion", "nothing is asked")
	}
	return p.pre.opens(release.Passes("pre-promotion", ""))
}

// blueGreenJudges has the analyses before and after the switch.
func (p *pass) blueGreenJudges() {
	b, s := p.Spec.Strategy.BlueGreen, p.Status.BlueGreen
	recorded := func(status *argov1.RolloutAnalysisRunStatus) *Judgement {
		if status == nil {
			return nil
		}
		if run := p.run(status.Name); run != nil && !run.Deleting {
			return run.judgement()
		}
		return &Judgement{Name: status.Name, Phase: status.Status, Message: status.Message}
	}
	if p.Status.AbortedAt != nil && !p.Status.Abort {
		s.PrePromotionAnalysisRunStatus, s.PostPromotionAnalysisRunStatus = nil, nil // of before the retry
	}
	active := p.selected(b.ActiveService)
	p.pre, p.post = recorded(s.PrePromotionAnalysisRunStatus), recorded(s.PostPromotionAnalysisRunStatus)
	if p.unjudged() {
		return
	}
	if b.PrePromotionAnalysis != nil && active != p.Hash && active != "" && p.previewReached() {
		p.pre = p.judge(due{
			kind: argov1.TypePrePromotion, suffix: "-pre", recorded: s.PrePromotionAnalysisRunStatus, of: *b.PrePromotionAnalysis,
		})
	}
	if b.PostPromotionAnalysis != nil && active == p.Hash && p.saturated(p.new) && !p.lags() {
		p.post = p.judge(due{
			kind: argov1.TypePostPromotion, suffix: "-post", recorded: s.PostPromotionAnalysisRunStatus, of: *b.PostPromotionAnalysis,
		})
	}
}

// activate switches the active Service when that is due, and returns what it selects then.
func (p *pass) activate() string {
	b := p.Spec.Strategy.BlueGreen
	active := p.selected(b.ActiveService)
	switch {
	case p.halted() != "":
		return active
	case active == "" && p.distinct() && p.stable.Available > 0: // somebody made the Service again: users stay where they were
		p.selects(b.ActiveService, p.stable, false)
		return p.stable.Hash
	case p.Status.Abort && p.stable.exists():
		if active == p.stable.Hash || !p.takesOver() {
			break
		}
		p.selects(b.ActiveService, p.stable, false)
		return p.stable.Hash
	case !p.saturated(p.new):
		if active != p.Hash && p.new.Available < p.previewPods() {
			p.gate(release.WaitsFor("pods", release.ByCluster, fmt.Sprintf("%d of %d new pods available", p.new.Available, p.previewPods())))
		}
		return active
	case p.fastTracked() || release.Gates{p.previewEndpoints(), p.prePromotion(), p.switchPause()}.Verdict() == release.Pass:
		p.selects(b.ActiveService, p.new, false)
		return p.Hash
	}
	return active
}

// selectors note down what the Services select.
func (e *edit) selectors(preview, active string) {
	s := &e.status
	s.BlueGreen.PreviewSelector, s.BlueGreen.ActiveSelector = preview, active
	rs := e.v.set(active)
	if !rs.exists() {
		return
	}
	s.HPAReplicas, s.ReadyReplicas, s.AvailableReplicas = rs.Replicas, rs.Ready, rs.Available
	if selector := e.v.Spec.Selector.DeepCopy(); selector != nil {
		metav1.AddLabelToSelector(selector, argov1.PodTemplateHashLabel, active)
		s.Selector = metav1.FormatLabelSelector(selector)
	}
}

// pauseBlueGreen begins and ends the pause before the switch.
func (e *edit) pauseBlueGreen() {
	p := e.v
	if p.Status.Abort || p.halted() != "" || !p.previewReached() {
		return
	}
	gate := p.switchPause()
	if gate.Verdict == release.Pass {
		e.unpause(argov1.PauseReasonBlueGreenPause)
		return
	}
	if p.prePromotion().Verdict == release.Pass && pausing(*p.Spec.Strategy.BlueGreen) {
		e.pause(argov1.PauseReasonBlueGreenPause)
	}
}

// moveBlueGreen goes on from where the release is.
func (e *edit) moveBlueGreen() {
	p, s := e.v, &e.status
	switch {
	case s.PromoteFull, p.returning():
		e.free()
	case p.inWindow:
		e.resume()
	}
	e.recordBlueGreen()
	e.abortBlueGreen()
	if reason := p.completion(*s); reason != "" {
		e.promote(reason)
		s.BlueGreen.ScaleUpPreviewCheckPoint = false
		return
	}
	if s.Abort || promoted(*s) {
		return
	}
	for _, j := range []*Judgement{p.pre, p.post} {
		if j != nil && j.Phase == argov1.AnalysisPhaseInconclusive && !p.unjudged() {
			e.pause(argov1.PauseReasonInconclusiveAnalysis)
		}
	}
	s.BlueGreen.ScaleUpPreviewCheckPoint = p.checkPoint()
}

// recordBlueGreen notes down what judges the release.
func (e *edit) recordBlueGreen() {
	e.status.BlueGreen.PrePromotionAnalysisRunStatus = e.v.pre.recorded()
	e.status.BlueGreen.PostPromotionAnalysisRunStatus = e.v.post.recorded()
}

// abortBlueGreen takes a release back that an analysis is against.
func (e *edit) abortBlueGreen() {
	if e.status.Abort || e.v.unjudged() {
		return
	}
	for _, judgement := range []struct {
		of   *Judgement
		text string
	}{
		{e.v.pre, "Blue/green pre-promotion analysis phase error/failed"},
		{e.v.post, "Blue/green post-promotion analysis phase error/failed"},
	} {
		if detail, failed := judgement.of.against(judgement.text); failed && !e.status.Abort {
			e.status.Abort, e.detail = true, detail
		}
	}
}

// checkPoint is true once the new revision may grow from its first pods to all.
func (p *pass) checkPoint() bool {
	count := p.Spec.Strategy.BlueGreen.PreviewReplicaCount
	switch {
	case count == nil || !p.distinct():
		return false
	case p.Status.BlueGreen.ScaleUpPreviewCheckPoint:
		return true
	default:
		return p.prePromotion().Verdict == release.Pass && p.switchPause().Verdict == release.Pass && p.new.Available == *count
	}
}

// unreached is true while the pods of the active Service may not get its requests: they are asked for once it has switched.
func (p *pass) unreached() bool {
	return p.lags() || p.Router.Outside && p.selected(p.Spec.Strategy.BlueGreen.ActiveService) != p.Hash
}

// completion is why the new revision of a blue-green release becomes the stable one now; empty while it does not.
func (p *pass) completion(s argov1.RolloutStatus) string {
	post := p.Spec.Strategy.BlueGreen.PostPromotionAnalysis
	switch {
	case promoted(s):
		return ""
	case !p.stable.exists(), s.BlueGreen.ActiveSelector == "" && !p.distinct():
		return "Initial deploy"
	case s.BlueGreen.ActiveSelector != s.CurrentPodHash:
		return ""
	case s.PromoteFull:
		return "Full promotion requested"
	case p.inWindow:
		return "Rollback within window"
	case p.returning():
		return "Fast rollback"
	case s.Abort, p.unreached(), post != nil && (p.post == nil || p.post.Phase != argov1.AnalysisPhaseSuccessful):
		return ""
	default:
		return "Completed blue-green update"
	}
}
