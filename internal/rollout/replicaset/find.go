package replicaset

import (
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout"
)

// FindCriteria describes the ReplicaSet to find: by the template of a Rollout, and by the hash in the status.
type FindCriteria struct {
	Template corev1.PodTemplateSpec
	// CollisionCount is status.collisionCount; nil: none.
	CollisionCount *int32
	// ObservedHash is the hash that the status records for exactly this template, see ObservedTemplateHash; empty: the
	// status records none.
	ObservedHash string
}

// ObservedTemplateHash returns the hash that a status records for the current template; empty: the status was written
// for another generation of the Rollout or of its workload, or during a release. Only the status of an idle Rollout is
// reliable: during a release, the other controller may have stopped between writing the generation and writing the
// hash.
func ObservedTemplateHash(status argov1.RolloutStatus, generation int64, workload string) string {
	if status.ObservedGeneration != fmt.Sprint(generation) || status.WorkloadObservedGeneration != workload || status.CurrentPodHash != status.StableRS {
		return ""
	}
	for _, c := range status.Conditions {
		if c.Type == argov1.RolloutInvalidSpec || c.Type == argov1.RolloutProgressing && c.Reason != "NewReplicaSetAvailable" {
			return ""
		}
	}
	return status.CurrentPodHash
}

// FindByTemplate returns the ReplicaSet of a template, and the hash of the template. sets are all ReplicaSets of a
// Rollout, the oldest first. If none has the template, it returns nil, and the hash that a new ReplicaSet is to have.
//
// A different label does not prove a different template: the hash depends on the library with which another controller
// computed it. FindByTemplate therefore tries the hashes of other controllers, and then compares the templates.
// Otherwise, the first reconciliation after a migration from Argo Rollouts would start a release of the running
// revision.
func FindByTemplate(sets []*appsv1.ReplicaSet, s FindCriteria) (*appsv1.ReplicaSet, string, error) {
	hash, err := rollout.PodHash(s.Template, s.CollisionCount)
	if err != nil {
		return nil, "", err
	}
	if rs := findFirst(
		sets,
		func(rs *appsv1.ReplicaSet) bool { return PodTemplateHash(rs) == hash },
		func(rs *appsv1.ReplicaSet) bool { return rs.Annotations[templateHashAnnotation] == hash },
	); rs != nil {
		return rs, hash, nil // the usual case; comparing templates is much more expensive
	}
	older, err := rollout.OlderPodHashes(s.Template, s.CollisionCount)
	if err != nil {
		return nil, "", err
	}
	return findFirst(
		sets,
		func(rs *appsv1.ReplicaSet) bool { return slices.Contains(older, PodTemplateHash(rs)) },
		func(rs *appsv1.ReplicaSet) bool { return RunsTemplate(rs, s.Template) },
		func(rs *appsv1.ReplicaSet) bool {
			return s.ObservedHash != "" && PodTemplateHash(rs) == s.ObservedHash && containsTemplate(rs, s.Template)
		},
	), hash, nil
}

// findFirst returns the first ReplicaSet that meets the first condition, otherwise the first that meets the second one,
// and so on; nil: none.
func findFirst(sets []*appsv1.ReplicaSet, conditions ...func(*appsv1.ReplicaSet) bool) *appsv1.ReplicaSet {
	for _, condition := range conditions {
		if i := slices.IndexFunc(sets, condition); i >= 0 {
			return sets[i]
		}
	}
	return nil
}

// RunsTemplate reports whether the pods of a ReplicaSet have a template, except for additions of a controller or the
// API server.
func RunsTemplate(rs *appsv1.ReplicaSet, template corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(defaultTemplate(originalTemplate(rs)), defaultTemplate(template))
}

// originalTemplate returns the template of a ReplicaSet without additions of a Rollout: ephemeral metadata, the hash
// label, and anti-affinity.
func originalTemplate(rs *appsv1.ReplicaSet) corev1.PodTemplateSpec {
	template := *rs.Spec.Template.DeepCopy()
	template.ObjectMeta = ReplaceMetadata(template.ObjectMeta, AppliedEphemeralMetadata(rs), nil)
	delete(template.Labels, argov1.PodTemplateHashLabel)
	template.Spec.Affinity = removeOwnTerms(template.Spec.Affinity)
	return template
}

// containsTemplate reports whether the template of a ReplicaSet has all fields of a template, with the same values.
// Additional fields come from a newer API server or from an admission webhook.
func containsTemplate(rs *appsv1.ReplicaSet, template corev1.PodTemplateSpec) bool {
	part, err := decodeTemplate(defaultTemplate(template))
	if err != nil {
		return false
	}
	whole, err := decodeTemplate(defaultTemplate(originalTemplate(rs)))
	return err == nil && isSubtree(part, whole)
}

func decodeTemplate(template corev1.PodTemplateSpec) (any, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("write template: %w", err)
	}
	var decoded any
	err = json.Unmarshal(text, &decoded)
	return decoded, err
}

// isSubtree reports whether decoded JSON contains a part: each field of its objects, and each element of its lists in
// the same order, possibly with others in between.
func isSubtree(part, whole any) bool {
	switch part := part.(type) {
	case map[string]any:
		fields, ok := whole.(map[string]any)
		for key, value := range part {
			other, exists := fields[key]
			if !ok || !exists || !isSubtree(value, other) {
				return false
			}
		}
		return ok
	case []any:
		elements, ok := whole.([]any)
		for _, element := range part {
			i := slices.IndexFunc(elements, func(other any) bool { return isSubtree(element, other) })
			if i < 0 {
				return false
			}
			elements = elements[i+1:]
		}
		return ok
	default:
		return part == whole
	}
}
