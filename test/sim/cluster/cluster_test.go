package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
)

func TestRolloutRespectsMaxSurgeAndMaxUnavailable(t *testing.T) {
	t.Parallel()
	s := &stage{}
	s.begin = func(s *stage) {
		s.deploy("cart", "v1", 4, nil)
		rolling := false
		s.After(2*time.Minute, func() {
			rolling = true
			s.edit(deployments, map[string]any{"template": template("cart", "v2")})
		})
		s.Subscribe(func(any) {
			if n := s.cluster.Replicas("shop", "cart"); n > 5 {
				s.Errorf("want at most one pod more than the 4 asked for, got %d", n)
			}
			if n := s.cluster.Ready("shop", "cart"); rolling && n < 3 {
				s.Errorf("want at most one pod less than the 4 asked for ready, got %d", n)
			}
		})
	}
	s.end = func(s *stage) {
		status := s.status("cart")
		delete(status, "conditions")
		generation := s.Server.Peek(deployments.GroupKind(), named("cart")).Generation()
		want := map[string]any{
			"observedGeneration": generation, "replicas": int64(4), "updatedReplicas": int64(4), "readyReplicas": int64(4), "availableReplicas": int64(4),
		}
		if diff := cmp.Diff(want, status); diff != "" {
			t.Errorf("status: %s", diff)
		}
		if got := s.progress(); got != "NewReplicaSetAvailable" {
			t.Errorf("want the rollout complete, got %s", got)
		}
		if got := s.cluster.Version("shop", "cart"); got != "v2" {
			t.Errorf("want v2, got %s", got)
		}
		var revisions []string
		for _, set := range s.Server.All(replicaSets.GroupKind()) {
			revisions = append(revisions, set.Meta().Annotations["deployment.kubernetes.io/revision"])
		}
		if slices.Sort(revisions); !slices.Equal(revisions, []string{"1", "2"}) {
			t.Errorf("want two ReplicaSets, got revisions %v", revisions)
		}
	}
	if r := s.playFaultFree(t); r.Writes > 60 {
		t.Errorf("want few writes for two rollouts of four pods, got %d", r.Writes)
	}
}

func TestScalingCreatesNoReplicaSet(t *testing.T) {
	t.Parallel()
	s := &stage{}
	s.begin = func(s *stage) {
		s.deploy("cart", "v1", 1, nil)
		s.After(time.Minute, func() { s.edit(deployments, map[string]any{"replicas": int64(3)}) })
		s.After(3*time.Minute, func() {
			if n := s.cluster.Ready("shop", "cart"); n != 3 {
				s.Errorf("want 3 pods, got %d", n)
			}
			s.edit(deployments, map[string]any{"replicas": int64(0)})
		})
	}
	s.end = func(s *stage) {
		if n := len(s.Server.All(replicaSets.GroupKind())); n != 1 {
			t.Errorf("want one ReplicaSet, got %d", n)
		}
		if n, status := s.cluster.Replicas("shop", "cart"), s.status("cart"); n != 0 || status["replicas"] != nil {
			t.Errorf("want no pods, got %d, status %v", n, status)
		}
	}
	s.playFaultFree(t)
}

func TestVersionThatNeverStartsExceedsItsDeadlineWithAReason(t *testing.T) {
	t.Parallel()
	s := &stage{options: cluster.Options{PodBehaviour: func(template map[string]any) cluster.PodBehaviour {
		labels, _ := template["metadata"].(map[string]any)["labels"].(map[string]any)
		return cluster.PodBehaviour{NeverReady: labels["version"] == "v2"}
	}}}
	s.begin = func(s *stage) {
		s.deploy("cart", "v1", 2, map[string]any{"progressDeadlineSeconds": int64(60)})
		s.After(time.Minute, func() { s.edit(deployments, map[string]any{"template": template("cart", "v2")}) })
		s.After(4*time.Minute, func() {
			if got := s.progress(); got != "ProgressDeadlineExceeded" {
				s.Errorf("want the deadline exceeded, got %s", got)
			}
			if n := s.cluster.Ready("shop", "cart"); n != 2 {
				s.Errorf("want the old pods to stay, got %d", n)
			}
			all := s.Server.All(pods.GroupKind())
			if len(all) != 1 {
				s.Fatalf("want the one pod that is stuck, got %v", all)
			}
			statuses, _, _ := unstructured.NestedSlice(all[0].Content(), "status", "containerStatuses")
			if got, _, _ := unstructured.NestedString(statuses[0].(map[string]any), "state", "waiting", "reason"); got != "ImagePullBackOff" {
				s.Errorf("want the reason, got %s", got)
			}
			s.edit(deployments, map[string]any{"template": template("cart", "v1")})
		})
	}
	s.end = func(s *stage) {
		if got := s.progress(); got != "NewReplicaSetAvailable" {
			t.Errorf("want the rollback to complete, got %s", got)
		}
		if all := s.Server.All(pods.GroupKind()); len(all) > 0 {
			t.Errorf("want no remaining pod, got %v", all)
		}
		var revisions []string
		for _, set := range s.Server.All(replicaSets.GroupKind()) {
			revisions = append(revisions, set.Meta().Annotations["deployment.kubernetes.io/revision"])
		}
		if slices.Sort(revisions); !slices.Equal(revisions, []string{"2", "3"}) {
			t.Errorf("want the first ReplicaSet to be the third revision, got %v", revisions)
		}
	}
	s.playFaultFree(t)
}

func TestAPausedDeploymentRollsWhenItIsResumed(t *testing.T) {
	t.Parallel()
	s := &stage{}
	s.begin = func(s *stage) {
		s.deploy("cart", "v1", 2, nil)
		s.After(time.Minute, func() {
			s.edit(deployments, map[string]any{"paused": true, "template": template("cart", "v2"), "replicas": int64(3)})
		})
		s.After(3*time.Minute, func() {
			if n := len(s.Server.All(replicaSets.GroupKind())); n != 1 {
				s.Errorf("want no new ReplicaSet, got %d", n)
			}
			if n := s.cluster.Ready("shop", "cart"); n != 3 {
				s.Errorf("want it scaled although it is paused, got %d pods", n)
			}
			if got := s.progress(); got != "DeploymentPaused" {
				s.Errorf("want the reason DeploymentPaused, got %s", got)
			}
			s.edit(deployments, map[string]any{"paused": false})
		})
	}
	s.end = func(s *stage) {
		if got := s.progress(); got != "NewReplicaSetAvailable" {
			t.Errorf("want the rollout complete, got %s", got)
		}
	}
	s.playFaultFree(t)
}

func TestHistoryIsLimited(t *testing.T) {
	t.Parallel()
	s := &stage{}
	s.begin = func(s *stage) {
		s.deploy("cart", "v0", 1, map[string]any{"revisionHistoryLimit": int64(2)})
		for i := range 6 {
			s.After(time.Duration(i+1)*80*time.Second, func() {
				s.edit(deployments, map[string]any{"template": template("cart", fmt.Sprintf("v%d", i+1))})
			})
		}
	}
	s.end = func(s *stage) {
		if n := len(s.Server.All(replicaSets.GroupKind())); n != 3 {
			t.Errorf("want the newest and two old ReplicaSets, got %d", n)
		}
	}
	s.playFaultFree(t)
}

func TestDeletionOfADeploymentDeletesItsObjects(t *testing.T) {
	t.Parallel()
	s := &stage{}
	s.begin = func(s *stage) {
		s.deploy("cart", "v1", 2, nil)
		s.serve("cart", "cart")
		s.After(2*time.Minute, func() { s.delete(deployments); s.delete(serviceKind) })
	}
	s.end = func(s *stage) {
		if sets, slices := s.Server.All(replicaSets.GroupKind()), s.Server.All(endpointSlices.GroupKind()); len(sets)+len(slices) > 0 {
			t.Errorf("want no remaining objects, got %v %v", sets, slices)
		}
	}
	s.playFaultFree(t)
}

func TestADeploymentTakesOverTheReplicaSetsOfItsPredecessor(t *testing.T) {
	t.Parallel()
	s := &stage{}
	s.begin = func(s *stage) {
		s.deploy("cart", "v1", 2, nil)
		s.serve("cart", "cart")
		s.After(2*time.Minute, func() { s.delete(deployments, client.PropagationPolicy(metav1.DeletePropagationOrphan)) })
		s.After(4*time.Minute, func() {
			if s.Server.Peek(deployments.GroupKind(), named("cart")) != nil {
				s.Errorf("want the Deployment gone")
			}
			if n := s.cluster.ReadyEndpoints("shop", "cart")["v1"]; n != 2 {
				s.Errorf("want its pods to stay, got %d", n)
			}
			s.deploy("cart", "v1", 2, nil)
		})
	}
	s.end = func(s *stage) {
		if n := len(s.Server.All(replicaSets.GroupKind())); n != 1 || s.cluster.Ready("shop", "cart") != 2 {
			t.Errorf("want the old ReplicaSet adopted, got %d and %d pods", n, s.cluster.Ready("shop", "cart"))
		}
	}
	s.playFaultFree(t)
}

func TestRecreatedDeploymentDoesNotWaitForGarbageCollection(t *testing.T) {
	t.Parallel()
	s := &stage{}
	s.begin = func(s *stage) {
		s.deploy("cart", "v1", 2, nil)
		s.After(2*time.Minute, func() {
			s.delete(deployments)
			s.deploy("cart", "v1", 3, nil)
		})
	}
	s.end = func(s *stage) {
		if sets, ready := len(s.Server.All(replicaSets.GroupKind())), s.cluster.Ready("shop", "cart"); sets != 1 || ready != 3 {
			t.Errorf("want one ReplicaSet of 3 pods, got %d of %d", sets, ready)
		}
	}
	for seed := range uint64(10) {
		s.play(t, sim.Options{Seed: seed, FaultFree: true})
	}
}

func TestEndpointsLagBehindPods(t *testing.T) {
	t.Parallel()
	s := &stage{}
	s.begin = func(s *stage) {
		s.deploy("cart", "v1", 2, nil)
		s.serve("cart", "cart")
		lagged := false
		for i := range 3000 {
			s.After(time.Duration(i)*10*time.Millisecond, func() {
				ready, published := s.cluster.ReadyEndpoints("shop", "cart")["v1"], s.published("cart")
				lagged = lagged || published < ready
			})
		}
		s.After(2*time.Minute, func() {
			if n := s.published("cart"); n != 2 || !lagged {
				s.Errorf("want both pods published in the end (%d), and not at once (%t)", n, lagged)
			}
			s.edit(deployments, map[string]any{"replicas": int64(1)})
		})
	}
	s.end = func(s *stage) {
		if n := s.published("cart"); n != 1 {
			t.Errorf("want one endpoint, got %d", n)
		}
	}
	s.playFaultFree(t)
}

func autoscaler(target string, least, most int64) map[string]any {
	return map[string]any{
		"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
		"minReplicas":    least, "maxReplicas": most,
	}
}

func TestAutoscalersSettleAndIgnoreTargetsWithoutPods(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		var writes int
		s := &stage{}
		s.begin = func(s *stage) {
			s.deploy("cart", "v1", 1, nil)
			s.create(scalers, "cart", autoscaler("cart", 2, 5))
			s.deploy("idle", "v1", 0, nil)
			s.create(scalers, "idle", autoscaler("idle", 2, 5))
		}
		s.quiet = func(s *stage) {
			s.After(45*time.Minute, func() { writes = len(s.Server.Events()) })
		}
		s.end = func(s *stage) {
			if n := s.cluster.Ready("shop", "cart"); n < 2 || n > 5 {
				t.Errorf("seed %d: want 2 to 5 pods, got %d", seed, n)
			}
			if n := s.cluster.Replicas("shop", "idle"); n != 0 {
				t.Errorf("seed %d: want no pods, got %d", seed, n)
			}
			if n := len(s.Server.Events()); writes == 0 || n != writes {
				t.Errorf("seed %d: want no writes while idle, got %d", seed, n-writes)
			}
		}
		if s.play(t, sim.Options{Seed: seed, FaultDuration: 20 * time.Minute}); t.Failed() {
			return
		}
	}
}

func TestAllPodsBecomeReadyAfterQuiesce(t *testing.T) {
	t.Parallel()
	died := 0
	for seed := range uint64(200) {
		s := busy(2 * time.Minute)
		s.end = func(s *stage) {
			for _, name := range []string{"cart", "cart-primary"} {
				v := s.Server.Peek(deployments.GroupKind(), named(name))
				replicas, _ := v.Content()["spec"].(map[string]any)["replicas"].(int64)
				if n := s.cluster.Ready("shop", name); int64(n) != replicas || s.status(name)["readyReplicas"] != replicas && replicas > 0 {
					t.Errorf("seed %d: want %d pods of %s, got %d, status %v", seed, replicas, name, n, s.status(name))
				}
				if n := s.published(name); int64(n) != replicas {
					t.Errorf("seed %d: want %d endpoints of %s, got %d", seed, replicas, name, n)
				}
			}
			if !s.cluster.LastPodDeath("shop", "cart").IsZero() {
				died++
			}
		}
		if s.play(t, sim.Options{Seed: seed}); t.Failed() {
			return
		}
	}
	if died < 20 {
		t.Errorf("want spontaneous pod failures in at least 20 of 200 runs, got %d", died)
	}
}

func TestSeedDeterminesTheRun(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		var events [2][]string
		for i := range events {
			s := busy(time.Minute)
			begin := s.begin
			s.begin = func(s *stage) {
				s.Subscribe(func(event any) {
					if wrote, ok := event.(sim.ObjectWritten); ok {
						event = fmt.Sprint(wrote.Actor, wrote.Verb, wrote.New)
					}
					events[i] = append(events[i], fmt.Sprintf("%s %T %v", s.Now(), event, event))
				})
				begin(s)
			}
			events[i] = append(events[i], s.play(t, sim.Options{Seed: seed, FullTrace: true}).Trace...)
		}
		if diff := cmp.Diff(events[0], events[1]); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// busy returns a run with many activities: rollouts, routes, scaling.
func busy(every time.Duration) *stage {
	s := &stage{routes: []cluster.Route{cart("gatewayapi:v1")}}
	s.begin = func(s *stage) {
		s.deploy("cart", "v1", 2, nil)
		s.deploy("cart-primary", "v1", 3, nil)
		s.serve("cart", "cart")
		s.serve("cart-primary", "cart-primary")
		s.serve("cart-canary", "cart")
		s.create(httpRoutes, "cart", httpRoute(100, 0))
		s.create(scalers, "cart", autoscaler("cart", 1, 4))
		for i := range 4 {
			s.After(time.Duration(i+1)*every, func() {
				s.edit(deployments, map[string]any{"template": template("cart", fmt.Sprintf("v%d", i+2))})
				s.edit(httpRoutes, httpRoute(int64(90-i*20), int64(10+i*20)))
			})
		}
	}
	return s
}

func BenchmarkRun(b *testing.B) {
	if _, err := definitions(); err != nil {
		b.Fatal(err)
	}
	writes := 0
	for b.Loop() {
		s := busy(2 * time.Minute)
		writes += s.play(&testing.T{}, sim.Options{Seed: 3}).Writes
	}
	b.ReportMetric(float64(writes)/float64(b.N), "writes/op")
}
