package v1beta1

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ConditionState has status.serin as JSON in its message if the schema of the resource prunes that field, as Flagger's
// CustomResourceDefinition does. A condition is written in the same request as the rest of the status; see docs/adr/0006.
const ConditionState = "SerinState"

// reasonState is the reason of that condition.
const reasonState = "SchemaWithoutSerin"

// DecodeState returns a stored status with Serin's state in its field, wherever it was stored. It does not modify stored.
//
// The condition is valid only together with the status with which it was written, which lastTransitionTime identifies:
// Flagger sets that time with every write, and retains all conditions as long as the phase is unchanged. A condition that
// cannot be decoded is treated as absent, because no later attempt could decode it either.
func DecodeState(stored CanaryStatus) CanaryStatus {
	at := slices.IndexFunc(stored.Conditions, isState)
	if at < 0 {
		return stored
	}
	condition, decoded := stored.Conditions[at], withoutState(stored)
	if decoded.Serin != nil || !condition.LastTransitionTime.Equal(&stored.LastTransitionTime) {
		return decoded
	}
	serin := &SerinStatus{}
	if err := json.Unmarshal([]byte(condition.Message), serin); err == nil {
		decoded.Serin = serin
	}
	return decoded
}

// EncodeState returns a status with Serin's state in the condition as well. The field remains: the response to the write
// shows whether the schema stores it by now.
func EncodeState(status CanaryStatus) (CanaryStatus, error) {
	encoded := withoutState(status)
	if status.Serin == nil {
		return encoded, nil
	}
	text, err := json.Marshal(status.Serin)
	if err != nil {
		return status, fmt.Errorf("encode status.serin: %w", err)
	}
	encoded.Conditions = append(slices.Clip(encoded.Conditions), CanaryCondition{
		Type: ConditionState, Status: corev1.ConditionTrue, Reason: reasonState, Message: string(text),
		LastUpdateTime: status.LastTransitionTime, LastTransitionTime: status.LastTransitionTime,
	})
	return encoded, nil
}

// HasEncodedState reports whether a stored status has that condition.
func HasEncodedState(stored CanaryStatus) bool {
	return slices.ContainsFunc(stored.Conditions, isState)
}

func isState(c CanaryCondition) bool { return c.Type == ConditionState }

func withoutState(status CanaryStatus) CanaryStatus {
	if HasEncodedState(status) {
		status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), isState)
	}
	return status
}
