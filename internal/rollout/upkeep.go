package rollout

import (
	"fmt"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// maintain returns the effects for every Rollout with a ReplicaSet, independent of the progress of its release.
func maintain(f facts) outcome {
	o := outcome{always: []release.Effect{ReplicaSetKept{Name: f.new.Name, Revision: f.new.Revision, Avoids: avoidedHash(f)}}}
	if f.Revision != fmt.Sprint(f.new.Revision) {
		o.always = append(o.always, Revised{Revision: f.new.Revision})
	}
	return join(ensureRolloutMetadata(f), releaseWorkloads(f), o)
}

// ensureRolloutMetadata returns the effects for every Rollout, with a ReplicaSet or without.
func ensureRolloutMetadata(f facts) outcome {
	var o outcome
	if f.Spec.Replicas == nil {
		o.always = append(o.always, ReplicasSaid{})
	}
	if seen := f.workloadGeneration(); seen != f.WorkloadGeneration {
		o.always = append(o.always, WorkloadNoted{Generation: seen})
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
	surplus := len(old) - int(max(value(f.Spec.RevisionHistoryLimit, defaultRevisionHistoryLimit), 0))
	for _, rs := range old[:max(surplus, 0)] {
		if rs.Spec == 0 && rs.Replicas == 0 && rs.Settled && !referenced(f, rs.Hash) {
			o.remove = append(o.remove, ReplicaSetGone{Name: rs.Name})
			deleted = append(deleted, rs.Name)
		}
	}
	return o, deleted
}

// roleMetadata returns the metadata of pods of the new revision until it is the stable one, and of pods of the stable
// one. False where the user asks for neither.
func roleMetadata(f facts) (updating, serving *argov1.PodTemplateMetadata, requested bool) {
	if c := f.Spec.Strategy.Canary; c != nil {
		updating, serving = c.CanaryMetadata, c.StableMetadata
	}
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		updating, serving = b.PreviewMetadata, b.ActiveMetadata
	}
	return updating, serving, updating != nil || serving != nil
}

// initialMetadata is the metadata of the pods of a ReplicaSet that is created.
func initialMetadata(f facts) *argov1.PodTemplateMetadata {
	updating, serving, _ := roleMetadata(f)
	if f.Status.StableRS == "" {
		return serving
	}
	return updating
}

// labelRoles sets the ephemeral metadata of its role on the pods of each revision.
func labelRoles(f facts) outcome {
	updating, serving, requested := roleMetadata(f)
	if !requested {
		return outcome{}
	}
	var o outcome
	for _, rs := range f.Sets {
		if !rs.exists() || rs.Deleting {
			continue
		}
		labelled := ReplicaSetLabelled{Name: rs.Name}
		switch {
		case rs.Hash == f.Status.StableRS && rs.Hash != "", rs.Name == f.new.Name && f.Status.StableRS == "":
			labelled.Metadata = serving
		case rs.Name == f.new.Name:
			labelled.Metadata = updating
		}
		o.always = append(o.always, labelled)
	}
	return o
}

// avoidedHash is the hash of the pods that those of the new revision avoid by anti-affinity. A promoted revision
// retains the term it was created with: its pods would be replaced only to change it.
func avoidedHash(f facts) string {
	var requested *argov1.AntiAffinity
	if c := f.Spec.Strategy.Canary; c != nil {
		requested = c.AntiAffinity
	}
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		requested = b.AntiAffinity
	}
	if requested == nil || f.Status.StableRS == "" || f.Status.StableRS == f.Hash {
		return f.new.Avoids
	}
	return f.Status.StableRS
}

// scaleWorkload scales down the workload that has the template, as the revision that serves gets pods of its own. It
// acts on every revision: a tool that applies the manifest again brings the pods back, and they would serve beside
// those of the Rollout. It never scales the workload up while the Rollout refers to it; see releaseWorkloads.
func scaleWorkload(f facts) outcome {
	ref, w := f.Spec.WorkloadRef, f.Workload
	if ref == nil || w == nil || !w.Scalable || w.Spec == 0 {
		return outcome{}
	}
	desired, serving := w.Spec, f.new
	if f.stable.exists() {
		serving = f.stable
	}
	switch {
	case ref.ScaleDown != argov1.ScaleDownOnSuccess && ref.ScaleDown != argov1.ScaleDownProgressively:
		return outcome{}
	case f.Status.Phase == argov1.RolloutPhaseHealthy, f.distinct() && serving.Available >= f.replicas():
		desired = 0
	case ref.ScaleDown == argov1.ScaleDownProgressively && serving.Ready > 0:
		desired = max(0, f.replicas()-serving.Ready)
	}
	if desired >= w.Spec {
		return outcome{}
	}
	return outcome{remove: []release.Effect{WorkloadScaled{Pods: desired}}}
}

// releaseWorkloads restores the replicas of Deployments that this Rollout has scaled down and does not refer to
// anymore.
func releaseWorkloads(f facts) outcome {
	var o outcome
	for _, name := range f.FormerWorkloads {
		o.scaleUp = append(o.scaleUp, WorkloadReleased{Name: name})
	}
	return o
}

// referenced reports whether a Service, a route or the status names a revision.
func referenced(f facts, hash string) bool {
	s := f.Status
	names := []string{s.StableRS, s.CurrentPodHash, s.BlueGreen.ActiveSelector, s.BlueGreen.PreviewSelector}
	if w := s.Canary.Weights; w != nil && f.usesRouter() {
		names = append(names, w.Canary.PodTemplateHash, w.Stable.PodTemplateHash)
	}
	var services []string
	if c := f.Spec.Strategy.Canary; c != nil {
		services = append(services, c.CanaryService, c.StableService)
		if c.PingPong != nil {
			canary, stable := pingPong(*c.PingPong, s.Canary.StablePingPong)
			services = append(services, stable)
			if !promoted(s) { // afterwards it selects the previous revision until the next release, without traffic
				services = append(services, canary)
			}
		}
	}
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		services = append(services, b.ActiveService, b.PreviewService)
	}
	for _, service := range services {
		names = append(names, f.selected(service))
	}
	return hash != "" && (slices.Contains(names, hash) || slices.Contains(f.Router.Referenced, hash))
}

// oldReplicaSets are the ReplicaSets without a role, as their removal sees them.
func oldReplicaSets(f facts) []pods.OldReplicaSet {
	var old []pods.OldReplicaSet
	for _, rs := range f.others {
		if !rs.Deleting {
			old = append(old, pods.OldReplicaSet{
				Name: rs.Name, Revision: rs.Revision, Scaled: rs.scaled(), Deadline: rs.Deadline, Referenced: referenced(f, rs.Hash),
			})
		}
	}
	return old
}
