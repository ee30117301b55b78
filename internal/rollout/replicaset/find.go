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

// Sought is the template of a Rollout, and what is known of the ReplicaSet of it.
type Sought struct {
	Template corev1.PodTemplateSpec
	// Collisions is the count of the status.
	Collisions *int32
	// Settled is the hash of the status where that speaks of this very template; empty: nobody knows.
	Settled string
}

// SettledBy is the hash that a status gives the template of a spec, where it says so of this generation of it, and where
// it was not written on the way to saying so.
func SettledBy(status argov1.RolloutStatus, generation int64, workload string) string {
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

// Find is the ReplicaSet of a template among all that a Rollout owns, the oldest first, and the hash that the template
// has. nil: there is none, and a new one has that hash.
//
// A label that is not the hash of the template is by itself no other revision: hashes of other controllers differ with
// their libraries. So those are tried, and then what the pods run is compared.
func Find(sets []*appsv1.ReplicaSet, s Sought) (*appsv1.ReplicaSet, string, error) {
	hash, err := rollout.PodHash(s.Template, s.Collisions)
	if err != nil {
		return nil, "", err
	}
	if rs := first(sets,
		func(rs *appsv1.ReplicaSet) bool { return Hash(rs) == hash },
		func(rs *appsv1.ReplicaSet) bool { return rs.Annotations[foundAsAnnotation] == hash },
	); rs != nil {
		return rs, hash, nil // nearly always; what follows is much more work
	}
	older, err := rollout.OlderPodHashes(s.Template, s.Collisions)
	if err != nil {
		return nil, "", err
	}
	return first(sets,
		func(rs *appsv1.ReplicaSet) bool { return slices.Contains(older, Hash(rs)) },
		func(rs *appsv1.ReplicaSet) bool { return Runs(rs, s.Template) },
		func(rs *appsv1.ReplicaSet) bool {
			return s.Settled != "" && Hash(rs) == s.Settled && contains(rs, s.Template)
		},
	), hash, nil
}

// first is the first one that answers the first of the questions that any answers; nil: none does.
func first(sets []*appsv1.ReplicaSet, questions ...func(*appsv1.ReplicaSet) bool) *appsv1.ReplicaSet {
	for _, is := range questions {
		if i := slices.IndexFunc(sets, is); i >= 0 {
			return sets[i]
		}
	}
	return nil
}

// Runs is true when the pods of a ReplicaSet are those of the template, but for what a controller or the API server adds.
func Runs(rs *appsv1.ReplicaSet, template corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(defaulted(bare(rs)), defaulted(template))
}

// bare is the template of a ReplicaSet as it was before a Rollout put anything into it.
func bare(rs *appsv1.ReplicaSet) corev1.PodTemplateSpec {
	template := *rs.Spec.Template.DeepCopy()
	template.ObjectMeta = Relabelled(template.ObjectMeta, Put(rs), nil)
	delete(template.Labels, argov1.PodTemplateHashLabel)
	template.Spec.Affinity = withoutOurs(template.Spec.Affinity)
	return template
}

// contains is true when all that a template says is said by that of a ReplicaSet too. What is there besides was added by
// a newer API server, or by an admission webhook.
func contains(rs *appsv1.ReplicaSet, template corev1.PodTemplateSpec) bool {
	part, err := tree(defaulted(template))
	if err != nil {
		return false
	}
	whole, err := tree(defaulted(bare(rs)))
	return err == nil && within(part, whole)
}

func tree(template corev1.PodTemplateSpec) (any, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("write template: %w", err)
	}
	var decoded any
	err = json.Unmarshal(text, &decoded)
	return decoded, err
}

// within is true when a part of decoded JSON is in a whole: the fields of objects, and the elements of lists in their
// order.
func within(part, whole any) bool {
	switch part := part.(type) {
	case map[string]any:
		fields, ok := whole.(map[string]any)
		for key, value := range part {
			other, there := fields[key]
			if !ok || !there || !within(value, other) {
				return false
			}
		}
		return ok
	case []any:
		elements, ok := whole.([]any)
		for _, element := range part {
			i := slices.IndexFunc(elements, func(other any) bool { return within(element, other) })
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
