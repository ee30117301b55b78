package rollout

import (
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// TestAnUnmanagedServiceWaitsForAllPodsOfARevision: the Service serves users with other pods, whose traffic the only available pod of
// the first revision could not carry, also when a second revision follows.
func TestAnUnmanagedServiceWaitsForAllPodsOfARevision(t *testing.T) {
	w := newWorld(argov1.RolloutSpec{Replicas: new(int32(10))})
	w.spec.Strategy.BlueGreen = &argov1.BlueGreenStrategy{ActiveService: "active"}
	selected := func() string { return w.services["active"].Selector[argov1.PodTemplateHashLabel] }
	release := func(version string, ready int32) {
		w.generation++
		w.template, w.ready["hash-"+version] = version, ready
		w.settle(t)
	}
	release("v1", 1)
	release("v2", 0)
	if got := selected(); got != "" {
		t.Errorf("with 1 of 10 pods, the Service selects %s", got)
	}
	release("v2", 10)
	if got := selected(); got != "hash-v2" {
		t.Errorf("with all pods of v2, the Service selects %q", got)
	}
}
