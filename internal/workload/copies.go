package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// previously is part of the name under which the previous content of a copy is stored, from the promotion that replaces
// it until the release has ended. A template without its configuration cannot be restored.
const previously = "-previous"

// ensureCopies updates the copies of configuration to their sources, and reports whether the content of one changed.
// With a promotion given, it stores the replaced content for RestoreTemplate.
func (d templated) ensureCopies(ctx context.Context, c *flaggerv1.Canary, configs []config, promotion string) (changed bool, err error) {
	for _, source := range configs {
		changedOne, err := d.ensureCopy(ctx, c, source, promotion)
		if err != nil {
			return changed, err
		}
		changed = changed || changedOne
	}
	return changed, nil
}

func (d templated) ensureCopy(ctx context.Context, c *flaggerv1.Canary, source config, promotion string) (changed bool, err error) {
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
		return true, d.createContent(ctx, c, made) // AlreadyExists is a conflict like any other: the next reconciliation sees the owner
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

// upToDate compares the cached metadata of a copy and its source: checksums, labels, annotations and owners.
func (d templated) upToDate(ctx context.Context, c *flaggerv1.Canary, source config, ref ConfigRef) (bool, error) {
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

func (d templated) createContent(ctx context.Context, c *flaggerv1.Canary, made *content) error {
	if err := d.Client.Create(ctx, made.obj, client.DisableReadYourWritesConsistency); err != nil { // see the function cached
		return err
	}
	d.memory.keep(keyOf(c), made.obj, made.sums())
	return nil
}

// replaceContent writes the difference. An object that is immutable in Kubernetes is recreated.
func (d templated) replaceContent(ctx context.Context, c *flaggerv1.Canary, existing, wanted *content) error {
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

// amongOwners reports whether the Canary is among the owners of a copy. Several Canaries may share one.
func amongOwners(c *flaggerv1.Canary, obj metav1.Object) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == c.UID })
}

// sharedOwners returns the owners of an existing copy with this Canary added. A copy that another Canary controls is
// shared with it, and that one remains its controller: otherwise both would replace each other's reference
// indefinitely. A copy without an owner is not ours, unless its content is what Serin would have written.
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
		return nil, false // an earlier Canary with this name: the copy is about to be garbage-collected with it
	}
	mine.Controller = nil
	return append(owners, mine), true
}

// keepPrevious stores the content of a copy under another name before it is replaced. If an earlier attempt stored
// content but never changed the primary's template, that content is still what the primary runs.
func (d templated) keepPrevious(ctx context.Context, c *flaggerv1.Canary, existing *content, ref ConfigRef, promotion string) error {
	kept := ConfigRef{Kind: ref.Kind, Name: ref.Name + previously}
	made := existing.renamed(c.Namespace, kept.Name)
	made.obj.SetAnnotations(map[string]string{promotionAnnotation: promotion})
	made.obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
	if meta, err := d.metadataOf(ctx, c, kept); meta == nil {
		if err != nil {
			return err
		}
		return d.createContent(ctx, c, made) // AlreadyExists: the cache is stale, the next reconciliation sees it
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

// aheadOf reports whether a copy was replaced by another promotion than the one with the ID of the template.
func (d templated) aheadOf(ctx context.Context, c *flaggerv1.Canary, ref ConfigRef, copied sums, id string) (bool, error) {
	kept := ConfigRef{Kind: ref.Kind, Name: ref.Name + previously}
	meta, err := d.metadataOf(ctx, c, kept)
	if err != nil || meta == nil || !controlledBy(meta, c) || meta.Annotations[promotionAnnotation] == id {
		return false, err
	}
	found, before, err := d.sumsOf(ctx, c, kept)
	return found && before.ours != copied.ours, err
}

// restoreCopies restores the content that the copies of a template had before a promotion.
func (d templated) restoreCopies(ctx context.Context, c *flaggerv1.Canary, template map[string]any, promotion string) error {
	if !d.Options.ConfigTracking {
		return nil // there are no copies, or they are no longer updated
	}
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

// CollectConfigs deletes the copies of configuration that only this Canary owns and its primary does not use, and all
// content that was stored for a rollback. It must be called at the end of a release: until then, a rollback of the
// primary may need them.
//
// Without config tracking nothing is deleted, because Serin may not have the permission to list Secrets. Remaining
// copies are garbage-collected with the Canary.
func (d templated) CollectConfigs(ctx context.Context, c *flaggerv1.Canary) error {
	if !d.Options.ConfigTracking {
		return nil
	}
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

// collectable reports whether Serin created the object, for this Canary alone.
func collectable(c *flaggerv1.Canary, obj metav1.Object) bool {
	name := strings.TrimSuffix(obj.GetName(), previously)
	return len(obj.GetOwnerReferences()) == 1 && controlledBy(obj, c) && obj.GetDeletionTimestamp() == nil &&
		strings.HasSuffix(name, suffix)
}
