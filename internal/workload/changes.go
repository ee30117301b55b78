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
		return observedFields(deployments{}, before, after)
	case daemonSetKind.GroupKind():
		return observedFields(daemonSets{}, before, after)
	case serviceKind.GroupKind(), horizontalPodAutoscaler.kind.GroupKind(), scaledObject.kind.GroupKind():
		return comparableMetadata(before, after) || !jsontree.Equal(before.Object["spec"], after.Object["spec"])
	case revisionKind.GroupKind():
		return comparableMetadata(before, after) || !slices.Equal(knativeRevisionStatus(before), knativeRevisionStatus(after))
	default:
		return true
	}
}

// knativeRevisionStatus returns the fields of the status of a Knative revision that Serin reads.
func knativeRevisionStatus(obj *unstructured.Unstructured) []string {
	status, why := readyCondition(obj)
	return []string{status, why}
}

// observedFields compares the fields of a workload that Serin reads. A change of its spec increments the generation, which
// is part of the metadata.
func observedFields(f templateKind, before, after *unstructured.Unstructured) bool {
	return comparableMetadata(before, after) || !reflect.DeepEqual(f.observedFields(before), f.observedFields(after))
}

// comparableMetadata ignores the resourceVersion, and the annotations by which Kubernetes counts templates.
func comparableMetadata(before, after *unstructured.Unstructured) bool {
	return !jsontree.Equal(metadataOf(before), metadataOf(after))
}

func metadataOf(obj *unstructured.Unstructured) map[string]any {
	metadata, _ := obj.Object["metadata"].(map[string]any)
	read := maps.Clone(metadata)
	delete(read, "resourceVersion")
	delete(read, "managedFields")
	delete(read, "annotations")
	if annotations := withoutKeys(obj.GetAnnotations(), toolkeys.IsKubernetesAnnotation); len(annotations) > 0 {
		read["annotations"] = annotations
	}
	return read
}
