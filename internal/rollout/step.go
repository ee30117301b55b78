package rollout

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// parsePauseSeconds parses the duration of a pause in seconds: a number, digits, or a duration, which is truncated to
// whole seconds.
func parsePauseSeconds(duration intstr.IntOrString) (int64, error) {
	if duration.Type == intstr.Int {
		return int64(duration.IntVal), nil
	}
	if n, err := strconv.ParseInt(duration.StrVal, 10, 32); err == nil {
		return n, nil
	}
	parsed, err := time.ParseDuration(duration.StrVal)
	if err != nil {
		return 0, fmt.Errorf("read duration %q: %w", duration.StrVal, err)
	}
	return int64(parsed / time.Second), nil
}

// isIndefinite reports whether only the user ends a pause.
func isIndefinite(pause argov1.RolloutPause) bool { return pause.Duration == nil }

// DescribeStep returns the name of a step in events and messages.
func DescribeStep(step argov1.CanaryStep) string {
	switch {
	case step.SetWeight != nil:
		return fmt.Sprintf("setWeight: %d", *step.SetWeight)
	case step.Pause != nil && isIndefinite(*step.Pause):
		return "pause"
	case step.Pause != nil:
		return "pause: " + step.Pause.Duration.String()
	case step.Experiment != nil:
		return "experiment"
	case step.Analysis != nil:
		return "analysis"
	case step.SetCanaryScale != nil:
		return describeScale(*step.SetCanaryScale)
	case step.Plugin != nil:
		return "plugin: " + step.Plugin.Name
	case step.SetHeaderRoute != nil:
		return "setHeaderRoute: " + step.SetHeaderRoute.Name
	case step.SetMirrorRoute != nil:
		return "setMirrorRoute: " + step.SetMirrorRoute.Name
	default:
		return "invalid"
	}
}

func describeScale(scale argov1.SetCanaryScale) string {
	switch {
	case scale.Weight != nil:
		return fmt.Sprintf("setCanaryScale{weight: %d}", *scale.Weight)
	case scale.MatchTrafficWeight:
		return "setCanaryScale{matchTrafficWeight: true}"
	case scale.Replicas != nil:
		return fmt.Sprintf("setCanaryScale{replicas: %d}", *scale.Replicas)
	default:
		return "invalid"
	}
}
