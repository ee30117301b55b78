package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
)

// This file contains the commands that change the pod template of a release, or replace its pods.

// The commands for workloads. Their text also contains their arguments, for the event that records them.
const (
	Restart  Command = "restart"
	SetImage Command = "set image"
	Undo     Command = "undo"
)

// restartedAtAnnotation is the annotation of kubectl rollout restart in a pod template.
const restartedAtAnnotation = "kubectl.kubernetes.io/restartedAt"

// podTemplate is the pod template of a release, as it is stored.
type podTemplate struct {
	// object has the template: the Rollout, its workload, or the target of the Canary. kind and name are for messages.
	object     *unstructured.Unstructured
	kind, name string
	// path is the path of the template in the object.
	path []string
}

// workloadPatch is a patch of an object of a release.
type workloadPatch struct {
	object client.Object
	patch  client.Patch
}

// PlanRestart plans the replacement of the pods of a Rollout after a delay, or a release of the same version of a Canary, which cannot
// be delayed. Errors: those of PlanCommand.
func (s *Session) PlanRestart(ctx context.Context, namespace string, name Name, delay time.Duration) (*PlannedCommand, error) {
	p, template, err := s.planWorkload(ctx, Restart, namespace, name)
	if err != nil {
		return nil, err
	}
	now := s.Clock.Now().Add(delay).UTC().Format(time.RFC3339)
	if r, ok := p.object.(*argov1.Rollout); ok {
		p.Effect, p.Paused = "will replace its pods", false // spec.paused does not delay it
		if delay > 0 {
			p.Effect = "will replace its pods at " + now
		}
		return p, p.patchWorkload(r, types.MergePatchType, map[string]any{"spec": map[string]any{"restartAt": now}})
	}
	if delay > 0 {
		return nil, p.newError(ErrRefused, "cannot be restarted later: --in is for Rollouts, whose pods are replaced without a release")
	}
	p.Effect = "will release the same version with new pods"
	var tree any = map[string]any{"metadata": map[string]any{"annotations": map[string]any{restartedAtAnnotation: now}}}
	for _, field := range slices.Backward(template.path) {
		tree = map[string]any{field: tree}
	}
	return p, p.patchWorkload(template.object, types.MergePatchType, tree)
}

// PlanSetImage plans a change of images, by the names of their containers; * selects all. Errors: those of PlanCommand.
func (s *Session) PlanSetImage(ctx context.Context, namespace string, name Name, images map[string]string) (*PlannedCommand, error) {
	p, template, err := s.planWorkload(ctx, SetImage, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := s.readTemplate(ctx, p, template); err != nil {
		return nil, err
	}
	var operations []any
	var changed, known []string
	unused := maps.Clone(images)
	for _, field := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(template.object.Object, append(slices.Clone(template.path), "spec", field)...)
		for i := range containers {
			container, _ := containers[i].(map[string]any)
			named, _ := container["name"].(string)
			known = append(known, named)
			image, ok := images[named]
			if !ok && field == "containers" {
				image = images["*"]
			}
			delete(unused, named)
			if image == "" || image == container["image"] {
				continue
			}
			path := "/" + strings.Join(template.path, "/") + "/spec/" + field + "/" + strconv.Itoa(i)
			operations = append(operations,
				map[string]any{"op": "test", "path": path + "/name", "value": named}, // another user may have changed the containers meanwhile
				map[string]any{"op": "add", "path": path + "/image", "value": image})
			changed = append(changed, named+"="+image)
		}
	}
	delete(unused, "*")
	switch {
	case len(unused) > 0:
		missing := slices.Sorted(maps.Keys(unused))[0]
		return nil, p.newError(ErrRefused, "has no container %q in %s %s: its containers are %s", missing, template.kind, template.name, strings.Join(known, ", "))
	case len(operations) == 0:
		return nil, p.newError(ErrNoEffect, "already has this image in %s %s", template.kind, template.name)
	}
	p.Command += Command(" " + strings.Join(changed, " "))
	p.Effect = "will release " + strings.Join(changed, ", ")
	return p, p.patchWorkload(template.object, types.JSONPatchType, operations)
}

// PlanUndo plans the return of a Rollout to the template of an earlier revision; 0: the previous one. Errors: those of
// PlanCommand.
func (s *Session) PlanUndo(ctx context.Context, namespace string, name Name, revision int64) (*PlannedCommand, error) {
	p, template, err := s.planWorkload(ctx, Undo, namespace, name)
	if err != nil {
		return nil, err
	}
	r, ok := p.object.(*argov1.Rollout)
	if !ok {
		return nil, p.newError(ErrRefused, "has no revisions, which only Rollouts have: return its target to the previous version, such as with: kubectl rollout undo %s/%s -n %s",
			strings.ToLower(template.kind), template.name, namespace)
	}
	if err := s.readTemplate(ctx, p, template); err != nil {
		return nil, err
	}
	revisions, err := s.revisionsOf(ctx, r)
	if err != nil {
		return nil, err
	}
	isDefault := revision == 0
	numbers, current := slices.Sorted(maps.Keys(revisions)), templateIn(template)
	if revision == 0 {
		if revision, err = previousRevision(r, template, revisions); err != nil {
			return nil, err
		}
	}
	set, ok := revisions[revision]
	switch {
	case revision == 0:
		return nil, p.newError(ErrNoEffect, "has no previous revision")
	case !ok:
		return nil, p.newError(ErrRefused, "has no revision %d: its revisions are %s", revision, strings.Trim(fmt.Sprint(numbers), "[]"))
	}
	earlier := templateOfReplicaSet(set, r, current)
	if equality.Semantic.DeepEqual(withoutCreation(current), earlier) {
		return nil, p.newError(ErrNoEffect, "already has the template of revision %d", revision)
	}
	p.Command += Command(fmt.Sprintf(" to revision %d", revision))
	p.Effect = fmt.Sprintf("will return to revision %d", revision)
	p.subject = undoSubject(r, currentHash(r, revisions))
	if isDefault {
		p.Warning = s.failureWarning(ctx, p, r, revision)
	}
	path := "/" + strings.Join(template.path, "/")
	return p, p.patchWorkload(template.object, types.JSONPatchType, []any{
		map[string]any{"op": "test", "path": path, "value": current}, // another user may have changed it meanwhile
		map[string]any{"op": "replace", "path": path, "value": earlier},
	})
}

// failureWarning names the failure of a revision to which an undo returns, and the undo to the promoted revision; empty: the revision is
// not known to have failed, or its AnalysisRuns cannot be read.
func (s *Session) failureWarning(ctx context.Context, p *PlannedCommand, r *argov1.Rollout, revision int64) string {
	history, err := s.rolloutHistory(ctx, r)
	if err != nil {
		return ""
	}
	number := strconv.FormatInt(revision, 10)
	i := slices.IndexFunc(history.Releases, func(past explain.PastRelease) bool {
		return past.Revision == number && past.Result == string(release.EndingFailed)
	})
	if i < 0 {
		return ""
	}
	text := "revision " + number + " failed"
	if cause := history.Releases[i].Cause; cause != nil {
		text += " (" + strings.TrimSuffix(strings.Join(strings.Fields(cause.Message), " "), ".") + ")"
	}
	for _, past := range history.Releases[1:] { // the first one is the current revision
		if past.Result == string(release.EndingPromoted) {
			return text + ": to return to the last promoted revision instead: " + p.hint(Undo) + " --to-revision=" + past.Revision
		}
	}
	return text + ": see the other revisions with: " + p.hint("history")
}

// templateIn returns the stored pod template; nil: the object has none.
func templateIn(t podTemplate) map[string]any {
	content, _, _ := unstructured.NestedMap(t.object.Object, t.path...)
	return content
}

// previousRevision returns the revision before that of the current template; 0: there is none. The current template has no revision
// yet while a new version waits in a paused Rollout, or was deployed a moment ago.
func previousRevision(r *argov1.Rollout, current podTemplate, revisions map[int64]*unstructured.Unstructured) (int64, error) {
	criteria := replicaset.FindCriteria{CollisionCount: r.Status.CollisionCount}
	workload := ""
	if r.Spec.WorkloadRef != nil {
		workload = strconv.FormatInt(current.object.GetGeneration(), 10)
	}
	criteria.ObservedHash = replicaset.ObservedTemplateHash(r.Status, r.Generation, workload)
	decoder := runtime.DefaultUnstructuredConverter
	if err := decoder.FromUnstructured(templateIn(current), &criteria.Template); err != nil {
		return 0, fmt.Errorf("read the pod template of %s %s: %w", current.kind, current.name, err)
	}
	numbers := slices.Sorted(maps.Keys(revisions))
	sets := make([]*appsv1.ReplicaSet, len(numbers))
	for i, number := range numbers {
		sets[i] = &appsv1.ReplicaSet{}
		if err := decoder.FromUnstructured(revisions[number].Object, sets[i]); err != nil {
			return 0, fmt.Errorf("read ReplicaSet %s: %w", revisions[number].GetName(), err)
		}
	}
	found, _, err := replicaset.FindByTemplate(sets, criteria)
	if err != nil {
		return 0, fmt.Errorf("find the revision of Rollout %s: %w", r.Name, err)
	}
	switch {
	case found == nil && len(numbers) > 0:
		return numbers[len(numbers)-1], nil
	case len(numbers) > 1: // a second undo returns to the same revision, also if the controller has not seen the first one
		return numbers[len(numbers)-2], nil
	}
	return 0, nil
}

// UndoSubject returns the Subject of the undo of a Rollout in its observed state; empty for another kind.
func UndoSubject(observed explain.Observation) string {
	r, ok := objectOf(observed).(*argov1.Rollout)
	if !ok {
		return ""
	}
	return undoSubject(r, r.Status.CurrentPodHash)
}

func undoSubject(r *argov1.Rollout, hash string) string { return string(r.UID) + "/" + hash }

// currentHash returns the hash of the revision that an undo leaves. That is the newest one, which the status does not contain yet
// when an earlier revision has just become the newest again.
func currentHash(r *argov1.Rollout, revisions map[int64]*unstructured.Unstructured) string {
	newest, exists := int64(0), false
	for number, set := range revisions {
		newest = max(newest, number)
		exists = exists || set.GetLabels()[argov1.PodTemplateHashLabel] == r.Status.CurrentPodHash
	}
	if !exists { // the new revision has no ReplicaSet yet
		return r.Status.CurrentPodHash
	}
	return revisions[newest].GetLabels()[argov1.PodTemplateHashLabel]
}

// revisionsOf returns the ReplicaSets of a Rollout by their revisions.
func (s *Session) revisionsOf(ctx context.Context, r *argov1.Rollout) (map[int64]*unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSetList"})
	if err := s.Client.List(ctx, &list, client.InNamespace(r.Namespace)); err != nil {
		return nil, describeError("list ReplicaSets"+inNamespace(r.Namespace), err, keyOf(r).Kind)
	}
	out := map[int64]*unstructured.Unstructured{}
	for i := range list.Items {
		set := &list.Items[i]
		number, err := strconv.ParseInt(set.GetAnnotations()[argov1.RevisionAnnotation], 10, 64)
		if err == nil && metav1.IsControlledBy(set, r) {
			out[number] = set
		}
	}
	return out, nil
}

// templateOfReplicaSet returns the pod template from which a Rollout created a ReplicaSet: without the hash label, and without
// the metadata of its role that the current template does not have.
func templateOfReplicaSet(set *unstructured.Unstructured, r *argov1.Rollout, current map[string]any) map[string]any {
	template, _, _ := unstructured.NestedMap(set.Object, "spec", "template")
	template = withoutCreation(template)
	unstructured.RemoveNestedField(template, "metadata", "labels", argov1.PodTemplateHashLabel)
	for _, role := range roleMetadata(r) {
		for field, values := range map[string]map[string]string{"labels": role.Labels, "annotations": role.Annotations} {
			for key := range values {
				if _, ok, _ := unstructured.NestedString(current, "metadata", field, key); !ok {
					unstructured.RemoveNestedField(template, "metadata", field, key)
				}
			}
			if rest, ok, _ := unstructured.NestedMap(template, "metadata", field); ok && len(rest) == 0 {
				unstructured.RemoveNestedField(template, "metadata", field)
			}
		}
	}
	return template
}

// roleMetadata returns the metadata that pods of a Rollout have because of their role.
func roleMetadata(r *argov1.Rollout) []*argov1.PodTemplateMetadata {
	var all []*argov1.PodTemplateMetadata
	if c := r.Spec.Strategy.Canary; c != nil {
		all = append(all, c.CanaryMetadata, c.StableMetadata)
	}
	if b := r.Spec.Strategy.BlueGreen; b != nil {
		all = append(all, b.ActiveMetadata, b.PreviewMetadata)
	}
	return slices.DeleteFunc(all, func(m *argov1.PodTemplateMetadata) bool { return m == nil })
}

// withoutCreation returns a copy of a template without the field that serializers add to it.
func withoutCreation(template map[string]any) map[string]any {
	out := (&unstructured.Unstructured{Object: template}).DeepCopy().Object
	unstructured.RemoveNestedField(out, "metadata", "creationTimestamp")
	return out
}

// planWorkload reads a release, and returns which object has its pod template.
func (s *Session) planWorkload(ctx context.Context, command Command, namespace string, name Name) (*PlannedCommand, podTemplate, error) {
	object, err := s.getObject(ctx, namespace, name)
	if err != nil {
		return nil, podTemplate{}, err
	}
	p := &PlannedCommand{Command: command, Key: keyOf(object), object: object}
	template := podTemplate{kind: argov1.RolloutKind, name: object.GetName(), path: []string{"spec", "template"}}
	gvk := argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind)
	switch object := object.(type) {
	case *flaggerv1.Canary:
		ref := object.Spec.TargetRef
		if ref.Kind != "Deployment" && ref.Kind != "DaemonSet" {
			return nil, podTemplate{}, p.newError(ErrRefused, "has the target %s %s: %s supports the targets Deployment and DaemonSet", ref.Kind, ref.Name, command)
		}
		p.Paused = object.Spec.Suspend
		template.kind, template.name = ref.Kind, ref.Name
		gvk = schema.FromAPIVersionAndKind(cmp.Or(ref.APIVersion, "apps/v1"), ref.Kind)
	case *argov1.Rollout:
		p.Paused = object.Spec.Paused
		if ref := object.Spec.WorkloadRef; ref != nil {
			template.kind, template.name = ref.Kind, ref.Name
			gvk = schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
		}
		if template.kind == "PodTemplate" {
			template.path = []string{"template"}
		}
	}
	template.object = &unstructured.Unstructured{}
	template.object.SetGroupVersionKind(gvk)
	template.object.SetNamespace(namespace)
	template.object.SetName(template.name)
	return p, template, nil
}

// readTemplate reads the object that has a pod template.
func (s *Session) readTemplate(ctx context.Context, p *PlannedCommand, template podTemplate) error {
	return p.describeWorkloadError(template.object, s.Client.Get(ctx, client.ObjectKeyFromObject(template.object), template.object))
}

// describeWorkloadError describes an error about an object that the release refers to.
func (p *PlannedCommand) describeWorkloadError(object client.Object, err error) error {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if apierrors.IsNotFound(err) && object != p.object {
		return p.newError(ErrNotFound, "refers to %s %s, which does not exist: create it, or correct the reference", kind, object.GetName())
	}
	return describeError(string(p.Command)+" "+string(p.Key.Kind)+" "+p.Key.Name+inNamespace(p.Key.Namespace), err, p.Key.Kind)
}

// patchWorkload sets the patch that the command applies.
func (p *PlannedCommand) patchWorkload(object client.Object, kind types.PatchType, content any) error {
	body, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("write the change of %s: %w", object.GetName(), err)
	}
	p.workload = &workloadPatch{object, client.RawPatch(kind, body)}
	return nil
}
