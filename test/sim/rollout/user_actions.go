package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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

// ship writes the template of a version into the Rollout.
func (u *users) ship(r *Release, v *actors.Version) {
	r.Shipped = append(r.Shipped, v.Name)
	if u.updateTemplate("user", r, func(t *corev1.PodTemplateSpec) { *t = r.podTemplate(v) }) {
		u.UserClient.TraceAction(r.Key, "ship %s", v)
	}
}

func (u *users) editTemplate(r *Release, s *sim.Stream) {
	v, stamp := actors.DrawVersion(s, 0.65, 0), fmt.Sprint(s.Int(1, 1000))
	switch s.Int(0, 3) {
	case 0: // back to the previous version
		u.ship(r, r.Previous())
	case 1:
		if u.updateTemplate("user", r, func(t *corev1.PodTemplateSpec) {
			metav1.SetMetaDataAnnotation(&t.ObjectMeta, "example.com/built", stamp)
			if r.Provider == actors.Consul {
				t.Annotations[consulAnnotation] = t.Labels["version"] + "-" + stamp
			}
		}) {
			u.UserClient.TraceAction(r.Key, "build the version again")
		}
	default:
		u.ship(r, r.Add(v))
	}
}

// editSpec changes the plan.
func (u *users) editSpec(r *Release, s *sim.Stream) {
	which, steps, back := s.Int(0, 7), drawSteps(s, r.Provider), s.Between(30*time.Second, 4*time.Minute)
	seconds, replicas := int32(s.Int(0, 60)), int32(s.Int(1, 4))
	what := ""
	changed := u.updateRollout("user", r.Key, func(o *argov1.Rollout) {
		c, b := o.Spec.Strategy.Canary, o.Spec.Strategy.BlueGreen
		switch {
		case which == 0:
			o.Spec.ProgressDeadlineAbort, what = !o.Spec.ProgressDeadlineAbort, "change progressDeadlineAbort"
		case which == 1:
			o.Spec.MinReadySeconds, what = 1+seconds/20, "change minReadySeconds"
		case which == 2:
			o.Spec.RevisionHistoryLimit, what = new(seconds/20), "change the history limit"
		case which == 3:
			o.Spec.Strategy, what = argov1.RolloutStrategy{}, "remove the strategy"
			u.After(back, func() { u.restoreStrategy(r) })
		case b != nil:
			b.ScaleDownDelaySeconds, b.AutoPromotionSeconds, what = &seconds, seconds/2, fmt.Sprintf("change delays to %ds", seconds)
		case c != nil && which < 6:
			if c.TrafficRouting == nil { // since the strategy was changed: setCanaryScale would make the spec invalid
				steps = slices.DeleteFunc(steps, func(step argov1.CanaryStep) bool { return step.SetCanaryScale != nil })
			}
			c.Steps, what = steps, "change the steps"
		case c != nil:
			c.MaxSurge, c.MaxUnavailable, what = new(intstr.FromInt32(replicas)), new(intstr.FromInt32(replicas-1)), "change maxSurge"
		}
	})
	if changed {
		u.UserClient.TraceAction(r.Key, "%s", what)
	}
}

// restoreStrategy restores a strategy that was removed.
func (u *users) restoreStrategy(r *Release) {
	changed := u.updateRollout("user", r.Key, func(o *argov1.Rollout) {
		if o.Spec.Strategy == (argov1.RolloutStrategy{}) {
			o.Spec.Strategy = *r.Spec.Strategy.DeepCopy()
		}
	})
	if changed {
		u.UserClient.TraceAction(r.Key, "restore the strategy")
	}
}

func (u *users) scale(r *Release, s *sim.Stream) {
	replicas := sim.Pick(s, int32(0), 1, 2, 3, 4, 5)
	if u.updateRollout("user", r.Key, func(o *argov1.Rollout) { o.Spec.Replicas = &replicas }) {
		u.UserClient.TraceAction(r.Key, "scale to %d", replicas)
	}
}

// command gives a command as the tools of Argo Rollouts do.
func (u *users) command(r *Release, s *sim.Stream) {
	which, back, away := s.Int(0, 7), s.Between(30*time.Second, 4*time.Minute), s.Between(-time.Minute, time.Minute)
	switch which {
	case 0:
		u.promote(r.Key)
	case 1:
		u.promoteFull(r.Key)
	case 2:
		u.abort(r.Key)
	case 3, 4:
		u.retry(r.Key)
	case 5:
		if u.updateRollout("user", r.Key, func(o *argov1.Rollout) { o.Spec.Paused = true }) {
			u.UserClient.TraceAction(r.Key, "pause")
			u.After(back, func() { u.resume(r.Key) })
		}
	case 6:
		at := metav1.NewTime(u.World.Now().Add(away))
		if u.updateRollout("user", r.Key, func(o *argov1.Rollout) { o.Spec.RestartAt = &at }) {
			u.UserClient.TraceAction(r.Key, "restart at %s", at.UTC().Format(time.TimeOnly))
		}
	default: // undo: the template of a previous ReplicaSet
		u.undo(r, s)
	}
}

func (u *users) resume(key types.NamespacedName) {
	if u.updateRollout("user", key, func(o *argov1.Rollout) { o.Spec.Paused = false }) {
		u.UserClient.TraceAction(key, "resume")
	}
}

// promote ends a pause, or skips a step.
func (u *users) promote(key types.NamespacedName) {
	object := u.storedRollout(key)
	if object == nil {
		return
	}
	u.resume(key)
	patch := `{"status":{"pauseConditions":null}}`
	if c := object.Spec.Strategy.Canary; len(object.Status.PauseConditions) == 0 && c != nil {
		index := object.Status.CurrentStepIndex
		if index == nil || int(*index) >= len(c.Steps) {
			return
		}
		patch = fmt.Sprintf(`{"status":{"pauseConditions":null,"currentStepIndex":%d}}`, *index+1)
	}
	if u.patchStatus(key, patch) {
		u.UserClient.TraceAction(key, "promote")
	}
}

func (u *users) promoteFull(key types.NamespacedName) {
	object := u.storedRollout(key)
	if object != nil && object.Status.CurrentPodHash != object.Status.StableRS && u.patchStatus(key, `{"status":{"promoteFull":true}}`) {
		u.UserClient.TraceAction(key, "promote at once")
	}
}

func (u *users) abort(key types.NamespacedName) {
	if u.patchStatus(key, `{"status":{"abort":true}}`) {
		u.UserClient.TraceAction(key, "abort")
	}
}

func (u *users) retry(key types.NamespacedName) {
	if object := u.storedRollout(key); object != nil && object.Status.Abort && u.patchStatus(key, `{"status":{"abort":false}}`) {
		u.UserClient.TraceAction(key, "retry")
	}
}

// undo restores the template of a previous ReplicaSet.
func (u *users) undo(r *Release, s *sim.Stream) {
	var sets []*appsv1.ReplicaSet
	for _, v := range u.World.Server.All(actors.ReplicaSetKind) {
		set := actors.Typed[*appsv1.ReplicaSet](u.World, v)
		if owner := actors.ControllerOf(set); owner.Kind == argov1.RolloutKind && owner.Name == r.Key.Name {
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
	delete(template.Labels, "role") // a label of the pods, not of the template
	if u.updateTemplate("user", r, func(t *corev1.PodTemplateSpec) { *t = template }) {
		r.Shipped = append(r.Shipped, v.Name)
		u.UserClient.TraceAction(r.Key, "undo to %s", v)
	}
}

func (u *users) deleteRelease(r *Release, s *sim.Stream) {
	back, stays, orphans := s.Between(5*time.Second, 5*time.Minute), s.Chance(0.3), s.Chance(0.3)
	object := u.storedRollout(r.Key)
	if object == nil {
		return
	}
	if err := u.User.Delete(context.Background(), object.DeepCopy(), propagation(orphans)); err != nil {
		u.World.Trace("the API server rejects the deletion of Rollout %s: %v", r.Key.Name, err)
		return
	}
	u.UserClient.TraceAction(r.Key, "delete the Rollout, orphans %t", orphans)
	if orphans {
		u.endAnalyses(r, false)
		u.After(time.Minute, func() { u.endAnalyses(r, true) }) // a reconciliation that began before may have created another one
	}
	if !stays {
		u.After(back, func() { u.recreateRollout(r) })
	}
}

// recreateRollout creates a deleted Rollout again.
func (u *users) recreateRollout(r *Release) {
	if u.storedRollout(r.Key) == nil {
		u.UserClient.Create(r.newRollout())
		u.UserClient.TraceAction(r.Key, "recreate the Rollout with %s", r.Current())
	}
}

func (u *users) deleteReplicaSet(r *Release, s *sim.Stream) {
	var names []string
	for _, v := range u.World.Server.All(actors.ReplicaSetKind) {
		if actors.Labels(v.Content())["app"] == r.Key.Name {
			names = append(names, v.Key().Name)
		}
	}
	if len(names) > 0 {
		u.UserClient.DeleteOf(r.Key, sim.Pick(s, names...), actors.ReplicaSetKind)
	}
}

// endAnalyses terminates AnalysisRuns and Experiments that have lost their owner, or will soon lose it.
func (u *users) endAnalyses(r *Release, already bool) {
	for _, kind := range []schema.GroupKind{experimentKind, runKind} {
		for _, v := range u.World.Server.All(kind) {
			if strings.HasPrefix(v.Key().Name, r.Key.Name+"-") && (!already || metav1.GetControllerOfNoCopy(v.Meta()) == nil) {
				u.UserClient.Write("user", v.Key().Name, kind, terminate)
			}
		}
	}
}

func terminate(o map[string]any) bool {
	return unstructured.SetNestedField(o, true, "spec", "terminate") == nil
}

// serviceNames returns the Services of a release.
func (r *Release) serviceNames() []string {
	switch {
	case r.Spec.Strategy.BlueGreen != nil:
		return []string{r.apex(), r.apex() + "-preview"}
	case r.pingPong() != nil:
		return []string{r.pingPong().PongService, r.pingPong().PingService}
	case r.Provider == actors.NoRouter, r.Spec.Strategy.Canary.StableService == "":
		return []string{r.apex()}
	default:
		return []string{r.apex() + "-stable", r.apex() + "-canary"}
	}
}

func (u *users) deleteService(r *Release, s *sim.Stream) {
	name, back := sim.Pick(s, r.serviceNames()...), s.Between(5*time.Second, 3*time.Minute)
	if u.UserClient.DeleteOf(r.Key, name, actors.ServiceKind) {
		u.After(back, func() { u.recreateObjects(r) })
	}
}

// editService removes Serin's selector from a Service, like a tool that applies its own copy.
func (u *users) editService(r *Release, s *sim.Stream) {
	name := sim.Pick(s, r.serviceNames()...)
	if u.UserClient.Write("user", name, actors.ServiceKind, func(o map[string]any) bool {
		return unstructured.SetNestedField(o, map[string]any{"app": r.Key.Name}, "spec", "selector") == nil
	}) {
		u.UserClient.TraceAction(r.Key, "write the selector of Service %s", name)
	}
}

// isCanary returns a function that reports whether a destination of a route is that of the canary, according to the status.
func (u *users) isCanary(r *Release) func(map[string]any) bool {
	sides, _ := sidesOf(&r.Spec)
	stableIs := argov1.PingPongType("")
	if object := u.storedRollout(r.Key); object != nil {
		stableIs = object.Status.Canary.StablePingPong
	}
	return func(destination map[string]any) bool { return sides.isCanary(destinationOf(destination), stableIs) }
}

func (u *users) deleteRoute(r *Release, s *sim.Stream) {
	back := s.Between(5*time.Second, 3*time.Minute)
	if u.UserClient.DeleteRoute(r.Key, r.apex(), r.Provider) {
		u.After(back, func() { u.recreateObjects(r) })
	}
}

// deleteAnalysis deletes an AnalysisRun or an Experiment, or terminates it.
func (u *users) deleteAnalysis(r *Release, s *sim.Stream) {
	kind, ends := sim.Pick(s, runKind, runKind, experimentKind), s.Chance(0.5)
	var names []string
	for _, v := range u.World.Server.All(kind) {
		names = append(names, v.Key().Name)
	}
	if len(names) == 0 {
		return
	}
	name := sim.Pick(s, names...)
	if !ends {
		u.UserClient.DeleteOf(r.Key, name, kind)
		return
	}
	if u.UserClient.Write("user", name, kind, terminate) {
		u.UserClient.TraceAction(r.Key, "end %s %s", kind.Kind, name)
	}
}

// writeInvalidStatus writes values into the status that Serin never would.
func (u *users) writeInvalidStatus(r *Release, s *sim.Stream) {
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
	if err == nil && u.patchStatus(r.Key, string(text)) {
		u.UserClient.TraceAction(r.Key, "write %s", text)
	}
}

// swapStrategy changes the strategy of the release, at any time.
func (u *users) swapStrategy(r *Release, s *sim.Stream) {
	other, back := drawStrategy(s, r), s.Between(time.Minute, 6*time.Minute)
	if u.updateRollout("user", r.Key, func(o *argov1.Rollout) { o.Spec.Strategy = other }) {
		u.UserClient.TraceAction(r.Key, "change the strategy")
	}
	if s.Chance(0.5) {
		u.After(back, func() {
			if u.updateRollout("user", r.Key, func(o *argov1.Rollout) { o.Spec.Strategy = *r.Spec.Strategy.DeepCopy() }) {
				u.UserClient.TraceAction(r.Key, "restore the strategy")
			}
		})
	}
}
