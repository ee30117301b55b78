package rollout

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// The reasons of conditions. Tools wait for them.
const (
	reasonInvalidSpec      = "InvalidSpec"
	reasonAvailable        = "AvailableReason"
	reasonPaused           = "RolloutPaused"
	reasonResumed          = "RolloutResumed"
	reasonCompleted        = "RolloutCompleted"
	reasonHealthy          = "RolloutHealthy"
	reasonAborted          = "RolloutAborted"
	reasonRetry            = "RolloutRetry"
	reasonCreated          = "NewReplicaSetCreated"
	reasonFound            = "FoundNewReplicaSet"
	reasonCreateError      = "ReplicaSetCreateError"
	reasonReconciliation   = "ReconciliationError"
	reasonUpdated          = "ReplicaSetUpdated"
	reasonNotAvailable     = "ReplicaSetNotAvailable"
	reasonProgressed       = "NewReplicaSetAvailable"
	reasonDeadlineExceeded = "ProgressDeadlineExceeded"
	textAvailable          = "Rollout has minimum availability"
	textNotAvailable       = "Rollout does not have minimum availability"
	textHealthy            = "Rollout is healthy"
	textNotHealthy         = "Rollout is not healthy"
	textPaused             = "Rollout is paused"
	textResumed            = "Rollout is resumed"
	textRetry              = "Retrying Rollout after abort"
)

// conditions are those of a status in the making.
type conditions []argov1.RolloutCondition

func (c conditions) of(kind argov1.RolloutConditionType) *argov1.RolloutCondition {
	for i := range c {
		if c[i].Type == kind {
			return &c[i]
		}
	}
	return nil
}

// with has a condition set. One with the same status and reason stays as it is, whatever its message; one that changes
// goes to the end, and its transition time moves with its status only.
func (c conditions) with(set argov1.RolloutCondition, now time.Time) conditions {
	old := c.of(set.Type)
	if old != nil && old.Status == set.Status && old.Reason == set.Reason {
		return c
	}
	set.LastUpdateTime, set.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	if old != nil && old.Status == set.Status {
		set.LastTransitionTime = old.LastTransitionTime
	}
	return append(c.without(set.Type), set)
}

// renewed has a condition set although it may be the same: its update time is what a deadline counts from.
func (c conditions) renewed(set argov1.RolloutCondition, now time.Time) conditions {
	old := c.of(set.Type)
	if old == nil || old.Status != set.Status || old.Reason != set.Reason {
		return c.with(set, now)
	}
	set.LastUpdateTime, set.LastTransitionTime = metav1.NewTime(now), old.LastTransitionTime
	return append(c.without(set.Type), set)
}

// without has no condition of a kind; what is given stays as it is.
func (c conditions) without(kind argov1.RolloutConditionType) conditions {
	if c.of(kind) == nil {
		return slices.Clip(c)
	}
	return slices.DeleteFunc(slices.Clone(c), func(c argov1.RolloutCondition) bool { return c.Type == kind })
}

// same is true when both say the same. A status is mostly conditions, and reflection takes long over them.
func (c conditions) same(other []argov1.RolloutCondition) bool {
	return slices.EqualFunc(c, other, func(a, b argov1.RolloutCondition) bool {
		return a.LastUpdateTime.Equal(&b.LastUpdateTime) && a.LastTransitionTime.Equal(&b.LastTransitionTime) &&
			a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
	})
}

// SameStatus is true for statuses that say the same.
func SameStatus(a, b argov1.RolloutStatus) bool {
	if !conditions(a.Conditions).same(b.Conditions) {
		return false
	}
	a.Conditions, b.Conditions = nil, nil
	return reflect.DeepEqual(&a, &b) || equality.Semantic.DeepEqual(&a, &b) // the first is a quick yes
}

func truth(is bool) corev1.ConditionStatus {
	if is {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

func invalid(name, problem string) argov1.RolloutCondition {
	message := fmt.Sprintf("The Rollout %q is invalid: %s", name, problem)
	return argov1.RolloutCondition{Type: argov1.RolloutInvalidSpec, Status: corev1.ConditionTrue, Reason: reasonInvalidSpec, Message: message}
}

func available(is bool) argov1.RolloutCondition {
	message := textNotAvailable
	if is {
		message = textAvailable
	}
	return argov1.RolloutCondition{Type: argov1.RolloutAvailable, Status: truth(is), Reason: reasonAvailable, Message: message}
}

func healthy(is bool) argov1.RolloutCondition {
	message := textNotHealthy
	if is {
		message = textHealthy
	}
	return argov1.RolloutCondition{Type: argov1.RolloutHealthy, Status: truth(is), Reason: reasonHealthy, Message: message}
}

func paused(is bool) argov1.RolloutCondition {
	return argov1.RolloutCondition{Type: argov1.RolloutPaused, Status: truth(is), Reason: reasonPaused, Message: textPaused}
}

func completed(is bool) argov1.RolloutCondition {
	return argov1.RolloutCondition{Type: argov1.RolloutCompleted, Status: truth(is), Reason: reasonCompleted, Message: reasonCompleted}
}

func progressing(status corev1.ConditionStatus, reason, message string) argov1.RolloutCondition {
	return argov1.RolloutCondition{Type: argov1.RolloutProgressing, Status: status, Reason: reason, Message: message}
}

// subject is what a message about progress is about: the new ReplicaSet, or the Rollout while there is none.
func subject(rollout, replicaSet string) string {
	if replicaSet == "" {
		return fmt.Sprintf("Rollout %q", rollout)
	}
	return fmt.Sprintf("ReplicaSet %q", replicaSet)
}

// abortText is what people read of an abort; detail is why it was not a person who did it, if so.
func abortText(revision int64, detail string) string {
	text := fmt.Sprintf("Rollout aborted update to revision %d", revision)
	if detail != "" {
		text += ": " + detail
	}
	return text
}

// promoted is true when the new revision is the stable one.
func promoted(status argov1.RolloutStatus) bool {
	return status.StableRS != "" && status.StableRS == status.CurrentPodHash
}

// whole is true of a Rollout that is all it asks to be. observed is the generation that the status was written for.
func whole(spec argov1.RolloutSpec, status argov1.RolloutStatus, observed string) bool {
	replicas := value(spec.Replicas, 1)
	if status.UpdatedReplicas != replicas || status.AvailableReplicas != replicas || status.ObservedGeneration != observed {
		return false
	}
	if b := spec.Strategy.BlueGreen; b != nil {
		return status.BlueGreen.ActiveSelector == status.CurrentPodHash &&
			(b.PreviewService == "" || status.BlueGreen.PreviewSelector == status.CurrentPodHash)
	}
	steps := 0
	if c := spec.Strategy.Canary; c != nil {
		steps = len(c.Steps)
	}
	done := steps == 0 || status.CurrentStepIndex != nil && int(*status.CurrentStepIndex) == steps
	return done && promoted(status) && status.Replicas == replicas
}

// moved is true when something of a release went on from one status to the next.
func moved(old, now argov1.RolloutStatus, blueGreen bool) bool {
	if now.UpdatedReplicas != old.UpdatedReplicas || now.Replicas-now.UpdatedReplicas < old.Replicas-old.UpdatedReplicas ||
		now.ReadyReplicas > old.ReadyReplicas || now.AvailableReplicas > old.AvailableReplicas {
		return true
	}
	if blueGreen {
		return now.BlueGreen.ActiveSelector != old.BlueGreen.ActiveSelector || now.BlueGreen.PreviewSelector != old.BlueGreen.PreviewSelector
	}
	return now.StableRS != old.StableRS || now.CurrentStepHash != old.CurrentStepHash ||
		value(now.CurrentStepIndex, -1) != value(old.CurrentStepIndex, -1)
}
