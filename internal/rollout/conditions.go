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

// The reasons and messages of conditions, as Argo Rollouts writes them. Tools depend on them.
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

// conditions are the conditions of a status under construction.
type conditions []argov1.RolloutCondition

func (c conditions) find(kind argov1.RolloutConditionType) *argov1.RolloutCondition {
	for i := range c {
		if c[i].Type == kind {
			return &c[i]
		}
	}
	return nil
}

// withCondition sets a condition. A condition with the same status and reason is unchanged, whatever its message. A
// changed condition moves to the end of the list; its transition time changes only with its status.
func (c conditions) withCondition(set argov1.RolloutCondition, now time.Time) conditions {
	old := c.find(set.Type)
	if old != nil && old.Status == set.Status && old.Reason == set.Reason {
		return c
	}
	set.LastUpdateTime, set.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	if old != nil && old.Status == set.Status {
		set.LastTransitionTime = old.LastTransitionTime
	}
	return append(c.withoutCondition(set.Type), set)
}

// withRenewedCondition sets a condition even if status and reason are the same: the progress deadline starts at its
// update time.
func (c conditions) withRenewedCondition(set argov1.RolloutCondition, now time.Time) conditions {
	old := c.find(set.Type)
	if old == nil || old.Status != set.Status || old.Reason != set.Reason {
		return c.withCondition(set, now)
	}
	set.LastUpdateTime, set.LastTransitionTime = metav1.NewTime(now), old.LastTransitionTime
	return append(c.withoutCondition(set.Type), set)
}

// withoutCondition removes a condition from a copy.
func (c conditions) withoutCondition(kind argov1.RolloutConditionType) conditions {
	if c.find(kind) == nil {
		return slices.Clip(c)
	}
	return slices.DeleteFunc(slices.Clone(c), func(c argov1.RolloutCondition) bool { return c.Type == kind })
}

// equal reports whether both are equal. A status consists mostly of conditions, for which reflection is slow.
func (c conditions) equal(other []argov1.RolloutCondition) bool {
	return slices.EqualFunc(c, other, func(a, b argov1.RolloutCondition) bool {
		return a.LastUpdateTime.Equal(&b.LastUpdateTime) && a.LastTransitionTime.Equal(&b.LastTransitionTime) &&
			a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
	})
}

// SameStatus reports whether two statuses are equal.
func SameStatus(a, b argov1.RolloutStatus) bool {
	if !conditions(a.Conditions).equal(b.Conditions) {
		return false
	}
	a.Conditions, b.Conditions = nil, nil
	return reflect.DeepEqual(&a, &b) || equality.Semantic.DeepEqual(&a, &b) // reflect is fast if they are equal
}

func conditionStatus(value bool) corev1.ConditionStatus {
	if value {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

func invalidSpecCondition(name, problem string) argov1.RolloutCondition {
	message := fmt.Sprintf("The Rollout %q is invalid: %s", name, problem)
	return argov1.RolloutCondition{Type: argov1.RolloutInvalidSpec, Status: corev1.ConditionTrue, Reason: reasonInvalidSpec, Message: message}
}

func availableCondition(value bool) argov1.RolloutCondition {
	message := textNotAvailable
	if value {
		message = textAvailable
	}
	return argov1.RolloutCondition{Type: argov1.RolloutAvailable, Status: conditionStatus(value), Reason: reasonAvailable, Message: message}
}

func healthyCondition(value bool) argov1.RolloutCondition {
	message := textNotHealthy
	if value {
		message = textHealthy
	}
	return argov1.RolloutCondition{Type: argov1.RolloutHealthy, Status: conditionStatus(value), Reason: reasonHealthy, Message: message}
}

func pausedCondition(value bool) argov1.RolloutCondition {
	return argov1.RolloutCondition{Type: argov1.RolloutPaused, Status: conditionStatus(value), Reason: reasonPaused, Message: textPaused}
}

func completedCondition(value bool) argov1.RolloutCondition {
	return argov1.RolloutCondition{Type: argov1.RolloutCompleted, Status: conditionStatus(value), Reason: reasonCompleted, Message: reasonCompleted}
}

func progressingCondition(status corev1.ConditionStatus, reason, message string) argov1.RolloutCondition {
	return argov1.RolloutCondition{Type: argov1.RolloutProgressing, Status: status, Reason: reason, Message: message}
}

// progressSubject returns the subject of a message about progress: the new ReplicaSet, or the Rollout if there is none.
func progressSubject(rollout, replicaSet string) string {
	if replicaSet == "" {
		return fmt.Sprintf("Rollout %q", rollout)
	}
	return fmt.Sprintf("ReplicaSet %q", replicaSet)
}

// abortText returns the message about an abort; detail is the cause of an automatic abort, empty for an abort by the
// user.
func abortText(revision int64, detail string) string {
	text := fmt.Sprintf("Rollout aborted update to revision %d", revision)
	if detail != "" {
		text += ": " + detail
	}
	return text
}

// isPromoted reports whether the new revision is the stable one.
func isPromoted(status argov1.RolloutStatus) bool {
	return status.StableRS != "" && status.StableRS == status.CurrentPodHash
}

// isInDesiredState reports whether a Rollout is in its desired state. observed is the current generation as the status
// records it.
func isInDesiredState(spec argov1.RolloutSpec, status argov1.RolloutStatus, observed string) bool {
	replicas := valueOr(spec.Replicas, 1)
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
	return done && isPromoted(status) && status.Replicas == replicas
}
