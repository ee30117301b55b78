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
	"github.com/serin-dev/serin/internal/ownwrites"
	"github.com/serin-dev/serin/internal/toolkeys"
	"github.com/serin-dev/serin/internal/workload/peerhash"
)

// coreService is the Kind for targets that are Services of Kubernetes. A release changes where the Service leads: its
// primary and its canary are Services too, copies of the target. There are no pods to scale.
type coreService struct {
	*Workloads
	podless
}

var _ Kind = coreService{}

// Annotations on primaries without a pod template.
const (
	// promotedAnnotation contains the ID of the last promotion, as flagger-id does in a template.
	promotedAnnotation = "serin.dev/promoted"
	// previousAnnotation contains the state before that promotion.
	previousAnnotation = "serin.dev/previous"
)

// Reads returns the three Services.
func (coreService) Reads(c *flaggerv1.Canary) []Object {
	return []Object{{serviceKind, c.Spec.TargetRef.Name}, {serviceKind, apexName(c) + suffix}, {serviceKind, apexName(c) + "-canary"}}
}

// Observe compares the specs of target and primary. A Service is always ready; its endpoints show whether it has pods.
func (k coreService) Observe(ctx context.Context, c *flaggerv1.Canary, _ ...Ask) (Observation, error) {
	o := Observation{Reads: k.Reads(c)}
	target, primary, err := k.both(ctx, c)
	if err != nil {
		return Observation{}, err
	}
	if primary != nil && !controlledBy(primary, c) {
		primary = nil // as in templated.Observe
	}
	if primary != nil {
		o.Primary = standing(primary, primary.GetAnnotations()[promotedAnnotation])
	}
	if target == nil {
		o.Problem = k.missing(c)
		return o, nil
	}
	o.Target = standing(target, "")
	if o.Target.Revision, err = revisionOfService(target); err != nil {
		return Observation{}, err
	}
	spec, _ := target.Object["spec"].(map[string]any)
	o.Target.PeerHash = peerhash.OfService(spec)
	o.Same = primary != nil && jsontree.Equal(meant(primary), meant(target))
	return o, nil
}

// standing returns the state of a workload that has no pods to count.
func standing(obj *unstructured.Unstructured, id string) State {
	return State{
		Found: true, UID: obj.GetUID(), ID: id,
		Replicas: 1, Total: 1, Updated: 1, Ready: 1, Available: 1, Readiness: Readiness{Ready: true, Enough: 1},
	}
}

func (k coreService) both(ctx context.Context, c *flaggerv1.Canary) (target, primary *unstructured.Unstructured, err error) {
	if target, err = k.read(ctx, c, serviceKind, c.Spec.TargetRef.Name); err != nil {
		return nil, nil, err
	}
	primary, err = k.read(ctx, c, serviceKind, apexName(c)+suffix)
	return target, primary, err
}

func (coreService) missing(c *flaggerv1.Canary) string {
	name := c.Spec.TargetRef.Name
	return fmt.Sprintf("service %s.%s get query error: %v", name, c.Namespace, apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, name))
}

// revisionOfService returns the hash of a Service's spec.
func revisionOfService(obj *unstructured.Unstructured) (string, error) {
	return identityOf(map[string]any{"service": meant(obj)})
}

// allocated are the fields that the API server allocates to one Service. Two Services cannot share them, and a change
// of them is not a new revision.
var allocated = []string{"clusterIP", "clusterIPs", "ipFamilies", "healthCheckNodePort"}

// meant returns the spec of a Service without allocated fields. A headless Service (clusterIP None) is the user's
// choice, which it includes.
func meant(obj *unstructured.Unstructured) map[string]any {
	spec, _ := obj.Object["spec"].(map[string]any)
	kept := maps.Clone(spec)
	for _, field := range allocated {
		delete(kept, field)
	}
	if spec["clusterIP"] == "None" {
		kept["clusterIP"] = "None"
	}
	if ports, ok := spec["ports"].([]any); ok {
		kept["ports"] = withoutNodePorts(ports)
	}
	return kept
}

func withoutNodePorts(ports []any) []any {
	kept := make([]any, len(ports))
	for i, item := range ports {
		port, _ := item.(map[string]any)
		port = maps.Clone(port)
		delete(port, "nodePort")
		kept[i] = port
	}
	return kept
}

// saying returns an existing Service with the spec of another one, except for allocated fields.
func saying(existing *unstructured.Unstructured, meaning map[string]any) *unstructured.Unstructured {
	said, was := edited(existing)
	spec, _ := runtime.DeepCopyJSONValue(meaning).(map[string]any)
	if spec["type"] != "ExternalName" && was["type"] != "ExternalName" {
		for _, field := range allocated {
			if value, found := was[field]; found {
				spec[field] = value
			}
		}
		ports, _ := spec["ports"].([]any)
		live, _ := was["ports"].([]any)
		if len(ports) > 0 && spec["type"] != "ClusterIP" {
			spec["ports"] = withNodePorts(ports, live)
		}
	}
	said.Object["spec"] = spec
	return said
}

// unlike returns why an existing copy cannot follow the target: whether a Service is headless cannot be changed after
// its creation.
func unlike(c *flaggerv1.Canary, existing, target *unstructured.Unstructured) error {
	is, shall := meant(existing), meant(target)
	if is["type"] == "ExternalName" || shall["type"] == "ExternalName" || is["clusterIP"] == shall["clusterIP"] {
		return nil
	}
	return unusable(fmt.Sprintf("service %[1]s.%[2]s cannot follow %[3]s, because only one of them has no address (clusterIP: None), and Kubernetes "+
		"does not let that change: delete %[1]s, and it is made again", existing.GetName(), c.Namespace, target.GetName()))
}

// cloned returns a copy of a Service to create.
func (k coreService) cloned(c *flaggerv1.Canary, target *unstructured.Unstructured, name string) *unstructured.Unstructured {
	obj := newObject(serviceKind, c.Namespace, name)
	obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
	obj.SetLabels(orNil(without(target.GetLabels(), toolkeys.Is)))
	obj.SetAnnotations(orNil(copiedAnnotations(target.GetAnnotations())))
	obj.Object["spec"] = runtime.DeepCopyJSONValue(meant(target))
	return obj
}

// following returns an existing copy with the current spec of the target.
func following(existing, target *unstructured.Unstructured) *unstructured.Unstructured {
	obj := saying(existing, meant(target))
	obj.SetLabels(orNil(replaced(existing.GetLabels(), without(target.GetLabels(), toolkeys.Is))))
	obj.SetAnnotations(orNil(replaced(existing.GetAnnotations(), copiedAnnotations(target.GetAnnotations()))))
	return obj
}

// EnsureServices updates the canary's Service to the target. The Service that clients call is the target itself.
func (k coreService) EnsureServices(ctx context.Context, c *flaggerv1.Canary, _ bool) error {
	target, _, err := k.both(ctx, c)
	if err != nil {
		return err
	}
	if target == nil {
		return unusable(k.missing(c))
	}
	name := apexName(c) + "-canary"
	existing, err := k.read(ctx, c, serviceKind, name)
	if err != nil {
		return fmt.Errorf("reconcileCanaryService failed: %w", err)
	}
	if existing == nil {
		if existing, err = k.create(ctx, c, k.cloned(c, target, name)); err != nil {
			return fmt.Errorf("reconcileCanaryService failed: creating service %s.%s query error: %w", name, c.Namespace, err)
		}
		if existing == nil {
			return nil
		}
	}
	if !controlledBy(existing, c) {
		return foreign(c, serviceKind.Kind, existing)
	}
	if err := unlike(c, existing, target); err != nil {
		return err
	}
	if err := k.update(ctx, existing, following(existing, target)); err != nil {
		return fmt.Errorf("reconcileCanaryService failed: updating service %s.%s query error: %w", name, c.Namespace, err)
	}
	return nil
}

// EnsurePrimary creates the primary's Service from the target, if there is none and the target has that revision. With
// follow it updates an existing one.
func (k coreService) EnsurePrimary(ctx context.Context, c *flaggerv1.Canary, revision, id string, follow bool) error {
	target, primary, err := k.both(ctx, c)
	if err != nil {
		return err
	}
	if target == nil {
		return unusable(k.missing(c))
	}
	if primary == nil {
		if err := k.still(c, target, revision); err != nil {
			return err
		}
		made := k.cloned(c, target, apexName(c)+suffix)
		annotate(made, map[string]string{promotedAnnotation: id})
		if primary, err = k.create(ctx, c, made); err != nil {
			return fmt.Errorf("reconcilePrimaryService failed: creating service %s.%s query error: %w", made.GetName(), c.Namespace, err)
		}
		if primary == nil {
			return nil
		}
	}
	if err := k.adopt(ctx, c, primary); err != nil || !follow || jsontree.Equal(meant(primary), meant(target)) {
		return err
	}
	if err := unlike(c, primary, target); err != nil {
		return err
	}
	if err := k.unchanged(ctx, c); err != nil {
		return err
	}
	wanted := following(primary, target)
	annotate(wanted, map[string]string{promotedAnnotation: id})
	return k.write(ctx, c, primary, wanted)
}

// adopt returns an error for a Service of another owner. A Service without a controller but with a promotion's
// annotation is orphaned: its Canary was deleted without it. It gets its owner again.
func (k coreService) adopt(ctx context.Context, c *flaggerv1.Canary, primary *unstructured.Unstructured) error {
	if controlledBy(primary, c) {
		return nil
	}
	if metav1.GetControllerOf(primary) != nil || primary.GetAnnotations()[promotedAnnotation] == "" {
		return foreign(c, serviceKind.Kind, primary)
	}
	adopted, _ := edited(primary)
	adopted.SetOwnerReferences(withOwner(c, primary.GetOwnerReferences()))
	if err := k.write(ctx, c, primary, adopted); err != nil {
		return err
	}
	// The object that was read is older than this write: continuing would be a conflict.
	return fmt.Errorf("take over Service %s.%s: %w", primary.GetName(), c.Namespace, ownwrites.ErrBehind)
}

func (k coreService) write(ctx context.Context, c *flaggerv1.Canary, existing, wanted *unstructured.Unstructured) error {
	if err := k.update(ctx, existing, wanted); err != nil {
		return fmt.Errorf("reconcilePrimaryService failed: updating service %s.%s query error: %w", existing.GetName(), c.Namespace, err)
	}
	return nil
}

// annotate sets annotations of an object; an empty value removes one.
func annotate(obj *unstructured.Unstructured, with map[string]string) {
	annotations := without(obj.GetAnnotations(), func(key string) bool { _, ours := with[key]; return ours })
	for key, value := range with {
		if value != "" {
			annotations[key] = value
		}
	}
	obj.SetAnnotations(orNil(annotations))
}

// RecreatePrimary cannot restore the previous spec: Services have no history.
func (k coreService) RecreatePrimary(ctx context.Context, c *flaggerv1.Canary, _ Made, _, _ string) error {
	_, primary, err := k.both(ctx, c)
	if err != nil {
		return err
	}
	if primary != nil {
		return k.adopt(ctx, c, primary)
	}
	return refuse(ErrGone, "service %s%s.%s was deleted in the middle of a release, and nothing says where it led: "+
		"give %s its earlier spec, then it is made again", apexName(c), suffix, c.Namespace, c.Spec.TargetRef.Name)
}

// still returns ErrChanged if the target has another revision; empty is any.
func (coreService) still(c *flaggerv1.Canary, target *unstructured.Unstructured, revision string) error {
	now, err := revisionOfService(target)
	if err == nil && revision != "" && now != revision {
		err = refuse(ErrChanged, "service %s.%s has revision %s, not the analysed %s", target.GetName(), c.Namespace, now, revision)
	}
	return err
}

// CopyTemplate copies the analyzed spec of the target to the primary's Service.
func (k coreService) CopyTemplate(ctx context.Context, c *flaggerv1.Canary, revision, id string) error {
	target, primary, err := k.both(ctx, c)
	switch {
	case err != nil:
		return err
	case primary != nil && id != "" && primary.GetAnnotations()[promotedAnnotation] == id:
		return nil
	case target == nil:
		return unusable(k.missing(c))
	case primary == nil:
		return fmt.Errorf("service %s%s.%s is not there to be promoted", apexName(c), suffix, c.Namespace)
	case !controlledBy(primary, c):
		return foreign(c, serviceKind.Kind, primary)
	}
	if err := k.still(c, target, revision); err != nil {
		return err
	}
	if err := unlike(c, primary, target); err != nil {
		return err
	}
	previous, err := json.Marshal(meant(primary))
	if err != nil {
		return fmt.Errorf("note what service %s.%s is: %w", primary.GetName(), c.Namespace, err)
	}
	wanted := following(primary, target)
	annotate(wanted, map[string]string{promotedAnnotation: id, previousAnnotation: string(previous)})
	return k.write(ctx, c, primary, wanted)
}

// RestoreTemplate restores the spec of the primary's Service before the last CopyTemplate. ErrGone: it is not recorded.
func (k coreService) RestoreTemplate(ctx context.Context, c *flaggerv1.Canary, id string) error {
	_, primary, err := k.both(ctx, c)
	switch {
	case err != nil:
		return err
	case primary == nil:
		return refuse(ErrGone, "service %s%s.%s is gone, and with it the spec to go back to", apexName(c), suffix, c.Namespace)
	case !controlledBy(primary, c):
		return foreign(c, serviceKind.Kind, primary)
	case primary.GetAnnotations()[promotedAnnotation] == id:
		return nil
	}
	var previous map[string]any
	if decode(primary.GetAnnotations()[previousAnnotation], &previous) != nil || previous == nil {
		return refuse(ErrGone, "service %s.%s does not say in its annotation %s what it was before the promotion: set its spec by hand",
			primary.GetName(), c.Namespace, previousAnnotation)
	}
	wanted := saying(primary, previous)
	annotate(wanted, map[string]string{promotedAnnotation: id, previousAnnotation: ""})
	return k.write(ctx, c, primary, wanted)
}

// GiveBackServices does nothing: the target was never changed, and its copies go with the Canary.
func (coreService) GiveBackServices(context.Context, *flaggerv1.Canary) error { return nil }
