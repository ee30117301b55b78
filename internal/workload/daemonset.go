package workload

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// parkingNodeSelector is a node selector that no node matches. A DaemonSet has no replicas to set to zero; with this selector it
// has no pods.
const parkingNodeSelector = "flagger.app/scale-to-zero"

// daemonSets is the templateKind of DaemonSets.
type daemonSets struct{}

func (daemonSets) kindNames() kindNames {
	return kindNames{
		kind: daemonSetKind, plural: "daemonsets", displayName: "daemonset", history: controllerRevisionKind,
		copiedFields: []string{"minReadySeconds", "revisionHistoryLimit", "updateStrategy"},
		flaggerRules: flaggerDaemonSetRules,
	}
}

// problem: with OnDelete the user decides which pods get a new template and when, so that no release would end.
func (daemonSets) problem(target *unstructured.Unstructured) string {
	strategy, _, _ := unstructured.NestedString(target.Object, "spec", "updateStrategy", "type")
	if strategy == "" || strategy == "RollingUpdate" {
		return ""
	}
	return fmt.Sprintf("daemonset %s.%s must have RollingUpdate strategy but have %s", target.GetName(), target.GetNamespace(), strategy)
}

// template returns the template without the parking selector, which is not the user's.
func (d daemonSets) template(obj *unstructured.Unstructured) map[string]any {
	return withoutParkingSelector(podTemplate(obj))
}

// withoutParkingSelector returns a pod template without the parking selector.
func withoutParkingSelector(template map[string]any) map[string]any {
	spec, _ := template["spec"].(map[string]any)
	nodes, _ := spec["nodeSelector"].(map[string]any)
	if _, parked := nodes[parkingNodeSelector]; !parked {
		return template
	}
	nodes = maps.Clone(nodes)
	delete(nodes, parkingNodeSelector)
	return withNodeSelector(template, nodes)
}

// withParkingSelector returns a pod template with the parking selector.
func withParkingSelector(template map[string]any) map[string]any {
	spec, _ := template["spec"].(map[string]any)
	nodes, _ := spec["nodeSelector"].(map[string]any)
	if nodes = maps.Clone(nodes); nodes == nil {
		nodes = map[string]any{}
	}
	nodes[parkingNodeSelector] = "true"
	return withNodeSelector(template, nodes)
}

// withNodeSelector returns a pod template with another node selector; an empty one is omitted, as by the API server.
func withNodeSelector(template, nodes map[string]any) map[string]any {
	spec, _ := template["spec"].(map[string]any)
	if spec = maps.Clone(spec); spec == nil {
		spec = map[string]any{}
	}
	delete(spec, "nodeSelector")
	if len(nodes) > 0 {
		spec["nodeSelector"] = nodes
	}
	if template = maps.Clone(template); template == nil {
		template = map[string]any{}
	}
	template["spec"] = spec
	return template
}

// templateForFlaggerHash: Flagger creates the map of node selectors, if there is none, before it removes the parking selector.
func (daemonSets) templateForFlaggerHash(template map[string]any) map[string]any {
	spec, _ := template["spec"].(map[string]any)
	if nodes, _ := spec["nodeSelector"].(map[string]any); nodes != nil {
		return template
	}
	template = withNodeSelector(template, nil)
	template["spec"].(map[string]any)["nodeSelector"] = map[string]any{} //nolint:forcetypeassert // set by withNodeSelector
	return template
}

// desiredReplicas returns the number of nodes that should have a pod. It is at least one while the DaemonSet is not parked: a
// node may join at any time, or the count may be older than the template.
func (daemonSets) desiredReplicas(obj *unstructured.Unstructured) int64 {
	if _, found, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "template", "spec", "nodeSelector", parkingNodeSelector); found {
		return 0
	}
	return max(1, intOrDefault(obj.Object, 0, "status", "desiredNumberScheduled"))
}

// withReplicas: the nodes determine the number of pods.
func (daemonSets) withReplicas(obj *unstructured.Unstructured, pods int64) *unstructured.Unstructured {
	scaled, spec := shallowCopy(obj)
	if pods > 0 {
		spec["template"] = withoutParkingSelector(podTemplate(obj))
	} else {
		spec["template"] = withParkingSelector(podTemplate(obj))
	}
	return scaled
}

// podCounts: for a DaemonSet that was just parked, the running pods are counted as misscheduled.
func (daemonSets) podCounts(obj *unstructured.Unstructured) podCounts {
	count := func(field string) int64 { return intOrDefault(obj.Object, 0, "status", field) }
	return podCounts{
		total:   count("currentNumberScheduled") + count("numberMisscheduled"),
		updated: count("updatedNumberScheduled"), ready: count("numberReady"), available: count("numberAvailable"),
	}
}

// readiness: Kubernetes has no deadline for the rollout of a DaemonSet. A parked one is ready, as all of its counts are
// zero.
func (d daemonSets) readiness(obj *unstructured.Unstructured, threshold int) Readiness {
	if intOrDefault(obj.Object, 0, "status", "observedGeneration") < obj.GetGeneration() {
		return Readiness{Message: "waiting for rollout to finish: observed daemonset generation less than desired generation"}
	}
	desired, pods := intOrDefault(obj.Object, 0, "status", "desiredNumberScheduled"), d.podCounts(obj)
	if pods.updated < desired {
		return Readiness{Message: fmt.Sprintf("waiting for rollout to finish: %d out of %d new pods have been updated", pods.updated, desired)}
	}
	required := requiredAvailable(desired, threshold)
	if pods.available < required {
		return Readiness{Message: fmt.Sprintf(
			"waiting for rollout to finish: %d of %d (readyThreshold %d%%) updated pods are available", pods.available, required, threshold)}
	}
	return Readiness{Ready: true, RequiredAvailable: int32(required)} //nolint:gosec // the API has int32
}

// historyEntry reads a ControllerRevision, whose data is a patch that sets the template.
func (daemonSets) historyEntry(past *unstructured.Unstructured) historyEntry {
	patch, _, _ := unstructured.NestedFieldNoCopy(past.Object, "data", "spec", "template")
	template, _ := patch.(map[string]any)
	template = maps.Clone(template)
	delete(template, "$patch")
	return historyEntry{number: intOrDefault(past.Object, 0, "revision"), template: withoutParkingSelector(template)}
}

func (d daemonSets) observedFields(obj *unstructured.Unstructured) any {
	number := func(field string) int64 { return intOrDefault(obj.Object, 0, "status", field) }
	return []any{number("observedGeneration"), number("desiredNumberScheduled"), d.podCounts(obj)}
}
