package workload

import (
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/jsontree"
)

// Changed is true when a new version of an object may give another observation, or something to do. Kubernetes writes
// the status of Deployments and autoscalers often, and most of that nobody here reads. Of kinds that are not known here
// every version counts.
func Changed(before, after *unstructured.Unstructured) bool {
	switch after.GroupVersionKind().GroupKind() {
	case deploymentKind.GroupKind():
		return changedMetadata(before, after) || !reflect.DeepEqual(readOf(before), readOf(after))
	case serviceKind.GroupKind(), scalerKind.GroupKind():
		return changedMetadata(before, after) || !jsontree.Equal(before.Object["spec"], after.Object["spec"])
	default:
		return true
	}
}

// readOf is what is read of the status of a Deployment. Its spec has a number: the generation, in the metadata.
func readOf(obj *unstructured.Unstructured) any {
	counts := map[string]int64{}
	for _, field := range []string{"observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"} {
		counts[field] = integer(obj.Object, 0, "status", field)
	}
	return []any{counts, conditionReason(obj, "Progressing")}
}

// changedMetadata leaves out the version itself, and how the controller of Deployments counts their templates.
func changedMetadata(before, after *unstructured.Unstructured) bool {
	return !jsontree.Equal(metadataOf(before), metadataOf(after))
}

func metadataOf(obj *unstructured.Unstructured) map[string]any {
	metadata, _ := obj.Object["metadata"].(map[string]any)
	read := maps.Clone(metadata)
	delete(read, "resourceVersion")
	delete(read, "managedFields")
	delete(read, "annotations")
	if annotations := without(obj.GetAnnotations(), func(key string) bool { return strings.HasPrefix(key, "deployment.kubernetes.io/") }); len(annotations) > 0 {
		read["annotations"] = annotations
	}
	return read
}
