package rollout

import (
	"testing"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// TestNewReleaseDoesNotInheritDeadline: if the status write about the creation of the ReplicaSet is lost, the status
// still contains the start of the previous deadline when the next release starts.
func TestNewReleaseDoesNotInheritDeadline(t *testing.T) {
	w := newWorld(argov1.RolloutSpec{
		Replicas: new(int32(2)), ProgressDeadlineSeconds: new(int32(60)), ProgressDeadlineAbort: true,
		Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{}},
	})
	w.settle(t)
	w.template, w.bad = "v2", true
	w.generation++
	w.settle(t)
	w.template = "v3"
	w.generation++
	w.sets[1].SpecReplicas = 0 // not counted
	w.runControllers()
	w.status.UpdatedReplicas, w.status.Replicas = 0, 2
	w.now = w.now.Add(time.Hour)
	w.sets = append(w.sets, ReplicaSet{Name: "cart-hash-v3", Hash: "hash-v3", Revision: 3, Created: w.tick()})
	d := Next(w.snapshot(t))
	if d.Status.CurrentPodHash != "hash-v3" || d.Status.Abort {
		t.Errorf("a release that begins: %+v", d.Status)
	}
	if late := conditions(d.Status.Conditions).find(argov1.RolloutProgressing); late.Reason != reasonUpdated {
		t.Errorf("a release that begins is %s: %s", late.Reason, late.Message)
	}
}
