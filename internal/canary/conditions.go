package canary

import (
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// findCondition returns the condition of a type, as a part of the status; nil: there is none.
func findCondition(status flaggerv1.CanaryStatus, conditionType string) *flaggerv1.CanaryCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == conditionType {
			return &status.Conditions[i]
		}
	}
	return nil
}

// changedConditions are the types of the conditions that differ, so that an unchanged condition Blocked is written once.
func changedConditions(a, b flaggerv1.CanaryStatus) []string {
	var out []string
	for _, c := range b.Conditions {
		old := findCondition(a, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message || old.ObservedGeneration != c.ObservedGeneration {
			out = append(out, c.Type)
		}
	}
	return out
}

// maxMessage limits the message of a condition and the reason of an intent, in bytes: both may quote user input.
const maxMessage = 1 << 10

// reasonRefusedStep is the reason of the condition for an effect that was rejected at the end of a window. The effect is
// retried at the end of the next window; until then nothing else is known about it, so the condition remains.
const reasonRefusedStep = "RefusedStep"

// conditionReason converts the name of a gate to the reason of a condition: canary-ready becomes CanaryReady.
func conditionReason(gateName string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(gateName, func(r rune) bool { return r == '-' || r == '/' || r == ' ' || r == '#' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
