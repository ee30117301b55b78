//go:build linux

package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/playground/load"
)

// recordedKinds are the kinds of objects in a recording, owners before the objects that they own.
var recordedKinds = []schema.GroupVersionResource{
	services, traefikServices, ingressRoutes, analysisTemplates, deployments, rollouts, experiments, replicaSets, analysisRuns,
}

// writeRecording writes the objects of the namespace to a file, without fields that the API server sets. The first document
// contains the time. The recorded status of a Rollout is up to date with its spec.
func (s *environment) writeRecording(folder, name string) error {
	at := time.Now().UTC().Format(time.RFC3339)
	text := bytes.NewBufferString("recorded: " + at + "\n")
	for _, resource := range recordedKinds {
		for _, object := range s.list(resource) {
			owners := object.GetOwnerReferences()
			if len(owners) > 0 && owners[0].Kind == "Deployment" {
				continue // the Deployment controller creates them
			}
			object.SetManagedFields(nil)
			for i := range owners {
				owners[i].UID = ""
			}
			object.SetOwnerReferences(owners)
			for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "namespace", "generation"} {
				unstructured.RemoveNestedField(object.Object, "metadata", field)
			}
			for _, field := range []string{"clusterIP", "clusterIPs"} {
				unstructured.RemoveNestedField(object.Object, "spec", field)
			}
			if resource == replicaSets || resource == deployments || resource == services {
				unstructured.RemoveNestedField(object.Object, "status")
			}
			one, err := yaml.Marshal(object.Object)
			if err != nil {
				return err
			}
			fmt.Fprintf(text, "---\n%s", one)
		}
	}
	return os.WriteFile(filepath.Join(folder, name+".yaml"), text.Bytes(), 0o644)
}

// restore creates the objects of a recording with all times shifted to now.
func (s *environment) restore(name string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "argo-rollouts", name+".yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	all := parseObjects(s.t, string(text))
	at, err := time.Parse(time.RFC3339, all[0].Object["recorded"].(string))
	if err != nil {
		s.t.Fatal(err)
	}
	later := time.Since(at).Truncate(time.Second)
	createdObjects := map[string]*unstructured.Unstructured{}
	for _, object := range all[1:] {
		shift(object.Object, later)
		owners := object.GetOwnerReferences()
		for i, owner := range owners {
			owners[i].UID = createdObjects[owner.Kind+"/"+owner.Name].GetUID()
		}
		object.SetOwnerReferences(owners)
		if object.GetKind() == argov1.RolloutKind {
			workload, _, _ := unstructured.NestedString(object.Object, "spec", "workloadRef", "name")
			seen(object, createdObjects["Deployment/"+workload])
		}
		created, err := resourceClient(s.t, object.GroupVersionKind(), s.namespace).Create(s.t.Context(), object.DeepCopy(), metav1.CreateOptions{})
		if err != nil {
			s.t.Fatalf("make %s %s: %v", object.GetKind(), object.GetName(), err)
		}
		if object.GetKind() == argov1.RolloutKind {
			s.patchRolloutStatus(object.GetName(), toJSON(s.t, object.Object["status"]))
		}
		createdObjects[object.GetKind()+"/"+object.GetName()] = created
	}
	for _, object := range s.list(replicaSets) {
		s.waitForObject("ReplicaSet "+object.GetName()+" has its pods", replicaSets, object.GetName(), func(object *unstructured.Unstructured) error {
			if rs := convert[appsv1.ReplicaSet](s.t, object); rs.Status.AvailableReplicas != *rs.Spec.Replicas {
				return fmt.Errorf("%d of %d are available", rs.Status.AvailableReplicas, *rs.Spec.Replicas)
			}
			return nil
		})
	}
}

// seen sets the observed generations in the status of a Rollout to 1, which is the generation of created objects.
func seen(object, workload *unstructured.Unstructured) {
	status := object.Object["status"].(map[string]any)
	status["observedGeneration"] = "1"
	if workload == nil {
		return
	}
	generation := fmt.Sprint(workload.GetGeneration())
	status["workloadObservedGeneration"] = generation
	annotations := object.GetAnnotations()
	annotations[argov1.WorkloadGenerationAnnotation] = generation
	object.SetAnnotations(annotations)
}

// shift adds a duration to all times in a value.
func shift(value any, by time.Duration) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = shift(v[key], by)
		}
	case []any:
		for i := range v {
			v[i] = shift(v[i], by)
		}
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil {
			return at.Add(by).UTC().Format(time.RFC3339)
		}
	}
	return value
}

// TestRolloutsRecordedFromArgoRolloutsAreAdopted is like TestSwaps, with recordings of the objects of Argo Rollouts v1.10.2.
func TestRolloutsRecordedFromArgoRolloutsAreAdopted(t *testing.T) {
	t.Parallel()
	for name, p := range swapStates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnvironment(t, "left-"+strings.ReplaceAll(name, "/", "-"))
			s.restore(name)
			var l *load.Load
			if p.host != "" {
				l = s.startLoad(p.host, 20)
			}
			before := s.observedState()
			recordedStatus := convert[argov1.Rollout](t, s.get(rollouts, "cart")).Status
			serinController().start(s)
			s.checkUnchanged(before)
			if recordedStatus.CurrentPodHash != recordedStatus.StableRS {
				s.waitForEventOf("Rollout", "cart", "RolloutAdopted", "Adopted the release of cart."+s.namespace)
			}
			s.finishRelease(p)
			s.checkNoRequestLost(l)
		})
	}
}
