package workload

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/toolkeys"
)

// Changed is true when a new version of an object may give another observation, or something to do. Kubernetes writes
// the status of workloads and autoscalers often, and most of that nobody here reads. Of kinds that are not known here
// every version counts.
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

// saidOfRevision is what is read of the status of a revision of Knative.
func saidOfRevision(obj *unstructured.Unstructured) []string {
	status, why := readyCondition(obj)
	return []string{status, why}
}

// changedForm compares what is read of a workload. Its spec has a number: the generation, in the metadata.
func changedForm(f form, before, after *unstructured.Unstructured) bool {
	return changedMetadata(before, after) || !reflect.DeepEqual(f.observed(before), f.observed(after))
}

// changedMetadata leaves out the version itself, and how Kubernetes counts templates.
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
