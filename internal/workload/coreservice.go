package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/toolkeys"
	"github.com/serin-dev/serin/internal/workload/flaggerhash"
)

// serviceWorkload is the Workload for targets that are Services of Kubernetes. A release changes the spec of the Service, such as
// its selector. Its primary and its canary are copies of the target. There are no pods to scale.
type serviceWorkload struct {
	*Workloads
	noPods
}

var _ Workload = serviceWorkload{}

// Annotations on primaries without a pod template.
const (
	// promotedAnnotation contains the ID of the last promotion, as flagger-id does in a template.
	promotedAnnotation = "serin.dev/promoted"
	// previousAnnotation contains the state before that promotion.
	previousAnnotation = "serin.dev/previous"
)

// Dependencies returns the three Services.
func (serviceWorkload) Dependencies(c *flaggerv1.Canary) []Object {
	return []Object{{serviceKind, c.Spec.TargetRef.Name}, {serviceKind, c.Spec.ApexName() + primarySuffix}, {serviceKind, c.Spec.ApexName() + "-canary"}}
}

// Observe compares the specs of target and primary. A Service is always ready; its endpoints show whether it has pods.
func (k serviceWorkload) Observe(ctx context.Context, c *flaggerv1.Canary, _ ...ObserveOption) (Observation, error) {
	o := Observation{Dependencies: k.Dependencies(c)}
	target, primary, err := k.targetAndPrimary(ctx, c)
	if err != nil {
		return Observation{}, err
	}
	if primary != nil && !controlledBy(primary, c) {
		primary = nil // as in templateWorkload.Observe
	}
	if primary != nil {
		o.Primary = serviceState(primary, primary.GetAnnotations()[promotedAnnotation])
	}
	if target == nil {
		o.Problem = k.missingTargetProblem(c)
		return o, nil
	}
	o.Target = serviceState(target, "")
	if o.Target.Revision, err = serviceRevision(target); err != nil {
		return Observation{}, err
	}
	spec, _ := target.Object["spec"].(map[string]any)
	o.Target.FlaggerHash = flaggerhash.HashServiceSpec(spec)
	o.PrimaryUpToDate = primary != nil && jsontree.Equal(specWithoutAllocated(primary), specWithoutAllocated(target))
	return o, nil
}

// serviceState returns the state of a workload that has no pods to count.
func serviceState(obj *unstructured.Unstructured, id string) State {
	return State{
		Found: true, UID: obj.GetUID(), PromotionID: id,
		Replicas: 1, Total: 1, Updated: 1, Ready: 1, Available: 1, Readiness: Readiness{Ready: true, RequiredAvailable: 1},
	}
}

func (k serviceWorkload) targetAndPrimary(ctx context.Context, c *flaggerv1.Canary) (target, primary *unstructured.Unstructured, err error) {
	if target, err = k.readCached(ctx, c, serviceKind, c.Spec.TargetRef.Name); err != nil {
		return nil, nil, err
	}
	primary, err = k.readCached(ctx, c, serviceKind, c.Spec.ApexName()+primarySuffix)
	return target, primary, err
}

func (serviceWorkload) missingTargetProblem(c *flaggerv1.Canary) string {
	name := c.Spec.TargetRef.Name
	return fmt.Sprintf("service %s.%s get query error: %v", name, c.Namespace, apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, name))
}

// serviceRevision returns the hash of a Service's spec.
func serviceRevision(obj *unstructured.Unstructured) (string, error) {
	return hashRevision(map[string]any{"service": specWithoutAllocated(obj)})
}

// allocatedFields are the fields that the API server allocates to one Service. Two Services cannot share them, and a change
// of them is not a new revision.
var allocatedFields = []string{"clusterIP", "clusterIPs", "ipFamilies", "healthCheckNodePort"}

// specWithoutAllocated returns the spec of a Service without allocated fields. A headless Service (clusterIP None) is the user's
// choice, which it includes.
func specWithoutAllocated(obj *unstructured.Unstructured) map[string]any {
	spec, _ := obj.Object["spec"].(map[string]any)
	userSpec := maps.Clone(spec)
	for _, field := range allocatedFields {
		delete(userSpec, field)
	}
	if spec["clusterIP"] == "None" {
		userSpec["clusterIP"] = "None"
	}
	if ports, ok := spec["ports"].([]any); ok {
		userSpec["ports"] = withoutNodePorts(ports)
	}
	return userSpec
}

func withoutNodePorts(ports []any) []any {
	userPorts := make([]any, len(ports))
	for i, item := range ports {
		port, _ := item.(map[string]any)
		port = maps.Clone(port)
		delete(port, "nodePort")
		userPorts[i] = port
	}
	return userPorts
}

// withSpec returns an existing Service with the spec of another one, except for allocated fields.
func withSpec(existing *unstructured.Unstructured, newSpec map[string]any) *unstructured.Unstructured {
	updated, oldSpec := shallowCopy(existing)
	spec, _ := runtime.DeepCopyJSONValue(newSpec).(map[string]any)
	if spec["type"] != "ExternalName" && oldSpec["type"] != "ExternalName" {
		for _, field := range allocatedFields {
			if value, found := oldSpec[field]; found {
				spec[field] = value
			}
		}
		ports, _ := spec["ports"].([]any)
		live, _ := oldSpec["ports"].([]any)
		if len(ports) > 0 && spec["type"] != "ClusterIP" {
			spec["ports"] = withNodePorts(ports, live)
		}
	}
	updated.Object["spec"] = spec
	return updated
}

// checkImmutableFields returns an error if an existing copy cannot follow the target: a Service cannot become headless, or stop
// being so, after its creation.
func checkImmutableFields(c *flaggerv1.Canary, existing, target *unstructured.Unstructured) error {
	actual, desired := specWithoutAllocated(existing), specWithoutAllocated(target)
	if actual["type"] == "ExternalName" || desired["type"] == "ExternalName" || actual["clusterIP"] == desired["clusterIP"] {
		return nil
	}
	return newUnusableError(fmt.Sprintf("service %[1]s.%[2]s cannot follow %[3]s, because only one of them is headless (clusterIP: None), and Kubernetes "+
		"does not permit to change that: delete %[1]s, and Serin recreates it", existing.GetName(), c.Namespace, target.GetName()))
}

// newCopy returns a copy of a Service to create.
func (k serviceWorkload) newCopy(c *flaggerv1.Canary, target *unstructured.Unstructured, name string) *unstructured.Unstructured {
	obj := newObject(serviceKind, c.Namespace, name)
	obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
	obj.SetLabels(nilIfEmpty(withoutKeys(target.GetLabels(), toolkeys.IsToolKey)))
	obj.SetAnnotations(nilIfEmpty(copiedAnnotations(target.GetAnnotations())))
	obj.Object["spec"] = runtime.DeepCopyJSONValue(specWithoutAllocated(target))
	return obj
}

// withTargetSpec returns an existing copy with the current spec of the target.
func withTargetSpec(existing, target *unstructured.Unstructured) *unstructured.Unstructured {
	obj := withSpec(existing, specWithoutAllocated(target))
	obj.SetLabels(nilIfEmpty(mergedMetadata(existing.GetLabels(), withoutKeys(target.GetLabels(), toolkeys.IsToolKey))))
	obj.SetAnnotations(nilIfEmpty(mergedMetadata(existing.GetAnnotations(), copiedAnnotations(target.GetAnnotations()))))
	return obj
}

// EnsureServices creates or updates the canary's Service from the target. The Service that clients call is the target itself.
func (k serviceWorkload) EnsureServices(ctx context.Context, c *flaggerv1.Canary, _ bool) error {
	target, _, err := k.targetAndPrimary(ctx, c)
	if err != nil {
		return err
	}
	if target == nil {
		return newUnusableError(k.missingTargetProblem(c))
	}
	name := c.Spec.ApexName() + "-canary"
	existing, err := k.readCached(ctx, c, serviceKind, name)
	if err != nil {
		return fmt.Errorf("reconcileCanaryService failed: %w", err)
	}
	if existing == nil {
		if existing, err = k.createObject(ctx, c, k.newCopy(c, target, name)); err != nil {
			return fmt.Errorf("reconcileCanaryService failed: creating service %s.%s query error: %w", name, c.Namespace, err)
		}
		if existing == nil {
			return nil
		}
	}
	if !controlledBy(existing, c) {
		return newNotOwnedError(c, serviceKind.Kind, existing)
	}
	if err := checkImmutableFields(c, existing, target); err != nil {
		return err
	}
	if err := k.updateObject(ctx, existing, withTargetSpec(existing, target)); err != nil {
		return fmt.Errorf("reconcileCanaryService failed: updating service %s.%s query error: %w", name, c.Namespace, err)
	}
	return nil
}

// EnsurePrimary creates the primary's Service from the target, if there is none and the target has the given revision. With
// follow it updates an existing one, on the same condition.
func (k serviceWorkload) EnsurePrimary(ctx context.Context, c *flaggerv1.Canary, revision, id string, follow bool) error {
	target, primary, err := k.targetAndPrimary(ctx, c)
	if err != nil {
		return err
	}
	if target == nil {
		return newUnusableError(k.missingTargetProblem(c))
	}
	if primary == nil || follow {
		if err := k.verifyRevision(c, target, revision); err != nil {
			return err
		}
	}
	if primary == nil {
		created := k.newCopy(c, target, c.Spec.ApexName()+primarySuffix)
		setAnnotations(created, map[string]string{promotedAnnotation: id})
		if primary, err = k.createObject(ctx, c, created); err != nil {
			return fmt.Errorf("reconcilePrimaryService failed: creating service %s.%s query error: %w", created.GetName(), c.Namespace, err)
		}
		if primary == nil {
			return nil
		}
	}
	if err := k.adoptService(ctx, c, primary); err != nil || !follow || jsontree.Equal(specWithoutAllocated(primary), specWithoutAllocated(target)) {
		return err
	}
	if err := checkImmutableFields(c, primary, target); err != nil {
		return err
	}
	if err := k.verifyCanaryUnchanged(ctx, c); err != nil {
		return err
	}
	wanted := withTargetSpec(primary, target)
	setAnnotations(wanted, map[string]string{promotedAnnotation: id})
	return k.writePrimarySpec(ctx, c, primary, wanted)
}

// adoptService returns an error for a Service of another owner. A Service without a controller but with a promotion's
// annotation is orphaned: its Canary was deleted without it. It gets its owner again.
func (k serviceWorkload) adoptService(ctx context.Context, c *flaggerv1.Canary, primary *unstructured.Unstructured) error {
	if controlledBy(primary, c) {
		return nil
	}
	if metav1.GetControllerOf(primary) != nil || primary.GetAnnotations()[promotedAnnotation] == "" {
		return newNotOwnedError(c, serviceKind.Kind, primary)
	}
	adopted, _ := shallowCopy(primary)
	adopted.SetOwnerReferences(withOwner(c, primary.GetOwnerReferences()))
	if err := k.writePrimarySpec(ctx, c, primary, adopted); err != nil {
		return err
	}
	// The object that was read is older than this write: continuing would be a conflict.
	return fmt.Errorf("take over Service %s.%s: %w", primary.GetName(), c.Namespace, readyourwrites.ErrStale)
}

func (k serviceWorkload) writePrimarySpec(ctx context.Context, c *flaggerv1.Canary, existing, wanted *unstructured.Unstructured) error {
	if err := k.updateObject(ctx, existing, wanted); err != nil {
		return fmt.Errorf("reconcilePrimaryService failed: updating service %s.%s query error: %w", existing.GetName(), c.Namespace, err)
	}
	return nil
}

// setAnnotations sets annotations of an object; an empty value removes one.
func setAnnotations(obj *unstructured.Unstructured, with map[string]string) {
	annotations := withoutKeys(obj.GetAnnotations(), func(key string) bool { _, ours := with[key]; return ours })
	for key, value := range with {
		if value != "" {
			annotations[key] = value
		}
	}
	obj.SetAnnotations(nilIfEmpty(annotations))
}

// RecreatePrimary cannot restore the previous spec: Services have no history.
func (k serviceWorkload) RecreatePrimary(ctx context.Context, c *flaggerv1.Canary, _ TemplateSource, _, _ string) error {
	_, primary, err := k.targetAndPrimary(ctx, c)
	if err != nil {
		return err
	}
	if primary != nil {
		return k.adoptService(ctx, c, primary)
	}
	return newRefusedError(ErrHistoryGone, "service %[1]s%[2]s.%[3]s does not exist, and its previous spec is unknown: "+
		"restore the previous spec of %[4]s, and Serin recreates the Service. If spec.targetRef was changed, restore it, and create another Canary for %[4]s", c.Spec.ApexName(), primarySuffix, c.Namespace, c.Spec.TargetRef.Name)
}

// verifyRevision returns ErrTargetChanged if the target has another revision; an empty revision matches any.
func (serviceWorkload) verifyRevision(c *flaggerv1.Canary, target *unstructured.Unstructured, revision string) error {
	now, err := serviceRevision(target)
	if err == nil && revision != "" && now != revision {
		err = newRefusedError(ErrTargetChanged, "service %s.%s has revision %s, not the analysed %s", target.GetName(), c.Namespace, now, revision)
	}
	return err
}

// CopyTemplate copies the analyzed spec of the target to the primary's Service.
func (k serviceWorkload) CopyTemplate(ctx context.Context, c *flaggerv1.Canary, revision, id string) error {
	target, primary, err := k.targetAndPrimary(ctx, c)
	switch {
	case err != nil:
		return err
	case primary != nil && id != "" && primary.GetAnnotations()[promotedAnnotation] == id:
		return nil
	case target == nil:
		return newUnusableError(k.missingTargetProblem(c))
	case primary == nil:
		return fmt.Errorf("service %s%s.%s does not exist and cannot be promoted", c.Spec.ApexName(), primarySuffix, c.Namespace)
	case !controlledBy(primary, c):
		return newNotOwnedError(c, serviceKind.Kind, primary)
	}
	if err := k.verifyRevision(c, target, revision); err != nil {
		return err
	}
	if err := checkImmutableFields(c, primary, target); err != nil {
		return err
	}
	previous, err := json.Marshal(specWithoutAllocated(primary))
	if err != nil {
		return fmt.Errorf("record the spec of service %s.%s: %w", primary.GetName(), c.Namespace, err)
	}
	wanted := withTargetSpec(primary, target)
	setAnnotations(wanted, map[string]string{promotedAnnotation: id, previousAnnotation: string(previous)})
	return k.writePrimarySpec(ctx, c, primary, wanted)
}

// RestoreTemplate restores the spec that the primary's Service had before the last CopyTemplate. It returns ErrHistoryGone if the
// spec is not recorded.
func (k serviceWorkload) RestoreTemplate(ctx context.Context, c *flaggerv1.Canary, id string) error {
	_, primary, err := k.targetAndPrimary(ctx, c)
	switch {
	case err != nil:
		return err
	case primary == nil:
		return newRefusedError(ErrHistoryGone, "service %s%s.%s was deleted, and its previous spec is unknown", c.Spec.ApexName(), primarySuffix, c.Namespace)
	case !controlledBy(primary, c):
		return newNotOwnedError(c, serviceKind.Kind, primary)
	case primary.GetAnnotations()[promotedAnnotation] == id:
		return nil
	}
	var previous map[string]any
	if decodeJSON(primary.GetAnnotations()[previousAnnotation], &previous) != nil || previous == nil {
		return newRefusedError(ErrHistoryGone, "service %s.%s lacks its spec before the promotion in annotation %s: set its spec manually",
			primary.GetName(), c.Namespace, previousAnnotation)
	}
	wanted := withSpec(primary, previous)
	setAnnotations(wanted, map[string]string{promotedAnnotation: id, previousAnnotation: ""})
	return k.writePrimarySpec(ctx, c, primary, wanted)
}

// RestoreServices does nothing: the target was never changed, and its copies are deleted with the Canary.
func (serviceWorkload) RestoreServices(context.Context, *flaggerv1.Canary) error { return nil }
