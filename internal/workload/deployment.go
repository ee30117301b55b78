package workload

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// deployments is the templateKind of Deployments.
type deployments struct{}

func (deployments) kindNames() kindNames {
	return kindNames{
		kind: deploymentKind, plural: "deployments", displayName: "deployment", history: replicaSetKind,
		// paused is not copied: only the target is paused, the primary continues to serve.
		copiedFields: []string{"progressDeadlineSeconds", "minReadySeconds", "revisionHistoryLimit", "strategy"},
		flaggerRules: flaggerRules,
	}
}

func (deployments) problem(*unstructured.Unstructured) string              { return "" }
func (deployments) template(obj *unstructured.Unstructured) map[string]any { return podTemplate(obj) }

func (deployments) templateForFlaggerHash(template map[string]any) map[string]any { return template }

func (deployments) desiredReplicas(obj *unstructured.Unstructured) int64 {
	return intOrDefault(obj.Object, 1, "spec", "replicas")
}

func (deployments) withReplicas(obj *unstructured.Unstructured, pods int64) *unstructured.Unstructured {
	scaled, spec := shallowCopy(obj)
	spec["replicas"] = pods
	return scaled
}

func (deployments) podCounts(obj *unstructured.Unstructured) podCounts {
	count := func(field string) int64 { return intOrDefault(obj.Object, 0, "status", field) }
	return podCounts{total: count("replicas"), updated: count("updatedReplicas"), ready: count("readyReplicas"), available: count("availableReplicas")}
}

// readiness: a Deployment with no replicas is ready, as all of its counts are zero.
func (d deployments) readiness(obj *unstructured.Unstructured, threshold int) Readiness {
	if intOrDefault(obj.Object, 0, "status", "observedGeneration") < obj.GetGeneration() {
		return Readiness{Message: "waiting for rollout to finish: observed deployment generation less than desired generation"}
	}
	if conditionReason(obj, "Progressing") == "ProgressDeadlineExceeded" {
		return Readiness{DeadlineExceeded: true, Message: fmt.Sprintf("deployment %q exceeded its progress deadline", obj.GetName())}
	}
	desired, pods := d.desiredReplicas(obj), d.podCounts(obj)
	if pods.updated < desired {
		return Readiness{Message: fmt.Sprintf(
			"waiting for rollout to finish: %d out of %d new replicas have been updated", pods.updated, desired,
		)}
	}
	if pods.total > pods.updated {
		return Readiness{Message: fmt.Sprintf(
			"waiting for rollout to finish: %d old replicas are pending termination", pods.total-pods.updated,
		)}
	}
	required := requiredAvailable(pods.updated, threshold)
	if pods.available < required {
		return Readiness{Message: fmt.Sprintf(
			"waiting for rollout to finish: %d of %d (readyThreshold %d%%) updated replicas are available",
			pods.available, required, threshold,
		)}
	}
	return Readiness{Ready: true, RequiredAvailable: int32(required)} //nolint:gosec // the API has int32
}

// historyEntry reads a ReplicaSet.
func (deployments) historyEntry(past *unstructured.Unstructured) historyEntry {
	number, err := strconv.ParseInt(past.GetAnnotations()[revisionAnnotation], 10, 64)
	if err != nil {
		number = 0
	}
	return historyEntry{number: number, template: podTemplate(past)}
}

func (d deployments) observedFields(obj *unstructured.Unstructured) any {
	return []any{intOrDefault(obj.Object, 0, "status", "observedGeneration"), d.podCounts(obj), conditionReason(obj, "Progressing")}
}
