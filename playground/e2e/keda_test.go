//go:build linux

package e2e_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var scaledObjects = schema.GroupVersionResource{Group: "keda.sh", Version: "v1alpha1", Resource: "scaledobjects"}

// scaledObjectDefinition is the CRD of KEDA with an open schema; KEDA itself does not run here.
const scaledObjectDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: scaledobjects.keda.sh}
spec:
  group: keda.sh
  scope: Namespaced
  names: {kind: ScaledObject, listKind: ScaledObjectList, plural: scaledobjects, singular: scaledobject}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const jobs = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: jobs}
spec:
  provider: kubernetes
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: jobs}
  autoscalerRef: {apiVersion: keda.sh/v1alpha1, kind: ScaledObject, name: jobs}
  service: {port: 8080}
  analysis: {interval: 1s, threshold: 1, iterations: 1}
`

const jobsScaled = `
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: jobs}
spec:
  scaleTargetRef: {name: jobs}
  minReplicaCount: 2
  triggers: [{type: prometheus, metadata: {query: "sum(waiting{deployment='jobs'})"}}]
`

// TestKEDAThatIsInstalledLaterIsPausedAndCopied installs KEDA after the Canary was created: Serin needs no restart, and the
// target remains paused while it is idle.
func TestKEDAThatIsInstalledLaterIsPausedAndCopied(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "keda")
	s.apply(deployment(t, "jobs", 2))
	r := s.follow("jobs")
	s.apply(jobs)
	const missing = "ScaledObject jobs.keda cannot be read, because this cluster does not know its kind: install the definition of keda.sh/v1alpha1"
	r.waitFor("is blocked", func(c canary) error {
		if blocked := c.condition("Blocked"); blocked.Status != "True" || blocked.Message != missing {
			return errors.New(string(blocked.Status) + " " + blocked.Message)
		}
		return nil
	})
	s.kubectl(scaledObjectDefinition, "apply", "-f", "-")
	s.kubectl("", "wait", "--for=condition=established", "crd/scaledobjects.keda.sh")
	s.kubectl(jobsScaled, "apply", "-f", "-")
	r.waitForPhase("Initialized")
	query, _, _ := unstructured.NestedSlice(s.get(scaledObjects, "jobs-primary").Object, "spec", "triggers")
	if got, _, _ := unstructured.NestedString(query[0].(map[string]any), "metadata", "query"); got != "sum(waiting{deployment='jobs-primary'})" {
		t.Errorf("the primary's pods are scaled by %s", got)
	}
	const pause = "autoscaling.keda.sh/paused-replicas"
	if got := s.get(scaledObjects, "jobs").GetAnnotations()[pause]; got != "0" {
		t.Errorf("the idle target is paused at %q, want 0", got)
	}

	r = s.follow("jobs")
	s.deployVersion("jobs", "v2")
	r.waitFor("is tested with what KEDA allows at least", func(c canary) error {
		if c.Status.Iterations != 1 {
			return errors.New("not yet")
		}
		if _, paused := s.get(scaledObjects, "jobs").GetAnnotations()[pause]; paused {
			t.Error("KEDA is paused while a version is tested")
		}
		return nil
	})
	r.waitForEnd("Succeeded")
	s.waitForPodsDeleted("app=jobs")
	if got := s.get(scaledObjects, "jobs").GetAnnotations()[pause]; got != "0" {
		t.Errorf("after the release the target is paused at %q, want 0", got)
	}
}
