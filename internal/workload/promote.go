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

// EnsurePrimary makes the primary from the target's template, and the copies of configuration before it, if there is no
// primary and the target has that revision; empty is whichever it has, any other is ErrChanged. With follow, which is for
// the time before the primary serves for the first time, an existing primary is given the target's template whenever that
// differs; without, its template is left alone. id becomes the flagger-id of a template that is written.
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
	template := templateOf(seen.primary) // what else differs needs no new pods
	if changed || !known.sameTemplate {
		template = primaryTemplate(d.form.template(seen.target), seen.pair, seen.tracked(), id, ourRules)
	}
	return d.writeTemplate(ctx, c, seen, template, known.made())
}

// follows is true of a primary that has all that it takes from its target.
func (d templated) follows(ctx context.Context, c *flaggerv1.Canary, seen view, known derived) (bool, error) {
	for _, source := range seen.configs {
		if same, err := d.upToDate(ctx, c, source, ConfigRef{Kind: source.Kind, Name: source.Name + suffix}); !same || err != nil {
			return false, err
		}
	}
	patch, err := patchOf(seen.primary, d.promotedPrimary(c, seen.primary, seen.target, seen.pair, templateOf(seen.primary), known.made()))
	return known.sameTemplate && patch == nil, err
}

// CopyTemplate gives the primary the analysed revision of the target: configuration first, then strategy, replicas (where
// no autoscaler owns them), metadata and template, with id as its new flagger-id. What is copied is the revision that is
// named: if the target has another one by now, or its configuration another content, it is ErrChanged. Repeated with the
// same id it does nothing once the template is there.
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

// still is what follows from the target, and ErrChanged where it does not have that revision any more; empty is any.
func (d templated) still(c *flaggerv1.Canary, seen view, revision string) (derived, error) {
	now, err := d.derive(c, seen)
	if err == nil && revision != "" && now.revision != revision {
		err = refuse(ErrChanged, "%s %s.%s has revision %s, not the analysed %s", d.word(), seen.pair.target, c.Namespace, now.revision, revision)
	}
	return now, err
}

// writeTemplate gives the primary a template, and with it what else it takes from the target.
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

// adoptPrimary refuses a primary that is somebody else's. One that nothing controls, and that carries the mark of a
// promotion, was left behind when its Canary was deleted alone: it gets its owner back.
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
	// What was read is the version before this write: to go on with it would be a conflict.
	return fmt.Errorf("take over %s %s.%s: %w", d.kind().Kind, primary.GetName(), c.Namespace, ownwrites.ErrBehind)
}

// RestoreTemplate takes the last CopyTemplate back: the primary gets the template that it had before, from its own
// history, and the content that its configuration had. It is only for a primary whose template was copied. id becomes
// the flagger-id. Repeated with the same id it does nothing once the template is there. ErrGone: the history does not
// reach back, and the primary keeps what it has.
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

// RestoreConfigs gives the copies that the primary reads the content that they had before a CopyTemplate with that id which
// did not come to the template: it was refused, or the process died in between. Repeated it does nothing.
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

// RecreatePrimary makes a primary again that was deleted in the middle of a release: with the template that it shall run,
// from its history, and never with that of the target, which is not analysed yet. Its configuration gets back the content
// that it had before a CopyTemplate with the id undone. ErrGone: the history does not have the template.
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
