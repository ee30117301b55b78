package workload

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/toolkeys"
)

// pair distinguishes a target and its primary by name and label.
type pair struct {
	// target is the name of the target; the primary has the suffix.
	target string
	// label and value are the selector label of the target; the primary's value has the suffix.
	label, value string
	// labels are all candidates for the selector label.
	labels []string
}

func (p pair) primary() string      { return p.target + suffix }
func (p pair) primaryValue() string { return p.value + suffix }

// pairOf finds the selector label of a workload. problem is a message for the user, in which word is the kind of the
// workload.
func pairOf(target *unstructured.Unstructured, word string, labels []string) (p pair, problem string) {
	selected, _, _ := unstructured.NestedStringMap(target.Object, "spec", "selector", "matchLabels")
	for _, label := range labels {
		if value, found := selected[label]; found {
			return pair{target: target.GetName(), label: label, value: value, labels: labels}, ""
		}
	}
	return pair{}, fmt.Sprintf("getSelectorLabel failed: %s %s.%s spec.selector.matchLabels must contain one of %v",
		word, target.GetName(), target.GetNamespace(), labels)
}

// rules are the rules by which names in a template are rewritten for the primary.
type rules int

const (
	// ourRules rewrite every affinity and topology spread constraint between pods of the target.
	ourRules rules = iota
	// peerRules are those of Flagger 1.44 for Deployments, for primaries that Serin adopts: they rewrite only names of
	// the target and no podAffinity, and copy the keys of tools except for Flux.
	peerRules
	// peerPlainRules are those of Flagger 1.44 for DaemonSets: in addition, they rewrite no affinity or spread
	// constraint.
	peerPlainRules
)

// primaryTemplate returns the pod template of the primary for the target's. tracked are the keys of the configuration
// that has a copy. Without an id it omits the annotation.
func primaryTemplate(source map[string]any, p pair, tracked map[string]bool, id string, by rules) map[string]any {
	template := runtime.DeepCopyJSON(source)
	metadata, ok := template["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		template["metadata"] = metadata
	}
	delete(metadata, "creationTimestamp")

	labels := without(texts(metadata["labels"]), toolkeys.Flux)
	labels[p.label] = p.primaryValue()
	metadata["labels"] = values(labels)

	foreign := toolkeys.Is
	if by != ourRules {
		foreign = func(key string) bool { return toolkeys.Flux(key) || key == idAnnotation }
	}
	annotations := without(texts(metadata["annotations"]), foreign)
	if id != "" {
		annotations[idAnnotation] = id
	}
	delete(metadata, "annotations")
	if len(annotations) > 0 {
		metadata["annotations"] = values(annotations)
	}

	eachConfig(template, func(ref ConfigRef, rename func(string)) {
		if tracked[ref.Key()] {
			rename(ref.Name + suffix)
		}
	})
	eachSelfSelector(template, by, func(selector map[string]any) { p.rewrite(selector, by) })
	return template
}

// eachSelfSelector visits the label selectors by which pods of a template avoid or prefer nodes with pods of the same
// workload.
func eachSelfSelector(template map[string]any, by rules, visit func(selector map[string]any)) {
	if by == peerPlainRules {
		return
	}
	at := func(holder map[string]any) {
		if selector, ok := holder["labelSelector"].(map[string]any); ok {
			visit(selector)
		}
	}
	spec, _ := template["spec"].(map[string]any)
	for _, constraint := range objects(spec["topologySpreadConstraints"]) {
		at(constraint)
	}
	affinity, _ := spec["affinity"].(map[string]any)
	kinds := []string{"podAntiAffinity", "podAffinity"}
	if by == peerRules {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		rules, _ := affinity[kind].(map[string]any)
		for _, preferred := range objects(rules["preferredDuringSchedulingIgnoredDuringExecution"]) {
			if term, ok := preferred["podAffinityTerm"].(map[string]any); ok {
				at(term)
			}
		}
		for _, term := range objects(rules["requiredDuringSchedulingIgnoredDuringExecution"]) {
			at(term)
		}
	}
}

// rewrite changes a label selector for the target into one for the primary: if a value is the target's name under one
// of the candidate labels, and (by our rules) if label and value are those of the selector.
func (p pair) rewrite(selector map[string]any, by rules) {
	means := func(key, value string) bool {
		return value == p.target && slices.Contains(p.labels, key) ||
			by == ourRules && key == p.label && value == p.value
	}
	if labels, ok := selector["matchLabels"].(map[string]any); ok {
		for key, item := range labels {
			if value, _ := item.(string); means(key, value) {
				labels[key] = value + suffix
			}
		}
	}
	for _, expression := range objects(selector["matchExpressions"]) {
		key, _ := expression["key"].(string)
		items, _ := expression["values"].([]any)
		for i, item := range items {
			if value, _ := item.(string); means(key, value) {
				items[i] = value + suffix
				break // only the first one; the others are for other workloads
			}
		}
	}
}

// newPrimary returns the primary of a target to create, with the given pod template and its source.
func (d templated) newPrimary(c *flaggerv1.Canary, target *unstructured.Unstructured, p pair, template map[string]any, of Made) *unstructured.Unstructured {
	primary := newObject(d.kind(), c.Namespace, p.primary())
	primary.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
	labels := d.Options.copiedLabels(target.GetLabels())
	labels[p.label] = p.primaryValue()
	primary.SetLabels(labels)
	primary.SetAnnotations(orNil(marked(copiedAnnotations(target.GetAnnotations()), of)))
	spec := map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{p.label: p.primaryValue()}},
		"template": template,
	}
	copyFields(target, spec, d.form.names().copied)
	primary.Object["spec"] = spec
	return d.form.scaled(primary, max(1, d.form.asked(target)))
}

// promotedPrimary returns a primary with the template of its target. Its selector, name and owner are unchanged. With
// an autoscaler, the number of pods is unchanged too; and a target without pods does not determine how many are needed.
func (d templated) promotedPrimary(c *flaggerv1.Canary, primary, target *unstructured.Unstructured, p pair, template map[string]any, of Made) *unstructured.Unstructured {
	promoted, spec := edited(primary)
	labels := d.Options.copiedLabels(target.GetLabels())
	labels[p.label] = p.primaryValue()
	promoted.SetLabels(replaced(primary.GetLabels(), labels))
	promoted.SetAnnotations(orNil(marked(replaced(primary.GetAnnotations(), copiedAnnotations(target.GetAnnotations())), of)))
	for _, field := range d.form.names().copied {
		delete(spec, field)
	}
	copyFields(target, spec, d.form.names().copied)
	spec["template"] = template
	if pods := d.form.asked(target); c.Spec.AutoscalerRef == nil && pods > 0 {
		return d.form.scaled(promoted, pods)
	}
	return promoted
}

func copyFields(target *unstructured.Unstructured, spec map[string]any, fields []string) {
	for _, field := range fields {
		if value, found, _ := unstructured.NestedFieldNoCopy(target.Object, "spec", field); found {
			spec[field] = value
		}
	}
}

// templateOf returns the pod template of a workload, which must not be changed.
func templateOf(obj *unstructured.Unstructured) map[string]any {
	template, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "template")
	object, _ := template.(map[string]any)
	return object
}

// idOf returns the annotation of a pod template that contains the ID of its promotion.
func idOf(template map[string]any) string {
	id, _, _ := unstructured.NestedString(template, "metadata", "annotations", idAnnotation)
	return id
}

// texts returns the string values of a JSON object.
func texts(object any) map[string]string {
	items, _ := object.(map[string]any)
	found := make(map[string]string, len(items))
	for key, item := range items {
		if text, ok := item.(string); ok {
			found[key] = text
		}
	}
	return found
}

// orNil returns nil instead of an empty map: an object without annotations has no such field.
func orNil(texts map[string]string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	return texts
}

// values returns a JSON object of strings.
func values(texts map[string]string) map[string]any {
	object := make(map[string]any, len(texts))
	for key, text := range texts {
		object[key] = text
	}
	return object
}
