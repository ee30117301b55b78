//go:build linux

package demo

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Target is an application whose versions the demo releases.
type Target struct {
	// Name is the name of the release and of its workload, Host the one in requests.
	Name, Host string
	// Release is the resource whose status shows the release, Workload the one that contains the pod template.
	Release, Workload schema.GroupVersionResource
	read              func(object map[string]any) releaseStatus
	idle              []string // the phases without a release that failed
}

// Cart is released by a Canary, Web by a Rollout; see cart.yaml and web.yaml.
var (
	Cart = &Target{
		Name: "cart", Host: "cart.example.com", read: readCanary, idle: []string{"Initialized", "Succeeded"},
		Release:  schema.GroupVersionResource{Group: "flagger.app", Version: "v1beta1", Resource: "canaries"},
		Workload: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
	}
	Web = &Target{
		Name: "web", Host: "web.example.com", read: readRollout, idle: []string{"Healthy"},
		Release:  schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"},
		Workload: schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"},
	}
)

// isIdle reports whether no release is in progress, and the last one was successful.
func (t *Target) isIdle(s releaseStatus) bool { return slices.Contains(t.idle, s.phase) }

// releaseStatus contains the fields of a status that the demo uses. They are read from the unstructured object and not with
// Serin's types, so that the demo works with any controller of these APIs. A field of an unexpected type is treated as absent;
// the scenario then fails with the last observed status.
type releaseStatus struct {
	phase   string
	weight  int64 // percentage of the requests that the new version receives
	failed  int64 // failed checks of a Canary
	message string
	// isPromoted is true if the version of the spec already serves all users, whatever its phase: pods that are not ready for a
	// moment make a Rollout Progressing without a release.
	isPromoted bool
}

func (s releaseStatus) String() string {
	text := fmt.Sprintf("phase %s, weight %d", s.phase, s.weight)
	if s.failed > 0 {
		text += fmt.Sprintf(", failed checks %d", s.failed)
	}
	return text
}

func readCanary(object map[string]any) releaseStatus {
	var s releaseStatus
	s.phase, _, _ = unstructured.NestedString(object, "status", "phase")
	s.weight, _, _ = unstructured.NestedInt64(object, "status", "canaryWeight")
	s.failed, _, _ = unstructured.NestedInt64(object, "status", "failedChecks")
	conditions, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		if c["type"] == "Promoted" || c["type"] == "Blocked" && c["status"] == "True" {
			s.message, _ = c["message"].(string)
		}
	}
	return s
}

func readRollout(object map[string]any) releaseStatus {
	var s releaseStatus
	s.phase, _, _ = unstructured.NestedString(object, "status", "phase")
	s.message, _, _ = unstructured.NestedString(object, "status", "message")
	s.weight, _, _ = unstructured.NestedInt64(object, "status", "canary", "weights", "canary", "weight")
	// The phase in the status may still be that of the previous generation.
	observed, _, _ := unstructured.NestedString(object, "status", "observedGeneration")
	generation, _, _ := unstructured.NestedInt64(object, "metadata", "generation")
	if observed != strconv.FormatInt(generation, 10) {
		s.phase = "Progressing"
		return s
	}
	stable, _, _ := unstructured.NestedString(object, "status", "stableRS")
	current, _, _ := unstructured.NestedString(object, "status", "currentPodHash")
	s.isPromoted = stable != "" && stable == current
	return s
}
