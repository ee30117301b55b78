package workload

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/readyourwrites"
)

// EnsurePrimary creates the copies of configuration and then the primary from the target's template, if there is no primary.
// With follow, for the time before the primary first serves, it updates an existing primary to the target's template. If the
// target has another revision than the given one, neither happens, and it returns ErrTargetChanged; an empty revision matches
// any. id becomes the flagger-id of a template that is written.
func (d templateWorkload) EnsurePrimary(ctx context.Context, c *flaggerv1.Canary, revision, id string, follow bool) error {
	seen, err := d.readWorkloads(ctx, c)
	if err != nil {
		return err
	}
	if seen.primary == nil {
		if seen.problem != "" {
			return newUnusableError(seen.problem)
		}
		known, err := d.verifyRevision(c, seen, revision)
		if err != nil {
			return err
		}
		if _, err := d.ensureCopies(ctx, c, seen.configs, ""); err != nil {
			return fmt.Errorf("%sCreatePrimaryConfigs failed: %w", d.creationErrorPrefix(), err)
		}
		template := primaryTemplate(d.templateKind.template(seen.target), seen.selectorPair, seen.trackedConfigKeys(), id, serinRules)
		return d.createPrimary(ctx, c, d.newPrimary(c, seen.target, seen.selectorPair, template, known.templateSource()))
	}
	if seen.target == nil {
		return newUnusableError(seen.problem)
	}
	if err := d.adoptPrimary(ctx, c, seen.primary); err != nil {
		return err
	}
	if !follow {
		return nil
	}
	if seen.problem != "" {
		return newUnusableError(seen.problem)
	}
	known, err := d.verifyRevision(c, seen, revision)
	if err != nil {
		return err
	}
	if matches, err := d.primaryMatchesTarget(ctx, c, seen, known); matches || err != nil {
		return err
	}
	if err := d.verifyCanaryUnchanged(ctx, c); err != nil {
		return err
	}
	changed, err := d.ensureCopies(ctx, c, seen.configs, "")
	if err != nil {
		return fmt.Errorf("updating the configuration of %s %s.%s failed: %w", d.displayName(), seen.primary.GetName(), c.Namespace, err)
	}
	template := podTemplate(seen.primary) // other differences need no new pods
	if changed || !known.sameTemplate {
		template = primaryTemplate(d.templateKind.template(seen.target), seen.selectorPair, seen.trackedConfigKeys(), id, serinRules)
	}
	return d.writeTemplate(ctx, c, seen, template, known.templateSource())
}

// primaryMatchesTarget reports whether all fields that are copied from the target are up to date in the primary.
func (d templateWorkload) primaryMatchesTarget(ctx context.Context, c *flaggerv1.Canary, seen workloadView, known derivedState) (bool, error) {
	for _, source := range seen.configs {
		if same, err := d.isCopyUpToDate(ctx, c, source, ConfigRef{Kind: source.Kind, Name: source.Name + primarySuffix}); !same || err != nil {
			return false, err
		}
	}
	patch, err := buildMergePatch(seen.primary, d.promotedPrimary(c, seen.primary, seen.target, seen.selectorPair, podTemplate(seen.primary), known.templateSource()))
	return known.sameTemplate && patch == nil, err
}

// CopyTemplate copies the analyzed revision of the target to the primary: configuration first, then strategy, replicas
// (unless an autoscaler owns them), metadata and template, with id as its new flagger-id. It copies only the given
// revision: if the target's template or configuration has changed, it returns ErrTargetChanged. It is idempotent for the same
// id.
func (d templateWorkload) CopyTemplate(ctx context.Context, c *flaggerv1.Canary, revision, id string) error {
	seen, err := d.readWorkloads(ctx, c)
	if err != nil {
		return err
	}
	if seen.primary != nil && id != "" && promotionID(podTemplate(seen.primary)) == id {
		return nil
	}
	if seen.problem != "" {
		return newUnusableError(seen.problem)
	}
	if seen.primary == nil {
		return fmt.Errorf("%s %s.%s does not exist and cannot be promoted", d.displayName(), seen.selectorPair.primaryName(), c.Namespace)
	}
	if !controlledBy(seen.primary, c) {
		return newNotOwnedError(c, d.kind().Kind, seen.primary)
	}
	now, err := d.verifyRevision(c, seen, revision)
	if err != nil {
		return err
	}
	if err := d.promoteCopies(ctx, c, podTemplate(seen.primary), seen.configs, id); err != nil {
		return fmt.Errorf("updating the configuration of %s %s.%s failed: %w", d.displayName(), seen.selectorPair.primaryName(), c.Namespace, err)
	}
	template := primaryTemplate(d.templateKind.template(seen.target), seen.selectorPair, seen.trackedConfigKeys(), id, serinRules)
	return d.writeTemplate(ctx, c, seen, template, now.templateSource())
}

// verifyRevision returns the state that is derived from the target, or ErrTargetChanged if the target has another revision than the
// given one. An empty revision matches any.
func (d templateWorkload) verifyRevision(c *flaggerv1.Canary, seen workloadView, revision string) (derivedState, error) {
	now, err := d.deriveState(c, seen)
	if err == nil && revision != "" && now.revision != revision {
		err = newRefusedError(ErrTargetChanged, "%s %s.%s has revision %s, not the analysed %s", d.displayName(), seen.selectorPair.target, c.Namespace, now.revision, revision)
	}
	return now, err
}

// writeTemplate writes a template to the primary, together with the other fields that are copied from the target.
func (d templateWorkload) writeTemplate(ctx context.Context, c *flaggerv1.Canary, seen workloadView, template map[string]any, source TemplateSource) error {
	promoted := d.promotedPrimary(c, seen.primary, seen.target, seen.selectorPair, template, source)
	if err := d.updateObject(ctx, seen.primary, promoted); err != nil {
		return fmt.Errorf("updating %s %s.%s template spec failed: %w", d.displayName(), seen.selectorPair.primaryName(), c.Namespace, err)
	}
	return nil
}

func (d templateWorkload) createPrimary(ctx context.Context, c *flaggerv1.Canary, primary *unstructured.Unstructured) error {
	found, err := d.createObject(ctx, c, primary)
	if err != nil {
		return fmt.Errorf("%screating %s %s.%s failed: %w", d.creationErrorPrefix(), d.displayName(), primary.GetName(), c.Namespace, err)
	}
	if found == nil {
		return nil
	}
	return d.adoptPrimary(ctx, c, found)
}

// adoptPrimary returns an error for a primary of another owner. A primary without a controller but with a promotion's
// annotation is orphaned: its Canary was deleted without it. It gets its owner again.
func (d templateWorkload) adoptPrimary(ctx context.Context, c *flaggerv1.Canary, primary *unstructured.Unstructured) error {
	if controlledBy(primary, c) {
		return nil
	}
	if metav1.GetControllerOf(primary) != nil || promotionID(podTemplate(primary)) == "" {
		return newNotOwnedError(c, d.kind().Kind, primary)
	}
	adopted := primary.DeepCopy()
	adopted.SetOwnerReferences(withOwner(c, primary.GetOwnerReferences()))
	if err := d.updateObject(ctx, primary, adopted); err != nil {
		return fmt.Errorf("taking over %s %s.%s failed: %w", d.displayName(), primary.GetName(), c.Namespace, err)
	}
	// The object that was read is older than this write: continuing would be a conflict.
	return fmt.Errorf("take over %s %s.%s: %w", d.kind().Kind, primary.GetName(), c.Namespace, readyourwrites.ErrStale)
}

// RestoreTemplate reverts the last CopyTemplate: it restores the previous template of the primary from its own history,
// and the previous content of its configuration. It must be called only for a primary whose template was copied. id
// becomes the flagger-id. It is idempotent for the same id. ErrHistoryGone: the history does not contain the template, and the
// primary is unchanged. A *PartialServiceError means that only configuration that other Canaries share was not restored.
func (d templateWorkload) RestoreTemplate(ctx context.Context, c *flaggerv1.Canary, id string) error {
	_, primary, err := d.targetAndPrimary(ctx, c)
	if err != nil {
		return err
	}
	if primary == nil {
		return newRefusedError(ErrHistoryGone, "%s %s%s.%s was deleted, and its previous template is unknown", d.displayName(), c.Spec.TargetRef.Name, primarySuffix, c.Namespace)
	}
	if !controlledBy(primary, c) {
		return newNotOwnedError(c, d.kind().Kind, primary)
	}
	promotion := promotionID(podTemplate(primary))
	if promotion == id {
		return nil
	}
	selector, err := podSelector(primary)
	if err != nil {
		return err
	}
	history, err := d.listHistory(ctx, c, selector, func(past *unstructured.Unstructured, template map[string]any) bool {
		return metav1.IsControlledBy(past, primary) && promotionID(template) != promotion
	})
	if err != nil {
		return err
	}
	if len(history) == 0 {
		return newRefusedError(ErrHistoryGone, "%s %s.%s has no %s left from before the promotion: raise its revisionHistoryLimit",
			d.displayName(), primary.GetName(), c.Namespace, d.templateKind.kindNames().history.Kind)
	}
	template := restoredTemplate(history[0].template, id)
	warnings, err := d.restoreConfigCopies(ctx, c, template, promotion, true)
	if err != nil {
		return fmt.Errorf("restoring the configuration of %s %s.%s failed: %w", d.displayName(), primary.GetName(), c.Namespace, err)
	}
	restored, spec := shallowCopy(primary)
	spec["template"] = template
	restored.SetAnnotations(nilIfEmpty(withTemplateSource(primary.GetAnnotations(), history[0].source)))
	if err := d.updateObject(ctx, primary, restored); err != nil {
		return fmt.Errorf("updating %s %s.%s template spec failed: %w", d.displayName(), primary.GetName(), c.Namespace, err)
	}
	return asPartialError(warnings)
}

// RestoreConfigs restores the content that the primary's configuration had before a CopyTemplate with the given ID. That
// CopyTemplate did not change the template, because the request was denied or the process ended in between. It is idempotent.
// A *PartialServiceError means the same as for RestoreTemplate.
func (d templateWorkload) RestoreConfigs(ctx context.Context, c *flaggerv1.Canary, id string) error {
	_, primary, err := d.targetAndPrimary(ctx, c)
	if err != nil || primary == nil || !controlledBy(primary, c) || promotionID(podTemplate(primary)) == id {
		return err
	}
	warnings, err := d.restoreConfigCopies(ctx, c, podTemplate(primary), id, false)
	if err != nil {
		return fmt.Errorf("restoring the configuration of %s %s.%s failed: %w", d.displayName(), primary.GetName(), c.Namespace, err)
	}
	return asPartialError(warnings)
}

// RecreatePrimary creates a primary that was deleted: with the template from its history, and never
// with that of the target, which is not analyzed yet. Its configuration is restored to its content before a
// CopyTemplate with the ID undone. ErrHistoryGone: the history does not contain the template.
func (d templateWorkload) RecreatePrimary(ctx context.Context, c *flaggerv1.Canary, source TemplateSource, undone, id string) error {
	seen, err := d.readWorkloads(ctx, c)
	if err != nil {
		return err
	}
	if seen.primary != nil {
		return d.adoptPrimary(ctx, c, seen.primary)
	}
	if seen.selectorPair.label == "" {
		return newUnusableError(seen.problem)
	}
	selector := labels.SelectorFromSet(labels.Set{seen.selectorPair.label: seen.selectorPair.primaryValue()})
	history, err := d.listHistory(ctx, c, selector, func(past *unstructured.Unstructured, template map[string]any) bool {
		owner := metav1.GetControllerOf(past)
		return promotionID(template) != "" && (owner == nil || owner.Kind == d.kind().Kind && owner.Name == seen.selectorPair.primaryName())
	})
	if err != nil {
		return err
	}
	past, found := newestMatchingEntry(history, source)
	if !found {
		return newRefusedError(ErrHistoryGone, "%[1]s %[2]s.%[3]s does not exist, and no %[4]s with its template remains: "+
			"deploy the promoted version to %[5]s, and Serin recreates the primary",
			d.displayName(), seen.selectorPair.primaryName(), c.Namespace, d.templateKind.kindNames().history.Kind, seen.selectorPair.target)
	}
	template := restoredTemplate(past.template, id)
	warnings, err := d.restoreConfigCopies(ctx, c, template, undone, true)
	if err != nil {
		return fmt.Errorf("restoring the configuration of %s %s.%s failed: %w", d.displayName(), seen.selectorPair.primaryName(), c.Namespace, err)
	}
	if err := d.createPrimary(ctx, c, d.newPrimary(c, seen.target, seen.selectorPair, template, past.source)); err != nil {
		return err
	}
	return asPartialError(warnings)
}
