package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// RejectedReplicaSetDecision is the decision if the API server rejects the ReplicaSet of the template: nothing changes,
// and a condition and an event contain the reason.
func RejectedReplicaSetDecision(s Snapshot, name, why string) Decision {
	status := yieldInQueue(*s.Status.DeepCopy())
	message := fmt.Sprintf("Failed to create new replica set %q: %v", name, why)
	status.Conditions = conditions(status.Conditions).withCondition(argov1.RolloutCondition{
		Type: argov1.RolloutProgressing, Status: corev1.ConditionFalse, Reason: reasonCreateError, Message: message,
	}, s.Now)
	status.Phase, status.Message = phaseOf(s.Spec, status)
	return Decision{
		Status: status, Gates: release.Gates{release.NewFailedGate("refused", release.ByUser, message)},
		Events: []release.Event{{Type: release.Warning, Reason: reasonCreateError, Message: message, Persistent: true}},
	}
}

// RejectedEffectDecision is the decision if the cluster rejects an effect for a reason that the user must resolve: the
// status is unchanged, and an event contains the reason.
func RejectedEffectDecision(s Snapshot, gates release.Gates, message string) Decision {
	return Decision{
		Status: yieldInQueue(s.Status), Gates: append(release.Gates{release.NewFailedGate("refused", release.ByUser, message)}, gates...),
		Events: []release.Event{{Type: release.Warning, Reason: reasonReconciliation, Message: "Reconciliation failed with error: " + message, Persistent: true}},
	}
}

// UnreachableClusterDecision is the decision if the cluster that contains the route does not respond: the status is
// unchanged, an event contains the reason, and the Rollout is requeued when that cluster responds.
func UnreachableClusterDecision(s Snapshot, gates release.Gates, message string) Decision {
	return Decision{
		Status: yieldInQueue(s.Status), Gates: append(release.Gates{release.NewWaitingGate("router", release.ByCluster, message)}, gates...),
		Events: []release.Event{{Type: release.Warning, Reason: reasonReconciliation, Message: "Reconciliation failed with error: " + message, Persistent: true}},
	}
}

// PanicDecision returns the decision for a Rollout whose reconciliation failed because of a defect of Serin, before or
// after Next was called. Only its status is known then.
func PanicDecision(s Snapshot, message string) Decision {
	return Decision{
		Status: yieldInQueue(s.Status), Gates: release.Gates{release.NewFailedGate("fault", release.ByUser, message)},
		Events: []release.Event{{Type: release.Warning, Reason: reasonReconciliation, Message: message, Persistent: true}},
	}
}

// NameConflictDecision is the decision if another object has the name of the ReplicaSet of the template: the next
// reconciliation chooses another name.
func NameConflictDecision(s Snapshot) Decision {
	status := *s.Status.DeepCopy()
	status.CollisionCount = new(valueOr(status.CollisionCount, 0) + 1)
	return Decision{Status: status, Wake: s.Now}
}
