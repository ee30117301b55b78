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

// listHistory returns the earlier templates for which include returns true, the newest first. It sends one live LIST.
func (d targetPair) listHistory(
	ctx context.Context, c *flaggerv1.Canary, selector labels.Selector, include func(past *unstructured.Unstructured, template map[string]any) bool,
) ([]historyEntry, error) {
	past, err := d.listHistoryObjects(ctx, c, selector)
	if err != nil {
		return nil, err
	}
	var entries []historyEntry
	for i := range past {
		if e := d.templateKind.historyEntry(&past[i]); include(&past[i], e.template) {
			e.source = templateSourceOf(&past[i])
			entries = append(entries, e)
		}
	}
	slices.SortStableFunc(entries, func(a, b historyEntry) int { return cmp.Compare(b.number, a.number) })
	return entries, nil
}

// newestMatchingEntry returns the newest entry with the wanted source. Templates that another controller wrote have no source; if
// no entry has one, it returns the newest entry.
func newestMatchingEntry(history []historyEntry, wanted TemplateSource) (historyEntry, bool) {
	known := slices.ContainsFunc(history, func(e historyEntry) bool { return e.source != TemplateSource{} })
	for _, e := range history {
		if !known || e.source.matches(wanted) {
			return e, true
		}
	}
	return historyEntry{}, false
}

// listHistoryObjects returns the objects that contain the earlier templates of workloads with that selector.
func (d targetPair) listHistoryObjects(ctx context.Context, c *flaggerv1.Canary, selector labels.Selector) ([]unstructured.Unstructured, error) {
	kind := d.templateKind.kindNames().history
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := d.APIReader.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list %ss of %s %s.%s: %w", kind.Kind, d.kind().Kind, c.Spec.TargetRef.Name, c.Namespace, err)
	}
	return list.Items, nil
}

// newestTemplateTime returns the last time at which a workload got a template that it never had before. Parking a DaemonSet and
// reverting that adds entries to its history, but no new templates.
func (d targetPair) newestTemplateTime(ctx context.Context, c *flaggerv1.Canary, obj *unstructured.Unstructured) (time.Time, error) {
	selector, err := podSelector(obj)
	if err != nil {
		return time.Time{}, err
	}
	past, err := d.listHistoryObjects(ctx, c, selector)
	if err != nil {
		return time.Time{}, err
	}
	type firstUse struct {
		template map[string]any
		time     time.Time
	}
	var firstUses []firstUse
	for i := range past {
		if !metav1.IsControlledBy(&past[i], obj) {
			continue
		}
		template, created := d.templateKind.historyEntry(&past[i]).template, past[i].GetCreationTimestamp().Time
		known := slices.IndexFunc(firstUses, func(f firstUse) bool { return jsontree.Equal(f.template, template) })
		switch {
		case known < 0:
			firstUses = append(firstUses, firstUse{template, created})
		case created.Before(firstUses[known].time):
			firstUses[known].time = created
		}
	}
	newest := obj.GetCreationTimestamp().Time // the first entry of the history is created shortly after the object
	for _, f := range firstUses {
		if f.time.After(newest) {
			newest = f.time
		}
	}
	return newest, nil
}

// restoredTemplate returns a pod template from the history as its workload contained it, with a new flagger-id.
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

// podSelector returns the complete selector of a workload.
func podSelector(obj *unstructured.Unstructured) (labels.Selector, error) {
	fields, _, _ := unstructured.NestedMap(obj.Object, "spec", "selector")
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, selector); err != nil {
		return nil, fmt.Errorf("read the selector of %s %s.%s: %w", obj.GetKind(), obj.GetName(), obj.GetNamespace(), err)
	}
	return metav1.LabelSelectorAsSelector(selector)
}
