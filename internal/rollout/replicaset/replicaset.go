// Package replicaset knows the ReplicaSets of a Rollout as objects: how one is made, found again by what its pods run, and
// changed.
//
// Objects come in and go out as values, and what is given is never changed. It must not know clients, nor when or why
// anything becomes of a ReplicaSet.
package replicaset

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout"
)

// foundAsAnnotation is on a ReplicaSet that was found by what its pods run because its label is of another form: the hash
// by which it is found from then on.
const foundAsAnnotation = "serin.dev/pod-template-hash"

// kept are annotations that are not for a ReplicaSet when they are on its Rollout: each has its own.
var kept = []string{
	"kubectl.kubernetes.io/last-applied-configuration", "notified.notifications.argoproj.io",
	argov1.RevisionAnnotation, argov1.RevisionHistoryAnnotation, argov1.DesiredReplicasAnnotation,
}

// Hash is the label that tells it from the others; empty: it has none.
func Hash(rs *appsv1.ReplicaSet) string { return rs.Labels[argov1.PodTemplateHashLabel] }

// Sort puts the oldest first.
func Sort(sets []*appsv1.ReplicaSet) {
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// Value is what a decision needs to know of one.
func Value(rs *appsv1.ReplicaSet) rollout.ReplicaSet {
	v := rollout.ReplicaSet{
		Name: rs.Name, Hash: Hash(rs), Created: rs.CreationTimestamp.Time, Revision: Revision(rs),
		Spec: wanted(rs), Replicas: rs.Status.Replicas, Ready: rs.Status.ReadyReplicas, Available: rs.Status.AvailableReplicas,
		Deleting: rs.DeletionTimestamp != nil, Settled: rs.Status.ObservedGeneration >= rs.Generation, Avoids: avoids(rs.Spec.Template.Spec.Affinity),
	}
	if text, noted := rs.Annotations[argov1.DesiredReplicasAnnotation]; noted {
		if number, err := strconv.ParseInt(text, 10, 32); err == nil {
			v.Desired = new(int32(number))
		}
	}
	if at, err := time.Parse(time.RFC3339, rs.Annotations[argov1.ScaleDownDeadlineAnnotation]); err == nil {
		v.Deadline = at
	}
	for _, c := range rs.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			v.Failure = c.Message
		}
	}
	return v
}

// wanted is how many pods are asked for.
func wanted(rs *appsv1.ReplicaSet) int32 {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return *rs.Spec.Replicas
}

// Revision of a ReplicaSet; 0 where it says none.
func Revision(rs *appsv1.ReplicaSet) int64 {
	number, err := strconv.ParseInt(rs.Annotations[argov1.RevisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// New is the ReplicaSet of the template, without pods. spec is that of the owner, with template and selector of the
// workload that it refers to.
func New(owner *argov1.Rollout, spec argov1.RolloutSpec, e rollout.ReplicaSetExists) *appsv1.ReplicaSet {
	template := *spec.Template.DeepCopy()
	template.CreationTimestamp.Reset()
	labels := maps.Clone(template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[argov1.PodTemplateHashLabel] = e.Hash
	template.Labels = maps.Clone(labels)
	selector := spec.Selector.DeepCopy()
	if selector == nil {
		selector = &metav1.LabelSelector{}
	}
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[argov1.PodTemplateHashLabel] = e.Hash
	rs := &appsv1.ReplicaSet{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.Namespace, Name: e.Name, Labels: labels, Annotations: copied(owner),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), MinReadySeconds: spec.MinReadySeconds, Selector: selector, Template: template},
	}
	if e.Avoids != "" {
		rs.Spec.Template.Spec.Affinity = apartFrom(template.Spec.Affinity, owner.Namespace, e.Avoids, antiAffinity(spec))
	}
	rs.Annotations[argov1.RevisionAnnotation] = strconv.FormatInt(e.Revision, 10)
	rs.Annotations[argov1.DesiredReplicasAnnotation] = strconv.Itoa(int(replicas(spec)))
	return Labelled(rs, e.Metadata)
}

func replicas(spec argov1.RolloutSpec) int32 {
	if spec.Replicas == nil {
		return 1
	}
	return *spec.Replicas
}

// copied are the annotations that a ReplicaSet has of its Rollout.
func copied(owner *argov1.Rollout) map[string]string {
	annotations := map[string]string{}
	for key, value := range owner.Annotations {
		if !slices.Contains(kept, key) {
			annotations[key] = value
		}
	}
	return annotations
}

// Kept is the newest ReplicaSet with what it shall have of its Rollout. hash is that of the template, noted where the
// label has another form.
func Kept(rs *appsv1.ReplicaSet, owner *argov1.Rollout, spec argov1.RolloutSpec, e rollout.ReplicaSetKept, hash string) *appsv1.ReplicaSet {
	rs = rs.DeepCopy()
	annotations := annotationsOf(rs)
	maps.Copy(annotations, copied(owner))
	if old := Revision(rs); old < e.Revision {
		if text, had := annotations[argov1.RevisionAnnotation]; had {
			annotations[argov1.RevisionHistoryAnnotation] = listed(annotations[argov1.RevisionHistoryAnnotation], text)
		}
		annotations[argov1.RevisionAnnotation] = strconv.FormatInt(e.Revision, 10)
	}
	if hash != "" && hash != Hash(rs) {
		annotations[foundAsAnnotation] = hash
	}
	rs.Spec.MinReadySeconds = spec.MinReadySeconds
	if e.Avoids != "" {
		rs.Spec.Template.Spec.Affinity = avoiding(rs.Spec.Template.Spec.Affinity, e.Avoids)
	}
	return rs
}

// annotationsOf are those of an object that is a copy of our own, to be changed.
func annotationsOf(rs *appsv1.ReplicaSet) map[string]string {
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	return rs.Annotations
}

// listed is a list with one more at its end.
func listed(list, one string) string {
	if list == "" {
		return one
	}
	return list + "," + one
}

// Scaled is the ReplicaSet with another number of pods, and with what its Rollout asks for now.
func Scaled(rs *appsv1.ReplicaSet, e rollout.ReplicaSetScaled) *appsv1.ReplicaSet {
	rs = rs.DeepCopy()
	annotations := annotationsOf(rs)
	annotations[argov1.DesiredReplicasAnnotation] = strconv.Itoa(int(e.Desired))
	if e.Pods == 0 && !e.KeepDeadline {
		delete(annotations, argov1.ScaleDownDeadlineAnnotation)
	}
	if wanted(rs) != e.Pods {
		rs.Spec.Replicas = new(e.Pods)
	}
	return rs
}

// Delayed is the ReplicaSet with another moment from which its pods may go; zero: with none.
func Delayed(rs *appsv1.ReplicaSet, until time.Time) *appsv1.ReplicaSet {
	rs = rs.DeepCopy()
	if until.IsZero() {
		delete(rs.Annotations, argov1.ScaleDownDeadlineAnnotation)
		return rs
	}
	annotationsOf(rs)[argov1.ScaleDownDeadlineAnnotation] = until.UTC().Format(time.RFC3339)
	return rs
}

// labellingAnnotation has the metadata that is being put on the pods of a ReplicaSet, while some may be without it.
const labellingAnnotation = "serin.dev/ephemeral-metadata"

// Labelled is the ReplicaSet whose pods to come have the metadata of a role, and nothing of an earlier one.
func Labelled(rs *appsv1.ReplicaSet, metadata *argov1.PodTemplateMetadata) *appsv1.ReplicaSet {
	before := Put(rs)
	rs = rs.DeepCopy()
	rs.Spec.Template.ObjectMeta = Relabelled(rs.Spec.Template.ObjectMeta, before, metadata)
	note(rs, argov1.EphemeralMetadataAnnotation, metadata)
	note(rs, labellingAnnotation, nil)
	return rs
}

// Labelling is the same before all of its pods are gone through. It says both what they had and what they get, so that at
// any moment the template of a user can be told from what was put into it.
func Labelling(rs *appsv1.ReplicaSet, metadata *argov1.PodTemplateMetadata) *appsv1.ReplicaSet {
	before := noted(rs, argov1.EphemeralMetadataAnnotation)
	rs = Labelled(rs, metadata)
	note(rs, argov1.EphemeralMetadataAnnotation, before)
	note(rs, labellingAnnotation, metadata)
	return rs
}

// note says on a ReplicaSet what was put on its pods.
func note(rs *appsv1.ReplicaSet, annotation string, metadata *argov1.PodTemplateMetadata) {
	if none(metadata) {
		delete(rs.Annotations, annotation)
		return
	}
	if text, err := json.Marshal(metadata); err == nil { // texts by texts: it is always
		annotationsOf(rs)[annotation] = string(text)
	}
}

// Put is what was put on its pods for a role, or on some of them, as it is noted on it; nil: nothing.
func Put(rs *appsv1.ReplicaSet) *argov1.PodTemplateMetadata {
	had, gets := noted(rs, argov1.EphemeralMetadataAnnotation), noted(rs, labellingAnnotation)
	if had == nil || gets == nil {
		return cmp.Or(had, gets)
	}
	return &argov1.PodTemplateMetadata{
		Labels: exchanged(had.Labels, nil, gets.Labels), Annotations: exchanged(had.Annotations, nil, gets.Annotations),
	}
}

func noted(rs *appsv1.ReplicaSet, annotation string) *argov1.PodTemplateMetadata {
	text, is := rs.Annotations[annotation]
	if !is {
		return nil
	}
	var metadata argov1.PodTemplateMetadata
	if json.Unmarshal([]byte(text), &metadata) != nil || none(&metadata) {
		return nil // somebody's text: nothing is taken away for it
	}
	return &metadata
}

// Relabelled are the labels and annotations of a pod, or of pods to come, for a role after another one.
func Relabelled(meta metav1.ObjectMeta, before, after *argov1.PodTemplateMetadata) metav1.ObjectMeta {
	var was, is argov1.PodTemplateMetadata
	if before != nil {
		was = *before
	}
	if after != nil {
		is = *after
	}
	meta.Labels, meta.Annotations = exchanged(meta.Labels, was.Labels, is.Labels), exchanged(meta.Annotations, was.Annotations, is.Annotations)
	return meta
}

func exchanged(all, without, with map[string]string) map[string]string {
	if len(without) == 0 && len(with) == 0 {
		return all
	}
	out := maps.Clone(all)
	for key, value := range without {
		if out[key] == value { // somebody changed it: then it is his
			delete(out, key)
		}
	}
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, with)
	return out
}

func none(metadata *argov1.PodTemplateMetadata) bool {
	return metadata == nil || len(metadata.Labels) == 0 && len(metadata.Annotations) == 0
}
