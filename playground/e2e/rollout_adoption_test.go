//go:build linux

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
)

// createLegacyReplicaSet creates a ReplicaSet of another controller, with a hash of an older library version.
func (s *environment) createLegacyReplicaSet(owner argov1.Rollout, version string, revision int64, pods int32, label func(hashes []string) string) string {
	s.t.Helper()
	spec := *owner.Spec.DeepCopy()
	spec.Template.Spec.Containers[0].Image = "serin.dev/demo:" + version
	older, err := rollout.OlderPodHashes(spec.Template, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	hash := label(older)
	rs := replicaset.New(&owner, spec, rollout.ReplicaSetExists{Name: owner.Name + "-" + hash, Hash: hash, Revision: revision})
	rs.Spec.Replicas = &pods
	if _, err := shared.Client.AppsV1().ReplicaSets(s.namespace).Create(s.t.Context(), rs, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.waitForObject("ReplicaSet "+rs.Name+" has its pods", replicaSets, rs.Name, func(object *unstructured.Unstructured) error {
		if got := convert[appsv1.ReplicaSet](s.t, object).Status.AvailableReplicas; got != pods {
			return fmt.Errorf("%d of %d are available", got, pods)
		}
		return nil
	})
	return hash
}

// TestRolloutsOfAnotherControllerAreAdopted covers Rollouts that are idle, or paused during a release: whatever form the
// hashes have, no pod is restarted and no ReplicaSet is created. Then one change starts one release.
func TestRolloutsOfAnotherControllerAreAdopted(t *testing.T) {
	t.Parallel()
	dated := func(hashes []string) string { return hashes[0] }
	unknown := func(hashes []string) string { return "x" + hashes[0][1:] } // of an unknown library
	for name, label := range map[string]func([]string) string{"dated": dated, "unknown": unknown} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnvironment(t, "rollout-adopt-"+name)
			s.apply(rolloutManifest(t, "cart", 3, pausingStrategy) + rolloutManifest(t, "shop", 4, pausingStrategy))
			steps, err := rollout.StepHash(convert[argov1.Rollout](t, s.get(rollouts, "cart")).Spec.Strategy.Canary.Steps)
			if err != nil {
				t.Fatal(err)
			}
			rest := convert[argov1.Rollout](t, s.get(rollouts, "cart"))
			stable := s.createLegacyReplicaSet(rest, "v1", 1, 3, label)
			s.patch(rollouts, "cart", `{"metadata":{"annotations":{"rollout.argoproj.io/revision":"1"}}}`)
			s.patchRolloutStatus("cart", fmt.Sprintf(`{"observedGeneration":"1","currentPodHash":%[1]q,"stableRS":%[1]q,"currentStepHash":%[2]q,"currentStepIndex":4,
			  "replicas":3,"updatedReplicas":3,"readyReplicas":3,"availableReplicas":3,"HPAReplicas":3,"selector":"app=cart","phase":"Healthy"}`, stable, steps))

			moving := convert[argov1.Rollout](t, s.get(rollouts, "shop"))
			old := s.createLegacyReplicaSet(moving, "v1", 1, 3, label)
			s.releaseVersion("shop", "v2")
			moving = convert[argov1.Rollout](t, s.get(rollouts, "shop"))
			canary := s.createLegacyReplicaSet(moving, "v2", 2, 1, label)
			s.patch(rollouts, "shop", `{"metadata":{"annotations":{"rollout.argoproj.io/revision":"2"}}}`)
			s.patchRolloutStatus("shop", fmt.Sprintf(`{"observedGeneration":"2","currentPodHash":%q,"stableRS":%q,"currentStepHash":%q,"currentStepIndex":1,"controllerPause":true,
			  "pauseConditions":[{"reason":"CanaryPauseStep","startTime":"2026-01-02T10:00:00Z"}],"replicas":4,"updatedReplicas":1,"readyReplicas":4,
			  "availableReplicas":4,"HPAReplicas":4,"selector":"app=shop","phase":"Paused","message":"CanaryPauseStep"}`, canary, old, steps))
			uids, sets := s.podUIDsOf("cart", "shop"), s.replicaSetsOf("cart", "shop")

			s.startSerin()
			s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
			s.waitForRolloutPhase("shop", argov1.RolloutPhasePaused, "CanaryPauseStep")
			if diff := cmp.Diff(uids, s.podUIDsOf("cart", "shop")); diff != "" {
				t.Errorf("pods were replaced: %s", diff)
			}
			s.setReplicas(4) // a change of the spec other than the template
			s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
			s.setReplicas(3)
			s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
			s.patchRolloutStatus("shop", `{"pauseConditions":null}`)
			s.waitForRolloutPhase("shop", argov1.RolloutPhaseHealthy, "")
			if diff := cmp.Diff(sets, s.replicaSetsOf("cart", "shop")); diff != "" {
				t.Errorf("ReplicaSets were created or deleted: %s", diff)
			}
			s.waitForPods("cart", "v1=3")
			s.waitForPods("shop", "v2=4")

			s.releaseVersion("cart", "v2")
			paused := s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
			if revision := paused.Annotations[argov1.RevisionAnnotation]; revision != "2" {
				t.Errorf("the one change is revision %s, want 2", revision)
			}
		})
	}
}

func (s *environment) podUIDsOf(names ...string) map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, name := range names {
		for uid := range s.podUIDs(name) {
			all[uid] = true
		}
	}
	return all
}

// replicaSetsOf returns the names of the ReplicaSets of Rollouts.
func (s *environment) replicaSetsOf(names ...string) []string {
	s.t.Helper()
	var all []string
	for _, name := range names {
		list, err := shared.Client.AppsV1().ReplicaSets(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range list.Items {
			all = append(all, list.Items[i].Name)
		}
	}
	return all
}
