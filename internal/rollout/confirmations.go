package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// BackendTarget is a Service whose pods an external load balancer must have registered, and the hash of the pods.
type BackendTarget struct{ Service, Hash string }

// ExternalConfirmations returns the state that an external load balancer must confirm before a release advances or pods
// are removed: the weights, if weights is true, and the pods of Services as its targets. A rollback does not wait for a
// confirmation. Once the new revision is the stable one, old pods wait for at most the progress deadline.
func ExternalConfirmations(s Snapshot) (weights bool, targets []BackendTarget) {
	status := s.Status
	if status.Abort || status.StableRS == "" || status.CurrentPodHash != s.Hash {
		return false, nil
	}
	inProgress := status.StableRS != s.Hash
	if !inProgress && (!s.hasOldPods() || s.Now.After(s.confirmationDeadline())) {
		return false, nil
	}
	if b := s.Spec.Strategy.BlueGreen; b != nil {
		if s.Services[b.ActiveService].Selector[argov1.PodTemplateHashLabel] != s.Hash {
			return false, nil
		}
		return false, []BackendTarget{{Service: b.ActiveService, Hash: s.Hash}}
	}
	c := s.Spec.Strategy.Canary
	if c == nil || c.TrafficRouting == nil || c.TrafficRouting.ALB == nil {
		return false, nil
	}
	canary, stable := routeServices(*c, status.Canary.StablePingPong, true)
	switch {
	case !inProgress:
		return true, []BackendTarget{{Service: stable, Hash: s.Hash}}
	case c.DynamicStableScale && recordedCanaryWeight(status) > 0: // stable pods are removed as the weight rises
		return true, []BackendTarget{{Service: canary, Hash: s.Hash}}
	default:
		return true, nil
	}
}

// hasOldPods reports whether a revision other than that of the template has pods.
func (s Snapshot) hasOldPods() bool {
	for _, rs := range s.ReplicaSets {
		if rs.Hash != s.Hash && rs.SpecReplicas > 0 {
			return true
		}
	}
	return false
}

// confirmationDeadline returns the time until which pods of previous revisions wait for an external load balancer.
func (s Snapshot) confirmationDeadline() time.Time {
	completed := conditions(s.Status.Conditions).find(argov1.RolloutCompleted)
	if completed == nil {
		return s.Now
	}
	return completed.LastTransitionTime.Add(time.Duration(valueOr(s.Spec.ProgressDeadlineSeconds, defaultProgressDeadlineSeconds)) * time.Second)
}
