package workload

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// parkSelector is a node selector that no node matches. A DaemonSet has no replicas to set to zero: with this selector
// it runs nowhere.
const parkSelector = "flagger.app/scale-to-zero"

// daemonSets is the form of DaemonSets.
type daemonSets struct{}

func (daemonSets) names() names {
	return names{
		kind: daemonSetKind, plural: "daemonsets", word: "daemonset", history: controllerRevisionKind,
		copied: []string{"minReadySeconds", "revisionHistoryLimit", "updateStrategy"},
		peer:   peerPlainRules,
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
	return unparked(templateOf(obj))
}

// unparked returns a pod template without the parking selector.
func unparked(template map[string]any) map[string]any {
	spec, _ := template["spec"].(map[string]any)
	nodes, _ := spec["nodeSelector"].(map[string]any)
	if _, parked := nodes[parkSelector]; !parked {
		return template
	}
	nodes = maps.Clone(nodes)
	delete(nodes, parkSelector)
	return selecting(template, nodes)
}

// parked returns a pod template with the parking selector.
func parked(template map[string]any) map[string]any {
	spec, _ := template["spec"].(map[string]any)
	nodes, _ := spec["nodeSelector"].(map[string]any)
	if nodes = maps.Clone(nodes); nodes == nil {
		nodes = map[string]any{}
	}
	nodes[parkSelector] = "true"
	return selecting(template, nodes)
}

// selecting returns a pod template with another node selector; an empty one is omitted, as by the API server.
func selecting(template, nodes map[string]any) map[string]any {
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

// hashed: Flagger takes the selector out of a map that it first made where there was none.
func (daemonSets) hashed(template map[string]any) map[string]any {
	spec, _ := template["spec"].(map[string]any)
	if nodes, _ := spec["nodeSelector"].(map[string]any); nodes != nil {
		return template
	}
	template = selecting(template, nil)
	template["spec"].(map[string]any)["nodeSelector"] = map[string]any{} //nolint:forcetypeassert // just made
	return template
}

// asked returns the number of nodes that should have a pod. It is at least one while the DaemonSet is not parked: a
// node may join at any time, or the count may be older than the template.
func (daemonSets) asked(obj *unstructured.Unstructured) int64 {
	if _, found, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "template", "spec", "nodeSelector", parkSelector); found {
		return 0
	}
	return max(1, integer(obj.Object, 0, "status", "desiredNumberScheduled"))
}

// scaled: the nodes determine the number of pods.
func (daemonSets) scaled(obj *unstructured.Unstructured, pods int64) *unstructured.Unstructured {
	scaled, spec := edited(obj)
	if pods > 0 {
		spec["template"] = unparked(templateOf(obj))
	} else {
		spec["template"] = parked(templateOf(obj))
	}
	return scaled
}

// counts: for a DaemonSet that was just parked, the running pods are counted as misscheduled.
func (daemonSets) counts(obj *unstructured.Unstructured) counts {
	of := func(field string) int64 { return integer(obj.Object, 0, "status", field) }
	return counts{
		total:   of("currentNumberScheduled") + of("numberMisscheduled"),
		updated: of("updatedNumberScheduled"), ready: of("numberReady"), available: of("numberAvailable"),
	}
}

// readiness: Kubernetes has no deadline for the rollout of a DaemonSet. A parked one is ready, as all of its counts are
// zero.
func (d daemonSets) readiness(obj *unstructured.Unstructured, threshold int) Readiness {
	if integer(obj.Object, 0, "status", "observedGeneration") < obj.GetGeneration() {
		return Readiness{Message: "waiting for rollout to finish: observed daemonset generation less than desired generation"}
	}
	wanted, is := integer(obj.Object, 0, "status", "desiredNumberScheduled"), d.counts(obj)
	if is.updated < wanted {
		return Readiness{Message: fmt.Sprintf("waiting for rollout to finish: %d out of %d new pods have been updated", is.updated, wanted)}
	}
	enough := enoughOf(wanted, threshold)
	if is.available < enough {
		return Readiness{Message: fmt.Sprintf(
			"waiting for rollout to finish: %d of %d (readyThreshold %d%%) updated pods are available", is.available, enough, threshold)}
	}
	return Readiness{Ready: true, Enough: int32(enough)} //nolint:gosec // the API has int32
}

// entry reads a ControllerRevision, whose data is a patch that sets the template.
func (daemonSets) entry(past *unstructured.Unstructured) entry {
	patch, _, _ := unstructured.NestedFieldNoCopy(past.Object, "data", "spec", "template")
	template, _ := patch.(map[string]any)
	template = maps.Clone(template)
	delete(template, "$patch")
	return entry{number: integer(past.Object, 0, "revision"), template: unparked(template)}
}

func (d daemonSets) observed(obj *unstructured.Unstructured) any {
	of := func(field string) int64 { return integer(obj.Object, 0, "status", field) }
	return []any{of("observedGeneration"), of("desiredNumberScheduled"), d.counts(obj)}
}
