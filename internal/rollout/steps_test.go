package rollout

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

func setWeight(weight int32) argov1.CanaryStep { return argov1.CanaryStep{SetWeight: &weight} }

func setScale(scale argov1.SetCanaryScale) argov1.CanaryStep {
	return argov1.CanaryStep{SetCanaryScale: &scale}
}

var (
	scaleTo     = func(replicas int32) argov1.CanaryStep { return setScale(argov1.SetCanaryScale{Replicas: &replicas}) }
	scaleLike   = func(weight int32) argov1.CanaryStep { return setScale(argov1.SetCanaryScale{Weight: &weight}) }
	scaleFollow = setScale(argov1.SetCanaryScale{MatchTrafficWeight: true})
)

// amount parses a number or a string in quotes, such as maxSurge or a duration; "" is nil.
func amount(text string) *intstr.IntOrString {
	if text == "" {
		return nil
	}
	if n, err := strconv.Atoi(text); err == nil {
		return new(intstr.FromInt32(int32(n)))
	}
	return new(intstr.FromString(strings.Trim(text, `"`)))
}
