package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// worldWithRestart returns a world whose pods, none of which is ready, are to be replaced.
func worldWithRestart(t *testing.T, pods int32) *world {
	t.Helper()
	w := newWorld(argov1.RolloutSpec{Replicas: &pods, Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{}}})
	w.settle(t)
	w.ready["hash-v1"] = 0
	w.settle(t)
	w.now = w.now.Add(time.Minute)
	w.spec.RestartAt = &metav1.Time{Time: w.now.Add(-time.Second)}
	return w
}

// evictions reconciles once, and returns the pods that are to be evicted.
func (w *world) evictions(t *testing.T) []string {
	t.Helper()
	w.reconcile(t)
	var names []string
	for _, effect := range w.last.Effects {
		if evicted, ok := effect.(PodEvicted); ok {
			names = append(names, evicted.Name)
		}
	}
	return names
}

// TestRefusedEvictionsAreRetriedLater: a disruption budget refuses all, and events requeue the Rollout each second.
func TestRefusedEvictionsAreRetriedLater(t *testing.T) {
	const pods = 90
	w := worldWithRestart(t, pods)
	w.budget = true
	began, requested := w.now, map[string]time.Time{}
	var first []string
	for w.now.Before(began.Add(evictionRetryInterval)) {
		names := w.evictions(t)
		if len(names) > maxEvictions {
			t.Fatalf("%d evictions in one reconciliation", len(names))
		}
		for _, name := range names {
			if at, again := requested[name]; again {
				t.Fatalf("the eviction of %s is repeated %s after its refusal", name, w.now.Sub(at))
			}
			requested[name] = w.now
		}
		if first == nil {
			first = names
		}
		if w.last.Wake.IsZero() || w.last.Wake.After(w.now.Add(evictionRetryInterval)) {
			t.Fatalf("requeued at %s, want after %s at the latest", w.last.Wake, evictionRetryInterval)
		}
		w.now = w.now.Add(time.Second)
	}
	if len(requested) != pods {
		t.Errorf("%d of %d pods were to be evicted: the others wait for those that the budget protects", len(requested), pods)
	}
	if names := w.evictions(t); !slices.Equal(names, first) {
		t.Errorf("after %s, the evictions are %v, want %v", evictionRetryInterval, names, first)
	}
}

// TestEvictionsOfUnprotectedPodsComeFirst: no event requeues the Rollout, and the first pods are always refused.
func TestEvictionsOfUnprotectedPodsComeFirst(t *testing.T) {
	w := worldWithRestart(t, 2*maxEvictions)
	w.budget = true
	refused := w.evictions(t)
	w.budget, w.now = false, w.last.Wake
	for _, name := range w.evictions(t) {
		if slices.Contains(refused, name) {
			t.Errorf("%s is evicted before pods that no budget has refused", name)
		}
	}
}

func TestEvictionsContinueUntilAllPodsAreReplaced(t *testing.T) {
	w := worldWithRestart(t, 50)
	var perReconciliation []int
	for names := w.evictions(t); len(names) > 0; names = w.evictions(t) {
		perReconciliation = append(perReconciliation, len(names))
	}
	if want := []int{maxEvictions, maxEvictions, 10}; !slices.Equal(perReconciliation, want) {
		t.Errorf("evictions per reconciliation: %v, want %v", perReconciliation, want)
	}
	if w.status.RestartedAt == nil {
		t.Error("the restart is not complete")
	}
}

// TestEvictionsFollowReadyPods: a budget permits the next eviction as soon as the replacement of an evicted pod is ready.
func TestEvictionsFollowReadyPods(t *testing.T) {
	w := worldWithRestart(t, 4)
	w.spec.Strategy.Canary.MaxUnavailable = new(intstr.FromInt32(2))
	w.ready["hash-v1"], w.budget = 3, true
	refused := w.evictions(t)
	if len(refused) == 0 {
		t.Fatal("nothing is evicted")
	}
	w.now = w.now.Add(time.Second)
	if names := w.evictions(t); slices.ContainsFunc(names, func(name string) bool { return slices.Contains(refused, name) }) {
		t.Errorf("evicted %v again while no more pods are ready", names)
	}
	w.ready["hash-v1"] = 4
	w.now = w.now.Add(time.Second)
	if names := w.evictions(t); len(names) == 0 {
		t.Error("nothing is evicted although another pod is ready")
	}
}

// TestEvictionsAfterTheClockWasSetBack: a refusal in the future does not count.
func TestEvictionsAfterTheClockWasSetBack(t *testing.T) {
	w := worldWithRestart(t, 2)
	for i := range w.pods {
		w.pods[i].EvictionRefusal.At = w.now.Add(time.Hour)
	}
	if names := w.evictions(t); len(names) != 2 {
		t.Error(fmt.Sprint("evicted ", names, ", want both pods"))
	}
}
