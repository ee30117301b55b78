package workload

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/jsontree"
)

// listHistory returns the earlier templates, the newest first: one live LIST.
func (d templateWorkload) listHistory(ctx context.Context, c *flaggerv1.Canary, selector labels.Selector, keep func(past *unstructured.Unstructured, template map[string]any) bool) ([]historyEntry, error) {
	past, err := d.listHistoryObjects(ctx, c, selector)
	if err != nil {
		return nil, err
	}
	var kept []historyEntry
	for i := range past {
		if e := d.templateKind.historyEntry(&past[i]); keep(&past[i], e.template) {
			e.source = templateSourceOf(&past[i])
			kept = append(kept, e)
		}
	}
	slices.SortStableFunc(kept, func(a, b historyEntry) int { return cmp.Compare(b.number, a.number) })
	return kept, nil
}

// newestMatchingEntry returns the newest entry with the wanted source. Templates that another controller wrote have no source; if
// none has one, the newest entry is returned.
func newestMatchingEntry(history []historyEntry, of TemplateSource) (historyEntry, bool) {
	known := slices.ContainsFunc(history, func(e historyEntry) bool { return e.source != TemplateSource{} })
	for _, e := range history {
		if !known || e.source.matches(of) {
			return e, true
		}
	}
	return historyEntry{}, false
}

// listHistoryObjects returns the objects that contain the earlier templates of workloads with that selector.
func (d templateWorkload) listHistoryObjects(ctx context.Context, c *flaggerv1.Canary, selector labels.Selector) ([]unstructured.Unstructured, error) {
	kind := d.templateKind.kindNames().history
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := d.Reader.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list %ss of %s %s.%s: %w", kind.Kind, d.kind().Kind, c.Spec.TargetRef.Name, c.Namespace, err)
	}
	return list.Items, nil
}

// newestTemplateTime returns when a workload last got a template that it never had before. Parking a DaemonSet and undoing
// that adds entries to its history, but no new templates.
func (d templateWorkload) newestTemplateTime(ctx context.Context, c *flaggerv1.Canary, obj *unstructured.Unstructured) (time.Time, error) {
	selector, err := podSelector(obj)
	if err != nil {
		return time.Time{}, err
	}
	past, err := d.listHistoryObjects(ctx, c, selector)
	if err != nil {
		return time.Time{}, err
	}
	type first struct {
		template map[string]any
		seen     time.Time
	}
	var firsts []first
	for i := range past {
		if !metav1.IsControlledBy(&past[i], obj) {
			continue
		}
		template, seen := d.templateKind.historyEntry(&past[i]).template, past[i].GetCreationTimestamp().Time
		known := slices.IndexFunc(firsts, func(f first) bool { return jsontree.Equal(f.template, template) })
		switch {
		case known < 0:
			firsts = append(firsts, first{template, seen})
		case seen.Before(firsts[known].seen):
			firsts[known].seen = seen
		}
	}
	newest := obj.GetCreationTimestamp().Time // the history starts a moment after the object
	for _, f := range firsts {
		if f.seen.After(newest) {
			newest = f.seen
		}
	}
	return newest, nil
}

// restoredTemplate returns a pod template of the history in the form that its workload had, with a new flagger-id.
func restoredTemplate(past map[string]any, id string) map[string]any {
	template := runtime.DeepCopyJSON(past)
	metadata, ok := template["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		template["metadata"] = metadata
	}
	delete(metadata, "creationTimestamp")
	if labels, ok := metadata["labels"].(map[string]any); ok {
		delete(labels, "pod-template-hash")
	}
	annotations := stringValues(metadata["annotations"])
	annotations[promotionIDAnnotation] = id
	metadata["annotations"] = jsonStrings(annotations)
	return template
}

// podSelector returns the whole selector of a workload.
func podSelector(obj *unstructured.Unstructured) (labels.Selector, error) {
	fields, _, _ := unstructured.NestedMap(obj.Object, "spec", "selector")
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, selector); err != nil {
		return nil, fmt.Errorf("read the selector of %s %s.%s: %w", obj.GetKind(), obj.GetName(), obj.GetNamespace(), err)
	}
	return metav1.LabelSelectorAsSelector(selector)
}
