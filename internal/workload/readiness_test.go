package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
)

func TestDeploymentReadiness(t *testing.T) {
	type counts struct{ generation, observed, wanted, total, updated, available int64 }
	deployment := func(n counts, reason string) *unstructured.Unstructured {
		obj := newObject(deploymentKind, namespace, "cart")
		obj.SetGeneration(n.generation)
		obj.Object["spec"] = map[string]any{"replicas": n.wanted}
		obj.Object["status"] = map[string]any{
			"observedGeneration": n.observed, "replicas": n.total, "updatedReplicas": n.updated, "availableReplicas": n.available,
			"conditions": []any{
				map[string]any{"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"},
				map[string]any{"type": "Progressing", "reason": reason},
			},
		}
		return obj
	}
	for _, test := range []struct {
		name      string
		counts    counts
		reason    string
		threshold int
		want      Readiness
	}{
		{"all there", counts{2, 2, 2, 2, 2, 2}, "NewReplicaSetAvailable", 100, Readiness{Ready: true, RequiredAvailable: 2}},
		{"nothing wanted", counts{2, 2, 0, 0, 0, 0}, "", 100, Readiness{Ready: true}},
		{"row 0 comes before row 1", counts{3, 2, 2, 2, 2, 2}, "ProgressDeadlineExceeded", 100, Readiness{
			Message: "waiting for rollout to finish: observed deployment generation less than desired generation",
		}},
		{"row 1 comes before row 2", counts{2, 2, 2, 2, 1, 1}, "ProgressDeadlineExceeded", 100, Readiness{
			DeadlineExceeded: true, Message: `deployment "cart" exceeded its progress deadline`,
		}},
		{"row 2 ignores the threshold", counts{2, 2, 2, 2, 1, 1}, "", 50, Readiness{
			Message: "waiting for rollout to finish: 1 out of 2 new replicas have been updated",
		}},
		{"row 3 ignores the threshold", counts{2, 2, 2, 3, 2, 2}, "", 50, Readiness{
			Message: "waiting for rollout to finish: 1 old replicas are pending termination",
		}},
		{"row 4", counts{2, 2, 2, 2, 2, 0}, "", 100, Readiness{
			Message: "waiting for rollout to finish: 0 of 2 (readyThreshold 100%) updated replicas are available",
		}},
		{"row 4, cut to a whole number", counts{2, 2, 10, 10, 10, 6}, "", 75, Readiness{
			Message: "waiting for rollout to finish: 6 of 7 (readyThreshold 75%) updated replicas are available",
		}},
		{"enough for the threshold", counts{2, 2, 10, 10, 10, 7}, "", 75, Readiness{Ready: true, RequiredAvailable: 7}},
		{"half of one is none, but one pod must be there", counts{2, 2, 1, 1, 1, 0}, "", 50, Readiness{
			Message: "waiting for rollout to finish: 0 of 1 (readyThreshold 50%) updated replicas are available",
		}},
		{"no share at all, but one pod must be there", counts{2, 2, 2, 2, 2, 0}, "", 0, Readiness{
			Message: "waiting for rollout to finish: 0 of 1 (readyThreshold 0%) updated replicas are available",
		}},
		{"one pod is enough for a share of none", counts{2, 2, 2, 2, 2, 1}, "", 0, Readiness{Ready: true, RequiredAvailable: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, (deployments{}).readiness(deployment(test.counts, test.reason), test.threshold)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A new Deployment has no status, and its default is one replica.
func TestNewDeploymentIsNotReady(t *testing.T) {
	obj := newObject(deploymentKind, namespace, "cart")
	obj.SetGeneration(1)
	if got := (deployments{}).readiness(obj, 100); got.Ready || got.DeadlineExceeded {
		t.Errorf("got %+v, want not ready", got)
	}
	obj.SetGeneration(0) // a cluster without a controller for Deployments
	if got, want := (deployments{}).readiness(obj, 100).Message, "waiting for rollout to finish: 0 out of 1 new replicas have been updated"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRequiredAvailableIsNeverTooHigh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := rapid.Int64Range(0, 5000).Draw(t, "replicas")
		percent := rapid.IntRange(0, 100).Draw(t, "percent")
		got, exact := percentOfReplicas(replicas, percent), replicas*int64(percent)/100
		if got < exact-1 || got > exact {
			t.Fatalf("share(%d, %d) = %d, exact %d", replicas, percent, got, exact)
		}
	})
}
