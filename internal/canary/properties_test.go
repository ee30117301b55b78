package canary_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

func TestNextIsDeterministicAndDoesNotChangeItsSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots().Draw(t, "snapshot")
		before := clone(s)
		first, second := canary.Next(s), canary.Next(s)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("two decisions about one snapshot differ (-first +second):\n%s", diff)
		}
		if diff := cmp.Diff(before, s); diff != "" {
			t.Fatalf("the snapshot was changed (-before +after):\n%s", diff)
		}
	})
}

func TestNextHasNoDeadEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots().Draw(t, "snapshot")
		d := canary.Next(s)
		if changed := cmp.Diff(s.Status, d.Status) != ""; changed {
			if !d.Wake.Equal(s.Now) {
				t.Fatalf("a new state must be reconciled at once, but the decision wakes at %s, now %s", d.Wake, s.Now)
			}
			return
		}
		if !d.Wake.IsZero() && !d.Wake.After(s.Now) && len(d.Stamp) == 0 {
			t.Fatalf("nothing changes, but the decision wakes at %s, which is not after %s: gates %v", d.Wake, s.Now, d.Gates)
		}
		first := d.Gates.First()
		if first == nil {
			return
		}
		switch first.Opener {
		case release.ByTime:
			if d.Wake.IsZero() && len(d.Stamp) == 0 {
				t.Fatalf("gate %s waits for time, but no wake-up is scheduled: %+v", first.Name, first)
			}
		case release.ByAnswer:
			if len(d.Queries) == 0 {
				t.Fatalf("gate %s waits for an answer, but no query is sent: %+v", first.Name, first)
			}
		case release.ByCluster, release.ByUser:
		default:
			t.Fatalf("gate %s does not pass and has no opener: %+v", first.Name, first)
		}
	})
}

func TestNextChangesNothingWhileAnotherControllerActs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots().Draw(t, "snapshot")
		s.OtherController = canary.OtherController{Sign: "its Deployment has ready pods"}
		d := canary.Next(s)
		if first := d.Gates.First(); first == nil || first.Name != "peer" {
			t.Fatalf("no gate explains it: %v", d.Gates)
		}
		if canary.IsOwnRelease(s.Status) && !s.Deleting {
			return // check the next test
		}
		if len(d.Effects) > 0 || len(d.Queries) > 0 || len(d.Stamp) > 0 {
			t.Fatalf("two controllers at once: effects %v, queries %v", d.Effects, d.Queries)
		}
		if diff := cmp.Diff(s.Status, d.Status); diff != "" {
			t.Fatalf("the status of the other controller was changed (-before +after):\n%s", diff)
		}
	})
}

func TestNextOnlyObservesAndRollsBackWhileAnotherControllerActs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots().Filter(func(s canary.Snapshot) bool { return canary.IsOwnRelease(s.Status) }).Draw(t, "snapshot")
		alone := canary.Next(s)
		s.OtherController = canary.OtherController{Sign: "its Deployment has ready pods"}
		d := canary.Next(s)
		live := s.Route.Canary
		if !s.Plan.HasRouter || !s.Route.Found || s.Route.Problem != "" {
			live = 0
		}
		rollsBack := alone.Status.Serin != nil && slices.Contains([]string{"rollback", "cancel"}, alone.Status.Serin.Intent) &&
			!s.Deleting && !s.Plan.Suspended && alone.Status.Phase != flaggerv1.CanaryPhaseFinalising
		if rollsBack && (!cmp.Equal(d.Status, alone.Status) || len(d.Effects) != len(alone.Effects)) {
			t.Fatalf("effects of the rollback without the other controller: %v; with it: %v", alone.Effects, d.Effects)
		}
		for _, effect := range d.Effects {
			if _, copies := effect.(canary.CopyTemplate); copies {
				t.Fatalf("%s promotes", effect)
			}
			if weight, ok := weightOf(effect); ok && weight > live && !rollsBack && s.Route.Found { // a deleted route is recreated
				t.Fatalf("%s raises the weight from %d", effect, live)
			}
		}
		if d.Status.CanaryWeight > max(s.Status.CanaryWeight, live, 0) || d.Status.Iterations > max(s.Status.Iterations, 0) {
			t.Fatalf("the release advanced: %+v", d.Status)
		}
		switch d.Status.Phase {
		case s.Status.Phase, flaggerv1.CanaryPhaseFailed:
		case flaggerv1.CanaryPhaseSucceeded: // the target was reverted to the promoted revision
		case flaggerv1.CanaryPhaseProgressing: // a promotion that rolls back
		default:
			t.Fatalf("the release advanced to phase %s", d.Status.Phase)
		}
	})
}

// TestNextIgnoresConfigsOfTheStatus: the checksums are informational, so values that an earlier version wrote start no release.
func TestNextIgnoresConfigsOfTheStatus(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots().Draw(t, "snapshot")
		other := s
		other.Status = *s.Status.DeepCopy()
		if other.Status.Serin != nil {
			other.Status.Serin.Configs = map[string]string{"secret/creds": "8f434346648f6b96df89dda901c5176b"}
		}
		other.Workload.Configs = map[string]string{"secret/creds": "resourceVersion 7"}
		forget := func(d canary.Decision) canary.Decision {
			d.Status = *d.Status.DeepCopy()
			if d.Status.Serin != nil {
				d.Status.Serin.Configs = nil
			}
			return d
		}
		if diff := cmp.Diff(forget(canary.Next(s)), forget(canary.Next(other))); diff != "" {
			t.Fatalf("the decision depends on the checksums (-before +after):\n%s", diff)
		}
	})
}

func TestNextNeverSendsTrafficToAWorkloadWithoutPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots().Draw(t, "snapshot")
		d := canary.Next(s)
		live := s.Route.Canary
		if !s.Plan.HasRouter || !s.Route.Found || s.Route.Problem != "" {
			live = 0
		}
		for _, effect := range d.Effects {
			weight, ok := weightOf(effect)
			if !ok {
				continue
			}
			if weight < 0 || weight > release.Total {
				t.Fatalf("%s: the weight is out of range", effect)
			}
			if weight > live && s.Workload.Target.Available == 0 {
				t.Fatalf("%s raises the weight from %d, but the canary has no available pod", effect, live)
			}
			if _, maintains := effect.(canary.RouteMaintained); maintains {
				continue // leaves the weight unchanged
			}
			primary, target := s.Workload.Primary, s.Workload.Target
			if weight > 0 && live == 0 && hasNoEndpoints(target) {
				t.Fatalf("%s starts the traffic, but no endpoint of the canary is published", effect)
			}
			if weight < live && target.Available > 0 && !hasNoEndpoints(target) && hasNoEndpoints(primary) {
				t.Fatalf("%s lowers the weight from %d, but no endpoint of the primary is published", effect, live)
			}
			if weight < live && target.Available > 0 && (!primary.Found || primary.Available == 0) {
				t.Fatalf("%s lowers the weight from %d, but the primary has no available pod", effect, live)
			}
		}
		if w := d.Status.CanaryWeight; w < 0 || w > release.Total {
			t.Fatalf("the status has weight %d", w)
		}
	})
}

// hasNoEndpoints reports whether no request would reach a workload.
func hasNoEndpoints(c canary.WorkloadState) bool {
	return c.Endpoints.Unknown == "" && c.Endpoints.Ready == 0
}

func TestNextScalesNoWorkloadWithTrafficToZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots().Draw(t, "snapshot")
		if !s.Plan.HasRouter || s.Route.Problem != "" {
			return
		}
		weight := s.Route.Canary
		if !s.Route.Found {
			weight = 0
		}
		d := canary.Next(s)
		for _, effect := range d.Effects {
			if w, ok := weightOf(effect); ok {
				weight = w
			}
			if _, ok := effect.(canary.TargetScaledToZero); ok && weight > 0 {
				t.Fatalf("the target is scaled to zero with weight %d: %v", weight, d.Effects)
			}
		}
	})
}

func TestNextNeverExceedsTheMaximumWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots().Draw(t, "snapshot")
		d := canary.Next(s)
		if s.Plan.Strategy != canary.Weighted || d.Status.Phase == flaggerv1.CanaryPhaseFailed {
			return // these strategies route all traffic at once
		}
		limit := max(s.Plan.MaxWeight, s.Status.CanaryWeight, s.Route.Canary)
		if d.Status.CanaryWeight > limit {
			t.Fatalf("the status has weight %d, above %d", d.Status.CanaryWeight, limit)
		}
		for _, effect := range d.Effects {
			if w, ok := weightOf(effect); ok && w > limit {
				t.Fatalf("%s is above %d", effect, limit)
			}
		}
	})
}

// weightOf is the weight that an effect sets.
func weightOf(effect release.Effect) (int, bool) {
	switch e := effect.(type) {
	case canary.TrafficWeight:
		return e.Canary, e.Provider == ""
	case canary.RouteMaintained:
		return e.Canary, true
	default:
		return 0, false
	}
}

// TestEveryWorldBecomesIdle applies decisions from any state until nothing changes: there is no hot loop, and no decision
// reverts an earlier one.
func TestEveryWorldBecomesIdle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := worlds().Draw(t, "world")
		var trace []string
		before := w.status
		idle := w.settle(40, func(p reconciliation) {
			trace = append(trace, fmt.Sprintf("%s: %v, first gate %s, answered %d, status %s",
				w.status.Phase, p.changes, firstGateText(p.Gates), len(w.answers), cmp.Diff(before, w.status)))
			before = w.status
		})
		if !idle {
			t.Fatalf("does not become idle:\n%s", strings.Join(trace[len(trace)-6:], "\n"))
		}
	})
}

// TestInvariantsOfRandomRuns executes random sequences of events and checks invariants after each of them.
func TestInvariantsOfRandomRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &randomRun{T: t, world: newWorld()}
		h.world.instantPods = true
		h.world.spec.Service.Name = rapid.SampledFrom([]string{"", "web"}).Draw(t, "service")
		drawSpec(t, h.world)
		h.settle()
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"deploy": func(t *rapid.T) {
				h.world.target.roll(content{template: rapid.SampledFrom(templates).Draw(t, "template")}, "", h.world.instantPods)
				h.settle()
			},
			"pods": func(t *rapid.T) {
				h.world.instantPods = rapid.Bool().Draw(t, "instant")
				for _, p := range []*workload{&h.world.target, &h.world.primary} {
					if p.found && p.replicas > 0 {
						p.available = rapid.Int32Range(0, p.replicas).Draw(t, "available")
					}
				}
				h.settle()
			},
			"endpoints": func(t *rapid.T) {
				h.world.endpointsDelayed = rapid.Bool().Draw(t, "late")
				h.settle()
			},
			"time":        h.advanceRandomly,
			"more time":   h.advanceRandomly,
			"a long time": h.advanceRandomly,
			"whole": func(*rapid.T) {
				h.world.instantPods, h.world.endpointsDelayed = true, false
				for _, p := range []*workload{&h.world.target, &h.world.primary} {
					p.available, p.deadlineExceeded = p.replicas, false
				}
				h.settle()
			},
			"answers": func(t *rapid.T) {
				h.world.standingAnswers["all"] = rapid.SampledFrom([]string{"good", "good", "good", "bad", "unreachable:away", "silent"}).Draw(t, "answers")
				if h.world.standingAnswers["all"] == "silent" {
					delete(h.world.standingAnswers, "all")
				}
				h.settle()
			},
			"route": func(t *rapid.T) {
				if route := h.world.route(); route != nil && h.world.plan().HasRouter {
					route.Canary, route.Mirrored = rapid.SampledFrom([]int{0, 10, 50, 100}).Draw(t, "weight"), false
					h.weight, h.lastTraffic = route.Canary, time.Time{} // Serin did not observe the change
					route.Confirmation = rapid.SampledFrom([]canary.Confirmation{canary.Confirmed, canary.Unconfirmed, canary.CannotTell}).Draw(t, "confirmed")
				}
				h.settle()
			},
			"service": func(*rapid.T) {
				if phase := h.world.status.Phase; phase != "" && phase != flaggerv1.CanaryPhaseInitializing {
					h.world.apex = false // edited
				}
				h.settle()
			},
			"edit": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					drawSpec(t, h.world)
					h.weight, h.lastTraffic = 0, time.Time{} // the route of another provider is not checked
				}
				h.settle()
			},
			"target": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					h.retarget(rapid.SampledFrom([]string{"cart", "basket"}).Draw(t, "target"), rapid.SampledFrom(templates).Draw(t, "template"))
				}
				h.settle()
			},
			"command": func(t *rapid.T) {
				h.world.command = canary.NewCommand(rapid.SampledFrom([]string{"abort", "promote", "promote-full", "retry"}).Draw(t, "verb"), "uid", h.world.status)
				h.settle()
			},
			"restart": func(*rapid.T) { h.world.restart(); h.settle() },
			"crash": func(t *rapid.T) {
				h.world.crash = rapid.IntRange(0, 6).Draw(t, "effects")
				h.settle()
			},
		})
	})
}

// randomRun is a world with the state that its invariants need.
type randomRun struct {
	*rapid.T
	world *world
	wake  time.Time
	// errorAlerts counts the error alerts of the run. lastStep is the time at which its last step was reported, lastTraffic the time
	// at which pods of the canary last had traffic, lastApexTraffic the time at which the Service that clients call last selected them.
	errorAlerts                            int
	lastStep, lastTraffic, lastApexTraffic time.Time
	weight                                 int // after the previous reconciliation
	observed, observedApex                 string
	trace                                  []string
}

func (h *randomRun) settle() {
	if !h.world.settle(80, h.check) {
		h.fail("does not become idle")
	}
}

func (h *randomRun) fail(format string, args ...any) {
	h.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(h.trace[max(0, len(h.trace)-40):], "\n"))
}

func (h *randomRun) advanceRandomly(t *rapid.T) {
	h.advance(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
}

// advance advances the clock: the Canary is reconciled only at the wake-ups of its decisions.
func (h *randomRun) advance(by time.Duration) {
	until := h.world.now.Add(by)
	for range 1000 {
		if h.wake.IsZero() || h.wake.After(until) {
			h.world.now = until
			return
		}
		h.world.now = release.LaterOf(h.world.now, h.wake)
		h.settle()
	}
	h.fail("woken a thousand times")
}

// retarget makes another Deployment the target.
func (h *randomRun) retarget(name, template string) {
	h.world.spec.TargetRef.Kind, h.world.spec.TargetRef.Name = "Deployment", name
	key := "Deployment/" + name
	if _, known := h.world.others[key]; !known && key != h.world.observed {
		h.world.others[key] = workloads{target: newTarget(template)}
	}
	h.world.generation++
}

// checkServicesMoved checks that Services select another primary only if it has pods.
func (h *randomRun) checkServicesMoved(p reconciliation) {
	moved := p.observed.Workload.ServicesSelectOther && slices.ContainsFunc(p.changes, func(effect release.Effect) bool {
		_, services := effect.(canary.ServicesExist)
		return services
	})
	if moved && h.world.primary.available == 0 {
		h.fail("the Services select a primary without pods")
	}
}

func (h *randomRun) check(p reconciliation) {
	w := h.world
	h.checkServicesMoved(p)
	if w.observed != h.observed || w.observedApex != h.observedApex { // what follows is about one target
		h.observed, h.observedApex, h.weight = w.observed, w.observedApex, w.currentWeight()
		h.lastTraffic, h.lastApexTraffic, h.lastStep = time.Time{}, time.Time{}, time.Time{}
	}
	h.wake = p.Wake
	if p.statusWritten {
		h.wake = time.Time{}
	}
	h.trace = append(h.trace, fmt.Sprintf("%s %s weight=%d iterations=%d failed=%d: %v refused=%v crashed=%v first gate %s",
		w.now.Format(time.TimeOnly), w.status.Phase, w.status.CanaryWeight, w.status.Iterations, w.status.FailedChecks, p.changes, p.refused, p.crashed, firstGateText(p.Gates)))
	plan := w.plan()
	scaledDown := slices.ContainsFunc(p.changes, scalesToZero)
	switch {
	case p.observed.Workload.Target.Available == 0:
		h.lastApexTraffic = time.Time{} // the pods that had requests are gone
	case p.observed.Workload.ApexSelectsTarget:
		h.lastApexTraffic = w.now
	}
	if scaledDown && !h.lastApexTraffic.IsZero() && w.now.Sub(h.lastApexTraffic) < plan.Drain/2 {
		h.fail("the target was scaled to zero %s after the Service selected it", w.now.Sub(h.lastApexTraffic))
	}
	if route := w.route(); route != nil && plan.HasRouter {
		if route.Canary > 0 {
			if w.target.available > 0 { // a weight that a user set while the target was idle sends no requests to pods
				h.lastTraffic = w.now
			}
			if scaledDown {
				h.fail("the target was scaled to zero while it had traffic")
			}
		}
		// If users edit routes, a crash may cost half a drain.
		if scaledDown && !h.lastTraffic.IsZero() && w.now.Sub(h.lastTraffic) < plan.Drain/2 {
			h.fail("the target was scaled to zero %s after it lost its traffic", w.now.Sub(h.lastTraffic))
		}
		for _, effect := range p.changes {
			if route, ok := effect.(canary.TrafficWeight); ok && route.Canary > h.weight && route.Provider == "" && w.target.available == 0 {
				h.fail("traffic was sent to a canary without pods")
			}
			if route, ok := effect.(canary.TrafficWeight); ok && route.Provider == "" && !w.endpointsUnreadable {
				starts, returns := route.Canary > 0 && h.weight == 0, route.Canary < h.weight
				if returns && !p.Analyzed {
					h.lastStep = time.Time{} // the next step is the first one after a failed promotion
				}
				if starts && w.target.endpoints == 0 {
					h.fail("the first traffic was sent to a canary without endpoints")
				}
				if returns && w.primary.endpoints == 0 && w.target.endpoints > 0 && w.target.available > 0 {
					h.fail("traffic was sent to a primary without endpoints")
				}
			}
		}
		h.weight = route.Canary
	}
	collected := slices.Contains(p.Effects, release.Effect(canary.ConfigsCollected{}))
	restored := slices.ContainsFunc(p.Effects, func(effect release.Effect) bool {
		switch effect.(type) {
		case canary.ConfigsRestored, canary.RestoreTemplate:
			return true
		}
		return false
	})
	if restored && !collected && slices.Contains(p.Effects, release.Effect(canary.TargetScaledToZero{})) && p.observed.Status.Serin.Unfinished == nil {
		h.fail("the configuration that was stored for a rollback remains after it")
	}
	if collected && !restored {
		// The status may not be written, and the primary be deleted: it must not be recreated with what was collected.
		s := clone(p.observed)
		s.Workload.Primary = canary.WorkloadState{}
		for _, effect := range canary.Next(s).Effects {
			if recreated, ok := effect.(canary.PrimaryRecreated); ok && recreated.RevertedCopyID != "" {
				h.fail("the configuration was deleted that %s needs", recreated)
			}
		}
	}
	if p.crashed || p.refused != nil {
		return
	}
	for _, event := range p.Events {
		switch {
		case strings.HasPrefix(event.Message, "New revision detected!"):
			h.errorAlerts, h.lastStep = 0, time.Time{}
		case strings.HasPrefix(event.Message, "Advance ") && strings.Contains(event.Message, " canary "):
			if !h.lastStep.IsZero() && w.now.Sub(h.lastStep) < plan.Interval {
				h.fail("a step was observed for %s of %s", w.now.Sub(h.lastStep), plan.Interval)
			}
			h.lastStep = w.now
		case event.Alert != nil && event.Alert.Severity == release.Error && !event.Persistent:
			h.errorAlerts++
		}
	}
	for _, c := range w.status.Conditions {
		if c.Type == flaggerv1.ConditionUnanswered && p.statusWritten && slices.ContainsFunc(p.Events, endsRelease) {
			h.fail("a release that is over waits for an answer: %s", c.Message)
		}
	}
	if p.statusWritten && p.Status.Phase == flaggerv1.CanaryPhaseFailed && slices.ContainsFunc(p.Events, endsRelease) {
		if h.errorAlerts != 1 {
			h.fail("a release failed with %d error alerts", h.errorAlerts)
		}
		h.errorAlerts = 0
	}
}

func firstGateText(gates release.Gates) string {
	if g := gates.First(); g != nil {
		return fmt.Sprintf("%s %s: %s", g.Verdict, g.Name, g.Message)
	}
	return "none"
}

func scalesToZero(effect release.Effect) bool { _, ok := effect.(canary.TargetScaledToZero); return ok }

func endsRelease(event release.Event) bool {
	return strings.HasPrefix(event.Message, "Canary failed!") || strings.HasPrefix(event.Message, "Promotion of")
}

// TestCrashesDoNotChangeTheResult runs one scenario twice, once with crashes after some of the effects of any reconciliation:
// effects remain, the status and the memory of the process are lost.
func TestCrashesDoNotChangeTheResult(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		script := scriptedReleases().Draw(t, "script")
		want := script.play(t, nil)
		crashes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) crash {
			return crash{reconciliation: rapid.IntRange(0, 30).Draw(t, "pass"), effects: rapid.IntRange(0, 4).Draw(t, "effects")}
		}), 1, 4).Draw(t, "crashes")
		got := script.play(t, crashes)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("crashes change the result (-without +with):\n%s", diff)
		}
	})
}

// crash stops the process in the reconciliation with that number, after that many effects.
type crash struct{ reconciliation, effects int }

// scriptedRelease is a scenario with one event after the start of a release.
type scriptedRelease struct {
	Spec    func(*world)
	Name    string
	Answers string
	Then    string // what happens after 70 seconds
}

// scriptedReleases are scenarios whose result does not depend on their duration.
func scriptedReleases() *rapid.Generator[scriptedRelease] {
	return rapid.Custom(func(t *rapid.T) scriptedRelease {
		specs := map[string]func(*world){
			"weighted": func(w *world) { w.spec.Analysis.StepWeights = []int{10, 40, 70, 90} },
			"slow way back": func(w *world) {
				w.spec.Analysis.StepWeights, w.spec.Analysis.StepWeightPromotion = []int{10, 40, 70, 90}, 30
			},
			"mirror":     func(w *world) { w.spec.Analysis.StepWeight, w.spec.Analysis.Mirror = 30, true },
			"ab":         func(w *world) { w.spec.Analysis.Iterations, w.spec.Analysis.Match = 4, match() },
			"blue-green": func(w *world) { w.spec.Analysis.Iterations = 4 },
			"copies":     func(w *world) { w.spec.Analysis.Iterations, w.spec.Analysis.Mirror = 4, true },
			"kubernetes": func(w *world) { w.spec.Analysis.Iterations, w.spec.Provider = 4, "kubernetes" },
			"skip":       func(w *world) { w.spec.Analysis.StepWeight, w.spec.SkipAnalysis = 30, true },
		}
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(specs))).Draw(t, "spec")
		release := scriptedRelease{Spec: specs[name], Name: name}
		release.Answers = rapid.SampledFrom([]string{"good", "bad"}).Draw(t, "answers")
		if release.Answers == "good" {
			release.Then = rapid.SampledFrom([]string{"", "v1", "v3", "delete", "abort"}).Draw(t, "then")
		}
		if name == "skip" {
			release.Then = "" // it is over by then
		}
		return release
	})
}

func match() []flaggerv1.AnalysisMatch {
	return []flaggerv1.AnalysisMatch{{Headers: map[string]flaggerv1.HeaderMatch{"x": {Exact: "y"}}}}
}

// result is the result of a scenario.
type result struct {
	Phase                            flaggerv1.CanaryPhase
	Weight, Iterations, Failed       int
	Applied, Promoted                string
	Revision, Runs                   string
	Target, Primary                  string
	TargetReplicas, PrimaryReplicas  int32
	Routes                           map[string]canary.Route
	Gone, Finalizer, PausedAutoscale bool
}

func (s scriptedRelease) play(t *rapid.T, crashes []crash) result {
	w := newWorld()
	w.instantPods = true
	w.standingAnswers["all"] = s.Answers
	w.spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
	w.spec.Analysis = &flaggerv1.CanaryAnalysis{
		Interval: "1m", Threshold: 2,
		Metrics:  []flaggerv1.CanaryMetric{{Name: canary.SuccessRate, Threshold: 99}},
		Webhooks: []flaggerv1.CanaryWebhook{{Type: flaggerv1.PreRolloutHook, Name: "smoke", URL: "http://smoke"}, {Name: "load", URL: "http://load"}},
	}
	w.spec.RevertOnDeletion = true
	s.Spec(w)
	reconciliations := 0
	var wake time.Time
	run := func(until time.Time) {
		for range 400 {
			if !w.settle(60, func(p reconciliation) {
				wake = p.Wake
				if p.statusWritten {
					wake = time.Time{}
				}
				reconciliations++
				for _, c := range crashes {
					if c.reconciliation == reconciliations {
						w.crash = c.effects
					}
				}
			}) {
				t.Fatalf("does not become idle in phase %s", w.status.Phase)
			}
			if w.deleted || wake.IsZero() || wake.After(until) {
				break
			}
			w.now = release.LaterOf(w.now, wake)
		}
		w.now = until
	}
	run(w.now.Add(time.Minute))
	w.target.roll(content{template: "v2"}, "", true)
	run(w.now.Add(70 * time.Second))
	switch s.Then {
	case "v1", "v3":
		w.target.roll(content{template: s.Then}, "", true)
	case "delete":
		w.deleting = true
	case "abort":
		w.command = "abort@" + canary.RunOf("uid", w.status)
	}
	run(w.now.Add(24 * time.Hour))
	out := result{
		Phase: w.status.Phase, Weight: w.status.CanaryWeight, Iterations: w.status.Iterations, Failed: w.status.FailedChecks,
		Applied: w.status.LastAppliedSpec, Promoted: w.status.LastPromotedSpec,
		Target: w.target.revision(), Primary: w.primary.revision(), TargetReplicas: w.target.replicas, PrimaryReplicas: w.primary.replicas,
		Gone: w.deleted, Finalizer: w.finalizer, PausedAutoscale: w.target.paused, Routes: map[string]canary.Route{},
	}
	if w.deleted {
		out.Weight, out.Iterations, out.Failed = 0, 0, 0 // as of when it was deleted
	}
	if w.status.Serin != nil {
		out.Revision, out.Runs = w.status.Serin.Revision, w.status.Serin.Promoted
	}
	for provider, route := range w.routes {
		out.Routes[provider] = *route
	}
	return out
}

var (
	templates = []string{"v1", "v2", "v3"}
	phases    = []flaggerv1.CanaryPhase{
		"", flaggerv1.CanaryPhaseInitializing, flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing,
		flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising, flaggerv1.CanaryPhaseSucceeded,
		flaggerv1.CanaryPhaseFailed, flaggerv1.CanaryPhaseTerminating, flaggerv1.CanaryPhaseTerminated, "Unheard-of",
	}
	hookTypes = []flaggerv1.HookType{
		"", flaggerv1.RolloutHook, flaggerv1.PreRolloutHook, flaggerv1.ConfirmRolloutHook, flaggerv1.ConfirmTrafficIncreaseHook,
		flaggerv1.ConfirmPromotionHook, flaggerv1.PostRolloutHook, flaggerv1.RollbackHook, flaggerv1.EventHook,
	}
)
