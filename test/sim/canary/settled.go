package canary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// Quiesce implements sim.Kind.
func (k *Canaries) Quiesce(*sim.World) {
	k.over = true
	k.cluster.Quiesce()
	if k.story == nil {
		k.users.repair()
	}
}

// End implements sim.Kind.
func (k *Canaries) End(w *sim.World) {
	for _, p := range k.processes {
		if p.instance.Alive() {
			p.reportLeftovers(w)
		}
	}
	k.oracle.Finish()
}

// reportLeftovers reports what a process still has of Canaries that are gone.
func (p *process) reportLeftovers(w *sim.World) {
	p.disperse()
	actors.ReportMemory(w, p.instance, canaryKind, p.real.Footprint())
	names, targets := map[string]bool{}, map[string]bool{}
	for _, version := range w.Server.All(canaryKind) {
		if c := actors.Typed[*flaggerv1.Canary](w, version); c != nil {
			names[c.Name], targets[c.Spec.TargetRef.Name], targets[c.Spec.TargetRef.Name+"-primary"] = true, true, true
		}
	}
	for _, series := range []struct {
		prefix, label string
		exist         map[string]bool
	}{{"serin_", "name", names}, {"flagger_", "name", targets}, {"flagger_", "workload", targets}} {
		actors.ReportSeries(w, p.instance, p.registry, series.prefix, series.label, func(name string) bool { return series.exist[name] })
	}
}

// Settled implements sim.Kind.
func (k *Canaries) Settled(w *sim.World) bool { return k.underWay(w) == "" && len(k.moving(w)) == 0 }

// Unsettled implements sim.Kind.
func (k *Canaries) Unsettled(w *sim.World) string {
	why := []string{}
	if busy := k.underWay(w); busy != "" {
		why = append(why, busy)
	}
	for _, c := range k.moving(w) {
		sentence := fmt.Sprintf("%s is in phase %q", c.Name, c.Status.Phase)
		if c.Status.Serin != nil {
			sentence += fmt.Sprintf(", intent %q, gates %v", c.Status.Serin.Intent, c.Status.Serin.Gates)
		}
		if w.Awaits(types.NamespacedName{Namespace: c.Namespace, Name: c.Name}) {
			sentence += ", and is queued for reconciliation"
		}
		why = append(why, sentence)
	}
	return strings.Join(why, "; ")
}

// underWay describes what is still in progress; empty: nothing is.
func (k *Canaries) underWay(w *sim.World) string {
	return actors.UnderWay(w, k.users.Script, k.services.pending, k.cluster)
}

// moving are the releases that are neither at an end nor wait for someone who will not come.
func (k *Canaries) moving(w *sim.World) []*flaggerv1.Canary {
	var moving []*flaggerv1.Canary
	for _, seen := range w.Server.All(canaryKind) {
		if c := k.stored(seen.Key()); c != nil && !k.explained(w, c) && !k.atRest(w, c) {
			moving = append(moving, c)
		}
	}
	return moving
}

// atRest is true of a release that is at an end, and waits for nothing.
func (k *Canaries) atRest(w *sim.World, c *flaggerv1.Canary) bool {
	switch c.Status.Phase {
	case flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed:
	default:
		return false
	}
	if c.DeletionTimestamp != nil || c.Status.Serin != nil && (c.Status.Serin.Intent != "" || opens(c, release.ByCluster, release.ByAnswer)) {
		return false
	}
	return !w.Awaits(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
}

// explained is true of a release that waits for a user who will not come, and says so. What the API server refused is
// retried automatically.
func (k *Canaries) explained(w *sim.World, c *flaggerv1.Canary) bool {
	if c.Spec.Suspend && c.DeletionTimestamp == nil {
		return true
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == flaggerv1.ConditionBlocked && condition.Status == corev1.ConditionTrue {
			again := strings.HasPrefix(condition.Reason, "Refused") && w.Awaits(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
			return !again
		}
	}
	if k.stranded(c) {
		return true
	}
	// A gate that is polled is, when the status is written, either asked again or waits for that.
	waits := c.Status.Phase == flaggerv1.CanaryPhaseWaiting && opens(c, release.ByUser, release.ByAnswer)
	return waits && k.services.neverApproved(c)
}

// stranded is true of a release that is being rolled back and has nothing to go back to: Kubernetes gave the primary up, and
// the canary keeps serving until a user repairs the primary or ships another version.
func (k *Canaries) stranded(c *flaggerv1.Canary) bool {
	primary := k.world.Server.Peek(schema.GroupKind{Group: "apps", Kind: c.Spec.TargetRef.Kind}, types.NamespacedName{Namespace: c.Namespace, Name: c.Spec.TargetRef.Name + ending})
	if primary == nil || c.DeletionTimestamp != nil || !moving(c.Status.Phase) {
		return false
	}
	gate := unmet(c, "")
	return givenUp(primary) && gate != nil && slices.Contains([]string{"primary-serves", "primary-restored"}, gate.Name)
}

// opens is true when the first gate that is not passed, as the status says, is opened by one of those.
func opens(c *flaggerv1.Canary, by ...release.Opener) bool {
	gate := unmet(c, "")
	return gate != nil && slices.Contains(by, release.Opener(gate.Opener))
}

// unmet is the first gate whose name begins so and that is not passed, as the status says; nil: all are, or it says nothing.
func unmet(c *flaggerv1.Canary, prefix string) *flaggerv1.GateStatus {
	if c.Status.Serin == nil {
		return nil
	}
	for i, gate := range c.Status.Serin.Gates {
		if strings.HasPrefix(gate.Name, prefix) && release.Verdict(gate.Verdict) != release.Pass {
			return &c.Status.Serin.Gates[i]
		}
	}
	return nil
}

// Patience implements sim.Kind. It is the time that the slowest release may need for what may still follow: the rest of
// one run, another run for changes made meanwhile, and one that users start to repair something.
func (k *Canaries) Patience(w *sim.World) time.Duration {
	var longest time.Duration
	for _, seen := range w.Server.All(canaryKind) {
		if c := k.stored(seen.Key()); c != nil {
			longest = max(longest, atMost(&c.Spec))
		}
	}
	for _, r := range k.releases {
		longest = max(longest, atMost(&r.Spec))
	}
	return 3*longest + actors.LongestBackoff + 5*time.Minute
}

// atMost is how long one run may take.
func atMost(spec *flaggerv1.CanarySpec) time.Duration {
	deadline := 600 * time.Second
	if spec.ProgressDeadlineSeconds != nil {
		deadline = time.Duration(*spec.ProgressDeadlineSeconds) * time.Second
	}
	a := spec.Analysis
	if a == nil {
		return 4 * deadline
	}
	interval, err := time.ParseDuration(a.Interval)
	if err != nil || interval <= 0 {
		interval = time.Minute
	}
	windows := a.Iterations + 2 + len(a.StepWeights)
	if a.StepWeight > 0 {
		windows += 100/a.StepWeight + 1
	}
	if a.StepWeightPromotion > 0 {
		windows += 100/a.StepWeightPromotion + 1
	}
	if spec.Provider == actors.NoRouter {
		windows += 10
	}
	windows += max(a.Threshold, 1)
	questions := time.Duration(0)
	for _, hook := range a.Webhooks {
		questions += 40*time.Second*time.Duration(hook.Retries+1) + interval
	}
	// A metrics service that is not there is waited for, before and after the grace.
	questions += time.Duration(len(a.Metrics)) * 90 * time.Second
	return time.Duration(windows)*(interval+questions) + 4*deadline + time.Minute
}
