package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// Examples from the requirements, each with its expected observations.

// newExample is a world in which the first revision of a spec serves. Pods become available one reconciliation after they
// were requested.
func newExample(t *testing.T, spec string) *world {
	t.Helper()
	w := newWorld(argov1.RolloutSpec{})
	if err := yaml.UnmarshalStrict([]byte(spec), &w.spec); err != nil {
		t.Fatal(err)
	}
	w.settle(t)
	return w
}

// deploy sets another revision of the template, and reconciles until nothing changes.
func (w *world) deploy(t *testing.T, version string) {
	t.Helper()
	w.generation++
	w.template = version
	w.settle(t)
}

// resumePauses ends the pauses, as a user does.
func (w *world) resumePauses(t *testing.T) {
	t.Helper()
	w.status.PauseConditions = nil
	w.settle(t)
}

// abortRelease aborts the release, as a user does.
func (w *world) abortRelease(t *testing.T) {
	t.Helper()
	w.status.Abort = true
	w.settle(t)
}

// podHistory records the desired pods of the new revision and of the stable one.
type podHistory struct {
	seen        []string
	most, least int32
}

// recordPods starts the recording. Desired pods exist immediately, and become available later.
func (w *world) recordPods(stable, next string) *podHistory {
	n := &podHistory{least: 1 << 30}
	look := func() {
		var pods, available, of, to int32
		for _, rs := range w.sets {
			pods += max(rs.SpecReplicas, rs.Replicas)
			available += min(rs.Available, rs.SpecReplicas)
			switch rs.Hash {
			case "hash-" + next:
				to = rs.SpecReplicas
			case "hash-" + stable:
				of = rs.SpecReplicas
			}
		}
		n.most, n.least = max(n.most, pods), min(n.least, available)
		if now := fmt.Sprintf("%d/%d", to, of); len(n.seen) == 0 || n.seen[len(n.seen)-1] != now {
			n.seen = append(n.seen, now)
		}
	}
	w.watch = func(release.Effect, []ReplicaSet) { look() }
	look()
	return n
}

const exampleOfSteps = `
replicas: 10
minReadySeconds: 30
revisionHistoryLimit: 3
strategy: {canary: {maxSurge: "25%", maxUnavailable: 0, steps: [{setWeight: 10}, {pause: {duration: 1h}}, {setWeight: 20}, {pause: {}}]}}
`

// TestExampleOfSteps: weights by numbers of pods, timed and indefinite pauses, surge.
func TestExampleOfSteps(t *testing.T) {
	w := newExample(t, exampleOfSteps)
	n := w.recordPods("v1", "v2")
	w.deploy(t, "v2")
	if diff := cmp.Diff([]string{"0/10", "1/10", "1/9"}, n.seen); diff != "" {
		t.Errorf("new/old at weight 10 (-want +got):\n%s", diff)
	}
	pause := func(from time.Time) {
		t.Helper()
		c := w.status.PauseConditions
		if len(c) != 1 || c[0].Reason != argov1.PauseReasonCanaryPauseStep || c[0].StartTime.Time.Before(from.Truncate(time.Second)) || c[0].StartTime.After(w.now) {
			t.Errorf("pauses %+v, want one that began after %s", c, from)
		}
	}
	began := w.now
	pause(began)
	w.advanceTo(t, began.Add(time.Hour))
	if got := *w.status.CurrentStepIndex; got != 1 {
		t.Errorf("after an hour sharp the step is %d, want 1", got)
	}
	n.seen = nil
	w.advanceTo(t, began.Add(time.Hour+2*time.Second))
	if diff := cmp.Diff([]string{"2/9", "2/8"}, n.seen); diff != "" {
		t.Errorf("new/old at weight 20 (-want +got):\n%s", diff)
	}
	pause(began.Add(time.Hour))
	w.advanceTo(t, w.now.Add(1000*time.Hour))
	if w.status.Phase != argov1.RolloutPhasePaused {
		t.Errorf("a pause without duration ended: %s", w.status.Phase)
	}
	n.seen = nil
	w.resumePauses(t)
	if diff := cmp.Diff([]string{"5/8", "5/5", "8/5", "8/2", "10/2", "10/0"}, n.seen); diff != "" {
		t.Errorf("new/old of the rest (-want +got):\n%s", diff)
	}
	if len(w.status.PauseConditions) > 0 || w.status.Phase != argov1.RolloutPhaseHealthy {
		t.Errorf("promoted: %s, pauses %+v", w.status.Phase, w.status.PauseConditions)
	}
	if n.most > 13 || n.least < 10 {
		t.Errorf("at most %d pods and at least %d available, want 13 and 10", n.most, n.least)
	}
	for i := range 5 {
		w.deploy(t, fmt.Sprintf("v%d", i+3))
		w.status.PromoteFull = true
		w.settle(t)
	}
	if len(w.sets) != 4 {
		t.Errorf("%d ReplicaSets, want the newest and three old ones", len(w.sets))
	}
}

// TestExampleOfDurations: every form of a pause's duration, and the nearest number of pods.
func TestExampleOfDurations(t *testing.T) {
	w := newExample(t, `
replicas: 10
strategy: {canary: {steps: [{setWeight: 41}, {pause: {duration: 10}}, {pause: {duration: 10s}}, {pause: {duration: 10m}}, {pause: {duration: 10h}}, {pause: {}}]}}
`)
	w.deploy(t, "v2")
	if young, old := w.replicaSet("cart-hash-v2").SpecReplicas, w.replicaSet("cart-hash-v1").SpecReplicas; young != 4 || old != 6 {
		t.Errorf("at weight 41: %d new and %d old pods, want 4 and 6", young, old)
	}
	for step, length := range []time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Minute, 10 * time.Hour} {
		began := w.status.PauseConditions[0].StartTime.Time
		w.advanceTo(t, began.Add(length-time.Second))
		if got := int(*w.status.CurrentStepIndex); got != step+1 {
			t.Errorf("a second before the end of pause %d the step is %d", step+1, got)
		}
		w.advanceTo(t, began.Add(length+2*time.Second))
		if got := int(*w.status.CurrentStepIndex); got != step+2 {
			t.Errorf("behind the end of pause %d the step is %d", step+1, got)
		}
	}
	gate := w.last.Gates.Named("pause")
	if gate == nil || gate.Opener != release.ByUser {
		t.Errorf("the last pause is opened by %+v, want a person", gate)
	}
}

// TestExampleOfImbalance: the steps are executed as written, and users are warned before.
func TestExampleOfImbalance(t *testing.T) {
	w := newExample(t, routedExample(10, `steps: [{setCanaryScale: {weight: 10}}, {setWeight: 90}, {pause: {}}]`))
	w.events.Reset()
	w.deploy(t, "v2")
	if young, weight := w.replicaSet("cart-hash-v2").SpecReplicas, w.route.Weights.Canary.Weight; young != 1 || weight != 90 {
		t.Errorf("%d canary pods at weight %d, want 1 at 90", young, weight)
	}
	events := w.events.String()
	warned, routed := strings.Index(events, "TrafficImbalance"), strings.Index(events, "canary=90")
	if warned < 0 || routed < 0 || warned > routed {
		t.Errorf("the warning has to come before the weight:\n%s", events)
	}
	if gate := w.last.Gates.Named("imbalance"); gate == nil {
		t.Errorf("no gate of the status warns: %v", w.last.Gates)
	}
}

// routedExample is a spec whose traffic is divided with Gateway API.
func routedExample(replicas int, more string) string {
	return fmt.Sprintf(`
replicas: %d
strategy: {canary: {canaryService: canary, stableService: stable, trafficRouting: {plugins: {argoproj-labs/gatewayAPI: {httpRoute: cart, namespace: shop}}}, %s}}
`, replicas, more)
}

// TestExampleOfCanaryScale: the number of canary pods is independent of the weight.
func TestExampleOfCanaryScale(t *testing.T) {
	w := newExample(t, routedExample(8, `steps: [{setCanaryScale: {replicas: 3}}, {pause: {}}, {setCanaryScale: {weight: 25}}, {pause: {}}, {setCanaryScale: {matchTrafficWeight: true}}, {setWeight: 50}, {pause: {}}]`))
	stable := func(release.Effect, []ReplicaSet) {
		if pods := w.replicaSet("cart-hash-v1").SpecReplicas; pods != 8 {
			t.Errorf("the stable revision has %d pods, want 8 throughout", pods)
		}
	}
	w.watch = stable
	w.deploy(t, "v2")
	for _, want := range []struct{ pods, weight int32 }{{3, 0}, {2, 0}, {4, 50}} {
		if pods, weight := w.replicaSet("cart-hash-v2").SpecReplicas, w.route.Weights.Canary.Weight; pods != want.pods || weight != want.weight {
			t.Errorf("%d canary pods at weight %d, want %d at %d", pods, weight, want.pods, want.weight)
		}
		if want.weight == 0 {
			w.resumePauses(t)
		}
	}
}

// TestExampleOfDynamicStableScale: the stable revision is scaled down while the canary is scaled up, and vice versa.
func TestExampleOfDynamicStableScale(t *testing.T) {
	w := newExample(t, routedExample(8, `dynamicStableScale: true, abortScaleDownDelaySeconds: 600, steps: [{setWeight: 25}, {pause: {}}, {setWeight: 75}, {pause: {}}]`))
	w.watch = func(release.Effect, []ReplicaSet) { w.checkCapacity(t, 8) }
	w.deploy(t, "v2")
	pods := func(young, old int32) {
		t.Helper()
		if a, b := w.replicaSet("cart-hash-v2").SpecReplicas, w.replicaSet("cart-hash-v1").SpecReplicas; a != young || b != old {
			t.Errorf("%d canary and %d stable pods, want %d and %d", a, b, young, old)
		}
	}
	pods(2, 6)
	w.resumePauses(t)
	pods(6, 2)
	for _, step := range []struct{ pods, weight int32 }{{2, 75}, {5, 38}, {6, 25}, {7, 13}} { // one after the other
		w.ready["hash-v1"] = step.pods
		w.abortRelease(t)
		if weight := w.route.Weights.Canary.Weight; weight != step.weight {
			t.Errorf("with %d stable pods the canary has %d %%, want %d", step.pods, weight, step.weight)
		}
	}
	delete(w.ready, "hash-v1")
	w.settle(t)
	pods(6, 8)
	if weight := w.route.Weights.Canary.Weight; weight != 0 {
		t.Errorf("with all stable pods the canary has %d %%", weight)
	}
	aborted := w.now
	w.advanceTo(t, aborted.Add(599*time.Second))
	pods(6, 8)
	w.advanceTo(t, aborted.Add(602*time.Second))
	pods(0, 8)
}

// checkCapacity checks that each side has the available pods that its share of the requests requires.
func (w *world) checkCapacity(t *testing.T, replicas int32) {
	t.Helper()
	if w.route == nil {
		return
	}
	for _, side := range []argov1.WeightDestination{w.route.Weights.Canary, w.route.Weights.Stable} {
		for _, rs := range w.sets {
			if rs.Hash == side.PodTemplateHash && side.Weight > 0 && min(rs.Available, rs.SpecReplicas)*pods.DefaultMaxWeight < side.Weight*replicas {
				t.Errorf("%s has %d %% of the requests and %d of %d pods available", rs.Hash, side.Weight, min(rs.Available, rs.SpecReplicas), replicas)
			}
		}
	}
}

// TestExampleOfARollingUpdate: no steps.
func TestExampleOfARollingUpdate(t *testing.T) {
	w := newExample(t, `{replicas: 10, strategy: {canary: {maxSurge: "20%", maxUnavailable: "10%"}}}`)
	n := w.recordPods("v1", "v2")
	w.deploy(t, "v2")
	if n.most > 12 || n.least < 9 || w.replicaSet("cart-hash-v2").Available != 10 || w.status.Phase != argov1.RolloutPhaseHealthy {
		t.Errorf("at most %d pods and at least %d available, want 12 and 9; then %s, %d new", n.most, n.least, w.status.Phase, w.replicaSet("cart-hash-v2").Available)
	}
}

// TestExampleOfServices: each Service selects one revision, pods have the metadata of their role, and anti-affinity
// separates the two.
func TestExampleOfServices(t *testing.T) {
	w := newExample(t, `
replicas: 4
strategy:
  canary:
    canaryService: canary
    stableService: stable
    canaryMetadata: {labels: {role: canary}}
    stableMetadata: {labels: {role: stable}}
    antiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}
    steps: [{setWeight: 25}, {pause: {}}]
`)
	stable := "hash-v1"
	w.watch = func(release.Effect, []ReplicaSet) {
		if got := w.services["stable"].Selector[argov1.PodTemplateHashLabel]; got != stable && w.status.StableRS == stable {
			t.Errorf("Service stable selects %s while %s is stable", got, stable)
		}
	}
	w.deploy(t, "v2")
	roles := func(want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for name, metadata := range w.labels {
			if metadata != nil && w.replicaSet(name) != nil && w.replicaSet(name).SpecReplicas > 0 {
				got[name] = metadata.Labels["role"]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("roles (-want +got):\n%s", diff)
		}
	}
	roles(map[string]string{"cart-hash-v1": "stable", "cart-hash-v2": "canary"})
	if got := w.services["canary"].Selector[argov1.PodTemplateHashLabel]; got != "hash-v2" {
		t.Errorf("Service canary selects %s", got)
	}
	if got := w.replicaSet("cart-hash-v2").AvoidedHash; got != "hash-v1" {
		t.Errorf("new pods keep away from %q, want hash-v1", got)
	}
	before := slices.Clone(w.pods)
	w.resumePauses(t)
	roles(map[string]string{"cart-hash-v2": "stable"})
	for _, pod := range before {
		kept := slices.ContainsFunc(w.pods, func(now Pod) bool { return now.Name == pod.Name })
		if pod.ReplicaSet == "cart-hash-v2" && !kept {
			t.Errorf("pod %s was replaced for its role", pod.Name)
		}
	}
	if got := w.services["stable"].Selector[argov1.PodTemplateHashLabel]; got != "hash-v2" {
		t.Errorf("Service stable selects %s after the promotion", got)
	}
}

// TestExampleOfAnAnalysis: a background analysis starts with the step that it names, ends with the release, and rolls
// it back if it fails.
func TestExampleOfAnAnalysis(t *testing.T) {
	const spec = `
replicas: 5
strategy:
  canary:
    canaryService: canary
    stableService: stable
    analysis: {startingStep: 2, templates: [{templateName: success-rate}], args: [{name: service, value: analysed-canary}]}
    steps: [{setWeight: 20}, {pause: {duration: 1m}}, {setWeight: 40}, {pause: {duration: 5m}}]
`
	w := newExample(t, spec)
	w.deploy(t, "v2")
	if len(w.runs) > 0 {
		t.Fatalf("an analysis began at step %d", *w.status.CurrentStepIndex)
	}
	w.advanceTo(t, w.now.Add(62*time.Second))
	if len(w.runs) != 1 || w.runs[0].Type != argov1.TypeBackground || *w.status.CurrentStepIndex != 3 {
		t.Fatalf("at step %d there are the runs %+v", *w.status.CurrentStepIndex, w.runs)
	}
	w.advanceTo(t, w.now.Add(302*time.Second))
	if !w.runs[0].Terminated || w.status.Phase != argov1.RolloutPhaseHealthy {
		t.Errorf("the update is over (%s), and its analysis goes on: %+v", w.status.Phase, w.runs[0])
	}

	w = newExample(t, spec)
	w.deploy(t, "v2")
	w.advanceTo(t, w.now.Add(62*time.Second))
	w.verdict = argov1.AnalysisPhaseFailed
	w.settle(t)
	if !w.status.Abort || w.status.Phase != argov1.RolloutPhaseDegraded || w.replicaSet("cart-hash-v2").SpecReplicas != 0 || w.replicaSet("cart-hash-v1").Available != 5 {
		t.Errorf("%s, aborted %t, %d new and %d stable pods", w.status.Phase, w.status.Abort, w.replicaSet("cart-hash-v2").SpecReplicas, w.replicaSet("cart-hash-v1").Available)
	}
	if want := "RolloutAborted: Rollout aborted update to revision 2: Background analysis phase error/failed: as judged"; w.status.Message != want {
		t.Errorf("message %q, want %q with what the run says", w.status.Message, want)
	}
}
