package workload

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/ownwrites"
)

// EnsurePrimary creates the primary from the target's template, after the copies of configuration, if there is no
// primary and the target has that revision; empty is any revision, and another one is ErrChanged. With follow, which is
// for the time before the primary first serves, an existing primary is updated to the target's template. id becomes the
// flagger-id of a template that is written.
func (d templated) EnsurePrimary(ctx context.Context, c *flaggerv1.Canary, revision, id string, follow bool) error {
	seen, err := d.look(ctx, c)
	if err != nil {
		return err
	}
	if seen.primary == nil {
		if seen.problem != "" {
			return unusable(seen.problem)
		}
		known, err := d.still(c, seen, revision)
		if err != nil {
			return err
		}
		if _, err := d.ensureCopies(ctx, c, seen.configs, ""); err != nil {
			return fmt.Errorf("%sCreatePrimaryConfigs failed: %w", d.creating(), err)
		}
		template := primaryTemplate(d.form.template(seen.target), seen.pair, seen.tracked(), id, ourRules)
		return d.createPrimary(ctx, c, d.newPrimary(c, seen.target, seen.pair, template, known.made()))
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
	known, err := d.derive(c, seen)
	if err != nil {
		return err
	}
	if follows, err := d.follows(ctx, c, seen, known); follows || err != nil {
		return err
	}
	if err := d.unchanged(ctx, c); err != nil {
		return err
	}
	changed, err := d.ensureCopies(ctx, c, seen.configs, "")
	if err != nil {
		return fmt.Errorf("updating the configuration of %s %s.%s failed: %w", d.word(), seen.primary.GetName(), c.Namespace, err)
	}
	template := templateOf(seen.primary) // other differences need no new pods
	if changed || !known.sameTemplate {
		template = primaryTemplate(d.form.template(seen.target), seen.pair, seen.tracked(), id, ourRules)
	}
	return d.writeTemplate(ctx, c, seen, template, known.made())
}

// follows reports whether a primary has everything that is copied from its target.
func (d templated) follows(ctx context.Context, c *flaggerv1.Canary, seen view, known derived) (bool, error) {
	for _, source := range seen.configs {
		if same, err := d.upToDate(ctx, c, source, ConfigRef{Kind: source.Kind, Name: source.Name + suffix}); !same || err != nil {
			return false, err
		}
	}
	patch, err := patchOf(seen.primary, d.promotedPrimary(c, seen.primary, seen.target, seen.pair, templateOf(seen.primary), known.made()))
	return known.sameTemplate && patch == nil, err
}

// CopyTemplate copies the analyzed revision of the target to the primary: configuration first, then strategy, replicas
// (unless an autoscaler owns them), metadata and template, with id as its new flagger-id. It copies only the given
// revision: if the target's template or configuration has changed, it returns ErrChanged. It is idempotent for the same
// id.
func (d templated) CopyTemplate(ctx context.Context, c *flaggerv1.Canary, revision, id string) error {
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
		return fmt.Errorf("%s %s.%s is not there to be promoted", d.word(), seen.pair.primary(), c.Namespace)
	}
	if !controlledBy(seen.primary, c) {
		return foreign(c, d.kind().Kind, seen.primary)
	}
	now, err := d.still(c, seen, revision)
	if err != nil {
		return err
	}
	if _, err := d.ensureCopies(ctx, c, seen.configs, id); err != nil {
		return fmt.Errorf("updating the configuration of %s %s.%s failed: %w", d.word(), seen.pair.primary(), c.Namespace, err)
	}
	template := primaryTemplate(d.form.template(seen.target), seen.pair, seen.tracked(), id, ourRules)
	return d.writeTemplate(ctx, c, seen, template, now.made())
}

// still verifies the revision of the target and returns what is derived from it; ErrChanged for another revision. Empty
// is any revision.
func (d templated) still(c *flaggerv1.Canary, seen view, revision string) (derived, error) {
	now, err := d.derive(c, seen)
	if err == nil && revision != "" && now.revision != revision {
		err = refuse(ErrChanged, "%s %s.%s has revision %s, not the analysed %s", d.word(), seen.pair.target, c.Namespace, now.revision, revision)
	}
	return now, err
}

// writeTemplate writes a template to the primary, together with the other fields that are copied from the target.
func (d templated) writeTemplate(ctx context.Context, c *flaggerv1.Canary, seen view, template map[string]any, of Made) error {
	promoted := d.promotedPrimary(c, seen.primary, seen.target, seen.pair, template, of)
	if err := d.update(ctx, seen.primary, promoted); err != nil {
		return fmt.Errorf("updating %s %s.%s template spec failed: %w", d.word(), seen.pair.primary(), c.Namespace, err)
	}
	return nil
}

func (d templated) createPrimary(ctx context.Context, c *flaggerv1.Canary, primary *unstructured.Unstructured) error {
	found, err := d.create(ctx, c, primary)
	if err != nil {
		return fmt.Errorf("%screating %s %s.%s failed: %w", d.creating(), d.word(), primary.GetName(), c.Namespace, err)
	}
	if found == nil {
		return nil
	}
	return d.adoptPrimary(ctx, c, found)
}

// adoptPrimary returns an error for a primary of another owner. A primary without a controller but with a promotion's
// annotation is orphaned: its Canary was deleted without it. It gets its owner again.
func (d templated) adoptPrimary(ctx context.Context, c *flaggerv1.Canary, primary *unstructured.Unstructured) error {
	if controlledBy(primary, c) {
		return nil
	}
	if metav1.GetControllerOf(primary) != nil || idOf(templateOf(primary)) == "" {
		return foreign(c, d.kind().Kind, primary)
	}
	adopted := primary.DeepCopy()
	adopted.SetOwnerReferences(withOwner(c, primary.GetOwnerReferences()))
	if err := d.update(ctx, primary, adopted); err != nil {
		return fmt.Errorf("taking over %s %s.%s failed: %w", d.word(), primary.GetName(), c.Namespace, err)
	}
	// The object that was read is older than this write: continuing would be a conflict.
	return fmt.Errorf("take over %s %s.%s: %w", d.kind().Kind, primary.GetName(), c.Namespace, ownwrites.ErrBehind)
}

// RestoreTemplate reverts the last CopyTemplate: it restores the previous template of the primary from its own history,
// and the previous content of its configuration. It must be called only for a primary whose template was copied. id
// becomes the flagger-id. It is idempotent for the same id. ErrGone: the history does not contain the template, and the
// primary is unchanged.
func (d templated) RestoreTemplate(ctx context.Context, c *flaggerv1.Canary, id string) error {
	_, primary, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	if primary == nil {
		return refuse(ErrGone, "%s %s%s.%s is gone, and with it the template to go back to", d.word(), c.Spec.TargetRef.Name, suffix, c.Namespace)
	}
	if !controlledBy(primary, c) {
		return foreign(c, d.kind().Kind, primary)
	}
	promotion := idOf(templateOf(primary))
	if promotion == id {
		return nil
	}
	selector, err := selectorOf(primary)
	if err != nil {
		return err
	}
	history, err := d.history(ctx, c, selector, func(past *unstructured.Unstructured, template map[string]any) bool {
		return metav1.IsControlledBy(past, primary) && idOf(template) != promotion
	})
	if err != nil {
		return err
	}
	if len(history) == 0 {
		return refuse(ErrGone, "%s %s.%s has no %s left from before the promotion: raise its revisionHistoryLimit",
			d.word(), primary.GetName(), c.Namespace, d.form.names().history.Kind)
	}
	template := recalled(history[0].template, id)
	if err := d.restoreCopies(ctx, c, template, promotion); err != nil {
		return fmt.Errorf("restoring the configuration of %s %s.%s failed: %w", d.word(), primary.GetName(), c.Namespace, err)
	}
	restored, spec := edited(primary)
	spec["template"] = template
	restored.SetAnnotations(orNil(marked(primary.GetAnnotations(), history[0].made)))
	if err := d.update(ctx, primary, restored); err != nil {
		return fmt.Errorf("updating %s %s.%s template spec failed: %w", d.word(), primary.GetName(), c.Namespace, err)
	}
	return nil
}

// RestoreConfigs restores the content of the primary's configuration before a CopyTemplate with that ID which did not
// change the template, because the request was denied or the process ended in between. It is idempotent.
func (d templated) RestoreConfigs(ctx context.Context, c *flaggerv1.Canary, id string) error {
	_, primary, err := d.both(ctx, c)
	if err != nil || primary == nil || !controlledBy(primary, c) || idOf(templateOf(primary)) == id {
		return err
	}
	if err := d.restoreCopies(ctx, c, templateOf(primary), id); err != nil {
		return fmt.Errorf("restoring the configuration of %s %s.%s failed: %w", d.word(), primary.GetName(), c.Namespace, err)
	}
	return nil
}

// RecreatePrimary creates a primary that was deleted during a release: with the template from its history, and never
// with that of the target, which is not analyzed yet. Its configuration is restored to its content before a
// CopyTemplate with the ID undone. ErrGone: the history does not contain the template.
func (d templated) RecreatePrimary(ctx context.Context, c *flaggerv1.Canary, of Made, undone, id string) error {
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
	history, err := d.history(ctx, c, selector, func(past *unstructured.Unstructured, template map[string]any) bool {
		owner := metav1.GetControllerOf(past)
		return idOf(template) != "" && (owner == nil || owner.Kind == d.kind().Kind && owner.Name == seen.pair.primary())
	})
	if err != nil {
		return err
	}
	past, found := recall(history, of)
	if !found {
		return refuse(ErrGone, "%s %s.%s was deleted in the middle of a release, and no %s of what it ran is left: "+
			"deploy the promoted version to %s, then it is made again",
			d.word(), seen.pair.primary(), c.Namespace, d.form.names().history.Kind, seen.pair.target)
	}
	template := recalled(past.template, id)
	if err := d.restoreCopies(ctx, c, template, undone); err != nil {
		return fmt.Errorf("restoring the configuration of %s %s.%s failed: %w", d.word(), seen.pair.primary(), c.Namespace, err)
	}
	return d.createPrimary(ctx, c, d.newPrimary(c, seen.target, seen.pair, template, past.made))
}
