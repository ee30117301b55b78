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

// selectorPair distinguishes a target and its primary by name and label.
type selectorPair struct {
	// target is the name of the target; the primary has the suffix.
	target string
	// label and value are the selector label of the target; the primary's value has the suffix.
	label, value string
	// candidateLabels are all candidates for the selector label.
	candidateLabels []string
}

func (p selectorPair) primaryName() string  { return p.target + primarySuffix }
func (p selectorPair) primaryValue() string { return p.value + primarySuffix }

// findSelectorPair finds the selector label of a workload. problem is a message for the user, in which displayName is the kind of
// the workload.
func findSelectorPair(target *unstructured.Unstructured, displayName string, labels []string) (p selectorPair, problem string) {
	selected, _, _ := unstructured.NestedStringMap(target.Object, "spec", "selector", "matchLabels")
	for _, label := range labels {
		if value, found := selected[label]; found {
			return selectorPair{target: target.GetName(), label: label, value: value, candidateLabels: labels}, ""
		}
	}
	return selectorPair{}, fmt.Sprintf("getSelectorLabel failed: %s %s.%s spec.selector.matchLabels must contain one of %v: "+
		"add one of these labels to the selector and to the pods, or add a label of the selector to the controller's flag -selector-labels",
		displayName, target.GetName(), target.GetNamespace(), labels)
}

// rewriteRules are the rules by which names in a template are rewritten for the primary.
type rewriteRules int

const (
	// serinRules rewrite every affinity and topology spread constraint between pods of the target.
	serinRules rewriteRules = iota
	// flaggerRules are the rules of Flagger 1.44 for Deployments, for primaries that Serin adopts: they rewrite only names of the
	// target and no podAffinity, and copy the annotations of tools except for those of Flux.
	flaggerRules
	// flaggerDaemonSetRules are the rules of Flagger 1.44 for DaemonSets: in addition, they rewrite no affinity or spread
	// constraint.
	flaggerDaemonSetRules
)

// primaryTemplate returns the pod template of the primary for the target's. tracked are the keys of the configuration that has a
// copy. With an empty id it omits the annotation.
func primaryTemplate(source map[string]any, p selectorPair, tracked map[string]bool, id string, rules rewriteRules) map[string]any {
	template := runtime.DeepCopyJSON(source)
	metadata, ok := template["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		template["metadata"] = metadata
	}
	delete(metadata, "creationTimestamp")

	labels := withoutKeys(stringValues(metadata["labels"]), toolkeys.IsFluxKey)
	labels[p.label] = p.primaryValue()
	metadata["labels"] = jsonStrings(labels)

	foreign := toolkeys.IsToolKey
	if rules != serinRules {
		foreign = func(key string) bool { return toolkeys.IsFluxKey(key) || key == promotionIDAnnotation }
	}
	annotations := withoutKeys(stringValues(metadata["annotations"]), foreign)
	if id != "" {
		annotations[promotionIDAnnotation] = id
	}
	delete(metadata, "annotations")
	if len(annotations) > 0 {
		metadata["annotations"] = jsonStrings(annotations)
	}

	visitConfigRefs(template, func(ref ConfigRef, rename func(string)) {
		if tracked[ref.Key()] {
			rename(ref.Name + primarySuffix)
		}
	})
	visitSelfSelectors(template, rules, func(selector map[string]any) { p.rewriteSelector(selector, rules) })
	return template
}

// visitSelfSelectors visits the label selectors by which pods of a template avoid or prefer nodes with pods of the same
// workload.
func visitSelfSelectors(template map[string]any, rules rewriteRules, visit func(selector map[string]any)) {
	if rules == flaggerDaemonSetRules {
		return
	}
	at := func(holder map[string]any) {
		if selector, ok := holder["labelSelector"].(map[string]any); ok {
			visit(selector)
		}
	}
	spec, _ := template["spec"].(map[string]any)
	for _, constraint := range jsonObjects(spec["topologySpreadConstraints"]) {
		at(constraint)
	}
	affinity, _ := spec["affinity"].(map[string]any)
	kinds := []string{"podAntiAffinity", "podAffinity"}
	if rules == flaggerRules {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		terms, _ := affinity[kind].(map[string]any)
		for _, preferred := range jsonObjects(terms["preferredDuringSchedulingIgnoredDuringExecution"]) {
			if term, ok := preferred["podAffinityTerm"].(map[string]any); ok {
				at(term)
			}
		}
		for _, term := range jsonObjects(terms["requiredDuringSchedulingIgnoredDuringExecution"]) {
			at(term)
		}
	}
}

// rewriteSelector changes a label selector for the target into one for the primary. It rewrites the target's name as the value of
// a candidate label and, by Serin's rules, the value of the selector label.
func (p selectorPair) rewriteSelector(selector map[string]any, rules rewriteRules) {
	matchesTarget := func(key, value string) bool {
		return value == p.target && slices.Contains(p.candidateLabels, key) ||
			rules == serinRules && key == p.label && value == p.value
	}
	if labels, ok := selector["matchLabels"].(map[string]any); ok {
		for key, item := range labels {
			if value, _ := item.(string); matchesTarget(key, value) {
				labels[key] = value + primarySuffix
			}
		}
	}
	for _, expression := range jsonObjects(selector["matchExpressions"]) {
		key, _ := expression["key"].(string)
		items, _ := expression["values"].([]any)
		for i, item := range items {
			if value, _ := item.(string); matchesTarget(key, value) {
				items[i] = value + primarySuffix
				break // only the first one; the others are for other workloads
			}
		}
	}
}

// newPrimary returns the primary of a target to create, with the given pod template and its source.
func (d targetPair) newPrimary(c *flaggerv1.Canary, target *unstructured.Unstructured, p selectorPair, template map[string]any, source TemplateSource) *unstructured.Unstructured {
	primary := newObject(d.kind(), c.Namespace, p.primaryName())
	primary.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
	labels := d.Options.copiedLabels(target.GetLabels())
	labels[p.label] = p.primaryValue()
	primary.SetLabels(labels)
	primary.SetAnnotations(nilIfEmpty(withTemplateSource(copiedAnnotations(target.GetAnnotations()), source)))
	spec := map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{p.label: p.primaryValue()}},
		"template": template,
	}
	copyFields(target, spec, d.templateKind.kindNames().copiedFields)
	primary.Object["spec"] = spec
	return d.templateKind.withReplicas(primary, max(1, d.templateKind.desiredReplicas(target)))
}

// promotedPrimary returns a primary with the template of its target. Its selector, name and owner are unchanged. The number of
// pods is copied from the target, unless the Canary has an autoscaler or the target has no pods.
func (d targetPair) promotedPrimary(
	c *flaggerv1.Canary, primary, target *unstructured.Unstructured, p selectorPair, template map[string]any, source TemplateSource,
) *unstructured.Unstructured {
	promoted, spec := shallowCopy(primary)
	labels := d.Options.copiedLabels(target.GetLabels())
	labels[p.label] = p.primaryValue()
	promoted.SetLabels(mergedMetadata(primary.GetLabels(), labels))
	annotations := mergedMetadata(primary.GetAnnotations(), copiedAnnotations(target.GetAnnotations()))
	promoted.SetAnnotations(nilIfEmpty(withTemplateSource(annotations, source)))
	for _, field := range d.templateKind.kindNames().copiedFields {
		delete(spec, field)
	}
	copyFields(target, spec, d.templateKind.kindNames().copiedFields)
	spec["template"] = template
	if pods := d.templateKind.desiredReplicas(target); c.Spec.AutoscalerRef == nil && pods > 0 {
		return d.templateKind.withReplicas(promoted, pods)
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

// podTemplate returns the pod template of a workload, which must not be changed.
func podTemplate(obj *unstructured.Unstructured) map[string]any {
	template, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "template")
	object, _ := template.(map[string]any)
	return object
}

// imagesOf returns the images of the containers of a pod template, in their order.
func imagesOf(template map[string]any) []string {
	containers, _, _ := unstructured.NestedFieldNoCopy(template, "spec", "containers")
	list, _ := containers.([]any)
	images := make([]string, 0, len(list))
	for _, container := range list {
		fields, _ := container.(map[string]any)
		if image, _ := fields["image"].(string); image != "" {
			images = append(images, image)
		}
	}
	return images
}

// promotionID returns the annotation of a pod template that contains the ID of its promotion.
func promotionID(template map[string]any) string {
	id, _, _ := unstructured.NestedString(template, "metadata", "annotations", promotionIDAnnotation)
	return id
}

// stringValues returns the string values of a JSON object.
func stringValues(object any) map[string]string {
	items, _ := object.(map[string]any)
	found := make(map[string]string, len(items))
	for key, item := range items {
		if text, ok := item.(string); ok {
			found[key] = text
		}
	}
	return found
}

// nilIfEmpty returns nil instead of an empty map: an object without annotations has no such field.
func nilIfEmpty(texts map[string]string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	return texts
}

// jsonStrings returns a JSON object of strings.
func jsonStrings(texts map[string]string) map[string]any {
	object := make(map[string]any, len(texts))
	for key, text := range texts {
		object[key] = text
	}
	return object
}
