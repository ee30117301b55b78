package canary

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// ship writes the template of a version into the target.
func (u *users) ship(r *Release, v *actors.Version) {
	r.Shipped = append(r.Shipped, v.Name)
	shipped := u.changeObject(r.Target, r.Kind, func(o map[string]any) bool {
		template := r.podTemplate(v)
		if nodes := nested(o, "spec", "template", "spec")["nodeSelector"]; nodes != nil {
			nested(template, "spec")["nodeSelector"] = nodes // applying a manifest does not change fields of other appliers
		}
		return unstructured.SetNestedMap(o, template, "spec", "template") == nil
	})
	if shipped {
		u.UserClient.TraceAction(r.Key, "ship %s", v)
	}
}

// configure changes the configuration that the target references.
func (u *users) configure(r *Release, level string) {
	changed := u.changeObject(r.config, actors.ConfigMapKind, func(o map[string]any) bool {
		return unstructured.SetNestedField(o, level, "data", "level") == nil
	})
	if changed {
		u.UserClient.TraceAction(r.Key, "set the configuration to level %s", level)
	}
}

func (u *users) editTemplate(r *Release, s *sim.Stream) {
	v := actors.DrawVersion(s, 0.6, 0.4)
	switch s.Int(0, 3) {
	case 0: // back to the previous version
		v := r.Previous()
		u.ship(r, v)
	case 1:
		stamp := fmt.Sprint(s.Int(1, 1000))
		if u.changeObject(r.Target, actors.DeploymentKind, func(o map[string]any) bool {
			return unstructured.SetNestedField(o, stamp, "spec", "template", "metadata", "annotations", "example.com/restarted") == nil
		}) {
			u.UserClient.TraceAction(r.Key, "restart the pods")
		}
	default:
		u.ship(r, r.Add(v))
	}
}

func (u *users) editConfig(r *Release, s *sim.Stream) {
	level := fmt.Sprint(s.Int(1, 4))
	if r.config != "" {
		u.configure(r, level)
	}
}

func (u *users) editSpec(r *Release, s *sim.Stream) {
	interval, threshold, steps := sim.Pick(s, "5s", "15s", "45s"), s.Int(1, 5), sim.Pick(s, []int{10, 40}, []int{25, 50, 75}, []int{60})
	metric, which, delay := drawMetric(s, r.Key.Name), s.Int(0, 5), s.Between(30*time.Second, 4*time.Minute)
	what := ""
	changed := u.updateSpec(r, func(c *flaggerv1.Canary) {
		a := c.Spec.Analysis
		switch {
		case which == 0:
			a.Interval, what = interval, "observe for "+interval
		case which == 1:
			a.Threshold, what = threshold, fmt.Sprintf("allow %d failed checks", threshold)
		case which == 2 && len(a.StepWeights) > 0:
			a.StepWeights, what = steps, fmt.Sprintf("set the steps %v", steps)
		case which == 3 && len(a.Metrics) > 0:
			a.Metrics, what = a.Metrics[1:], "no longer measure "+a.Metrics[0].Name
		case which == 4 || r.invalid:
			a.Metrics, what = append(a.Metrics, metric), "measure "+metric.Name
		default:
			r.validSpec = *c.Spec.DeepCopy()
			invalidate(s, &c.Spec)
			r.invalid, what = true, "make the spec invalid"
		}
	})
	if !changed {
		return
	}
	u.UserClient.TraceAction(r.Key, "%s", what)
	if r.invalid {
		u.After(delay, func() { u.repairSpec(r) })
	}
}

// repairSpec makes a spec valid again.
func (u *users) repairSpec(r *Release) {
	if !r.invalid {
		return
	}
	if u.updateSpec(r, func(c *flaggerv1.Canary) { c.Spec = *r.validSpec.DeepCopy() }) {
		r.invalid = false
		u.UserClient.TraceAction(r.Key, "make the spec valid again")
	}
}

func (u *users) scale(r *Release, s *sim.Stream) {
	replicas := sim.Pick(s, 0, 1, 2, 3, 4)
	name := sim.Pick(s, r.Target, r.Target, r.Target+"-primary")
	if name != r.Target {
		replicas = max(replicas, 1)
	}
	if u.changeObject(name, actors.DeploymentKind, func(o map[string]any) bool {
		return unstructured.SetNestedField(o, int64(replicas), "spec", "replicas") == nil
	}) {
		u.UserClient.TraceAction(r.Key, "scale %s to %d", name, replicas)
	}
}

func (u *users) deleteRelease(r *Release, s *sim.Stream) {
	delay, permanent := s.Between(30*time.Second, 5*time.Minute), s.Chance(0.4)
	if u.UserClient.DeleteOf(r.Key, r.Key.Name, canaryKind) && !permanent {
		u.After(delay, func() { u.recreateCanary(r) })
	}
}

func (u *users) recreateRelease(r *Release, _ *sim.Stream) {
	if u.UserClient.DeleteOf(r.Key, r.Key.Name, canaryKind) {
		u.recreateCanary(r)
	}
}

// recreateCanary creates a deleted Canary again as soon as it is gone.
func (u *users) recreateCanary(r *Release) {
	if u.storedCanary(r.Key) != nil {
		if u.recreateAfterDeletion == nil {
			u.recreateAfterDeletion = map[types.NamespacedName]func(){}
		}
		u.recreateAfterDeletion[r.Key] = func() { u.recreateCanary(r) }
		return
	}
	u.UserClient.Create(r.newCanary())
	r.invalid = r.createdInvalid
	u.UserClient.TraceAction(r.Key, "recreate the Canary")
	u.createInSameSecond(r)
	if u.Stopped {
		u.replaceStuckVersion(r)
	}
}

func (u *users) deleteTarget(r *Release, s *sim.Stream) {
	delay := s.Between(5*time.Second, 4*time.Minute)
	if u.UserClient.DeleteOf(r.Key, r.Target, actors.DeploymentKind) {
		u.After(delay, func() { u.recreateTarget(r) })
	}
}

// recreateTarget creates a deleted target again.
func (u *users) recreateTarget(r *Release) {
	if u.targetVersion(r) != "" {
		return
	}
	u.UserClient.Create(r.newDeployment())
	u.UserClient.TraceAction(r.Key, "recreate the Deployment with %s", r.Current())
	if u.Stopped {
		u.replaceStuckVersion(r)
	}
}

func (u *users) deletePrimary(r *Release, _ *sim.Stream) {
	u.UserClient.DeleteOf(r.Key, r.Target+"-primary", actors.DeploymentKind)
}

// deleteRoute deletes the route of a release, or an Upstream that it names.
func (u *users) deleteRoute(r *Release, s *sim.Stream) {
	if deleted := sim.Pick(s, "", "primary", "canary"); r.Provider == actors.Gloo && deleted != "" {
		u.UserClient.DeleteOf(r.Key, upstreamOf(r.Apex, deleted), cluster.UpstreamKind)
		return
	}
	u.UserClient.DeleteRoute(r.Key, r.Apex, r.Provider)
}

func (u *users) suspend(r *Release, s *sim.Stream) {
	delay, permanent := s.Between(10*time.Second, 5*time.Minute), s.Chance(0.2)
	if !u.updateSpec(r, func(c *flaggerv1.Canary) { c.Spec.Suspend = true }) {
		return
	}
	u.UserClient.TraceAction(r.Key, "suspend it")
	if !permanent {
		u.After(delay, func() { u.resume(r) })
	}
}

func (u *users) resume(r *Release) {
	if c := u.storedCanary(r.Key); c != nil && c.Spec.Suspend && u.updateSpec(r, func(c *flaggerv1.Canary) { c.Spec.Suspend = false }) {
		u.UserClient.TraceAction(r.Key, "resume it")
	}
}

func (u *users) skipAnalysis(r *Release, s *sim.Stream) {
	delay := s.Between(time.Minute, 5*time.Minute)
	set := func(skip bool, text string) {
		if u.updateSpec(r, func(c *flaggerv1.Canary) { c.Spec.SkipAnalysis = skip }) {
			u.UserClient.TraceAction(r.Key, "%s", text)
		}
	}
	set(true, "skip the analysis")
	u.After(delay, func() { set(r.Spec.SkipAnalysis, "analyse as before") })
}

func (u *users) command(r *Release, s *sim.Stream) {
	verb, inFull := sim.Pick(s, canary.CommandAbort, canary.CommandPromote, canary.CommandRetry), s.Chance(0.7)
	if verb == canary.CommandPromote && inFull {
		verb = canary.CommandPromoteFull
	}
	c := u.storedCanary(r.Key)
	if c == nil {
		return
	}
	command := canary.NewCommand(verb, string(c.UID), c.Status)
	if u.updateSpec(r, func(c *flaggerv1.Canary) { c.Annotations[canary.CommandAnnotation] = command }) {
		u.UserClient.TraceAction(r.Key, "command %s", command)
	}
}

// writeStatus writes a status that only the controller should write.
func (u *users) writeStatus(r *Release, text string, change func(*flaggerv1.CanaryStatus)) {
	c := actors.Typed[*flaggerv1.Canary](u.World, u.World.Server.Peek(canaryKind, r.Key)) // in the form in which it is stored
	if c == nil {
		return
	}
	c = c.DeepCopy()
	change(&c.Status)
	if err := u.User.Status().Update(context.Background(), c); err != nil {
		if !apierrors.IsInvalid(err) {
			u.World.Trace("the API server rejects a status: %v", err)
		}
		return
	}
	u.UserClient.TraceAction(r.Key, "%s", text)
}

func (u *users) writeInvalidStatus(r *Release, s *sim.Stream) {
	which, number := s.Int(0, 6), sim.Pick(s, -3, 0, 1, 17, 99, 1000)
	ahead := s.Between(-time.Hour, time.Hour)
	phase := sim.Pick(s, flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion,
		flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising, flaggerv1.CanaryPhaseFailed, flaggerv1.CanaryPhaseTerminating, "")
	u.writeStatus(r, fmt.Sprintf("write nonsense into the status (%d, %d, %s)", which, number, phase), func(status *flaggerv1.CanaryStatus) {
		switch which {
		case 0:
			status.CanaryWeight = number
		case 1:
			status.FailedChecks = number
		case 2:
			status.Iterations = number
		case 3:
			status.Phase = phase
		case 4:
			status.LastAppliedSpec, status.LastPromotedSpec = "nonsense", "nonsense"
		case 5:
			status.Conditions = nil
			status.TrackedConfigs = map[string]string{"configmap/nonsense": "0"}
		default:
			status.LastTransitionTime.Time = u.World.Now().Add(ahead)
			if status.Serin != nil && status.Serin.Window != nil {
				status.Serin.Window.Start.Time = u.World.Now().Add(ahead)
			}
		}
	})
}

// writeStatusAsFlagger writes the status as a controller without Serin's fields would, but not while only these fields record which
// provider routes.
func (u *users) writeStatusAsFlagger(r *Release, _ *sim.Stream) {
	if c := u.storedCanary(r.Key); c != nil && c.Status.Serin != nil && !retainsRoute(c) {
		u.writeStatus(r, "let another controller write the status", func(status *flaggerv1.CanaryStatus) {
			if status.Serin = nil; flaggerv1.HasEncodedState(*status) { // Flagger retains the conditions of a phase, and writes the time
				status.LastTransitionTime = metav1.NewTime(u.World.Now().Truncate(time.Second))
			}
		})
	}
}

func (u *users) swapStrategy(r *Release, s *sim.Stream) {
	var drawn flaggerv1.CanaryAnalysis
	drawStrategy(s, r.Provider, &drawn)
	removeUnsupported(r.Provider, &drawn)
	if u.updateSpec(r, func(c *flaggerv1.Canary) {
		a := c.Spec.Analysis
		a.Iterations, a.Match, a.Mirror, a.MirrorWeight = drawn.Iterations, drawn.Match, drawn.Mirror, drawn.MirrorWeight
		a.StepWeight, a.StepWeights, a.MaxWeight, a.StepWeightPromotion = drawn.StepWeight, drawn.StepWeights, drawn.MaxWeight, drawn.StepWeightPromotion
		a.SessionAffinity = drawn.SessionAffinity
	}) {
		u.UserClient.TraceAction(r.Key, "change the strategy to %s", r.Strategy)
	}
}

// secondCanary is appended to the name of a Canary to name a second one for the same target.
const secondCanary = "-twin"

// inSameSecond is the name of a second Canary that is created in the same second as the first one.
const inSameSecond = "same-second"

// createSecondCanary creates a second Canary for the target of the first.
func (u *users) createSecondCanary(r *Release, s *sim.Stream) {
	u.createTwin(r, s.Between(time.Minute, 6*time.Minute))
}

// createInSameSecond creates a second Canary for the target of one that was created just now, in the same second, so that only their
// UIDs distinguish their age.
func (u *users) createInSameSecond(r *Release) {
	r.creations++
	name := fmt.Sprintf("%s#%s-%d", inSameSecond, r.Key.Name, r.creations)
	s := u.World.Draws.Stream(name)
	drawn, lower, lifetime := s.Chance(0.5), s.Chance(0.5), s.Between(time.Minute, 6*time.Minute)
	now := u.World.Now()
	rest := now.Truncate(time.Second).Add(time.Second).Sub(now)
	delay := s.Skewed(0, rest)
	if s.Chance(0.5) {
		lifetime = 0
	}
	if !drawn || !u.World.Faults.Has(SameTarget) || !u.World.Faults.Admit(name) {
		return
	}
	u.After(delay, func() {
		if lower {
			u.World.Server.LowerNextUID()
		}
		u.createTwin(r, lifetime)
	})
}

// createTwin creates a second Canary for the target of the first, which users delete after its lifetime; zero: never.
func (u *users) createTwin(r *Release, lifetime time.Duration) {
	name := r.Key.Name + secondCanary
	if u.storedCanary(types.NamespacedName{Namespace: actors.Namespace, Name: name}) != nil {
		return
	}
	c := r.newCanary()
	c.Name = name
	u.UserClient.Create(c)
	u.UserClient.TraceAction(r.Key, "create Canary %s for the same target", name)
	if lifetime == 0 {
		return
	}
	u.After(lifetime, func() {
		if u.UserClient.DeleteOf(r.Key, name, canaryKind) && u.Stopped {
			u.replaceStuckVersion(r)
		}
	})
}
