package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// previousCopyInfix is part of the name under which the previous content of a copy is stored, from the promotion that replaces
// it until the release has ended. A template without its configuration cannot be restored.
const previousCopyInfix = "-previous-"

// previousCopyOf returns the reference to the previous content of a copy. Canaries may share the copy, but not this content: each
// of them promotes at another time.
func previousCopyOf(c *flaggerv1.Canary, ref ConfigRef) ConfigRef {
	return ConfigRef{Kind: ref.Kind, Name: ref.Name + previousCopyInfix + c.Name}
}

// configCopies manages the copies of the target's configuration that its primary uses.
type configCopies struct{ targetPair }

// ensureCopies updates the copies of configuration to their sources, and reports whether the content of one changed.
// With a promotion given, it stores the replaced content for RestoreTemplate.
func (d configCopies) ensureCopies(ctx context.Context, c *flaggerv1.Canary, configs []configSource, promotion string) (changed bool, err error) {
	for _, source := range configs {
		changedOne, err := d.ensureCopy(ctx, c, source, promotion)
		if err != nil {
			return changed, err
		}
		changed = changed || changedOne
	}
	return changed, nil
}

func (d configCopies) ensureCopy(ctx context.Context, c *flaggerv1.Canary, source configSource, promotion string) (changed bool, err error) {
	ref := ConfigRef{Kind: source.Kind, Name: source.Name + primarySuffix}
	upToDate, err := d.isCopyUpToDate(ctx, c, source, ref)
	if err != nil {
		return false, err
	}
	if upToDate {
		return false, d.keepPreviousContent(ctx, c, ref, promotion)
	}
	from, err := d.readConfigContent(ctx, c, source.ConfigRef)
	if err != nil {
		return false, err
	}
	if from == nil || from.checksums().serinSum != source.checksums.serinSum {
		return false, newRefusedError(ErrTargetChanged, "%s %s.%s was changed or deleted just now", source.Kind, source.Name, c.Namespace)
	}
	into, err := d.readConfigContent(ctx, c, ref)
	if err != nil {
		return false, err
	}
	if into == nil {
		// An immutable copy that an earlier promotion deleted, and could not create again, has stored content.
		if err := d.keepPreviousContent(ctx, c, ref, promotion); err != nil {
			return false, err
		}
		created := from.copyWithName(c.Namespace, ref.Name)
		created.obj.SetLabels(nilIfEmpty(d.Options.copiedLabels(from.obj.GetLabels())))
		created.obj.SetAnnotations(nilIfEmpty(copiedAnnotations(from.obj.GetAnnotations())))
		created.obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
		return true, d.createConfigCopy(ctx, c, created) // AlreadyExists is a conflict like any other: the next reconciliation sees the owner
	}
	equal := into.checksums().serinSum == source.checksums.serinSum
	owners, ours := ownersWithCanary(c, into.obj, equal)
	if !ours {
		return false, newNotOwnedError(c, ref.Kind, into.obj)
	}
	switch {
	case equal:
		err = d.keepPreviousContent(ctx, c, ref, promotion)
	case promotion != "":
		err = d.storePreviousContent(ctx, c, into, ref, promotion)
	}
	if err != nil {
		return false, err
	}
	wanted := into.withContentOf(from)
	wanted.obj.SetLabels(nilIfEmpty(mergedMetadata(into.obj.GetLabels(), d.Options.copiedLabels(from.obj.GetLabels()))))
	wanted.obj.SetAnnotations(nilIfEmpty(mergedMetadata(into.obj.GetAnnotations(), copiedAnnotations(from.obj.GetAnnotations()))))
	wanted.obj.SetOwnerReferences(owners)
	return !equal, d.replaceConfigContent(ctx, c, into, wanted)
}

// promoteCopies updates the copies to the configuration of the target. The template of the primary may use copies that the target
// does not need anymore: their stored content is kept for a rollback of this promotion.
func (d configCopies) promoteCopies(ctx context.Context, c *flaggerv1.Canary, template map[string]any, configs []configSource, promotion string) error {
	if !d.Options.ConfigTracking {
		return nil // Serin may not have the permission to read Secrets
	}
	needed := map[string]bool{}
	for _, source := range configs {
		needed[source.Key()+primarySuffix] = true
	}
	for _, ref := range ListConfigRefs(template) {
		if needed[ref.Key()] || !strings.HasSuffix(ref.Name, primarySuffix) {
			continue
		}
		if err := d.keepPreviousContent(ctx, c, ref, promotion); err != nil {
			return err
		}
	}
	_, err := d.ensureCopies(ctx, c, configs, promotion)
	return err
}

// isCopyUpToDate compares the cached metadata of a copy and its source: checksums, labels, annotations and owners.
func (w *Workloads) isCopyUpToDate(ctx context.Context, c *flaggerv1.Canary, source configSource, ref ConfigRef) (bool, error) {
	found, copied, err := w.readChecksums(ctx, c, ref)
	if err != nil || !found || copied.serinSum != source.checksums.serinSum {
		return false, err
	}
	from, err := w.metadataOf(ctx, c, source.ConfigRef)
	if err != nil || from == nil {
		return false, err
	}
	into, err := w.metadataOf(ctx, c, ref)
	if err != nil || into == nil {
		return false, err
	}
	return isOwnedBy(c, into) &&
		maps.Equal(into.Labels, mergedMetadata(into.Labels, w.Options.copiedLabels(from.Labels))) &&
		maps.Equal(into.Annotations, mergedMetadata(into.Annotations, copiedAnnotations(from.Annotations))), nil
}

func (w *Workloads) createConfigCopy(ctx context.Context, c *flaggerv1.Canary, created *configContent) error {
	if err := w.Client.Create(ctx, created.obj, client.DisableReadYourWritesConsistency); err != nil { // see isCached
		return err
	}
	w.cache.store(objectKey(c), created.obj, created.checksums())
	return nil
}

// replaceConfigContent writes the difference. An object that is immutable in Kubernetes is recreated.
func (w *Workloads) replaceConfigContent(ctx context.Context, c *flaggerv1.Canary, existing, wanted *configContent) error {
	if !existing.isImmutable() || existing.checksums().serinSum == wanted.checksums().serinSum && wanted.isImmutable() {
		return w.updateObject(ctx, existing.obj, wanted.obj)
	}
	if existing.obj.GetDeletionTimestamp() != nil {
		kind := "ConfigMap"
		if existing.secret != nil {
			kind = "Secret"
		}
		return newUnusableError(fmt.Sprintf("%s %s.%s is immutable, and its deletion waits for the finalizers %s: remove them, and Serin creates it with the new content",
			kind, existing.obj.GetName(), existing.obj.GetNamespace(), strings.Join(existing.obj.GetFinalizers(), ", ")))
	}
	if err := w.deleteObject(ctx, existing.obj); err != nil {
		return err
	}
	created := wanted.copyWithName(existing.obj.GetNamespace(), existing.obj.GetName())
	created.obj.SetLabels(wanted.obj.GetLabels())
	created.obj.SetAnnotations(wanted.obj.GetAnnotations())
	created.obj.SetOwnerReferences(wanted.obj.GetOwnerReferences())
	return w.createConfigCopy(ctx, c, created)
}

// isOwnedBy reports whether the Canary is among the owners of a copy. Several Canaries may share one.
func isOwnedBy(c *flaggerv1.Canary, obj metav1.Object) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == c.UID })
}

// ownersWithCanary returns the owners of an existing copy with this Canary added. A copy that another Canary controls is
// shared with it, and that one remains its controller: otherwise both would replace each other's reference
// indefinitely. A copy without an owner is not ours, unless it has the content that Serin would have written.
func ownersWithCanary(c *flaggerv1.Canary, obj metav1.Object, equal bool) (owners []metav1.OwnerReference, ours bool) {
	owners = obj.GetOwnerReferences()
	if isOwnedBy(c, obj) {
		return owners, true
	}
	mine := ownedBy(c)
	controller := metav1.GetControllerOf(obj)
	switch {
	case controller == nil:
		return append(owners, mine), equal
	case !isCanary(*controller):
		return nil, false
	case controller.Name == c.Name:
		return nil, false // an earlier Canary with this name: the copy is about to be garbage-collected with it
	}
	mine.Controller = nil
	return append(owners, mine), true
}

// keepPreviousContent assigns the content that an earlier promotion stored to this one, which leaves the copy as it is: if this
// promotion is reverted, too, the copy gets the content that the primary ran before.
func (d configCopies) keepPreviousContent(ctx context.Context, c *flaggerv1.Canary, ref ConfigRef, promotion string) error {
	if promotion == "" {
		return nil
	}
	previous, err := d.metadataOf(ctx, c, previousCopyOf(c, ref))
	if err != nil || previous == nil || !controlledBy(previous, c) || previous.Annotations[promotionAnnotation] == promotion {
		return err
	}
	existing, err := d.readConfigContent(ctx, c, ref)
	if err != nil {
		return err
	}
	return d.storePreviousContent(ctx, c, existing, ref, promotion)
}

// storePreviousContent stores the content of a copy under another name before it is replaced. If an earlier attempt stored
// content but never changed the primary's template, that content is still what the primary runs. existing is nil if there is no
// copy: it adds nothing to the stored content.
func (d configCopies) storePreviousContent(ctx context.Context, c *flaggerv1.Canary, existing *configContent, ref ConfigRef, promotion string) error {
	previousRef := previousCopyOf(c, ref)
	create := func() error { // AlreadyExists: the cache is stale, the next reconciliation sees it
		if existing == nil {
			return nil
		}
		created := existing.copyWithName(c.Namespace, previousRef.Name)
		created.obj.SetAnnotations(map[string]string{promotionAnnotation: promotion})
		created.obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
		return d.createConfigCopy(ctx, c, created)
	}
	if meta, err := d.metadataOf(ctx, c, previousRef); meta == nil {
		if err != nil {
			return err
		}
		return create()
	}
	last, err := d.readConfigContent(ctx, c, previousRef)
	if err != nil {
		return err
	}
	if last == nil {
		return create()
	}
	if !controlledBy(last.obj, c) {
		return newNotOwnedError(c, previousRef.Kind, last.obj)
	}
	lastPromotion := last.obj.GetAnnotations()[promotionAnnotation]
	if lastPromotion == promotion {
		return nil
	}
	_, primary, err := d.targetAndPrimary(ctx, c)
	if err != nil {
		return err
	}
	wanted := last.withContentOf(last)
	if primary != nil && promotionID(podTemplate(primary)) == lastPromotion {
		if existing == nil {
			return nil // the content of the primary was deleted, and the stored content is older
		}
		wanted = last.withContentOf(existing)
	}
	wanted.obj.SetAnnotations(map[string]string{promotionAnnotation: promotion})
	return d.replaceConfigContent(ctx, c, last, wanted)
}

// isCopyAheadOf reports whether a copy was replaced by another promotion than the one with the ID of the template.
func (w *Workloads) isCopyAheadOf(ctx context.Context, c *flaggerv1.Canary, ref ConfigRef, copied checksums, id string) (bool, error) {
	previousRef := previousCopyOf(c, ref)
	meta, err := w.metadataOf(ctx, c, previousRef)
	if err != nil || meta == nil || !controlledBy(meta, c) || meta.Annotations[promotionAnnotation] == id {
		return false, err
	}
	found, before, err := w.readChecksums(ctx, c, previousRef)
	return found && before.serinSum != copied.serinSum, err
}

// restoreConfigCopies restores the content that the copies of a template had before a promotion. It returns warnings about copies
// that are not restored, because several Canaries share them. With live, it does not rely on the cache to know whether there is
// stored content: before a template is written, nothing may be missing, because no later reconciliation would restore it.
func (w *Workloads) restoreConfigCopies(ctx context.Context, c *flaggerv1.Canary, template map[string]any, promotion string, live bool) (warnings []string, err error) {
	if !w.Options.ConfigTracking {
		return nil, nil // there are no copies, or they are no longer updated
	}
	for _, ref := range ListConfigRefs(template) {
		if !strings.HasSuffix(ref.Name, primarySuffix) {
			continue
		}
		warning, err := w.restoreConfigCopy(ctx, c, ref, promotion, live)
		if err != nil {
			return warnings, err
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	return warnings, nil
}

func (w *Workloads) restoreConfigCopy(ctx context.Context, c *flaggerv1.Canary, ref ConfigRef, promotion string, live bool) (warning string, err error) {
	previousRef := previousCopyOf(c, ref)
	if !live {
		if meta, err := w.metadataOf(ctx, c, previousRef); err != nil || meta == nil || meta.Annotations[promotionAnnotation] != promotion {
			return "", err
		}
	}
	from, err := w.readConfigContent(ctx, c, previousRef)
	if err != nil || from == nil || !controlledBy(from.obj, c) || from.obj.GetAnnotations()[promotionAnnotation] != promotion {
		return "", err
	}
	into, err := w.readConfigContent(ctx, c, ConfigRef{Kind: ref.Kind, Name: ref.Name})
	switch {
	case err != nil:
		return "", err
	case into == nil: // an earlier attempt deleted an immutable copy, and could not create it again
		created := from.copyWithName(c.Namespace, ref.Name)
		created.obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
		return "", w.createConfigCopy(ctx, c, created)
	case !isOwnedBy(c, into.obj):
		return "", nil
	}
	others := otherCanaries(c, into.obj)
	if len(others) == 0 || into.checksums().serinSum == from.checksums().serinSum {
		return "", w.replaceConfigContent(ctx, c, into, into.withContentOf(from))
	}
	return fmt.Sprintf("%[1]s %[2]s.%[3]s is shared by the Canaries %[4]s: its content before the promotion of %[5]s is not restored, "+
		"because %[6]s may have promoted the current one. To be independent, their targets need different %[1]ss",
		ref.Kind, ref.Name, c.Namespace, strings.Join(append([]string{c.Name}, others...), ", "), c.Name, strings.Join(others, ", ")), nil
}

// otherCanaries returns the names of the other Canaries that own a copy, in order.
func otherCanaries(c *flaggerv1.Canary, obj metav1.Object) []string {
	var names []string
	for _, owner := range obj.GetOwnerReferences() {
		if owner.UID != c.UID && isCanary(owner) {
			names = append(names, owner.Name)
		}
	}
	slices.Sort(names)
	return names
}

func isCanary(owner metav1.OwnerReference) bool {
	return owner.Kind == flaggerv1.CanaryKind && strings.HasPrefix(owner.APIVersion, flaggerv1.GroupName+"/")
}

// CollectConfigs deletes the copies of configuration that only this Canary owns and none of its primaries uses, and all
// content that was stored for a rollback. Primaries of former targets may still serve. Unused copies that other Canaries share belong to those alone from then on. It must be
// called at the end of a release: until then, a rollback of the primary may need them.
//
// Without config tracking nothing is deleted, because Serin may not have the permission to list Secrets. Remaining
// copies are garbage-collected with the Canary.
func (d configCopies) CollectConfigs(ctx context.Context, c *flaggerv1.Canary) error {
	if !d.Options.ConfigTracking {
		return nil
	}
	_, primary, err := d.targetAndPrimary(ctx, c)
	if err != nil || primary == nil {
		return err
	}
	used := map[string]bool{}
	addRefs(used, primary)
	formerRead := false
	for _, kind := range []string{configMapKind, secretKind} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(serviceKind.GroupVersion().WithKind(kind + "List"))
		if err := d.Client.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return fmt.Errorf("list %ss of %s: %w", kind, c.Namespace, err)
		}
		for i := range list.Items {
			obj := &list.Items[i]
			obj.SetGroupVersionKind(serviceKind.GroupVersion().WithKind(kind))
			mayBeUsed := strings.HasSuffix(obj.Name, primarySuffix) && isOwnedBy(c, obj) && !used[ConfigRef{Kind: kind, Name: obj.Name}.Key()]
			if mayBeUsed && !formerRead { // rarely: a target no longer uses a configuration, or was replaced
				if err := d.addFormerRefs(ctx, c, used); err != nil {
					return err
				}
				formerRead = true
			}
			switch unused := !used[ConfigRef{Kind: kind, Name: obj.Name}.Key()]; {
			case unused && isCollectable(c, obj):
				if err := d.deleteObject(ctx, obj); err != nil {
					return fmt.Errorf("delete %s %s.%s: %w", kind, obj.Name, c.Namespace, err)
				}
			case unused && isSharedCopy(c, obj):
				if err := d.updateObject(ctx, obj, leftToOthers(c, obj)); err != nil {
					return fmt.Errorf("remove Canary %s as an owner of %s %s.%s: %w", c.Name, kind, obj.Name, c.Namespace, err)
				}
			}
		}
	}
	return nil
}

// addFormerRefs adds the configuration that the primaries of former targets of a Canary use.
func (d configCopies) addFormerRefs(ctx context.Context, c *flaggerv1.Canary, used map[string]bool) error {
	for _, kind := range []schema.GroupVersionKind{deploymentKind, daemonSetKind} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := d.APIReader.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return fmt.Errorf("list %ss of %s: %w", kind.Kind, c.Namespace, err)
		}
		for i := range list.Items {
			if controlledBy(&list.Items[i], c) {
				addRefs(used, &list.Items[i])
			}
		}
	}
	return nil
}

// addRefs adds the configuration that a workload uses.
func addRefs(used map[string]bool, workload *unstructured.Unstructured) {
	for _, ref := range ListConfigRefs(podTemplate(workload)) {
		used[ref.Key()] = true
	}
}

// isCollectable reports whether Serin created the object, for this Canary alone.
func isCollectable(c *flaggerv1.Canary, obj metav1.Object) bool {
	name := strings.TrimSuffix(obj.GetName(), previousCopyInfix+c.Name)
	return len(obj.GetOwnerReferences()) == 1 && controlledBy(obj, c) && obj.GetDeletionTimestamp() == nil &&
		strings.HasSuffix(name, primarySuffix)
}

// isSharedCopy reports whether an object is a copy that this Canary shares with others.
func isSharedCopy(c *flaggerv1.Canary, obj metav1.Object) bool {
	return strings.HasSuffix(obj.GetName(), primarySuffix) && obj.GetDeletionTimestamp() == nil && isOwnedBy(c, obj) && len(otherCanaries(c, obj)) > 0
}

// leftToOthers returns a shared copy without this Canary as an owner. If it was the controller, the next Canary is.
func leftToOthers(c *flaggerv1.Canary, obj *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	left := obj.DeepCopy()
	left.OwnerReferences = slices.DeleteFunc(left.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == c.UID })
	if next := slices.IndexFunc(left.OwnerReferences, isCanary); metav1.GetControllerOf(left) == nil && next >= 0 {
		left.OwnerReferences[next].Controller = new(true)
	}
	return left
}
