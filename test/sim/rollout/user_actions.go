package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// ship gives the Rollout the template of a version.
func (p *users) ship(r *Release, v *actors.Version) {
	r.Shipped = append(r.Shipped, v.Name)
	if p.retemplate("user", r, func(t *corev1.PodTemplateSpec) { *t = r.template(v) }) {
		p.userClient.TraceAction(r.Key, "ship %s", v)
	}
}

func (p *users) editTemplate(r *Release, s *sim.Stream) {
	v, stamp := actors.DrawVersion(s, 0.65, 0), fmt.Sprint(s.Int(1, 1000))
	switch s.Int(0, 3) {
	case 0: // back to the previous version
		p.ship(r, r.Previous())
	case 1:
		if p.retemplate("user", r, func(t *corev1.PodTemplateSpec) {
			metav1.SetMetaDataAnnotation(&t.ObjectMeta, "example.com/built", stamp)
		}) {
			p.userClient.TraceAction(r.Key, "build the version again")
		}
	default:
		p.ship(r, r.Add(v))
	}
}

// editSpec changes the plan, at any time.
func (p *users) editSpec(r *Release, s *sim.Stream) {
	which, steps, back := s.Int(0, 7), drawSteps(s, r.Router), s.Between(30*time.Second, 4*time.Minute)
	seconds, replicas := int32(s.Int(0, 60)), int32(s.Int(1, 4))
	what := ""
	changed := p.respecify("user", r.Key, func(o *argov1.Rollout) {
		c, b := o.Spec.Strategy.Canary, o.Spec.Strategy.BlueGreen
		switch {
		case which == 0:
			o.Spec.ProgressDeadlineAbort, what = !o.Spec.ProgressDeadlineAbort, "change what a deadline does"
		case which == 1:
			o.Spec.MinReadySeconds, what = 1+seconds/20, "change minReadySeconds"
		case which == 2:
			o.Spec.RevisionHistoryLimit, what = new(seconds/20), "change the history limit"
		case which == 3:
			o.Spec.Strategy, what = argov1.RolloutStrategy{}, "take the strategy away"
			p.After(back, func() { p.mendStrategy(r) })
		case b != nil:
			b.ScaleDownDelaySeconds, b.AutoPromotionSeconds, what = &seconds, seconds/2, fmt.Sprintf("change delays to %ds", seconds)
		case c != nil && which < 6:
			c.Steps, what = steps, "change the steps"
		case c != nil:
			c.MaxSurge, c.MaxUnavailable, what = new(intstr.FromInt32(replicas)), new(intstr.FromInt32(replicas-1)), "change maxSurge"
		}
	})
	if changed {
		p.userClient.TraceAction(r.Key, "%s", what)
	}
}

// mendStrategy brings a strategy back that was taken away.
func (p *users) mendStrategy(r *Release) {
	changed := p.respecify("user", r.Key, func(o *argov1.Rollout) {
		if o.Spec.Strategy == (argov1.RolloutStrategy{}) {
			o.Spec.Strategy = *r.Spec.Strategy.DeepCopy()
		}
	})
	if changed {
		p.userClient.TraceAction(r.Key, "bring the strategy back")
	}
}

func (p *users) scale(r *Release, s *sim.Stream) {
	replicas := sim.Pick(s, int32(0), 1, 2, 3, 4, 5)
	if p.respecify("user", r.Key, func(o *argov1.Rollout) { o.Spec.Replicas = &replicas }) {
		p.userClient.TraceAction(r.Key, "scale to %d", replicas)
	}
}

// command is what users say with the tools of Argo Rollouts.
func (p *users) command(r *Release, s *sim.Stream) {
	which, back, away := s.Int(0, 7), s.Between(30*time.Second, 4*time.Minute), s.Between(-time.Minute, time.Minute)
	switch which {
	case 0:
		p.promote(r.Key)
	case 1:
		p.promoteFull(r.Key)
	case 2:
		p.abort(r.Key)
	case 3, 4:
		p.retry(r.Key)
	case 5:
		if p.respecify("user", r.Key, func(o *argov1.Rollout) { o.Spec.Paused = true }) {
			p.userClient.TraceAction(r.Key, "pause")
			p.After(back, func() { p.resume(r.Key) })
		}
	case 6:
		at := metav1.NewTime(p.world.Now().Add(away))
		if p.respecify("user", r.Key, func(o *argov1.Rollout) { o.Spec.RestartAt = &at }) {
			p.userClient.TraceAction(r.Key, "restart at %s", at.UTC().Format(time.TimeOnly))
		}
	default: // undo: the template of the ReplicaSet before
		p.undo(r, s)
	}
}

func (p *users) resume(key types.NamespacedName) {
	if p.respecify("user", key, func(o *argov1.Rollout) { o.Spec.Paused = false }) {
		p.userClient.TraceAction(key, "resume")
	}
}

// promote ends a pause, or leaves a step.
func (p *users) promote(key types.NamespacedName) {
	object := p.stored(key)
	if object == nil {
		return
	}
	p.resume(key)
	patch := `{"status":{"pauseConditions":null}}`
	if c := object.Spec.Strategy.Canary; len(object.Status.PauseConditions) == 0 && c != nil {
		index := object.Status.CurrentStepIndex
		if index == nil || int(*index) >= len(c.Steps) {
			return
		}
		patch = fmt.Sprintf(`{"status":{"pauseConditions":null,"currentStepIndex":%d}}`, *index+1)
	}
	if p.patchStatus(key, patch) {
		p.userClient.TraceAction(key, "promote")
	}
}

func (p *users) promoteFull(key types.NamespacedName) {
	object := p.stored(key)
	if object != nil && object.Status.CurrentPodHash != object.Status.StableRS && p.patchStatus(key, `{"status":{"promoteFull":true}}`) {
		p.userClient.TraceAction(key, "promote at once")
	}
}

func (p *users) abort(key types.NamespacedName) {
	if p.patchStatus(key, `{"status":{"abort":true}}`) {
		p.userClient.TraceAction(key, "abort")
	}
}

func (p *users) retry(key types.NamespacedName) {
	if object := p.stored(key); object != nil && object.Status.Abort && p.patchStatus(key, `{"status":{"abort":false}}`) {
		p.userClient.TraceAction(key, "retry")
	}
}

// undo takes the template of an earlier ReplicaSet.
func (p *users) undo(r *Release, s *sim.Stream) {
	var sets []*appsv1.ReplicaSet
	for _, v := range p.world.Server.All(actors.ReplicaSetKind) {
		set := actors.Typed[*appsv1.ReplicaSet](p.world, v)
		if kind, name := owner(set); kind == argov1.RolloutKind && name == r.Key.Name {
			sets = append(sets, set)
		}
	}
	if len(sets) == 0 {
		return
	}
	set := sim.Pick(s, sets...)
	v := r.Known[set.Spec.Template.Labels["version"]]
	if v == nil {
		return
	}
	template := *set.Spec.Template.DeepCopy()
	delete(template.Labels, argov1.PodTemplateHashLabel)
	delete(template.Labels, "role") // of the pods, not of the template
	if p.retemplate("user", r, func(t *corev1.PodTemplateSpec) { *t = template }) {
		r.Shipped = append(r.Shipped, v.Name)
		p.userClient.TraceAction(r.Key, "undo to %s", v)
	}
}

func (p *users) deleteRelease(r *Release, s *sim.Stream) {
	back, stays, orphans := s.Between(5*time.Second, 5*time.Minute), s.Chance(0.3), s.Chance(0.3)
	object := p.stored(r.Key)
	if object == nil {
		return
	}
	if err := p.user.Delete(context.Background(), object.DeepCopy(), propagation(orphans)); err != nil {
		p.world.Trace("the API server refuses to delete Rollout %s: %v", r.Key.Name, err)
		return
	}
	p.userClient.TraceAction(r.Key, "delete the Rollout, orphans %t", orphans)
	if orphans {
		p.endJudges(r, false)
		p.After(time.Minute, func() { p.endJudges(r, true) }) // a reconciliation that began before may have made another one
	}
	if !stays {
		p.After(back, func() { p.again(r) })
	}
}

// again makes a Rollout that was deleted once more.
func (p *users) again(r *Release) {
	if p.stored(r.Key) == nil {
		p.userClient.Create(r.rollout())
		p.userClient.TraceAction(r.Key, "make the Rollout again with %s", r.Current())
	}
}

func (p *users) deleteSet(r *Release, s *sim.Stream) {
	var names []string
	for _, v := range p.world.Server.All(actors.ReplicaSetKind) {
		if actors.Labels(v.Content())["app"] == r.Key.Name {
			names = append(names, v.Key().Name)
		}
	}
	if len(names) > 0 {
		p.userClient.DeleteOf(r.Key, sim.Pick(s, names...), actors.ReplicaSetKind)
	}
}

// endJudges terminates AnalysisRuns and Experiments that have lost their owner, or will soon lose it.
func (p *users) endJudges(r *Release, already bool) {
	for _, kind := range []schema.GroupKind{experimentKind, runKind} {
		for _, v := range p.world.Server.All(kind) {
			if strings.HasPrefix(v.Key().Name, r.Key.Name+"-") && (!already || metav1.GetControllerOfNoCopy(v.Meta()) == nil) {
				p.userClient.Write("user", v.Key().Name, kind, terminated)
			}
		}
	}
}

func terminated(o map[string]any) bool {
	return unstructured.SetNestedField(o, true, "spec", "terminate") == nil
}

// around are the Services of a release.
func (r *Release) around() []string {
	switch {
	case r.Spec.Strategy.BlueGreen != nil:
		return []string{r.apex(), r.apex() + "-preview"}
	case r.pingPong() != nil:
		return []string{r.pingPong().PongService, r.pingPong().PingService}
	case r.Router == actors.NoRouter, r.Spec.Strategy.Canary.StableService == "":
		return []string{r.apex()}
	default:
		return []string{r.apex() + "-stable", r.apex() + "-canary"}
	}
}

func (p *users) deleteService(r *Release, s *sim.Stream) {
	name, back := sim.Pick(s, r.around()...), s.Between(5*time.Second, 3*time.Minute)
	if p.userClient.DeleteOf(r.Key, name, actors.ServiceKind) {
		p.After(back, func() { p.mendAround(r) })
	}
}

// editService takes what Serin wrote out of a Service, as those do who apply their own copy.
func (p *users) editService(r *Release, s *sim.Stream) {
	name := sim.Pick(s, r.around()...)
	if p.userClient.Write("user", name, actors.ServiceKind, func(o map[string]any) bool {
		return unstructured.SetNestedField(o, map[string]any{"app": r.Key.Name}, "spec", "selector") == nil
	}) {
		p.userClient.TraceAction(r.Key, "write the selector of Service %s", name)
	}
}

// onTheWay is true of the place of the new revision in a route, as users see it in the status.
func (p *users) onTheWay(r *Release) func(map[string]any) bool {
	of, _ := sidesOf(&r.Spec)
	stableIs := argov1.PingPongType("")
	if object := p.stored(r.Key); object != nil {
		stableIs = object.Status.Canary.StablePingPong
	}
	return func(destination map[string]any) bool { return of.onTheWay(placeOf(destination), stableIs) }
}

func (p *users) deleteRoute(r *Release, s *sim.Stream) {
	back := s.Between(5*time.Second, 3*time.Minute)
	if kind, ok := actors.RouteKind(r.Router); ok && p.userClient.DeleteOf(r.Key, r.apex(), kind) {
		p.After(back, func() { p.mendAround(r) })
	}
}

// deleteJudge deletes an AnalysisRun or an Experiment, or ends it by hand.
func (p *users) deleteJudge(r *Release, s *sim.Stream) {
	kind, ends := sim.Pick(s, runKind, runKind, experimentKind), s.Chance(0.5)
	var names []string
	for _, v := range p.world.Server.All(kind) {
		names = append(names, v.Key().Name)
	}
	if len(names) == 0 {
		return
	}
	name := sim.Pick(s, names...)
	if !ends {
		p.userClient.DeleteOf(r.Key, name, kind)
		return
	}
	if p.userClient.Write("user", name, kind, terminated) {
		p.userClient.TraceAction(r.Key, "end %s %s", kind.Kind, name)
	}
}

// nonsense writes into the status what Serin never would.
func (p *users) nonsense(r *Release, s *sim.Stream) {
	patch := map[string]any{}
	switch s.Int(0, 7) {
	case 0:
		patch["currentStepIndex"] = sim.Pick(s, -1, 0, 1, 50)
	case 1:
		patch["stableRS"] = sim.Pick(s, "", "0000000000")
	case 2:
		patch["canary"] = nil
	case 3:
		patch["conditions"] = nil
	case 4:
		patch["currentPodHash"] = "ffffffffff"
	case 5:
		patch["blueGreen"] = nil
	case 6:
		patch["observedGeneration"] = "7777"
	default:
		patch["pauseConditions"] = []any{map[string]any{"reason": "CanaryPauseStep", "startTime": "2020-01-01T00:00:00Z"}}
		patch["controllerPause"] = true
	}
	text, err := json.Marshal(map[string]any{"status": patch})
	if err == nil && p.patchStatus(r.Key, string(text)) {
		p.userClient.TraceAction(r.Key, "write %s", text)
	}
}

// swapStrategy changes how the release goes, in the middle of it.
func (p *users) swapStrategy(r *Release, s *sim.Stream) {
	other, back := drawStrategy(s, r), s.Between(time.Minute, 6*time.Minute)
	if p.respecify("user", r.Key, func(o *argov1.Rollout) { o.Spec.Strategy = other }) {
		p.userClient.TraceAction(r.Key, "want another strategy")
	}
	if s.Chance(0.5) {
		p.After(back, func() {
			if p.respecify("user", r.Key, func(o *argov1.Rollout) { o.Spec.Strategy = *r.Spec.Strategy.DeepCopy() }) {
				p.userClient.TraceAction(r.Key, "want the old strategy")
			}
		})
	}
}
