package rollout

import (
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// The reasons of events that are not also the reason of a condition.
const (
	reasonNotCompleted          = "RolloutNotCompleted"
	reasonStepCompleted         = "RolloutStepCompleted"
	reasonVirtualServiceUpdated = "Updated VirtualService" // by the router Istio
)

// StatusEvent returns an event about a change that the status shows too. Of many in one attempt of a release, only the first ones are
// written one by one.
func StatusEvent(reason, message string) release.Event {
	return release.Event{Type: release.Normal, Reason: reason, Message: message, InStatus: true, Individual: individualEvents(reason)}
}

// individualEvents returns how many events of a reason that repeat the status are written one by one in each attempt of a release.
func individualEvents(reason string) int {
	switch reason {
	case reasonStepCompleted:
		return 2 // Argo's end-to-end suite compares the events of a weight and a pause
	case reasonVirtualServiceUpdated:
		return 0 // TrafficWeightUpdated, of the same reconciliation, contains the weight
	default:
		return 1
	}
}

// startsSeries reports whether an attempt of a release starts or ends with an event.
func startsSeries(reason string) bool { return reason == reasonNotCompleted || reason == reasonAborted }

// pausedEvent returns the event about a pause that starts. A pause that only its user ends is always an event of its own.
func pausedEvent(f facts, s argov1.RolloutStatus) release.Event {
	event := StatusEvent(reasonPaused, fmt.Sprintf("Rollout is paused (%s)", s.PauseConditions[0].Reason))
	step, _ := pods.StepAt(f.steps(), s.CurrentStepIndex)
	if isTimed := s.PauseConditions[0].Reason == argov1.PauseReasonCanaryPauseStep && step.Pause != nil && !isIndefinite(*step.Pause); !isTimed {
		event.InStatus = false
	}
	return event
}
