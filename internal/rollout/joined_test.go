package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// stepping is a world behind a router, held in the first pause of a release.
func stepping(t *testing.T, pods int32, steps ...argov1.CanaryStep) *world {
	t.Helper()
	w := newWorld(argov1.RolloutSpec{Replicas: &pods})
	w.spec.Strategy.Canary = &argov1.CanaryStrategy{
		CanaryService: "canary", StableService: "stable", TrafficRouting: &argov1.RolloutTrafficRouting{}, Steps: steps,
	}
	w.settle(t)
	w.generation++
	w.template = "v2"
	w.settle(t)
	if w.status.Phase != argov1.RolloutPhasePaused {
		t.Fatalf("%s (%s):\n%s", w.status.Phase, w.status.Message, w.told.String())
	}
	w.writes = 0
	w.told.Reset()
	return w
}

// after lets time pass, and is what people were told meanwhile, by its reasons.
func (w *world) after(t *testing.T, by time.Duration) []string {
	t.Helper()
	w.told.Reset()
	w.until(t, w.now.Add(by))
	var told []string
	for line := range strings.Lines(w.told.String()) {
		told = append(told, strings.TrimSpace(strings.SplitN(line, ":", 2)[0]))
	}
	return told
}

func TestTheEndOfAPauseAndTheWeightBehindItAreOneWrite(t *testing.T) {
	w := stepping(t, 1, setWeight(10), pauseFor("10s"), setWeight(20), pauseFor("10s"))
	before := pausedSince(w.status, *pauseStep(w.status))
	told := w.after(t, 11*time.Second)
	if want := []string{"RolloutStepCompleted", "RolloutResumed", "canary=20 stable=80", "TrafficWeightUpdated", "RolloutStepCompleted", "RolloutPaused"}; !slices.Equal(told, want) {
		t.Fatalf("told %q, want %q", told, want)
	}
	if w.writes != 1 || *w.status.CurrentStepIndex != 3 || w.route.Weights.Canary.Weight != 20 || !heldBy(w.status, argov1.PauseReasonCanaryPauseStep) {
		t.Fatalf("%d writes of the status; now it is at step %d, with weight %d and the pauses %v", w.writes, *w.status.CurrentStepIndex, w.route.Weights.Canary.Weight, w.status.PauseConditions)
	}
	if began := pausedSince(w.status, *pauseStep(w.status)); began.Before(before.Add(10 * time.Second)) {
		t.Fatalf("the first pause began at %s, the second at %s", before, began)
	}
}

func TestTheLastPauseAndThePromotionAreOneWrite(t *testing.T) {
	w := stepping(t, 1, setWeight(10), pauseFor("10s"))
	w.now = w.last.Wake
	w.pass(t)
	if w.writes != 1 || w.status.StableRS != "hash-v2" || w.route.Weights.Canary.Weight != 100 {
		t.Fatalf("%d writes of the status, %s is stable, and the weight is %d", w.writes, w.status.StableRS, w.route.Weights.Canary.Weight)
	}
}

func TestAPersonEndsAPauseInOneWriteWithTheWeightBehindIt(t *testing.T) {
	w := stepping(t, 1, setWeight(10), pauseFor(""), setWeight(20), pauseFor(""))
	w.promote()
	w.settle(t)
	if w.writes != 1 || *w.status.CurrentStepIndex != 3 || w.route.Weights.Canary.Weight != 20 {
		t.Fatalf("%d writes of the status; now it is at step %d with weight %d", w.writes, *w.status.CurrentStepIndex, w.route.Weights.Canary.Weight)
	}
}

// A step that asks for anything but a route is begun by a status that says so.
func TestAStepThatNeedsPodsIsNotJoined(t *testing.T) {
	steps := []argov1.CanaryStep{setWeight(10), pauseFor("10s"), setWeight(50), pauseFor("10s")}
	experiment := []argov1.CanaryStep{setWeight(10), pauseFor("10s"), {Experiment: &argov1.RolloutExperimentStep{}}}
	for _, w := range []*world{stepping(t, 10, steps...), stepping(t, 1, experiment...)} {
		w.now = w.last.Wake
		s := w.snapshot(t)
		if _, both, joins := Joined(s, Next(s)); joins {
			t.Errorf("joined: %v", both.Effects)
		}
	}
}

func TestARouteThatIsAheadOfAnAbortGoesBack(t *testing.T) {
	w := stepping(t, 1, setWeight(10), pauseFor("10s"), setWeight(20), pauseFor("10s"))
	w.now = w.last.Wake
	w.lives = func(effects int) (int, bool) { return effects, true }
	w.pass(t)
	if w.lives = nil; w.route.Weights.Canary.Weight != 20 || *w.status.CurrentStepIndex != 1 {
		t.Fatalf("at step %d with weight %d", *w.status.CurrentStepIndex, w.route.Weights.Canary.Weight)
	}
	var weights []int32
	w.watch = func(effect release.Effect, _ []ReplicaSet) {
		if route, is := effect.(RouteIs); is {
			weights = append(weights, route.Weights.Canary.Weight)
		}
	}
	w.status.Abort = true
	w.settle(t)
	if !slices.Equal(weights, []int32{0}) || w.status.Phase != argov1.RolloutPhaseDegraded {
		t.Fatalf("%s, and the weights after the abort were %v", w.status.Phase, weights)
	}
}

func TestAReleaseBeginsWithTheWriteBehindItsReplicaSet(t *testing.T) {
	w := stepping(t, 1, setWeight(10), pauseFor("10s"))
	w.generation++
	w.template = "v3"
	w.pass(t)
	if w.writes != 1 || w.status.CurrentPodHash != "hash-v3" || *w.status.CurrentStepIndex != 0 || len(w.status.PauseConditions) > 0 || w.set("cart-hash-v3").Spec > 0 {
		t.Fatalf("%d writes of the status: %+v", w.writes, w.status)
	}
}

// A pause that begins beside effects begins when those hold.
func TestAPauseBeginsWithTheEffectsBesideIt(t *testing.T) {
	w := stepping(t, 1, setWeight(10), pauseFor("10s"), pauseFor("20s"))
	w.status.PauseConditions, w.status.ControllerPause, w.status.CurrentStepIndex = nil, false, new(int32(2))
	w.pass(t) // notes that it goes on
	s := w.snapshot(t)
	d := Next(s)
	if s.Now = s.Now.Add(3 * time.Second); pauseStep(d.Status) == nil {
		t.Fatalf("no pause: %+v", d.Status)
	}
	d = Settled(s, d)
	if began := pausedSince(d.Status, *pauseStep(d.Status)); !began.Equal(s.Now) {
		t.Errorf("it began at %s, and the effects held at %s", began, s.Now)
	}
	if again := Settled(s, d); !pausedSince(again.Status, *pauseStep(again.Status)).Equal(s.Now) {
		t.Error("it begins once more")
	}
}
