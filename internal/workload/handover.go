package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// HandOverServices removes the Canary as owner of the Service that clients call, and records as its original state that it selects
// the target: RestoreServices then restores that state, and the Service is not deleted with the Canary. Its current selector is
// unchanged. A Service that the Canary does not own is unchanged.
func (d podServices) HandOverServices(ctx context.Context, c *flaggerv1.Canary) error {
	target, err := d.readCached(ctx, c, d.kind(), c.Spec.TargetRef.Name)
	if err != nil {
		return err
	}
	if target == nil {
		return newUnusableError(d.missingTargetProblem(c))
	}
	p, problem := findSelectorPair(target, d.displayName(), d.Options.selectorLabels())
	if problem != "" {
		return newUnusableError(problem)
	}
	existing, err := d.readCached(ctx, c, serviceKind, c.Spec.ApexName())
	if err != nil || existing == nil || !controlledBy(existing, c) {
		return err
	}
	handedOver, err := handedOverService(existing, c, p)
	if err != nil {
		return err
	}
	if err := d.updateObject(ctx, existing, handedOver); err != nil {
		return fmt.Errorf("service %s update error: %w", existing.GetName(), err)
	}
	return nil
}

func handedOverService(existing *unstructured.Unstructured, c *flaggerv1.Canary, p selectorPair) (*unstructured.Unstructured, error) {
	original := originalService{Canary: objectKey(c).String()}
	original.Spec.Selector = map[string]string{p.label: p.value}
	original.Spec.Ports, _, _ = unstructured.NestedSlice(existing.Object, "spec", "ports")
	original.Spec.TrafficDistribution, _, _ = unstructured.NestedString(existing.Object, "spec", "trafficDistribution")
	text, err := json.Marshal(original)
	if err != nil {
		return nil, fmt.Errorf("record the state of Service %s.%s: %w", existing.GetName(), existing.GetNamespace(), err)
	}
	handedOver := existing.DeepCopy()
	setAnnotations(handedOver, map[string]string{originalAnnotation: string(text)})
	owners := slices.DeleteFunc(handedOver.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == c.UID })
	if len(owners) == 0 {
		owners = nil
	}
	handedOver.SetOwnerReferences(owners)
	return handedOver, nil
}

// RestoreTarget sets the template of the target to that of the primary. It is the reverse of CopyTemplate, for a target that has a
// template that was not promoted. ErrUnusable: the template or its configuration cannot be restored, and nothing was changed.
func (d templateWorkload) RestoreTarget(ctx context.Context, c *flaggerv1.Canary) error {
	seen, err := d.readWorkloads(ctx, c)
	switch {
	case err != nil:
		return err
	case seen.target == nil || seen.selectorPair.label == "":
		return newUnusableError(seen.problem)
	case seen.primary == nil || !controlledBy(seen.primary, c):
		return newUnusableError(fmt.Sprintf("%s %s.%s does not exist: its template cannot be restored to %s", d.kind().Kind, seen.selectorPair.primaryName(), c.Namespace, seen.selectorPair.target))
	}
	restored, spec := shallowCopy(seen.target)
	if spec["template"], err = d.restoredTargetTemplate(ctx, c, seen); err != nil {
		return err
	}
	if d.templateKind.desiredReplicas(seen.target) == 0 {
		restored = d.templateKind.withReplicas(restored, 0) // a DaemonSet is scaled to zero by its template
	}
	after := seen
	after.target = restored
	problem := ""
	if after.configs, problem, err = d.readConfigs(ctx, c, podTemplate(restored)); err != nil {
		return err
	}
	if problem != "" {
		return newUnusableError(problem)
	}
	if !d.sameTemplate(after) {
		return newUnusableError(fmt.Sprintf("%s %s.%s has another template than %s, which serves, and it cannot be restored: deploy the version of %s to %s",
			d.kind().Kind, seen.selectorPair.target, c.Namespace, seen.selectorPair.primaryName(), seen.selectorPair.primaryName(), seen.selectorPair.target))
	}
	if changed, err := d.changedConfigs(ctx, c, after); err != nil || len(changed) > 0 {
		if err == nil {
			err = newUnusableError(fmt.Sprintf("%s changed since the version that serves was promoted: restore the content of %s, or release it",
				strings.Join(changed, ", "), strings.Join(copyNames(changed), ", ")))
		}
		return err
	}
	if d.sameTemplate(seen) {
		return nil
	}
	if err := d.updateObject(ctx, seen.target, restored); err != nil {
		return fmt.Errorf("updating %s %s.%s template spec failed: %w", d.displayName(), seen.selectorPair.target, c.Namespace, err)
	}
	return nil
}

// restoredTargetTemplate returns the target's template of which the primary's template is the copy.
func (d templateWorkload) restoredTargetTemplate(ctx context.Context, c *flaggerv1.Canary, seen workloadView) (map[string]any, error) {
	p := seen.selectorPair
	template := runtime.DeepCopyJSON(d.templateKind.template(seen.primary))
	metadata, ok := template["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		template["metadata"] = metadata
	}
	labels := stringValues(metadata["labels"])
	labels[p.label] = p.value
	metadata["labels"] = jsonStrings(labels)
	annotations := withoutKeys(stringValues(metadata["annotations"]), func(key string) bool { return key == promotionIDAnnotation })
	delete(metadata, "annotations")
	if len(annotations) > 0 {
		metadata["annotations"] = jsonStrings(annotations)
	}
	copies := map[string]bool{}
	for _, ref := range ListConfigRefs(template) {
		meta, err := d.metadataOf(ctx, c, ref)
		if err != nil {
			return nil, err
		}
		copies[ref.Key()] = meta != nil && isOwnedBy(c, meta)
	}
	visitConfigRefs(template, func(ref ConfigRef, rename func(string)) {
		if copies[ref.Key()] {
			rename(strings.TrimSuffix(ref.Name, primarySuffix))
		}
	})
	visitSelfSelectors(template, serinRules, p.restoreSelector)
	return template, nil
}

// restoreSelector reverses rewriteSelector.
func (p selectorPair) restoreSelector(selector map[string]any) {
	restored := func(key string, item any) any {
		value, _ := item.(string)
		base, isPrimary := strings.CutSuffix(value, primarySuffix)
		if isPrimary && (base == p.target && slices.Contains(p.candidateLabels, key) || base == p.value && key == p.label) {
			return base
		}
		return item
	}
	if labels, ok := selector["matchLabels"].(map[string]any); ok {
		for key, item := range maps.Clone(labels) {
			labels[key] = restored(key, item)
		}
	}
	for _, expression := range jsonObjects(selector["matchExpressions"]) {
		key, _ := expression["key"].(string)
		items, _ := expression["values"].([]any)
		for i, item := range items {
			items[i] = restored(key, item)
		}
	}
}

// changedConfigs returns the tracked configuration whose content differs from its copy, as kind and name.
func (d templateWorkload) changedConfigs(ctx context.Context, c *flaggerv1.Canary, seen workloadView) ([]string, error) {
	var changed []string
	for _, config := range seen.configs {
		one := seen
		one.configs = []configSource{config}
		same, err := d.sameConfigs(ctx, c, one)
		if err != nil {
			return nil, err
		}
		if !same {
			changed = append(changed, config.Kind+" "+config.Name)
		}
	}
	return changed, nil
}

// copyNames returns the names of the copies of configuration.
func copyNames(configs []string) []string {
	names := make([]string, len(configs))
	for i, config := range configs {
		names[i] = config + primarySuffix
	}
	return names
}

// HandOverServices does nothing: the Services belong to the user or to Knative.
func (noPods) HandOverServices(context.Context, *flaggerv1.Canary) error { return nil }

// RestoreTarget returns ErrUnusable: only pod templates are restored.
func (noPods) RestoreTarget(_ context.Context, c *flaggerv1.Canary) error {
	return newUnusableError(fmt.Sprintf("%s %s.%s differs from the promoted version, which serves: deploy the promoted version", c.Spec.TargetRef.Kind, c.Spec.TargetRef.Name, c.Namespace))
}
