package rollout

import (
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

func TestTheAdoptionEventNamesStepAndWeight(t *testing.T) {
	at := func(change func(*argov1.Rollout)) *argov1.Rollout {
		o := &argov1.Rollout{}
		o.Name, o.Namespace = "cart", "shop"
		o.Spec.Strategy.Canary = &argov1.CanaryStrategy{Steps: []argov1.CanaryStep{setWeight(20), pauseFor(""), setWeight(50)}}
		o.Status = argov1.RolloutStatus{Phase: argov1.RolloutPhasePaused, StableRS: "old", CurrentPodHash: "new", CurrentStepIndex: new(int32(1))}
		change(o)
		return o
	}
	for name, test := range map[string]struct {
		of   *argov1.Rollout
		want string
	}{
		"by pods": {at(func(*argov1.Rollout) {}), "Adopted the release of cart.shop in phase Paused at step 2 of 3"},
		"by a router": {at(func(o *argov1.Rollout) {
			o.Status.Canary.Weights = &argov1.TrafficWeights{Canary: argov1.WeightDestination{Weight: 20}}
		}), "Adopted the release of cart.shop in phase Paused at step 2 of 3 with weight 20"},
		"behind the last step": {at(func(o *argov1.Rollout) { o.Status.CurrentStepIndex = new(int32(3)) }), "Adopted the release of cart.shop in phase Paused"},
		"blue-green": {at(func(o *argov1.Rollout) {
			o.Spec.Strategy = argov1.RolloutStrategy{BlueGreen: &argov1.BlueGreenStrategy{}}
		}), "Adopted the release of cart.shop in phase Paused"},
		"at rest":      {at(func(o *argov1.Rollout) { o.Status.CurrentPodHash = "old" }), ""},
		"never served": {at(func(o *argov1.Rollout) { o.Status = argov1.RolloutStatus{} }), ""},
		"its own":      {at(func(o *argov1.Rollout) { o.Status.Serin = &argov1.SerinStatus{Release: "new"} }), ""},
		"after one of its own": {at(func(o *argov1.Rollout) {
			o.Status.Serin = &argov1.SerinStatus{Release: "old"}
		}), "Adopted the release of cart.shop in phase Paused at step 2 of 3"},
	} {
		event, reported := AdoptionEvent(test.of)
		if event.Message != test.want || reported != (test.want != "") {
			t.Errorf("%s: reported %t: %q, want %q", name, reported, event.Message, test.want)
		}
	}
}
