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
)

// ship gives the target the template of a version.
func (p *users) ship(r *Release, v *actors.Version) {
	r.Shipped = append(r.Shipped, v.Name)
	shipped := p.change(r.Target, r.Kind, func(o map[string]any) bool {
		template := r.template(v)
		if nodes := within(o, "spec", "template", "spec")["nodeSelector"]; nodes != nil {
			within(template, "spec")["nodeSelector"] = nodes // who applies a manifest leaves what others have added
		}
		return unstructured.SetNestedMap(o, template, "spec", "template") == nil
	})
	if shipped {
		p.userClient.TraceAction(r.Key, "ship %s", v)
	}
}

// configure changes the configuration of the target.
func (p *users) configure(r *Release, level string) {
	changed := p.change(r.config, actors.ConfigMapKind, func(o map[string]any) bool {
		return unstructured.SetNestedField(o, level, "data", "level") == nil
	})
	if changed {
		p.userClient.TraceAction(r.Key, "set the configuration to level %s", level)
	}
}

func (p *users) editTemplate(r *Release, s *sim.Stream) {
	v := actors.DrawVersion(s, 0.6, 0.4)
	switch s.Int(0, 3) {
	case 0: // back to the previous version
		v := r.Previous()
		p.ship(r, v)
	case 1:
		stamp := fmt.Sprint(s.Int(1, 1000))
		if p.change(r.Target, actors.DeploymentKind, func(o map[string]any) bool {
			return unstructured.SetNestedField(o, stamp, "spec", "template", "metadata", "annotations", "example.com/restarted") == nil
		}) {
			p.userClient.TraceAction(r.Key, "restart the pods")
		}
	default:
		p.ship(r, r.Add(v))
	}
}

func (p *users) editConfig(r *Release, s *sim.Stream) {
	level := fmt.Sprint(s.Int(1, 4))
	if r.config != "" {
		p.configure(r, level)
	}
}

func (p *users) editSpec(r *Release, s *sim.Stream) {
	interval, threshold, steps := sim.Pick(s, "5s", "15s", "45s"), s.Int(1, 5), sim.Pick(s, []int{10, 40}, []int{25, 50, 75}, []int{60})
	metric, which, back := drawMetric(s, r.Key.Name), s.Int(0, 5), s.Between(30*time.Second, 4*time.Minute)
	what := ""
	changed := p.respecify(r, func(c *flaggerv1.Canary) {
		a := c.Spec.Analysis
		switch {
		case which == 0:
			a.Interval, what = interval, "observe for "+interval
		case which == 1:
			a.Threshold, what = threshold, fmt.Sprintf("allow %d failed checks", threshold)
		case which == 2 && len(a.StepWeights) > 0:
			a.StepWeights, what = steps, fmt.Sprintf("want the steps %v", steps)
		case which == 3 && len(a.Metrics) > 0:
			a.Metrics, what = a.Metrics[1:], "no longer measure "+a.Metrics[0].Name
		case which == 4 || r.invalid:
			a.Metrics, what = append(a.Metrics, metric), "measure "+metric.Name
		default:
			r.valid = *c.Spec.DeepCopy()
			invalidate(s, &c.Spec)
			r.invalid, what = true, "make the spec invalid"
		}
	})
	if !changed {
		return
	}
	p.userClient.TraceAction(r.Key, "%s", what)
	if r.invalid {
		p.After(back, func() { p.mendSpec(r) })
	}
}

// mendSpec makes a spec valid again.
func (p *users) mendSpec(r *Release) {
	if !r.invalid {
		return
	}
	if p.respecify(r, func(c *flaggerv1.Canary) { c.Spec = *r.valid.DeepCopy() }) {
		r.invalid = false
		p.userClient.TraceAction(r.Key, "make the spec valid again")
	}
}

func (p *users) scale(r *Release, s *sim.Stream) {
	replicas := sim.Pick(s, 0, 1, 2, 3, 4)
	name := sim.Pick(s, r.Target, r.Target, r.Target+"-primary")
	if name != r.Target {
		replicas = max(replicas, 1)
	}
	if p.change(name, actors.DeploymentKind, func(o map[string]any) bool {
		return unstructured.SetNestedField(o, int64(replicas), "spec", "replicas") == nil
	}) {
		p.userClient.TraceAction(r.Key, "scale %s to %d", name, replicas)
	}
}

func (p *users) deleteRelease(r *Release, s *sim.Stream) {
	back, stays := s.Between(30*time.Second, 5*time.Minute), s.Chance(0.4)
	if p.userClient.DeleteOf(r.Key, r.Key.Name, canaryKind) && !stays {
		p.After(back, func() { p.again(r) })
	}
}

func (p *users) recreateRelease(r *Release, _ *sim.Stream) {
	if p.userClient.DeleteOf(r.Key, r.Key.Name, canaryKind) {
		p.again(r)
	}
}

// again makes a Canary that was deleted once more, as soon as it is gone.
func (p *users) again(r *Release) {
	if p.stored(r.Key) != nil {
		if p.back == nil {
			p.back = map[types.NamespacedName]func(){}
		}
		p.back[r.Key] = func() { p.again(r) }
		return
	}
	p.userClient.Create(r.canary())
	r.invalid = r.born
	p.userClient.TraceAction(r.Key, "make the Canary again")
	if p.over {
		p.startable(r)
	}
}

func (p *users) deleteTarget(r *Release, s *sim.Stream) {
	back := s.Between(5*time.Second, 4*time.Minute)
	if p.userClient.DeleteOf(r.Key, r.Target, actors.DeploymentKind) {
		p.After(back, func() { p.retarget(r) })
	}
}

// retarget makes a target that was deleted again.
func (p *users) retarget(r *Release) {
	if p.running(r) != "" {
		return
	}
	p.userClient.Create(r.deployment())
	p.userClient.TraceAction(r.Key, "make the Deployment again with %s", r.Current())
	if p.over {
		p.startable(r)
	}
}

func (p *users) deletePrimary(r *Release, _ *sim.Stream) {
	p.userClient.DeleteOf(r.Key, r.Target+"-primary", actors.DeploymentKind)
}

func (p *users) deleteService(r *Release, s *sim.Stream) {
	p.userClient.DeleteOf(r.Key, r.Apex+sim.Pick(s, "", "-primary", "-canary"), actors.ServiceKind)
}

func (p *users) deleteRoute(r *Release, _ *sim.Stream) {
	if kind, ok := actors.RouteKind(r.Provider); ok {
		p.userClient.DeleteOf(r.Key, r.Apex, kind)
	}
}

func (p *users) suspend(r *Release, s *sim.Stream) {
	back, stays := s.Between(10*time.Second, 5*time.Minute), s.Chance(0.2)
	if !p.respecify(r, func(c *flaggerv1.Canary) { c.Spec.Suspend = true }) {
		return
	}
	p.userClient.TraceAction(r.Key, "suspend it")
	if !stays {
		p.After(back, func() { p.resume(r) })
	}
}

func (p *users) resume(r *Release) {
	if c := p.stored(r.Key); c != nil && c.Spec.Suspend && p.respecify(r, func(c *flaggerv1.Canary) { c.Spec.Suspend = false }) {
		p.userClient.TraceAction(r.Key, "resume it")
	}
}

func (p *users) skip(r *Release, s *sim.Stream) {
	back := s.Between(time.Minute, 5*time.Minute)
	set := func(skip bool, words string) {
		if p.respecify(r, func(c *flaggerv1.Canary) { c.Spec.SkipAnalysis = skip }) {
			p.userClient.TraceAction(r.Key, "%s", words)
		}
	}
	set(true, "skip the analysis")
	p.After(back, func() { set(r.Spec.SkipAnalysis, "analyse as before") })
}

func (p *users) command(r *Release, s *sim.Stream) {
	verb := sim.Pick(s, "abort", "promote", "retry")
	c := p.stored(r.Key)
	if c == nil {
		return
	}
	run := canary.RunOf(string(c.UID), c.Status)
	if p.respecify(r, func(c *flaggerv1.Canary) { c.Annotations["serin.dev/command"] = verb + "@" + run }) {
		p.userClient.TraceAction(r.Key, "command %s@%s", verb, run)
	}
}

// restatus writes a status that only the controller should write.
func (p *users) restatus(r *Release, words string, change func(*flaggerv1.CanaryStatus)) {
	c := actors.Typed[*flaggerv1.Canary](p.world, p.world.Server.Peek(canaryKind, r.Key)) // in the form in which it is stored
	if c == nil {
		return
	}
	c = c.DeepCopy()
	change(&c.Status)
	if err := p.user.Status().Update(context.Background(), c); err != nil {
		if !apierrors.IsInvalid(err) {
			p.world.Trace("the API server refuses a status: %v", err)
		}
		return
	}
	p.userClient.TraceAction(r.Key, "%s", words)
}

func (p *users) nonsense(r *Release, s *sim.Stream) {
	which, number := s.Int(0, 6), sim.Pick(s, -3, 0, 1, 17, 99, 1000)
	ahead := s.Between(-time.Hour, time.Hour)
	phase := sim.Pick(s, flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion,
		flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising, flaggerv1.CanaryPhaseFailed, flaggerv1.CanaryPhaseTerminating, "")
	p.restatus(r, fmt.Sprintf("write nonsense into the status (%d, %d, %s)", which, number, phase), func(status *flaggerv1.CanaryStatus) {
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
			status.LastTransitionTime.Time = p.world.Now().Add(ahead)
			if status.Serin != nil && status.Serin.Window != nil {
				status.Serin.Window.Start.Time = p.world.Now().Add(ahead)
			}
		}
	})
}

// otherController leaves the status as one that knows nothing of ours would have written it.
func (p *users) otherController(r *Release, _ *sim.Stream) {
	if c := p.stored(r.Key); c != nil && c.Status.Serin != nil {
		p.restatus(r, "let another controller write the status", func(status *flaggerv1.CanaryStatus) {
			if status.Serin = nil; flaggerv1.HasEncodedState(*status) { // Flagger retains the conditions of a phase, and writes the time
				status.LastTransitionTime = metav1.NewTime(p.world.Now().Truncate(time.Second))
			}
		})
	}
}

func (p *users) swapStrategy(r *Release, s *sim.Stream) {
	var drawn flaggerv1.CanaryAnalysis
	drawStrategy(s, r.Provider, &drawn)
	if p.respecify(r, func(c *flaggerv1.Canary) {
		a := c.Spec.Analysis
		a.Iterations, a.Match, a.Mirror, a.MirrorWeight = drawn.Iterations, drawn.Match, drawn.Mirror, drawn.MirrorWeight
		a.StepWeight, a.StepWeights, a.MaxWeight, a.StepWeightPromotion = drawn.StepWeight, drawn.StepWeights, drawn.MaxWeight, drawn.StepWeightPromotion
		a.SessionAffinity = drawn.SessionAffinity
	}) {
		p.userClient.TraceAction(r.Key, "want %s instead", r.Strategy)
	}
}

// secondCanary is what the name of a second Canary for one target has more.
const secondCanary = "-twin"

// sameTarget makes a second Canary for the target of the first.
func (p *users) sameTarget(r *Release, s *sim.Stream) {
	away := s.Between(time.Minute, 6*time.Minute)
	name := r.Key.Name + secondCanary
	if p.stored(types.NamespacedName{Namespace: actors.Namespace, Name: name}) != nil {
		return
	}
	c := r.canary()
	c.Name = name
	p.userClient.Create(c)
	p.userClient.TraceAction(r.Key, "make Canary %s for the same target", name)
	p.After(away, func() {
		if p.userClient.DeleteOf(r.Key, name, canaryKind) && p.over {
			p.startable(r)
		}
	})
}
