package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/jsontree"
)

// PartialServiceError lists the warnings about Services and about copies of configuration: settings that Kubernetes does not permit
// to change, selectors of other pods that were replaced, and content that other Canaries share. Everything else was applied, so
// that it does not block the release.
type PartialServiceError struct {
	// Messages contains a message for each object.
	Messages []string
}

func (e *PartialServiceError) Error() string { return strings.Join(e.Messages, "; ") }

// asPartialError returns a *PartialServiceError with these warnings; nil if there are none.
func asPartialError(warnings []string) error {
	if len(warnings) == 0 {
		return nil
	}
	return &PartialServiceError{Messages: warnings}
}

// maxOriginalBytes limits the size of the original Service that is stored in an annotation, in bytes.
const maxOriginalBytes = 64 << 10

// desiredService is the desired state of one of the three Services.
type desiredService struct {
	name     string
	selector map[string]string
	metadata *flaggerv1.CustomMetadata
}

// desiredServices returns the desired Services of a Canary: canary, primary and optionally the apex.
func desiredServices(c *flaggerv1.Canary, p selectorPair, apex bool) []desiredService {
	name := c.Spec.ApexName()
	services := []desiredService{
		{name + "-canary", map[string]string{p.label: p.value}, c.Spec.Service.Canary},
		{name + primarySuffix, map[string]string{p.label: p.primaryValue()}, c.Spec.Service.Primary},
	}
	if apex {
		services = append(services, desiredService{name, map[string]string{p.label: p.primaryValue()}, c.Spec.Service.Apex})
	}
	return services
}

// podServices manages the Services that select the pods of target and primary.
type podServices struct{ targetPair }

// EnsureServices creates and updates the Services of canary and primary, and with apex also the one that clients call. A Service
// without a controller is taken over without setting an owner. A *PartialServiceError means that all possible changes were
// applied.
func (d podServices) EnsureServices(ctx context.Context, c *flaggerv1.Canary, apex bool) error {
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
	ports := servicePorts(c, podTemplate(target))
	var warnings []string
	for _, wanted := range desiredServices(c, p, apex) {
		more, err := d.ensureService(ctx, c, p, wanted, podTemplate(target), ports)
		if err != nil {
			return err
		}
		warnings = append(warnings, more...)
	}
	return asPartialError(warnings)
}

// apexSelects reports whether the Service that clients call selects the pods of a workload.
func (d podServices) apexSelects(ctx context.Context, c *flaggerv1.Canary, workload *unstructured.Unstructured) (bool, error) {
	apex, err := d.readCached(ctx, c, serviceKind, c.Spec.ApexName())
	if apex == nil || err != nil {
		return false, err
	}
	selector, _, _ := unstructured.NestedStringMap(apex.Object, "spec", "selector")
	podLabels, _, _ := unstructured.NestedStringMap(podTemplate(workload), "metadata", "labels")
	return len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(podLabels)), nil
}

// primaryServiceSelectsOther reports whether the Service of the primary exists and selects pods of another workload, such as the
// primary of a former target. A Service of another owner blocks the Canary, whatever it selects.
func (d podServices) primaryServiceSelectsOther(ctx context.Context, c *flaggerv1.Canary, p selectorPair, target *unstructured.Unstructured) (bool, error) {
	existing, err := d.readCached(ctx, c, serviceKind, c.Spec.ApexName()+primarySuffix)
	if existing == nil || err != nil || p.label == "" {
		return false, err
	}
	if owner := metav1.GetControllerOf(existing); owner != nil && owner.UID != c.UID {
		return false, nil
	}
	selector, _, _ := unstructured.NestedStringMap(existing.Object, "spec", "selector")
	return len(selector) > 0 && !labels.SelectorFromSet(selector).Matches(primaryLabels(p, podTemplate(target))), nil
}

// canaryServiceSelectsOther reports whether the Service of the canary exists and selects pods of another workload than the target.
func (d podServices) canaryServiceSelectsOther(ctx context.Context, c *flaggerv1.Canary, target *unstructured.Unstructured) (bool, error) {
	existing, err := d.readCached(ctx, c, serviceKind, c.Spec.ApexName()+"-canary")
	if existing == nil || err != nil {
		return false, err
	}
	selector, _, _ := unstructured.NestedStringMap(existing.Object, "spec", "selector")
	podLabels, _, _ := unstructured.NestedStringMap(podTemplate(target), "metadata", "labels")
	return len(selector) > 0 && !labels.SelectorFromSet(selector).Matches(labels.Set(podLabels)), nil
}

// primaryLabels returns the labels of the pods of the primary.
func primaryLabels(p selectorPair, template map[string]any) labels.Set {
	podLabels, _, _ := unstructured.NestedStringMap(template, "metadata", "labels")
	primary := labels.Set{}
	maps.Copy(primary, podLabels)
	primary[p.label] = p.primaryValue()
	return primary
}

func (d podServices) ensureService(
	ctx context.Context, c *flaggerv1.Canary, p selectorPair, wanted desiredService, template map[string]any, ports []any,
) (warnings []string, err error) {
	existing, err := d.readCached(ctx, c, serviceKind, wanted.name)
	if err != nil {
		return nil, fmt.Errorf("reconcileService failed: service %s get query error: %w", wanted.name, errors.Unwrap(err))
	}
	if existing == nil {
		existing, err = d.createObject(ctx, c, newService(c, p, wanted, ports))
		if err != nil {
			return nil, fmt.Errorf("reconcileService failed: service %s.%s create error: %w", wanted.name, c.Namespace, err)
		}
		if existing == nil {
			return nil, nil
		}
	}
	if owner := metav1.GetControllerOf(existing); owner != nil && owner.UID != c.UID {
		return nil, newNotOwnedError(c, "Service", existing)
	}
	desired, warning := renderService(c, p, wanted, ports, existing)
	if err := d.updateObject(ctx, existing, desired); err != nil {
		return nil, fmt.Errorf("reconcileService failed: service %s update error: %w", wanted.name, err)
	}
	if warning != "" {
		warnings = append(warnings, warning)
	}
	if warning := replacedSelectorWarning(c, p, wanted, template, existing); warning != "" {
		warnings = append(warnings, warning)
	}
	return warnings, nil
}

// replacedSelectorWarning returns a message about a user's Service that selected neither the pods of the target nor those that it
// selects now: its clients reach other pods than before. Empty: there is nothing to report.
func replacedSelectorWarning(c *flaggerv1.Canary, p selectorPair, wanted desiredService, template map[string]any, existing *unstructured.Unstructured) string {
	selector, _, _ := unstructured.NestedStringMap(existing.Object, "spec", "selector")
	podLabels, _, _ := unstructured.NestedStringMap(template, "metadata", "labels")
	if controlledBy(existing, c) || len(selector) == 0 || maps.Equal(selector, wanted.selector) {
		return ""
	}
	matcher := labels.SelectorFromSet(selector)
	if matcher.Matches(labels.Set(podLabels)) || matcher.Matches(primaryLabels(p, template)) {
		return ""
	}
	return fmt.Sprintf("took over service %s.%s, which selected other pods: its selector was %s, and is %s",
		wanted.name, c.Namespace, labels.FormatLabels(selector), labels.FormatLabels(wanted.selector))
}

// newService returns a generated Service to create.
func newService(c *flaggerv1.Canary, p selectorPair, wanted desiredService, ports []any) *unstructured.Unstructured {
	obj := newObject(serviceKind, c.Namespace, wanted.name)
	obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
	labels, annotations := serviceMetadata(p, wanted)
	obj.SetLabels(labels)
	obj.SetAnnotations(annotations)
	spec := map[string]any{
		"type":     "ClusterIP",
		"selector": jsonStrings(wanted.selector),
		"ports":    runtime.DeepCopyJSONValue(ports),
	}
	if c.Spec.Service.Headless {
		spec["clusterIP"] = "None"
	}
	if c.Spec.Service.TrafficDistribution != "" {
		spec["trafficDistribution"] = c.Spec.Service.TrafficDistribution
	}
	obj.Object["spec"] = spec
	return obj
}

// renderService returns the desired state of an existing Service. In a user's own Service it changes only the fields that route
// traffic, and adds the annotations that stop Flux from reverting them. warning describes a setting that cannot be changed.
func renderService(c *flaggerv1.Canary, p selectorPair, wanted desiredService, ports []any, existing *unstructured.Unstructured) (desired *unstructured.Unstructured, warning string) {
	desired, spec := shallowCopy(existing)
	owned := controlledBy(existing, c)

	spec["selector"] = jsonStrings(wanted.selector)
	live, _ := spec["ports"].([]any)
	if !samePorts(live, ports) {
		spec["ports"] = withNodePorts(ports, live)
	}
	switch distribution := c.Spec.Service.TrafficDistribution; {
	case distribution != "":
		spec["trafficDistribution"] = distribution
	case owned:
		delete(spec, "trafficDistribution")
	}
	address, _ := spec["clusterIP"].(string)
	switch headless := address == "None"; {
	case headless && !c.Spec.Service.Headless:
		warning = fmt.Sprintf("service %s.%s is headless although spec.service.headless is not set, and Kubernetes does not permit to "+
			"change that: set spec.service.headless, or delete the Service, and Serin recreates it", wanted.name, c.Namespace)
	case !headless && address != "" && c.Spec.Service.Headless:
		warning = fmt.Sprintf("service %s.%s is not headless although spec.service.headless is set, and Kubernetes does not permit to "+
			"change that: remove spec.service.headless, or delete the Service, and Serin recreates it", wanted.name, c.Namespace)
	}

	if owned {
		labels, annotations := serviceMetadata(p, wanted)
		unmanaged := c.Spec.Service.UnmanagedMetadata
		if unmanaged == nil {
			unmanaged = &flaggerv1.UnmanagedMetadata{}
		}
		desired.SetLabels(mergeForeignKeys(labels, existing.GetLabels(), unmanaged.Labels))
		desired.SetAnnotations(mergeForeignKeys(annotations, existing.GetAnnotations(), unmanaged.Annotations))
		return desired, warning
	}
	if jsontree.Equal(desired.Object["spec"], existing.Object["spec"]) {
		return desired, warning
	}
	annotations := maps.Clone(existing.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	if _, captured := annotations[originalAnnotation]; !captured && c.Spec.RevertOnDeletion && !isTakenOver(annotations) {
		if text := captureOriginal(c, existing); len(text) <= maxOriginalBytes {
			annotations[originalAnnotation] = text
		}
	}
	maps.Copy(annotations, fluxGuards)
	desired.SetAnnotations(annotations)
	return desired, warning
}

// isTakenOver reports whether a Service was taken over before: its current state is not the user's original.
func isTakenOver(annotations map[string]string) bool {
	for key, value := range fluxGuards {
		if annotations[key] != value {
			return false
		}
	}
	return true
}

// serviceMetadata returns the labels and annotations of a generated Service.
func serviceMetadata(p selectorPair, wanted desiredService) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	if wanted.metadata != nil {
		maps.Copy(labels, wanted.metadata.Labels)
		maps.Copy(annotations, wanted.metadata.Annotations)
	}
	labels[p.label] = wanted.name
	maps.Copy(annotations, fluxGuards)
	return labels, annotations
}

// mergeForeignKeys returns the desired keys, and the existing values of keys that belong to other tools.
func mergeForeignKeys(wanted, live map[string]string, others []string) map[string]string {
	merged := maps.Clone(wanted)
	for _, key := range others {
		delete(merged, key)
		if value, found := live[key]; found {
			merged[key] = value
		}
	}
	return merged
}

// originalService is the state of a Service before it was taken over.
type originalService struct {
	// Canary is the one that took it over, as namespace/name. Earlier versions of Serin did not record it.
	Canary   string `json:"canary,omitempty"`
	Metadata struct {
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata,omitzero"`
	Spec struct {
		Selector            map[string]string `json:"selector,omitempty"`
		Ports               []any             `json:"ports,omitempty"`
		TrafficDistribution string            `json:"trafficDistribution,omitempty"`
	} `json:"spec"`
}

func captureOriginal(c *flaggerv1.Canary, existing *unstructured.Unstructured) string {
	original := originalService{Canary: objectKey(c).String()}
	for key := range fluxGuards {
		if value, found := existing.GetAnnotations()[key]; found {
			if original.Metadata.Annotations == nil {
				original.Metadata.Annotations = map[string]string{}
			}
			original.Metadata.Annotations[key] = value
		}
	}
	original.Spec.Selector, _, _ = unstructured.NestedStringMap(existing.Object, "spec", "selector")
	original.Spec.Ports, _, _ = unstructured.NestedSlice(existing.Object, "spec", "ports")
	original.Spec.TrafficDistribution, _, _ = unstructured.NestedString(existing.Object, "spec", "trafficDistribution")
	text, err := json.Marshal(original)
	if err != nil {
		return "" // impossible: the value was decoded from JSON
	}
	return string(text)
}

// RestoreServices restores the user's Services to their state before the takeover. Services that the Canary controls
// are garbage-collected with it. The Services are read live: a stale cache may show the state before the takeover, and
// no later reconciliation would repair it.
func (d podServices) RestoreServices(ctx context.Context, c *flaggerv1.Canary) error {
	target, err := d.readCached(ctx, c, d.kind(), c.Spec.TargetRef.Name)
	if err != nil {
		return err
	}
	var p selectorPair // no Service has these selectors: without a target, only recorded originals are restored
	if target != nil {
		p, _ = findSelectorPair(target, d.displayName(), d.Options.selectorLabels())
	}
	primary, err := d.readCached(ctx, c, d.kind(), c.Spec.TargetRef.Name+primarySuffix)
	if err != nil {
		return err
	}
	ownsPrimary := primary != nil && controlledBy(primary, c)
	for _, current := range slices.Backward(desiredServices(c, p, true)) { // first the Service that clients call
		existing, err := getOrNil(ctx, d.APIReader, c, serviceKind, current.name)
		if err != nil {
			return err
		}
		if existing == nil || metav1.GetControllerOf(existing) != nil {
			continue
		}
		restored, err := restoredService(existing, c, p, current, ownsPrimary)
		if err != nil {
			return err
		}
		if err := d.updateObject(ctx, existing, restored); err != nil {
			return fmt.Errorf("service %s update error: %w", current.name, err)
		}
	}
	return nil
}

// restoredService returns a user's Service in its original state, from Serin's annotation if there is one. For a Service without
// it, for example one that Flagger took over, it uses kubectl's annotation, or for the apex the fact that it selected the target.
//
// A Service that this Canary did not take over is unchanged, for example because another Canary or a conflict blocked this one. Neither
// its annotation names this Canary, nor does it select the primary of this one; or Serin and Flagger never changed it, and the pods that
// it selects are not those of this Canary. A Service that is already restored is unchanged, too: every reconciliation repeats this until the
// Canary is gone.
func restoredService(existing *unstructured.Unstructured, c *flaggerv1.Canary, p selectorPair, current desiredService, ownsPrimary bool) (*unstructured.Unstructured, error) {
	restored := existing.DeepCopy()
	annotations := restored.GetAnnotations()
	selector, _, _ := unstructured.NestedStringMap(restored.Object, "spec", "selector")
	selectsAsTakenOver := maps.Equal(selector, current.selector)
	if text, found := annotations[originalAnnotation]; found {
		if isOwn := belongsTo(existing, c) || selectsAsTakenOver && ownsPrimary; !isOwn {
			return restored, nil
		}
		var original struct {
			Metadata struct {
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
			Spec map[string]any `json:"spec"`
		}
		if err := decodeJSON(text, &original); err != nil {
			return nil, fmt.Errorf("annotation %s of Service %s.%s is invalid (%w): restore the Service manually and remove the annotation",
				originalAnnotation, existing.GetName(), existing.GetNamespace(), err)
		}
		for _, field := range []string{"selector", "ports", "trafficDistribution"} {
			unstructured.RemoveNestedField(restored.Object, "spec", field)
			if value, found := original.Spec[field]; found {
				if err := unstructured.SetNestedField(restored.Object, value, "spec", field); err != nil {
					return nil, fmt.Errorf("restore Service %s.%s: %w", existing.GetName(), existing.GetNamespace(), err)
				}
			}
		}
		delete(annotations, originalAnnotation)
		for key := range fluxGuards {
			delete(annotations, key)
		}
		maps.Copy(annotations, original.Metadata.Annotations)
		restored.SetAnnotations(annotations)
		return restored, nil
	}
	apex := current.name == c.Spec.ApexName()
	if !selectsAsTakenOver || !isTakenOver(annotations) && (!apex || !ownsPrimary) { // -canary may have had that selector before
		return restored, nil
	}
	if applied, found := lastAppliedSelector(annotations[lastAppliedAnnotation]); found {
		selector = applied
	} else if apex {
		selector = map[string]string{p.label: p.value}
	}
	if err := unstructured.SetNestedStringMap(restored.Object, selector, "spec", "selector"); err != nil {
		return nil, fmt.Errorf("restore Service %s.%s: %w", existing.GetName(), existing.GetNamespace(), err)
	}
	return restored, nil
}

// decodeJSON decodes JSON with integers as int64, as in unstructured objects.
func decodeJSON(text string, into any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), into)
}

// lastAppliedSelector returns the selector in kubectl's last applied configuration.
func lastAppliedSelector(text string) (map[string]string, bool) {
	var applied struct {
		Spec struct {
			Selector map[string]string `json:"selector"`
		} `json:"spec"`
	}
	if text == "" || decodeJSON(text, &applied) != nil || len(applied.Spec.Selector) == 0 {
		return nil, false
	}
	return applied.Spec.Selector, true
}
