package rollout

import (
	"fmt"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// planUpkeep returns the effects for every Rollout with a ReplicaSet, independent of the progress of its release.
func planUpkeep(f facts) outcome {
	o := outcome{upkeepEffects: []release.Effect{ReplicaSetMaintained{Name: f.new.Name, Revision: f.new.Revision, AvoidedHash: avoidedHash(f)}}}
	if f.RevisionAnnotation != fmt.Sprint(f.new.Revision) {
		o.upkeepEffects = append(o.upkeepEffects, RevisionAnnotated{Revision: f.new.Revision})
	}
	return joinOutcomes(ensureRolloutMetadata(f), restoreWorkloads(f), o)
}

// ensureRolloutMetadata returns the effects for every Rollout, with a ReplicaSet or without.
func ensureRolloutMetadata(f facts) outcome {
	var o outcome
	if f.Spec.Replicas == nil {
		o.upkeepEffects = append(o.upkeepEffects, ReplicasDefaulted{})
	}
	if generation := f.observedWorkloadGeneration(); generation != f.WorkloadGenerationAnnotation {
		o.upkeepEffects = append(o.upkeepEffects, WorkloadGenerationAnnotated{Generation: generation})
	}
	return o
}

// deleteOldReplicaSets deletes the oldest ReplicaSets without pods beyond revisionHistoryLimit.
func deleteOldReplicaSets(f facts) (o outcome, deleted []string) {
	var old []ReplicaSet
	for _, rs := range f.others {
		if !rs.Deleting {
			old = append(old, rs)
		}
	}
	slices.SortStableFunc(old, func(a, b ReplicaSet) int { return a.Created.Compare(b.Created) })
	surplus := len(old) - int(max(valueOr(f.Spec.RevisionHistoryLimit, defaultRevisionHistoryLimit), 0))
	for _, rs := range old[:max(surplus, 0)] {
		if rs.SpecReplicas == 0 && rs.Replicas == 0 && rs.StatusCurrent && !isReferenced(f, rs.Hash) {
			o.removalEffects = append(o.removalEffects, ReplicaSetDeleted{Name: rs.Name})
			deleted = append(deleted, rs.Name)
		}
	}
	return o, deleted
}

// ephemeralMetadata returns the metadata of pods of the new revision until it is the stable one, and of pods of the
// stable one; false: the spec has neither.
func ephemeralMetadata(f facts) (updating, serving *argov1.PodTemplateMetadata, requested bool) {
	if c := f.Spec.Strategy.Canary; c != nil {
		updating, serving = c.CanaryMetadata, c.StableMetadata
	}
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		updating, serving = b.PreviewMetadata, b.ActiveMetadata
	}
	return updating, serving, updating != nil || serving != nil
}

// initialEphemeralMetadata returns the metadata of the pods of a ReplicaSet that is created.
func initialEphemeralMetadata(f facts) *argov1.PodTemplateMetadata {
	updating, serving, _ := ephemeralMetadata(f)
	if f.Status.StableRS == "" {
		return serving
	}
	return updating
}

// setEphemeralMetadata sets the ephemeral metadata of its role on the pods of each revision.
func setEphemeralMetadata(f facts) outcome {
	updating, serving, requested := ephemeralMetadata(f)
	if !requested {
		return outcome{}
	}
	var o outcome
	for _, rs := range f.ReplicaSets {
		if !rs.exists() || rs.Deleting {
			continue
		}
		effect := EphemeralMetadataSet{Name: rs.Name}
		switch {
		case rs.Hash == f.Status.StableRS && rs.Hash != "", rs.Name == f.new.Name && f.Status.StableRS == "":
			effect.Metadata = serving
		case rs.Name == f.new.Name:
			effect.Metadata = updating
		}
		o.upkeepEffects = append(o.upkeepEffects, effect)
	}
	return o
}

// avoidedHash returns the hash of the pods that those of the new revision avoid by anti-affinity. A promoted revision
// retains the term with which it was created, because a change of the term would replace all its pods.
func avoidedHash(f facts) string {
	var requested *argov1.AntiAffinity
	if c := f.Spec.Strategy.Canary; c != nil {
		requested = c.AntiAffinity
	}
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		requested = b.AntiAffinity
	}
	if requested == nil || f.Status.StableRS == "" || f.Status.StableRS == f.Hash {
		return f.new.AvoidedHash
	}
	return f.Status.StableRS
}

// scaleWorkload scales down the workload that contains the template as the pods of the Rollout become available. It
// does so in every release: a tool that applies the manifest again would otherwise restore pods that serve users in
// addition to those of the Rollout. It never scales the workload up while the Rollout refers to it; see
// restoreWorkloads.
func scaleWorkload(f facts) outcome {
	ref, w := f.Spec.WorkloadRef, f.Workload
	if ref == nil || w == nil || !w.Scalable || w.SpecReplicas == 0 {
		return outcome{}
	}
	desired, serving := w.SpecReplicas, f.new
	if f.stable.exists() {
		serving = f.stable
	}
	switch {
	case ref.ScaleDown != argov1.ScaleDownOnSuccess && ref.ScaleDown != argov1.ScaleDownProgressively:
		return outcome{}
	case f.Status.Phase == argov1.RolloutPhaseHealthy, f.hasDistinctStable() && serving.Available >= f.replicas():
		desired = 0
	case ref.ScaleDown == argov1.ScaleDownProgressively && serving.Ready > 0:
		desired = max(0, f.replicas()-serving.Ready)
	}
	if desired >= w.SpecReplicas {
		return outcome{}
	}
	return outcome{removalEffects: []release.Effect{WorkloadScaled{Pods: desired}}}
}

// restoreWorkloads restores the replicas of Deployments that this Rollout has scaled down and does not refer to
// anymore.
func restoreWorkloads(f facts) outcome {
	var o outcome
	for _, name := range f.FormerWorkloads {
		o.scaleUpEffects = append(o.scaleUpEffects, WorkloadRestored{Name: name})
	}
	return o
}

// isReferenced reports whether a Service, a route or the status names a revision.
func isReferenced(f facts, hash string) bool {
	s := f.Status
	names := []string{s.StableRS, s.CurrentPodHash, s.BlueGreen.ActiveSelector, s.BlueGreen.PreviewSelector}
	if f.usesRouter() {
		names = append(names, routedStableHash(f))
		if s.Canary.Weights != nil {
			names = append(names, s.Canary.Weights.Canary.PodTemplateHash)
		}
	}
	var services []string
	if c := f.Spec.Strategy.Canary; c != nil {
		services = append(services, c.CanaryService, c.StableService)
		if c.PingPong != nil {
			canary, stable := pingPongServices(*c.PingPong, s.Canary.StablePingPong)
			services = append(services, stable)
			if !isPromoted(s) { // afterwards it selects the previous revision until the next release, without traffic
				services = append(services, canary)
			}
		}
	}
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		services = append(services, b.ActiveService, b.PreviewService)
	}
	for _, service := range services {
		names = append(names, f.selectedHash(service))
	}
	return hash != "" && slices.Contains(names, hash)
}

// oldReplicaSets returns the ReplicaSets without a role as the input of scale-down decisions.
func oldReplicaSets(f facts) []pods.OldReplicaSet {
	var old []pods.OldReplicaSet
	for _, rs := range f.others {
		if !rs.Deleting {
			old = append(old, pods.OldReplicaSet{
				Name: rs.Name, Revision: rs.Revision, ReplicaSetPods: rs.podNumbers(), ScaleDownDeadline: rs.ScaleDownDeadline, Referenced: isReferenced(f, rs.Hash),
			})
		}
	}
	return old
}
