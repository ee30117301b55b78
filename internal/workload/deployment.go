package workload

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// deployments is the form of Deployments.
type deployments struct{}

func (deployments) names() names {
	return names{
		kind: deploymentKind, plural: "deployments", word: "deployment", history: replicaSetKind,
		// paused is not among them: only the target is paused, the primary continues to serve.
		copied: []string{"progressDeadlineSeconds", "minReadySeconds", "revisionHistoryLimit", "strategy"},
		peer:   peerRules,
	}
}

func (deployments) problem(*unstructured.Unstructured) string              { return "" }
func (deployments) template(obj *unstructured.Unstructured) map[string]any { return templateOf(obj) }
func (deployments) hashed(template map[string]any) map[string]any          { return template }

func (deployments) asked(obj *unstructured.Unstructured) int64 {
	return integer(obj.Object, 1, "spec", "replicas")
}

func (deployments) scaled(obj *unstructured.Unstructured, pods int64) *unstructured.Unstructured {
	scaled, spec := edited(obj)
	spec["replicas"] = pods
	return scaled
}

func (deployments) counts(obj *unstructured.Unstructured) counts {
	of := func(field string) int64 { return integer(obj.Object, 0, "status", field) }
	return counts{total: of("replicas"), updated: of("updatedReplicas"), ready: of("readyReplicas"), available: of("availableReplicas")}
}

// readiness: a Deployment with no replicas is ready, as all of its counts are zero.
func (d deployments) readiness(obj *unstructured.Unstructured, threshold int) Readiness {
	if integer(obj.Object, 0, "status", "observedGeneration") < obj.GetGeneration() {
		return Readiness{Message: "waiting for rollout to finish: observed deployment generation less than desired generation"}
	}
	if conditionReason(obj, "Progressing") == "ProgressDeadlineExceeded" {
		return Readiness{Exceeded: true, Message: fmt.Sprintf("deployment %q exceeded its progress deadline", obj.GetName())}
	}
	wanted, is := d.asked(obj), d.counts(obj)
	if is.updated < wanted {
		return Readiness{Message: fmt.Sprintf(
			"waiting for rollout to finish: %d out of %d new replicas have been updated", is.updated, wanted)}
	}
	if is.total > is.updated {
		return Readiness{Message: fmt.Sprintf(
			"waiting for rollout to finish: %d old replicas are pending termination", is.total-is.updated)}
	}
	enough := enoughOf(is.updated, threshold)
	if is.available < enough {
		return Readiness{Message: fmt.Sprintf(
			"waiting for rollout to finish: %d of %d (readyThreshold %d%%) updated replicas are available",
			is.available, enough, threshold)}
	}
	return Readiness{Ready: true, Enough: int32(enough)} //nolint:gosec // the API has int32
}

// entry reads a ReplicaSet.
func (deployments) entry(past *unstructured.Unstructured) entry {
	number, err := strconv.ParseInt(past.GetAnnotations()[revisionAnnotation], 10, 64)
	if err != nil {
		number = 0
	}
	return entry{number: number, template: templateOf(past)}
}

func (d deployments) observed(obj *unstructured.Unstructured) any {
	return []any{integer(obj.Object, 0, "status", "observedGeneration"), d.counts(obj), conditionReason(obj, "Progressing")}
}
