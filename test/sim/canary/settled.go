package canary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// reportLeftovers reports the state that a process retains of Canaries that are gone.
func (k *Canaries) reportLeftovers(i *sim.Instance) {
	w, p := k.World, k.processes[i]
	if p == nil {
		return
	}
	p.forgetNeighbourQueries()
	actors.ReportMemory(w, p.instance, canaryKind, p.reconciler.Footprint())
	names, targets := map[string]bool{}, map[string]bool{}
	for _, version := range w.Server.All(canaryKind) {
		c := decodeState(actors.Typed[*flaggerv1.Canary](w, version))
		if c == nil {
			continue
		}
		target := c.Spec.TargetRef.Name
		if recorded := recordedTarget(&c.Status); recorded != "" && retainsTarget(c) {
			target = recorded // the release of a former target has not ended
		}
		names[c.Name], targets[target], targets[target+"-primary"] = true, true, true
	}
	for _, series := range []struct {
		prefix, label string
		exist         map[string]bool
	}{{"serin_", "name", names}, {"flagger_", "name", targets}, {"flagger_", "workload", targets}} {
		actors.ReportSeries(w, p.instance, p.registry, series.prefix, series.label, func(name string) bool { return series.exist[name] })
	}
}

// unsettledCanaries describes the Canaries that have neither ended nor wait for a user who will not act.
func (k *Canaries) unsettledCanaries() []string {
	var unsettled []string
	for _, seen := range k.World.Server.All(canaryKind) {
		c := k.storedCanary(seen.Key())
		if c == nil || k.isExplained(c) || k.isIdle(c) {
			continue
		}
		text := fmt.Sprintf("%s is in phase %q", c.Name, c.Status.Phase)
		if c.Status.Serin != nil {
			text += fmt.Sprintf(", intent %q, gates %v", c.Status.Serin.Intent, c.Status.Serin.Gates)
		}
		if k.isRequeued(c) {
			text += ", and is queued for reconciliation"
		}
		unsettled = append(unsettled, text)
	}
	return unsettled
}

func (k *Canaries) isRequeued(c *flaggerv1.Canary) bool {
	return k.World.IsRequeued(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
}

// isIdle reports whether a release has ended and waits for nothing.
func (k *Canaries) isIdle(c *flaggerv1.Canary) bool {
	switch c.Status.Phase {
	case flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed:
	default:
		return false
	}
	if c.DeletionTimestamp != nil || c.Status.Serin != nil && (c.Status.Serin.Intent != "" || waitsFor(c, release.ByCluster, release.ByAnswer)) {
		return false
	}
	return !k.isRequeued(c)
}

// isExplained reports whether a release waits for a user who will not act, and reports that in its status. A request that the
// API server rejected is retried automatically.
func (k *Canaries) isExplained(c *flaggerv1.Canary) bool {
	if c.Spec.Suspend && c.DeletionTimestamp == nil {
		return true
	}
	if r := k.ledger.ByUID[c.UID]; r != nil && r.isStopped() {
		retried := strings.HasPrefix(blockedReason(c), "Refused") && k.isRequeued(c)
		return !retried
	}
	if k.cannotReturn(c) || k.cannotReplaceTarget(c) || k.lacksReport(c) {
		return true
	}
	// When the status is written, a polled gate is either being queried or waits for its next query.
	awaitsApproval := c.Status.Phase == flaggerv1.CanaryPhaseWaiting && waitsFor(c, release.ByUser, release.ByAnswer)
	return awaitsApproval && k.services.neverApproved(c)
}

// cannotReturn reports whether a release is being rolled back without a working primary: the primary exceeded its progress
// deadline, and the canary serves until a user repairs the primary or ships another version.
func (k *Canaries) cannotReturn(c *flaggerv1.Canary) bool {
	gate := firstUnmetGate(c, "")
	return isActive(c.Status.Phase) && k.primaryExceededDeadline(c) && gate != nil && slices.Contains([]string{"primary-serves", "primary-restored"}, gate.Name)
}

// cannotReplaceTarget reports whether the primary of the next target exceeded its progress deadline. That of the former target serves
// until a user ships another version.
func (k *Canaries) cannotReplaceTarget(c *flaggerv1.Canary) bool {
	gate, r := firstUnmetGate(c, ""), k.ledger.ByUID[c.UID]
	return c.Status.Phase == flaggerv1.CanaryPhaseInitializing && r != nil && !r.lastReplaced.IsZero() && k.primaryExceededDeadline(c) && gate != nil && gate.Name == "primary-ready"
}

// primaryExceededDeadline reports whether the primary of a Canary exceeded its progress deadline.
func (k *Canaries) primaryExceededDeadline(c *flaggerv1.Canary) bool {
	primary := k.World.Server.Peek(schema.GroupKind{Group: "apps", Kind: c.Spec.TargetRef.Kind}, types.NamespacedName{Namespace: c.Namespace, Name: c.Spec.TargetRef.Name + primarySuffix})
	return primary != nil && c.DeletionTimestamp == nil && deadlineExceeded(primary)
}

// lacksReport reports whether a release waits for the report of a gateway that never reports, or that knows only the route of the first
// provider.
func (k *Canaries) lacksReport(c *flaggerv1.Canary) bool {
	// A rollback hook is polled meanwhile, so its gate may be the first one.
	gate, r := firstUnmetGate(c, "route"), k.releaseOf(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	waits := gate != nil && slices.Contains([]string{"route", "route-confirmed"}, gate.Name) && release.Opener(gate.Opener) == release.ByUser
	return waits && (!k.Gateway.ReportsRoutes() || r != nil && r.Provider != actors.GatewayAPI)
}

// waitsFor reports whether the first gate in the status that has not passed is opened by one of the given openers.
func waitsFor(c *flaggerv1.Canary, by ...release.Opener) bool {
	gate := firstUnmetGate(c, "")
	return gate != nil && slices.Contains(by, release.Opener(gate.Opener))
}

// firstUnmetGate returns the first gate in the status that has the prefix and has not passed, or nil.
func firstUnmetGate(c *flaggerv1.Canary, prefix string) *flaggerv1.GateStatus {
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

// longestRun returns the maximum duration of one run of a Canary.
func (k *Canaries) longestRun() time.Duration {
	var longest time.Duration
	for _, seen := range k.World.Server.All(canaryKind) {
		if c := k.storedCanary(seen.Key()); c != nil {
			longest = max(longest, maxRunDuration(&c.Spec))
		}
	}
	for _, r := range k.Releases {
		longest = max(longest, maxRunDuration(&r.Spec))
	}
	return longest + 100*time.Second // for its start
}

// maxRunDuration returns the maximum duration of one run.
func maxRunDuration(spec *flaggerv1.CanarySpec) time.Duration {
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
	queries := time.Duration(0)
	for _, hook := range a.Webhooks {
		queries += 40*time.Second*time.Duration(hook.Retries+1) + interval
	}
	// Serin waits for an unavailable metrics service, before and after its grace period.
	queries += time.Duration(len(a.Metrics)) * 90 * time.Second
	return time.Duration(windows)*(interval+queries) + 4*deadline + time.Minute
}
