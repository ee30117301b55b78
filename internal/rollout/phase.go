package rollout

import (
	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// textPodsNotAvailable is the message while pods of the new revision are not available yet.
const textPodsNotAvailable = "updated replicas are still becoming available"

// textPluginsAborting is the message while the plugins of an aborted release are called.
const textPluginsAborting = "waiting for step plugins to abort"

// phaseOf returns the phase of a Rollout, and a message: of the first case that applies.
func phaseOf(spec argov1.RolloutSpec, status argov1.RolloutStatus) (phase argov1.RolloutPhase, message string) {
	if message, ok := degradedMessage(status); ok {
		return argov1.RolloutPhaseDegraded, message
	}
	switch {
	case spec.Paused:
		return argov1.RolloutPhasePaused, "manually paused"
	case len(status.PauseConditions) > 0:
		return argov1.RolloutPhasePaused, string(status.PauseConditions[0].Reason)
	}
	if message := progressMessage(spec, status); message != "" {
		return argov1.RolloutPhaseProgressing, message
	}
	return argov1.RolloutPhaseHealthy, ""
}

// degradedMessage returns the reason for the phase Degraded; false: the Rollout is not degraded.
func degradedMessage(status argov1.RolloutStatus) (string, bool) {
	for _, c := range status.Conditions {
		switch {
		case c.Type == argov1.RolloutInvalidSpec:
			return string(c.Type) + ": " + c.Message, true
		case c.Reason == reasonAborted, c.Reason == reasonDeadlineExceeded:
			return c.Reason + ": " + c.Message, true
		}
	}
	return "", false
}

// progressMessage returns the reason for the phase Progressing; empty: nothing is in progress.
func progressMessage(spec argov1.RolloutSpec, status argov1.RolloutStatus) string {
	routed := spec.Strategy.Canary != nil && spec.Strategy.Canary.TrafficRouting != nil
	switch {
	case spec.RestartAt != nil && !spec.RestartAt.Equal(status.RestartedAt):
		return "rollout is restarting"
	case status.UpdatedReplicas < valueOr(spec.Replicas, 1):
		return "more replicas need to be updated"
	case status.AvailableReplicas < status.UpdatedReplicas:
		return textPodsNotAvailable
	case spec.Strategy.BlueGreen != nil:
		return switchProgressMessage(*spec.Strategy.BlueGreen, status)
	case spec.Strategy.Canary == nil:
		return ""
	case !routed && status.Replicas > status.UpdatedReplicas:
		return "old replicas are pending termination"
	case !isPromoted(status):
		return "waiting for all steps to complete"
	default:
		return ""
	}
}

func switchProgressMessage(b argov1.BlueGreenStrategy, status argov1.RolloutStatus) string {
	active := status.BlueGreen.ActiveSelector
	switch run := status.BlueGreen.PostPromotionAnalysisRunStatus; {
	case active == "" || active != status.CurrentPodHash:
		return "active service cutover pending"
	case isPromoted(status):
		return ""
	case b.PostPromotionAnalysis != nil && (run == nil || !run.Status.Completed()):
		return "waiting for analysis to complete"
	default:
		return "waiting for post-promotion verification to complete"
	}
}
