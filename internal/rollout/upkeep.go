package rollout

import (
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// clean deletes the oldest ReplicaSets that have no pods, beyond those that are kept, and what belonged to them.
func (p *pass) clean() {
	var old []ReplicaSet
	for _, rs := range p.others {
		if !rs.Deleting {
			old = append(old, rs)
		}
	}
	slices.SortStableFunc(old, func(a, b ReplicaSet) int { return a.Created.Compare(b.Created) })
	surplus := len(old) - int(max(value(p.Spec.RevisionHistoryLimit, defaultRevisionHistoryLimit), 0))
	for _, rs := range old[:max(surplus, 0)] {
		if rs.Spec == 0 && rs.Replicas == 0 && rs.Settled && !p.referenced(rs.Hash) {
			p.down = append(p.down, ReplicaSetGone{Name: rs.Name})
		}
	}
}

// metadataOf are what the pods of the new revision get while it is not the stable one, and those of the stable one.
// False where the user asks for neither.
func (p *pass) metadataOf() (updating, serving *argov1.PodTemplateMetadata, asked bool) {
	if c := p.Spec.Strategy.Canary; c != nil {
		updating, serving = c.CanaryMetadata, c.StableMetadata
	}
	if b := p.Spec.Strategy.BlueGreen; b != nil {
		updating, serving = b.PreviewMetadata, b.ActiveMetadata
	}
	return updating, serving, updating != nil || serving != nil
}

// metadataAtFirst is what the pods of a ReplicaSet get that is being made.
func (p *pass) metadataAtFirst() *argov1.PodTemplateMetadata {
	updating, serving, _ := p.metadataOf()
	if p.Status.StableRS == "" {
		return serving
	}
	return updating
}

// label puts on the pods of each revision what its role asks for.
func (p *pass) label() {
	updating, serving, asked := p.metadataOf()
	if !asked {
		return
	}
	for _, rs := range p.Sets {
		if !rs.exists() || rs.Deleting {
			continue
		}
		labelled := ReplicaSetLabelled{Name: rs.Name}
		switch {
		case rs.Hash == p.Status.StableRS && rs.Hash != "", rs.Name == p.new.Name && p.Status.StableRS == "":
			labelled.Metadata = serving
		case rs.Name == p.new.Name:
			labelled.Metadata = updating
		}
		p.state = append(p.state, labelled)
	}
}

// avoids is the hash whose pods those of the new revision keep away from. One that is promoted keeps what it was made
// with, because its pods would be replaced for nothing else.
func (p *pass) avoids() string {
	var asked *argov1.AntiAffinity
	if c := p.Spec.Strategy.Canary; c != nil {
		asked = c.AntiAffinity
	}
	if b := p.Spec.Strategy.BlueGreen; b != nil {
		asked = b.AntiAffinity
	}
	if asked == nil || p.Status.StableRS == "" || p.Status.StableRS == p.Hash {
		return p.new.Avoids
	}
	return p.Status.StableRS
}

// scaleWorkload scales down the workload that the template is of, as the revision that serves gets pods of its own. It acts
// on every revision: a tool that applies its manifest again brings the pods back, and they would serve beside those of the
// Rollout. It never scales it up while the Rollout refers to it; see releaseWorkloads.
func (p *pass) scaleWorkload() {
	ref, w := p.Spec.WorkloadRef, p.Workload
	if ref == nil || w == nil || !w.Scalable || w.Spec == 0 {
		return
	}
	pods, serving := w.Spec, p.new
	if p.stable.exists() {
		serving = p.stable
	}
	switch {
	case ref.ScaleDown != argov1.ScaleDownOnSuccess && ref.ScaleDown != argov1.ScaleDownProgressively:
		return
	case p.Status.Phase == argov1.RolloutPhaseHealthy, p.distinct() && serving.Available >= p.replicas():
		pods = 0
	case ref.ScaleDown == argov1.ScaleDownProgressively && serving.Ready > 0:
		pods = max(0, p.replicas()-serving.Ready)
	}
	if pods < w.Spec {
		p.down = append(p.down, WorkloadScaled{Pods: pods})
	}
}

// releaseWorkloads gives Deployments their pods back that this Rollout has scaled down and does not refer to any more.
func (p *pass) releaseWorkloads() {
	for _, name := range p.FormerWorkloads {
		p.up = append(p.up, WorkloadReleased{Name: name})
	}
}
