//go:build linux

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

var (
	rollouts    = argov1.SchemeGroupVersion.WithResource("rollouts")
	replicaSets = appsv1.SchemeGroupVersion.WithResource("replicasets")
)

// rolloutManifest returns a Rollout of the first version of the demo application. The strategy is YAML in flow style.
func rolloutManifest(t *testing.T, name string, replicas int, strategy string) string {
	t.Helper()
	object := parseObjects(t, "spec: {strategy: "+strategy+"}")[0].Object
	spec := object["spec"].(map[string]any)
	object["apiVersion"], object["kind"], object["metadata"] = "argoproj.io/v1alpha1", "Rollout", map[string]any{"name": name}
	spec["replicas"], spec["selector"] = replicas, map[string]any{"matchLabels": map[string]any{"app": name}}
	spec["template"] = map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": name}},
		"spec":     map[string]any{"containers": []any{container("v1", nil)}},
	}
	return toJSON(t, object) + "\n---\n"
}

// releaseVersion changes the version of a Rollout, as kubectl argo rollouts set image does.
func (s *environment) releaseVersion(name, version string) {
	s.t.Helper()
	c := container(version, nil)
	s.patch(rollouts, name, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[%s]}}}}`, toJSON(s.t, c)))
}

// patchRolloutStatus patches the status of a Rollout, as kubectl argo rollouts does.
func (s *environment) patchRolloutStatus(name, status string) {
	s.t.Helper()
	_, err := shared.Dynamic.Resource(rollouts).Namespace(s.namespace).
		Patch(s.t.Context(), name, types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
	if err != nil {
		s.t.Fatalf("patch the status of Rollout %s: %v", name, err)
	}
}

// waitForRolloutPhase waits until a Rollout has a phase for its current generation, with a message that contains the given one.
func (s *environment) waitForRolloutPhase(name string, phase argov1.RolloutPhase, message string) argov1.Rollout {
	s.t.Helper()
	var found argov1.Rollout
	s.waitForObject(fmt.Sprintf("Rollout %s is %s (%s)", name, phase, message), rollouts, name, func(object *unstructured.Unstructured) error {
		if object == nil {
			return errors.New("it does not exist")
		}
		found = argov1.Rollout{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &found); err != nil {
			return err
		}
		status := found.Status
		if status.ObservedGeneration != fmt.Sprint(found.Generation) || status.Phase != phase || !strings.Contains(status.Message, message) {
			return fmt.Errorf("generation %d of %d is %s: %s", found.Generation, len(status.ObservedGeneration), status.Phase, toJSON(s.t, status))
		}
		return nil
	})
	return found
}

// waitForPods waits until the ReplicaSets of a Rollout have these numbers of pods, all of them available: "v1=3 v2=1".
func (s *environment) waitForPods(name, want string) {
	s.t.Helper()
	s.waitForObject("the pods of "+name+" are "+want, rollouts, name, func(*unstructured.Unstructured) error {
		if got := s.podCounts(name); got != want {
			return errors.New(got)
		}
		return nil
	})
}

// podCounts returns the numbers of desired pods of a Rollout by version, oldest first, or those of a version with unavailable
// pods.
func (s *environment) podCounts(name string) string {
	s.t.Helper()
	list, err := shared.Client.AppsV1().ReplicaSets(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string]int32{}
	for _, rs := range list.Items {
		version := rs.Spec.Template.Spec.Containers[0].Image
		version = version[strings.LastIndex(version, ":")+1:]
		if *rs.Spec.Replicas != rs.Status.AvailableReplicas {
			return fmt.Sprintf("%s has %d of %d", version, rs.Status.AvailableReplicas, *rs.Spec.Replicas)
		}
		all[version] += *rs.Spec.Replicas
	}
	var parts []string
	for _, version := range []string{"v1", "v2", "v3", "v4"} {
		if all[version] > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", version, all[version]))
		}
	}
	return strings.Join(parts, " ")
}

const pausingStrategy = `{canary: {maxSurge: 1, maxUnavailable: 0, steps: [{setWeight: 25}, {pause: {}}, {setWeight: 50}, {pause: {duration: 2}}]}}`

// TestARolloutExecutesItsSteps covers a Rollout without a router: steps, pauses, promotion by the user, scaling during a
// pause, abort, retry, a restart of Serin, full promotion, and releases of previous revisions.
func TestARolloutExecutesItsSteps(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollout")
	s.apply(rolloutManifest(t, "cart", 4, pausingStrategy))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForPods("cart", "v1=4")

	s.releaseVersion("cart", "v2")
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	s.waitForPods("cart", "v1=3 v2=1")
	s.setReplicas(8)
	s.waitForPods("cart", "v1=6 v2=2")
	s.setReplicas(4)
	s.waitForPods("cart", "v1=3 v2=1")
	s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	promoted := s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForPods("cart", "v2=4")
	if status := promoted.Status; status.StableRS != status.CurrentPodHash || *status.CurrentStepIndex != 4 {
		t.Errorf("after the promotion the status has stable %s, current %s, step %d", status.StableRS, status.CurrentPodHash, *status.CurrentStepIndex)
	}

	s.releaseVersion("cart", "v3")
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	s.patchRolloutStatus("cart", `{"abort":true}`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseDegraded, "RolloutAborted: Rollout aborted update to revision 3")
	s.waitForPods("cart", "v2=4")
	s.patchRolloutStatus("cart", `{"abort":false}`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	s.waitForPods("cart", "v2=3 v3=1")

	if err := shared.Kill(s.processName()); err != nil {
		t.Fatal(err)
	}
	s.patchRolloutStatus("cart", `{"promoteFull":true}`)
	if _, err := shared.Restart(s.processName()); err != nil {
		t.Fatal(err)
	}
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForPods("cart", "v3=4")

	s.releaseVersion("cart", "v2") // a release of an earlier revision executes all steps
	back := s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	if revision := back.Annotations[argov1.RevisionAnnotation]; revision != "4" {
		t.Errorf("the revision of the earlier template is %s, want 4", revision)
	}
	s.releaseVersion("cart", "v3") // a return to the stable revision executes none
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForPods("cart", "v3=4")
}

func (s *environment) setReplicas(replicas int) {
	s.t.Helper()
	s.patch(rollouts, "cart", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// TestEventsOfARollout checks the reasons of the events, including repetitions, as a watch returns them.
func TestEventsOfARollout(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollout-events")
	s.apply(rolloutManifest(t, "cart", 1, `{canary: {steps: [{setWeight: 50}, {pause: {duration: 3s}}]}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.releaseVersion("cart", "v2")
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	s.patchRolloutStatus("cart", `{"abort":true}`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseDegraded, "RolloutAborted")
	s.waitForPods("cart", "v1=1")
	s.patchRolloutStatus("cart", `{"abort":false}`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForPods("cart", "v2=1")
	want := []string{
		"RolloutAddedToInformer", "RolloutUpdated", "NewReplicaSetCreated", "RolloutNotCompleted", "ScalingReplicaSet", "RolloutCompleted",
		"RolloutUpdated", "NewReplicaSetCreated", "RolloutNotCompleted", "ScalingReplicaSet", "RolloutStepCompleted", "RolloutPaused",
		"ScalingReplicaSet", "RolloutAborted",
		"ScalingReplicaSet", "RolloutStepCompleted", "RolloutPaused", "RolloutStepCompleted", "RolloutResumed", "ScalingReplicaSet", "RolloutCompleted",
	}
	_, _ = s.events.waitForState(t, "the last event was recorded", 0, func(e state[corev1.Event]) error {
		if e.object.Reason != "RolloutCompleted" || !strings.Contains(e.object.Message, "revision 2") {
			return fmt.Errorf("%s: %s", e.object.Reason, e.object.Message)
		}
		return nil
	})
	var reasons []string
	recordedEvents, _ := s.events.statesFrom(0)
	for _, e := range recordedEvents {
		if e.object.InvolvedObject.Kind == argov1.RolloutKind && !e.deleted {
			reasons = append(reasons, e.object.Reason)
		}
		if e.object.InvolvedObject.Kind == argov1.RolloutKind && e.object.Source.Component != "rollouts-controller" {
			t.Errorf("the source of %s is %q", e.object.Reason, e.object.Source.Component)
		}
	}
	if diff := cmp.Diff(want, reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

// TestARolloutUsesTheTemplateOfADeployment checks that template and selector are those of the Deployment and are not stored
// in the Rollout, that a change of the Deployment starts a release, and that the Deployment is scaled down.
func TestARolloutUsesTheTemplateOfADeployment(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollout-workload")
	s.apply(`
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: cart}
spec:
  replicas: 2
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: cart, scaleDown: onsuccess}
  strategy: {canary: {steps: [{setWeight: 50}, {pause: {}}]}}
`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseDegraded, `deployments.apps "rollout-workload/cart" not found`)
	s.apply(deployment(t, "cart", 2))
	healthy := s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	if healthy.Spec.Selector != nil || len(healthy.Spec.Template.Labels) > 0 {
		t.Errorf("the template of the Deployment was stored: %s", toJSON(t, healthy.Spec))
	}
	s.waitForDeployment("has no pods of its own", "cart", func(d appsv1.Deployment) error {
		if *d.Spec.Replicas != 0 {
			return fmt.Errorf("it has %d desired replicas", *d.Spec.Replicas)
		}
		return nil
	})
	s.deployVersion("cart", "v2")
	paused := s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	if seen, now := paused.Status.WorkloadObservedGeneration, paused.Annotations[argov1.WorkloadGenerationAnnotation]; seen == "" || seen != now {
		t.Errorf("workload generation %q seen of %q", seen, now)
	}
	s.patchRolloutStatus("cart", `{"promoteFull":true}`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
}

// TestARolloutRestartsItsPods checks that the pods that are older than restartAt are replaced.
func TestARolloutRestartsItsPods(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollout-restart")
	s.apply(rolloutManifest(t, "cart", 2, `{canary: {}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForPods("cart", "v1=2")
	old := s.podUIDs("cart")
	at := metav1.Now().Rfc3339Copy().Add(1e9)
	s.patch(rollouts, "cart", fmt.Sprintf(`{"spec":{"restartAt":%q}}`, metav1.NewTime(at).UTC().Format("2006-01-02T15:04:05Z")))
	restarted := s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	if restarted.Status.RestartedAt == nil {
		t.Fatal("it is healthy before it has restarted")
	}
	s.waitForPods("cart", "v1=2")
	for uid := range s.podUIDs("cart") {
		if old[uid] {
			t.Errorf("pod %s is older than the restart", uid)
		}
	}
}

// podUIDs returns the UIDs of the pods of a Rollout.
func (s *environment) podUIDs(name string) map[types.UID]bool {
	s.t.Helper()
	list, err := shared.Client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[types.UID]bool{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			all[pod.UID] = true
		}
	}
	return all
}

// TestAnInvalidQuantityIsReportedAndRemoved checks that the pods are created without it, so that strict clients can list
// Rollouts.
func TestAnInvalidQuantityIsReportedAndRemoved(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollout-unreadable")
	s.apply(rolloutManifest(t, "cart", 1, `{canary: {}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	odd := container("v2", nil)
	odd["resources"] = map[string]any{"requests": map[string]any{"memory": "invalid", "cpu": "1m"}}
	s.patch(rollouts, "cart", fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[%s]}}}}`, toJSON(t, odd)))
	s.waitForEventOf("Rollout", "cart", "UnreadableField", "Removed values that cannot be decoded, because they prevent strict clients from listing Rollouts: spec.template.spec.containers[0].resources.requests.memory")
	s.waitForPods("cart", "v2=1")
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	containers, _, err := unstructured.NestedSlice(s.get(rollouts, "cart").Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	delete(odd["resources"].(map[string]any)["requests"].(map[string]any), "memory")
	if got, want := toJSON(t, containers), toJSON(t, []any{odd}); got != want {
		t.Errorf("the stored containers are %s, want all except for the quantity: %s", got, want)
	}
}

// TestAnInvalidRolloutReportsTheField checks that an invalid Rollout changes nothing and reports the field, and continues
// once it is fixed.
func TestAnInvalidRolloutReportsTheField(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollout-invalid")
	for name, tt := range map[string]struct{ strategy, want string }{
		"none":     {`{}`, "spec.strategy.strategy: Required value: Rollout has missing field '.spec.strategy.canary or .spec.strategy.blueGreen'"},
		"weight":   {`{canary: {steps: [{setWeight: 101}]}}`, "SetWeight needs to be between 0 and 100"},
		"services": {`{canary: {stableService: a, canaryService: a}}`, "This rollout uses the same service for the stable and canary services"},
		"missing":  {`{canary: {stableService: a, canaryService: b}}`, `service "a" not found`},
		"analysis": {`{canary: {steps: [{analysis: {templates: [{templateName: gone}]}}]}}`, "AnalysisTemplate 'gone' not found"},
		"router":   {`{canary: {stableService: a, canaryService: b, trafficRouting: {plugins: {example/none: {}}}}}`, `service "a" not found`},
	} {
		s.apply(rolloutManifest(t, name, 1, tt.strategy))
		wrong := s.waitForRolloutPhase(name, argov1.RolloutPhaseDegraded, "InvalidSpec: ")
		found := false
		for _, c := range wrong.Status.Conditions {
			found = found || c.Type == argov1.RolloutInvalidSpec && strings.HasPrefix(c.Message, fmt.Sprintf("The Rollout %q is invalid: ", name)) && strings.Contains(c.Message, tt.want)
		}
		if !found {
			t.Errorf("%s: no condition contains %q: %s", name, tt.want, toJSON(t, wrong.Status.Conditions))
		}
		if sets := s.podCounts(name); sets != "" {
			t.Errorf("%s is invalid, but has pods: %s", name, sets)
		}
	}
	s.apply("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selector: {app: missing}, ports: [{port: 80}]}\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: b}\nspec: {selector: {app: missing}, ports: [{port: 80}]}\n")
	s.waitForRolloutPhase("missing", argov1.RolloutPhaseHealthy, "")
	s.waitForPods("missing", "v1=1")
}
