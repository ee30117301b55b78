// Package replicaset creates, finds and changes the ReplicaSets of a Rollout, as objects. A ReplicaSet is found by the
// template of its pods, so that releases of another controller continue.
//
// Functions return changed copies and never modify their arguments. The package must not know clients, or when and why
// a ReplicaSet changes: package rollout decides that.
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

// templateHashAnnotation contains the hash of the template, on a ReplicaSet whose label was computed differently by
// another controller. FindByTemplate compares the templates only once, and uses this annotation afterwards.
const templateHashAnnotation = "serin.dev/pod-template-hash"

// excludedAnnotations are the annotations of a Rollout that are not copied to its ReplicaSets, because they describe a
// single object.
var excludedAnnotations = []string{
	"kubectl.kubernetes.io/last-applied-configuration", "notified.notifications.argoproj.io",
	argov1.RevisionAnnotation, argov1.RevisionHistoryAnnotation, argov1.DesiredReplicasAnnotation,
}

// PodTemplateHash returns the label pod-template-hash, which identifies the revision; empty: it has none.
func PodTemplateHash(rs *appsv1.ReplicaSet) string { return rs.Labels[argov1.PodTemplateHashLabel] }

// SortByAge sorts ReplicaSets by age, the oldest first.
func SortByAge(sets []*appsv1.ReplicaSet) {
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// Observe returns a ReplicaSet in the form of a snapshot.
func Observe(rs *appsv1.ReplicaSet) rollout.ReplicaSet {
	v := rollout.ReplicaSet{
		Name: rs.Name, Hash: PodTemplateHash(rs), Created: rs.CreationTimestamp.Time, Revision: Revision(rs),
		SpecReplicas: desiredReplicas(rs), Replicas: rs.Status.Replicas, Ready: rs.Status.ReadyReplicas, Available: rs.Status.AvailableReplicas,
		Deleting: rs.DeletionTimestamp != nil, StatusCurrent: rs.Status.ObservedGeneration >= rs.Generation, AvoidedHash: avoidedHash(rs.Spec.Template.Spec.Affinity),
	}
	if text, recorded := rs.Annotations[argov1.DesiredReplicasAnnotation]; recorded {
		if number, err := strconv.ParseInt(text, 10, 32); err == nil {
			v.RolloutReplicas = new(int32(number))
		}
	}
	if at, err := time.Parse(time.RFC3339, rs.Annotations[argov1.ScaleDownDeadlineAnnotation]); err == nil {
		v.ScaleDownDeadline, v.Abandoned = at, rs.Annotations[argov1.AbandonedAnnotation] == "true"
	}
	for _, c := range rs.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			v.Failure = c.Message
		}
	}
	return v
}

// desiredReplicas returns the desired number of pods: spec.replicas, or its default.
func desiredReplicas(rs *appsv1.ReplicaSet) int32 {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return *rs.Spec.Replicas
}

// Revision returns the revision number of a ReplicaSet; 0: its annotation is missing or invalid.
func Revision(rs *appsv1.ReplicaSet) int64 {
	number, err := strconv.ParseInt(rs.Annotations[argov1.RevisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// New returns the ReplicaSet of the template, without pods. spec is the spec of the owner; if it refers to a workload,
// it contains the template and the selector of the workload.
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
			Namespace: owner.Namespace, Name: e.Name, Labels: labels, Annotations: copyAnnotations(owner),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), MinReadySeconds: spec.MinReadySeconds, Selector: selector, Template: template},
	}
	if e.AvoidedHash != "" {
		rs.Spec.Template.Spec.Affinity = addAntiAffinity(template.Spec.Affinity, owner.Namespace, e.AvoidedHash, antiAffinity(spec))
	}
	rs.Annotations[argov1.RevisionAnnotation] = strconv.FormatInt(e.Revision, 10)
	rs.Annotations[argov1.DesiredReplicasAnnotation] = strconv.Itoa(int(specReplicas(spec)))
	return SetEphemeralMetadata(rs, e.Metadata)
}

func specReplicas(spec argov1.RolloutSpec) int32 {
	if spec.Replicas == nil {
		return 1
	}
	return *spec.Replicas
}

// copyAnnotations returns the annotations that a Rollout passes on to its ReplicaSets.
func copyAnnotations(owner *argov1.Rollout) map[string]string {
	annotations := map[string]string{}
	for key, value := range owner.Annotations {
		if !slices.Contains(excludedAnnotations, key) {
			annotations[key] = value
		}
	}
	return annotations
}

// Maintain returns the newest ReplicaSet with the annotations, the revision number and minReadySeconds of its Rollout.
// hash is the hash of the template; it is recorded if the label differs from it.
func Maintain(rs *appsv1.ReplicaSet, owner *argov1.Rollout, spec argov1.RolloutSpec, e rollout.ReplicaSetMaintained, hash string) *appsv1.ReplicaSet {
	rs = rs.DeepCopy()
	annotations := ensureAnnotations(rs)
	maps.Copy(annotations, copyAnnotations(owner))
	if old := Revision(rs); old < e.Revision {
		if text, recorded := annotations[argov1.RevisionAnnotation]; recorded {
			annotations[argov1.RevisionHistoryAnnotation] = appendToList(annotations[argov1.RevisionHistoryAnnotation], text)
		}
		annotations[argov1.RevisionAnnotation] = strconv.FormatInt(e.Revision, 10)
	}
	if hash != "" && hash != PodTemplateHash(rs) {
		annotations[templateHashAnnotation] = hash
	}
	rs.Spec.MinReadySeconds = spec.MinReadySeconds
	if e.AvoidedHash != "" {
		rs.Spec.Template.Spec.Affinity = replaceAvoidedHash(rs.Spec.Template.Spec.Affinity, e.AvoidedHash)
	}
	return rs
}

// ensureAnnotations returns the annotations of an object for modification. The caller must own the object.
func ensureAnnotations(rs *appsv1.ReplicaSet) map[string]string {
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	return rs.Annotations
}

// appendToList appends an element to a comma-separated list.
func appendToList(list, element string) string {
	if list == "" {
		return element
	}
	return list + "," + element
}

// Scale returns the ReplicaSet with another number of pods, and with the current replicas of its Rollout as an
// annotation.
func Scale(rs *appsv1.ReplicaSet, e rollout.ReplicaSetScaled) *appsv1.ReplicaSet {
	rs = rs.DeepCopy()
	annotations := ensureAnnotations(rs)
	annotations[argov1.DesiredReplicasAnnotation] = strconv.Itoa(int(e.RolloutReplicas))
	if e.Pods == 0 && !e.KeepDeadline {
		delete(annotations, argov1.ScaleDownDeadlineAnnotation)
		delete(annotations, argov1.AbandonedAnnotation)
	}
	if desiredReplicas(rs) != e.Pods {
		rs.Spec.Replicas = new(e.Pods)
	}
	return rs
}

// SetScaleDownDeadline returns the ReplicaSet with another scale-down deadline, the time from which its pods may be
// removed; zero: without one.
func SetScaleDownDeadline(rs *appsv1.ReplicaSet, e rollout.ScaleDownDeadlineSet) *appsv1.ReplicaSet {
	rs = rs.DeepCopy()
	delete(rs.Annotations, argov1.AbandonedAnnotation)
	if e.Until.IsZero() {
		delete(rs.Annotations, argov1.ScaleDownDeadlineAnnotation)
		return rs
	}
	ensureAnnotations(rs)[argov1.ScaleDownDeadlineAnnotation] = e.Until.UTC().Format(time.RFC3339)
	if e.Abandoned {
		rs.Annotations[argov1.AbandonedAnnotation] = "true"
	}
	return rs
}

// pendingMetadataAnnotation contains the ephemeral metadata that is being applied to the pods of a ReplicaSet, while
// some pods may still lack it.
const pendingMetadataAnnotation = "serin.dev/ephemeral-metadata"

// SetEphemeralMetadata returns the ReplicaSet whose future pods have the ephemeral metadata of a role, and none of a
// previous role.
func SetEphemeralMetadata(rs *appsv1.ReplicaSet, metadata *argov1.PodTemplateMetadata) *appsv1.ReplicaSet {
	before := AppliedEphemeralMetadata(rs)
	rs = rs.DeepCopy()
	rs.Spec.Template.ObjectMeta = ReplaceMetadata(rs.Spec.Template.ObjectMeta, before, metadata)
	writeMetadata(rs, argov1.EphemeralMetadataAnnotation, metadata)
	writeMetadata(rs, pendingMetadataAnnotation, nil)
	return rs
}

// BeginEphemeralMetadata returns the same ReplicaSet for the time during which its existing pods are changed. It
// records both the previous and the new metadata: if the process stops in between, the metadata to remove from the
// user's template is still known.
func BeginEphemeralMetadata(rs *appsv1.ReplicaSet, metadata *argov1.PodTemplateMetadata) *appsv1.ReplicaSet {
	before := readMetadata(rs, argov1.EphemeralMetadataAnnotation)
	rs = SetEphemeralMetadata(rs, metadata)
	writeMetadata(rs, argov1.EphemeralMetadataAnnotation, before)
	writeMetadata(rs, pendingMetadataAnnotation, metadata)
	return rs
}

// writeMetadata records metadata in an annotation of a ReplicaSet, or removes the annotation if there is none.
func writeMetadata(rs *appsv1.ReplicaSet, annotation string, metadata *argov1.PodTemplateMetadata) {
	if isEmptyMetadata(metadata) {
		delete(rs.Annotations, annotation)
		return
	}
	if text, err := json.Marshal(metadata); err == nil { // maps of strings can always be encoded
		ensureAnnotations(rs)[annotation] = string(text)
	}
}

// AppliedEphemeralMetadata returns the ephemeral metadata that was applied to all pods of a ReplicaSet or to some of
// them, as its annotations record it; nil: none.
func AppliedEphemeralMetadata(rs *appsv1.ReplicaSet) *argov1.PodTemplateMetadata {
	applied, pending := readMetadata(rs, argov1.EphemeralMetadataAnnotation), readMetadata(rs, pendingMetadataAnnotation)
	if applied == nil || pending == nil {
		return cmp.Or(applied, pending)
	}
	return &argov1.PodTemplateMetadata{
		Labels: replaceEntries(applied.Labels, nil, pending.Labels), Annotations: replaceEntries(applied.Annotations, nil, pending.Annotations),
	}
}

func readMetadata(rs *appsv1.ReplicaSet, annotation string) *argov1.PodTemplateMetadata {
	text, ok := rs.Annotations[annotation]
	if !ok {
		return nil
	}
	var metadata argov1.PodTemplateMetadata
	if json.Unmarshal([]byte(text), &metadata) != nil || isEmptyMetadata(&metadata) {
		return nil // written by a user: it must not cause the removal of labels or annotations
	}
	return &metadata
}

// ReplaceMetadata returns the metadata of a pod, or of a template, after a change of its role: without the ephemeral
// metadata of the role before, and with that of the role after.
func ReplaceMetadata(meta metav1.ObjectMeta, before, after *argov1.PodTemplateMetadata) metav1.ObjectMeta {
	var previous, current argov1.PodTemplateMetadata
	if before != nil {
		previous = *before
	}
	if after != nil {
		current = *after
	}
	meta.Labels, meta.Annotations = replaceEntries(meta.Labels, previous.Labels, current.Labels), replaceEntries(meta.Annotations, previous.Annotations, current.Annotations)
	return meta
}

func replaceEntries(all, removed, added map[string]string) map[string]string {
	if len(removed) == 0 && len(added) == 0 {
		return all
	}
	out := maps.Clone(all)
	for key, value := range removed {
		if out[key] == value { // with another value, a user changed it
			delete(out, key)
		}
	}
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, added)
	return out
}

func isEmptyMetadata(metadata *argov1.PodTemplateMetadata) bool {
	return metadata == nil || len(metadata.Labels) == 0 && len(metadata.Annotations) == 0
}
