package workload

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/toolkeys"
)

// Changed reports whether a new version of an object may change the observation, or require an action. Kubernetes
// updates the status of workloads and autoscalers often, and Serin reads little of it. For unknown kinds every version
// counts.
func Changed(before, after *unstructured.Unstructured) bool {
	switch after.GroupVersionKind().GroupKind() {
	case deploymentKind.GroupKind():
		return changedForm(deployments{}, before, after)
	case daemonSetKind.GroupKind():
		return changedForm(daemonSets{}, before, after)
	case serviceKind.GroupKind(), podScaler.kind.GroupKind(), kedaScaler.kind.GroupKind():
		return changedMetadata(before, after) || !jsontree.Equal(before.Object["spec"], after.Object["spec"])
	case revisionKind.GroupKind():
		return changedMetadata(before, after) || !slices.Equal(saidOfRevision(before), saidOfRevision(after))
	default:
		return true
	}
}

// saidOfRevision returns the fields of the status of a Knative revision that Serin reads.
func saidOfRevision(obj *unstructured.Unstructured) []string {
	status, why := readyCondition(obj)
	return []string{status, why}
}

// changedForm compares the fields of a workload that Serin reads. A change of its spec increments the generation, which
// is part of the metadata.
func changedForm(f form, before, after *unstructured.Unstructured) bool {
	return changedMetadata(before, after) || !reflect.DeepEqual(f.observed(before), f.observed(after))
}

// changedMetadata ignores the resourceVersion, and the annotations by which Kubernetes counts templates.
func changedMetadata(before, after *unstructured.Unstructured) bool {
	return !jsontree.Equal(metadataOf(before), metadataOf(after))
}

func metadataOf(obj *unstructured.Unstructured) map[string]any {
	metadata, _ := obj.Object["metadata"].(map[string]any)
	read := maps.Clone(metadata)
	delete(read, "resourceVersion")
	delete(read, "managedFields")
	delete(read, "annotations")
	if annotations := without(obj.GetAnnotations(), toolkeys.Kubernetes); len(annotations) > 0 {
		read["annotations"] = annotations
	}
	return read
}
