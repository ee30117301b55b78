package workload

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/ownwrites"
)

// EnsurePrimary makes the primary from the target's template as it is now, and the copies of configuration before it, if
// there is no primary. With follow, which is for the time before the primary serves for the first time, an existing
// primary is given the target's template whenever that differs; without, its template is left alone. id becomes the
// flagger-id of a template that is written.
func (d *Deployments) EnsurePrimary(ctx context.Context, c *flaggerv1.Canary, id string, follow bool) error {
	seen, err := d.look(ctx, c)
	if err != nil {
		return err
	}
	if seen.primary == nil {
		if seen.problem != "" {
			return unusable(seen.problem)
		}
		if _, err := d.ensureCopies(ctx, c, seen.configs, ""); err != nil {
			return fmt.Errorf("createPrimaryDeployment failed: CreatePrimaryConfigs failed: %w", err)
		}
		template := primaryTemplate(templateOf(seen.target), seen.pair, seen.tracked(), id, ourRules)
		return d.createPrimary(ctx, c, newPrimary(c, seen.target, seen.pair, d.Options, template))
	}
	if seen.target == nil {
		return unusable(seen.problem)
	}
	if err := d.adoptPrimary(ctx, c, seen.primary); err != nil {
		return err
	}
	if !follow {
		return nil
	}
	if seen.problem != "" {
		return unusable(seen.problem)
	}
	changed, err := d.ensureCopies(ctx, c, seen.configs, "")
	if err != nil {
		return fmt.Errorf("updating the configuration of deployment %s.%s failed: %w", seen.primary.GetName(), c.Namespace, err)
	}
	known, err := d.derive(c, seen)
	if err != nil {
		return err
	}
	template := templateOf(seen.primary) // what else differs needs no new pods
	if changed || !known.sameTemplate {
		template = primaryTemplate(templateOf(seen.target), seen.pair, seen.tracked(), id, ourRules)
	}
	return d.writeTemplate(ctx, c, seen, template)
}

// CopyTemplate gives the primary the analysed revision of the target: configuration first, then strategy, replicas (where
// no autoscaler owns them), metadata and template, with id as its new flagger-id. What is copied is the revision that is
// named: if the target has another one by now, or its configuration another content, it is ErrChanged. Repeated with the
// same id it does nothing once the template is there.
func (d *Deployments) CopyTemplate(ctx context.Context, c *flaggerv1.Canary, revision, id string) error {
	seen, err := d.look(ctx, c)
	if err != nil {
		return err
	}
	if seen.primary != nil && id != "" && idOf(templateOf(seen.primary)) == id {
		return nil
	}
	if seen.problem != "" {
		return unusable(seen.problem)
	}
	if seen.primary == nil {
		return fmt.Errorf("deployment %s.%s is not there to be promoted", seen.pair.primary(), c.Namespace)
	}
	if !controlledBy(seen.primary, c) {
		return foreign(c, "Deployment", seen.primary)
	}
	now, err := revisionOf(templateOf(seen.target), seen.checksums())
	if err != nil {
		return err
	}
	if now != revision {
		return refuse(ErrChanged, "deployment %s.%s has revision %s, not the analysed %s", seen.pair.target, c.Namespace, now, revision)
	}
	if _, err := d.ensureCopies(ctx, c, seen.configs, id); err != nil {
		return fmt.Errorf("updating the configuration of deployment %s.%s failed: %w", seen.pair.primary(), c.Namespace, err)
	}
	template := primaryTemplate(templateOf(seen.target), seen.pair, seen.tracked(), id, ourRules)
	return d.writeTemplate(ctx, c, seen, template)
}

// writeTemplate gives the primary a template, and with it what else it takes from the target.
func (d *Deployments) writeTemplate(ctx context.Context, c *flaggerv1.Canary, seen view, template map[string]any) error {
	promoted := promotedPrimary(c, seen.primary, seen.target, seen.pair, d.Options, template)
	if err := d.update(ctx, seen.primary, promoted); err != nil {
		return fmt.Errorf("updating deployment %s.%s template spec failed: %w", seen.pair.primary(), c.Namespace, err)
	}
	return nil
}

func (d *Deployments) createPrimary(ctx context.Context, c *flaggerv1.Canary, primary *unstructured.Unstructured) error {
	found, err := d.create(ctx, c, primary)
	if err != nil {
		return fmt.Errorf("createPrimaryDeployment failed: creating deployment %s.%s failed: %w", primary.GetName(), c.Namespace, err)
	}
	if found == nil {
		return nil
	}
	return d.adoptPrimary(ctx, c, found)
}

// adoptPrimary refuses a primary that is somebody else's. One that nothing controls, and that carries the mark of a
// promotion, was left behind when its Canary was deleted alone: it gets its owner back.
func (d *Deployments) adoptPrimary(ctx context.Context, c *flaggerv1.Canary, primary *unstructured.Unstructured) error {
	if controlledBy(primary, c) {
		return nil
	}
	if metav1.GetControllerOf(primary) != nil || idOf(templateOf(primary)) == "" {
		return foreign(c, "Deployment", primary)
	}
	adopted := primary.DeepCopy()
	adopted.SetOwnerReferences(withOwner(c, primary.GetOwnerReferences()))
	if err := d.update(ctx, primary, adopted); err != nil {
		return fmt.Errorf("taking over deployment %s.%s failed: %w", primary.GetName(), c.Namespace, err)
	}
	// What was read is the version before this write: to go on with it would be a conflict.
	return fmt.Errorf("take over Deployment %s.%s: %w", primary.GetName(), c.Namespace, ownwrites.ErrBehind)
}

// RestoreTemplate takes the last CopyTemplate back: the primary gets the template that it had before, from its own
// ReplicaSets, and the content that its configuration had. It is only for a primary whose template was copied. id
// becomes the flagger-id. Repeated with the same id it does nothing once the template is there. ErrGone: the history
// does not reach back, and the primary keeps what it has.
func (d *Deployments) RestoreTemplate(ctx context.Context, c *flaggerv1.Canary, id string) error {
	_, primary, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	if primary == nil {
		return refuse(ErrGone, "deployment %s%s.%s is gone, and with it the template to go back to", c.Spec.TargetRef.Name, suffix, c.Namespace)
	}
	if !controlledBy(primary, c) {
		return foreign(c, "Deployment", primary)
	}
	promotion := idOf(templateOf(primary))
	if promotion == id {
		return nil
	}
	selector, err := selectorOf(primary)
	if err != nil {
		return err
	}
	history, err := d.history(ctx, c, selector, func(set *unstructured.Unstructured) bool {
		return metav1.IsControlledBy(set, primary) && idOf(templateOf(set)) != promotion
	})
	if err != nil {
		return err
	}
	if len(history) == 0 {
		return refuse(ErrGone, "deployment %s.%s has no ReplicaSet left from before the promotion: raise its revisionHistoryLimit",
			primary.GetName(), c.Namespace)
	}
	template := recalled(history[0], id)
	if err := d.restoreCopies(ctx, c, template, promotion); err != nil {
		return fmt.Errorf("restoring the configuration of deployment %s.%s failed: %w", primary.GetName(), c.Namespace, err)
	}
	restored := primary.DeepCopy()
	if err := unstructured.SetNestedMap(restored.Object, template, "spec", "template"); err != nil {
		return fmt.Errorf("restore deployment %s.%s: %w", primary.GetName(), c.Namespace, err)
	}
	if err := d.update(ctx, primary, restored); err != nil {
		return fmt.Errorf("updating deployment %s.%s template spec failed: %w", primary.GetName(), c.Namespace, err)
	}
	return nil
}

// RecreatePrimary makes a primary again that was deleted in the middle of a release: with the template of its newest
// ReplicaSet, and never with that of the target, which is not analysed yet. ErrGone: there is no ReplicaSet left.
func (d *Deployments) RecreatePrimary(ctx context.Context, c *flaggerv1.Canary, id string) error {
	seen, err := d.look(ctx, c)
	if err != nil {
		return err
	}
	if seen.primary != nil {
		return d.adoptPrimary(ctx, c, seen.primary)
	}
	if seen.pair.label == "" {
		return unusable(seen.problem)
	}
	selector := labels.SelectorFromSet(labels.Set{seen.pair.label: seen.pair.primaryValue()})
	history, err := d.history(ctx, c, selector, func(set *unstructured.Unstructured) bool {
		owner := metav1.GetControllerOf(set)
		return idOf(templateOf(set)) != "" && (owner == nil || owner.Kind == deploymentKind.Kind && owner.Name == seen.pair.primary())
	})
	if err != nil {
		return err
	}
	if len(history) == 0 {
		return refuse(ErrGone, "deployment %s.%s was deleted in the middle of a release, and no ReplicaSet of it is left: "+
			"deploy the promoted version to %s, then it is made again", seen.pair.primary(), c.Namespace, seen.pair.target)
	}
	return d.createPrimary(ctx, c, newPrimary(c, seen.target, seen.pair, d.Options, recalled(history[0], id)))
}

// history are ReplicaSets, the newest revision first: one live LIST.
func (d *Deployments) history(ctx context.Context, c *flaggerv1.Canary, selector labels.Selector, keep func(*unstructured.Unstructured) bool) ([]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(replicaSetKind.GroupVersion().WithKind(replicaSetKind.Kind + "List"))
	if err := d.Reader.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list ReplicaSets of Deployment %s%s.%s: %w", c.Spec.TargetRef.Name, suffix, c.Namespace, err)
	}
	var kept []*unstructured.Unstructured
	for i := range list.Items {
		if keep(&list.Items[i]) {
			kept = append(kept, &list.Items[i])
		}
	}
	slices.SortFunc(kept, func(a, b *unstructured.Unstructured) int { return cmp.Compare(revisionNumber(b), revisionNumber(a)) })
	return kept, nil
}

func revisionNumber(set *unstructured.Unstructured) int64 {
	number, err := strconv.ParseInt(set.GetAnnotations()[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// recalled is the pod template of a ReplicaSet as its Deployment had it, with a new flagger-id.
func recalled(set *unstructured.Unstructured, id string) map[string]any {
	template := runtime.DeepCopyJSON(templateOf(set))
	metadata, ok := template["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		template["metadata"] = metadata
	}
	delete(metadata, "creationTimestamp")
	if labels, ok := metadata["labels"].(map[string]any); ok {
		delete(labels, "pod-template-hash")
	}
	annotations := texts(metadata["annotations"])
	annotations[idAnnotation] = id
	metadata["annotations"] = values(annotations)
	return template
}

// previously is what the content of a copy is kept under, from the promotion that replaces it until that has proved
// itself. A template alone is not what the primary ran: without its configuration it cannot be gone back to.
const previously = "-previous"

// ensureCopies makes the copies of configuration equal to their sources, and says whether the content of one changed.
// With a promotion given, content that is replaced is kept for RestoreTemplate.
func (d *Deployments) ensureCopies(ctx context.Context, c *flaggerv1.Canary, configs []config, promotion string) (changed bool, err error) {
	for _, source := range configs {
		changedOne, err := d.ensureCopy(ctx, c, source, promotion)
		if err != nil {
			return changed, err
		}
		changed = changed || changedOne
	}
	return changed, nil
}

func (d *Deployments) ensureCopy(ctx context.Context, c *flaggerv1.Canary, source config, promotion string) (changed bool, err error) {
	ref := ConfigRef{Kind: source.Kind, Name: source.Name + suffix}
	if upToDate, err := d.upToDate(ctx, c, source, ref); upToDate || err != nil {
		return false, err
	}
	from, err := d.contentOf(ctx, c, source.ConfigRef)
	if err != nil {
		return false, err
	}
	if from == nil || from.sums().ours != source.sums.ours {
		return false, refuse(ErrChanged, "%s %s.%s was changed or deleted just now", source.Kind, source.Name, c.Namespace)
	}
	into, err := d.contentOf(ctx, c, ref)
	if err != nil {
		return false, err
	}
	if into == nil {
		made := from.renamed(c.Namespace, ref.Name)
		made.obj.SetLabels(orNil(d.Options.copiedLabels(from.obj.GetLabels())))
		made.obj.SetAnnotations(orNil(copiedAnnotations(from.obj.GetAnnotations())))
		made.obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
		return true, d.createContent(ctx, c, made) // AlreadyExists is a conflict like any other: the next pass sees whose it is
	}
	equal := into.sums().ours == source.sums.ours
	owners, ours := sharedOwners(c, into.obj, equal)
	if !ours {
		return false, foreign(c, ref.Kind, into.obj)
	}
	if promotion != "" && !equal {
		if err := d.keepPrevious(ctx, c, into, ref, promotion); err != nil {
			return false, err
		}
	}
	wanted := into.filled(from)
	wanted.obj.SetLabels(orNil(replaced(into.obj.GetLabels(), d.Options.copiedLabels(from.obj.GetLabels()))))
	wanted.obj.SetAnnotations(orNil(replaced(into.obj.GetAnnotations(), copiedAnnotations(from.obj.GetAnnotations()))))
	wanted.obj.SetOwnerReferences(owners)
	return !equal, d.replaceContent(ctx, c, into, wanted)
}

// upToDate compares a copy with its source by what is cached of both: checksums, labels, annotations and owners.
func (d *Deployments) upToDate(ctx context.Context, c *flaggerv1.Canary, source config, ref ConfigRef) (bool, error) {
	found, copied, err := d.sumsOf(ctx, c, ref)
	if err != nil || !found || copied.ours != source.sums.ours {
		return false, err
	}
	from, err := d.metadataOf(ctx, c, source.ConfigRef)
	if err != nil || from == nil {
		return false, err
	}
	into, err := d.metadataOf(ctx, c, ref)
	if err != nil || into == nil {
		return false, err
	}
	return amongOwners(c, into) &&
		maps.Equal(into.Labels, replaced(into.Labels, d.Options.copiedLabels(from.Labels))) &&
		maps.Equal(into.Annotations, replaced(into.Annotations, copiedAnnotations(from.Annotations))), nil
}

func (d *Deployments) createContent(ctx context.Context, c *flaggerv1.Canary, made *content) error {
	if err := d.Client.Create(ctx, made.obj, client.DisableReadYourWritesConsistency); err != nil { // see cached
		return err
	}
	d.memory.keep(keyOf(c), made.obj, made.sums())
	return nil
}

// replaceContent writes the difference; an immutable object, which Kubernetes does not let anybody change, is made anew.
func (d *Deployments) replaceContent(ctx context.Context, c *flaggerv1.Canary, existing, wanted *content) error {
	if !existing.immutable() || existing.sums().ours == wanted.sums().ours && wanted.immutable() {
		return d.update(ctx, existing.obj, wanted.obj)
	}
	if err := d.remove(ctx, existing.obj); err != nil {
		return err
	}
	made := wanted.renamed(existing.obj.GetNamespace(), existing.obj.GetName())
	made.obj.SetLabels(wanted.obj.GetLabels())
	made.obj.SetAnnotations(wanted.obj.GetAnnotations())
	made.obj.SetOwnerReferences(wanted.obj.GetOwnerReferences())
	return d.createContent(ctx, c, made)
}

// amongOwners is true when the Canary is among the owners of a copy. Several Canaries may share one.
func amongOwners(c *flaggerv1.Canary, obj metav1.Object) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == c.UID })
}

// sharedOwners are the owners of an existing copy with this Canary among them. A copy that another Canary controls is
// shared with it, and stays under its control: two controllers of one object would take it from each other for ever. One
// that nobody owns is a stranger's, unless its content is what we would have put there.
func sharedOwners(c *flaggerv1.Canary, obj metav1.Object, equal bool) (owners []metav1.OwnerReference, ours bool) {
	owners = obj.GetOwnerReferences()
	if amongOwners(c, obj) {
		return owners, true
	}
	mine := ownedBy(c)
	controller := metav1.GetControllerOf(obj)
	switch {
	case controller == nil:
		return append(owners, mine), equal
	case controller.Kind != flaggerv1.CanaryKind || !strings.HasPrefix(controller.APIVersion, flaggerv1.GroupName+"/"):
		return nil, false
	case controller.Name == c.Name:
		return nil, false // an earlier Canary of this name: the copy is about to go with it
	}
	mine.Controller = nil
	return append(owners, mine), true
}

// keepPrevious keeps the content of a copy under another name before it is replaced. Where an earlier attempt kept some
// that never got replaced in the primary's template, that is still what the primary runs.
func (d *Deployments) keepPrevious(ctx context.Context, c *flaggerv1.Canary, existing *content, ref ConfigRef, promotion string) error {
	kept := ConfigRef{Kind: ref.Kind, Name: ref.Name + previously}
	made := existing.renamed(c.Namespace, kept.Name)
	made.obj.SetAnnotations(map[string]string{promotionAnnotation: promotion})
	made.obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
	if meta, err := d.metadataOf(ctx, c, kept); meta == nil {
		if err != nil {
			return err
		}
		return d.createContent(ctx, c, made) // AlreadyExists: the cache is behind, the next pass sees it
	}
	last, err := d.contentOf(ctx, c, kept)
	if err != nil {
		return err
	}
	if last == nil {
		return d.createContent(ctx, c, made)
	}
	if !controlledBy(last.obj, c) {
		return foreign(c, kept.Kind, last.obj)
	}
	of := last.obj.GetAnnotations()[promotionAnnotation]
	if of == promotion {
		return nil
	}
	_, primary, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	wanted := last.filled(last)
	if primary != nil && idOf(templateOf(primary)) == of {
		wanted = last.filled(existing)
	}
	wanted.obj.SetAnnotations(map[string]string{promotionAnnotation: promotion})
	return d.replaceContent(ctx, c, last, wanted)
}

// restoreCopies gives the copies that a template names the content that they had before a promotion.
func (d *Deployments) restoreCopies(ctx context.Context, c *flaggerv1.Canary, template map[string]any, promotion string) error {
	for _, ref := range Sources(template) {
		if !strings.HasSuffix(ref.Name, suffix) {
			continue
		}
		kept := ConfigRef{Kind: ref.Kind, Name: ref.Name + previously}
		meta, err := d.metadataOf(ctx, c, kept)
		if err != nil {
			return err
		}
		if meta == nil || !controlledBy(meta, c) || meta.Annotations[promotionAnnotation] != promotion {
			continue
		}
		from, err := d.contentOf(ctx, c, kept)
		if err != nil {
			return err
		}
		into, err := d.contentOf(ctx, c, ConfigRef{Kind: ref.Kind, Name: ref.Name})
		if err != nil {
			return err
		}
		if from == nil || into == nil || !amongOwners(c, into.obj) {
			continue
		}
		if err := d.replaceContent(ctx, c, into, into.filled(from)); err != nil {
			return err
		}
	}
	return nil
}

// CollectConfigs removes the copies of configuration that this Canary alone owns and that its primary does not name any
// more, and all content that was kept for going back. It is for the end of a release: before it, the primary may still
// have to go back to what is removed.
func (d *Deployments) CollectConfigs(ctx context.Context, c *flaggerv1.Canary) error {
	_, primary, err := d.both(ctx, c)
	if err != nil || primary == nil {
		return err
	}
	used := map[string]bool{}
	for _, ref := range Sources(templateOf(primary)) {
		used[ref.Key()] = true
	}
	for _, kind := range []string{configMapKind, secretKind} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(serviceKind.GroupVersion().WithKind(kind + "List"))
		if err := d.Client.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return fmt.Errorf("list %ss of %s: %w", kind, c.Namespace, err)
		}
		for i := range list.Items {
			obj := &list.Items[i]
			obj.SetGroupVersionKind(serviceKind.GroupVersion().WithKind(kind))
			if !collectable(c, obj) || used[ConfigRef{Kind: kind, Name: obj.Name}.Key()] {
				continue
			}
			if err := d.remove(ctx, obj); err != nil {
				return fmt.Errorf("delete %s %s.%s: %w", kind, obj.Name, c.Namespace, err)
			}
		}
	}
	return nil
}

// collectable is true for an object that was made here, for this Canary and nobody else.
func collectable(c *flaggerv1.Canary, obj metav1.Object) bool {
	name := strings.TrimSuffix(obj.GetName(), previously)
	return len(obj.GetOwnerReferences()) == 1 && controlledBy(obj, c) && obj.GetDeletionTimestamp() == nil &&
		strings.HasSuffix(name, suffix)
}
