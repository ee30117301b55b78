package replicaset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// antiAffinity returns the anti-affinity of the strategy; nil: none.
func antiAffinity(spec argov1.RolloutSpec) *argov1.AntiAffinity {
	switch {
	case spec.Strategy.Canary != nil:
		return spec.Strategy.Canary.AntiAffinity
	case spec.Strategy.BlueGreen != nil:
		return spec.Strategy.BlueGreen.AntiAffinity
	default:
		return nil
	}
}

// addAntiAffinity adds an anti-affinity term, so that pods are not scheduled on nodes with pods of the revision that
// hash names. Terms of the user remain.
func addAntiAffinity(affinity *corev1.Affinity, namespace, hash string, strategy *argov1.AntiAffinity) *corev1.Affinity {
	if strategy == nil {
		return affinity
	}
	affinity = affinity.DeepCopy()
	if affinity == nil {
		affinity = &corev1.Affinity{}
	}
	if affinity.PodAntiAffinity == nil {
		affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	anti := affinity.PodAntiAffinity
	term := corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: argov1.PodTemplateHashLabel, Operator: metav1.LabelSelectorOpIn, Values: []string{hash}},
		}},
		Namespaces:  []string{namespace},
		TopologyKey: corev1.LabelHostname,
	}
	switch {
	case strategy.RequiredDuringSchedulingIgnoredDuringExecution != nil:
		anti.RequiredDuringSchedulingIgnoredDuringExecution = append(anti.RequiredDuringSchedulingIgnoredDuringExecution, term)
	case strategy.PreferredDuringSchedulingIgnoredDuringExecution != nil:
		anti.PreferredDuringSchedulingIgnoredDuringExecution = append(anti.PreferredDuringSchedulingIgnoredDuringExecution, corev1.WeightedPodAffinityTerm{
			Weight: strategy.PreferredDuringSchedulingIgnoredDuringExecution.Weight, PodAffinityTerm: term,
		})
	}
	return affinity
}

// isOwnTerm reports whether addAntiAffinity added a term. It is recognized by its selector: users do not select pods by
// this label only.
func isOwnTerm(term corev1.PodAffinityTerm) bool {
	s := term.LabelSelector
	return s != nil && len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 1 &&
		s.MatchExpressions[0].Key == argov1.PodTemplateHashLabel && len(s.MatchExpressions[0].Values) == 1
}

// avoidedHash returns the hash in the term that addAntiAffinity added; empty: there is no such term.
func avoidedHash(affinity *corev1.Affinity) string {
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return ""
	}
	for _, term := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if isOwnTerm(term) {
			return term.LabelSelector.MatchExpressions[0].Values[0]
		}
	}
	for _, weighted := range affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if isOwnTerm(weighted.PodAffinityTerm) {
			return weighted.PodAffinityTerm.LabelSelector.MatchExpressions[0].Values[0]
		}
	}
	return ""
}

// replaceAvoidedHash replaces the hash in the terms that addAntiAffinity added. It adds no term to a ReplicaSet without
// one, because its existing pods were scheduled without it.
func replaceAvoidedHash(affinity *corev1.Affinity, hash string) *corev1.Affinity {
	if avoidedHash(affinity) == "" {
		return affinity
	}
	affinity = affinity.DeepCopy()
	anti := affinity.PodAntiAffinity
	for i := range anti.RequiredDuringSchedulingIgnoredDuringExecution {
		if term := anti.RequiredDuringSchedulingIgnoredDuringExecution[i]; isOwnTerm(term) {
			term.LabelSelector.MatchExpressions[0].Values[0] = hash
		}
	}
	for i := range anti.PreferredDuringSchedulingIgnoredDuringExecution {
		if term := anti.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm; isOwnTerm(term) {
			term.LabelSelector.MatchExpressions[0].Values[0] = hash
		}
	}
	return affinity
}

// removeOwnTerms removes the terms that addAntiAffinity added, and fields that are empty without them. The result is
// the affinity of the user's template.
func removeOwnTerms(affinity *corev1.Affinity) *corev1.Affinity {
	if avoidedHash(affinity) == "" {
		return affinity
	}
	affinity = affinity.DeepCopy()
	anti := affinity.PodAntiAffinity
	anti.RequiredDuringSchedulingIgnoredDuringExecution = slices.DeleteFunc(anti.RequiredDuringSchedulingIgnoredDuringExecution, isOwnTerm)
	anti.PreferredDuringSchedulingIgnoredDuringExecution = slices.DeleteFunc(anti.PreferredDuringSchedulingIgnoredDuringExecution,
		func(weighted corev1.WeightedPodAffinityTerm) bool { return isOwnTerm(weighted.PodAffinityTerm) })
	if len(anti.RequiredDuringSchedulingIgnoredDuringExecution) == 0 && len(anti.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		affinity.PodAntiAffinity = nil
	}
	if *affinity == (corev1.Affinity{}) {
		return nil
	}
	return affinity
}
