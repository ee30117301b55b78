package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// CreateRefused is decided where the API server would not have the ReplicaSet of the template: nothing moves, and people
// read why.
func CreateRefused(s Snapshot, name, why string) Decision {
	status := aside(*s.Status.DeepCopy())
	message := fmt.Sprintf("Failed to create new replica set %q: %v", name, why)
	status.Conditions = conditions(status.Conditions).with(argov1.RolloutCondition{
		Type: argov1.RolloutProgressing, Status: corev1.ConditionFalse, Reason: reasonCreateError, Message: message,
	}, s.Now)
	status.Phase, status.Message = PhaseOf(s.Spec, status)
	return Decision{
		Status: status, Gates: release.Gates{release.Fails("refused", release.ByPerson, message)},
		Events: []release.Event{{Type: release.Warning, Reason: reasonCreateError, Message: message, Standing: true}},
	}
}

// Refused is decided where the cluster refused an effect for a reason that a person must remove: nothing of the decision is
// remembered, and people read why.
func Refused(s Snapshot, looked release.Gates, sentence string) Decision {
	return Decision{
		Status: aside(s.Status), Gates: append(release.Gates{release.Fails("refused", release.ByPerson, sentence)}, looked...),
		Events: []release.Event{{Type: release.Warning, Reason: reasonReconciliation, Message: "Reconciliation failed with error: " + sentence, Standing: true}},
	}
}

// Unreachable is decided where the cluster that has the route does not answer: nothing of the decision is remembered, people
// read for whom the release waits, and it is decided anew when they answer.
func Unreachable(s Snapshot, looked release.Gates, sentence string) Decision {
	return Decision{
		Status: aside(s.Status), Gates: append(release.Gates{release.WaitsFor("router", release.ByCluster, sentence)}, looked...),
		Events: []release.Event{{Type: release.Warning, Reason: reasonReconciliation, Message: "Reconciliation failed with error: " + sentence, Standing: true}},
	}
}

// Faulted is decided where a pass of Serin itself broke, before or after the Rollout was decided about: all that is known of
// it is its status.
func Faulted(s Snapshot, sentence string) Decision {
	return Decision{
		Status: aside(s.Status), Gates: release.Gates{release.Fails("fault", release.ByPerson, sentence)},
		Events: []release.Event{{Type: release.Warning, Reason: reasonReconciliation, Message: sentence, Standing: true}},
	}
}

// NameTaken is decided where somebody else has the name that the ReplicaSet of the template should get: the next look
// gives it another one.
func NameTaken(s Snapshot) Decision {
	status := *s.Status.DeepCopy()
	status.CollisionCount = new(value(status.CollisionCount, 0) + 1)
	return Decision{Status: status, Wake: s.Now}
}
