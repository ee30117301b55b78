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
		return workloadChanged(deployments{}, before, after)
	case daemonSetKind.GroupKind():
		return workloadChanged(daemonSets{}, before, after)
	case serviceKind.GroupKind(), horizontalPodAutoscaler.kind.GroupKind(), scaledObject.kind.GroupKind():
		return metadataChanged(before, after) || !jsontree.Equal(before.Object["spec"], after.Object["spec"])
	case revisionKind.GroupKind():
		return metadataChanged(before, after) || !slices.Equal(knativeRevisionStatus(before), knativeRevisionStatus(after))
	default:
		return true
	}
}

// knativeRevisionStatus returns the fields of the status of a Knative revision that Serin reads.
func knativeRevisionStatus(obj *unstructured.Unstructured) []string {
	status, why := readyCondition(obj)
	return []string{status, why}
}

// workloadChanged compares the fields of a workload that Serin reads. A change of its spec increments the generation, which
// is part of the metadata.
func workloadChanged(k templateKind, before, after *unstructured.Unstructured) bool {
	return metadataChanged(before, after) || !reflect.DeepEqual(k.observedFields(before), k.observedFields(after))
}

// metadataChanged ignores the resourceVersion, and the annotations in which Kubernetes numbers the revisions of a template.
func metadataChanged(before, after *unstructured.Unstructured) bool {
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
