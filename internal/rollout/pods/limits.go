package pods

import (
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// RollingLimits are the limits of a rolling update: maxSurge and maxUnavailable, resolved to numbers of pods.
type RollingLimits struct {
	// Replicas is the desired number of pods of the Rollout.
	Replicas int32
	// MaxSurge is the number of pods that may exist in addition to Replicas, MaxUnavailable the number of those that
	// may be unavailable.
	MaxSurge, MaxUnavailable int32
}

// defaultPercentage is the default of maxSurge and maxUnavailable, as a percentage.
var defaultPercentage = intstr.FromString("25")

// NewRollingLimits resolves maxSurge and maxUnavailable for a number of replicas. If both resolve to 0, one pod may be
// unavailable: otherwise, the update could never start.
func NewRollingLimits(replicas int32, surge, unavailable *intstr.IntOrString) RollingLimits {
	replicas = max(replicas, 0)
	l := RollingLimits{
		Replicas:       replicas,
		MaxSurge:       clampPodCount(resolvePodCount(surge, replicas, math.Ceil)),
		MaxUnavailable: clampPodCount(resolvePodCount(unavailable, replicas, math.Floor)),
	}
	if l.MaxSurge == 0 && l.MaxUnavailable == 0 {
		l.MaxUnavailable = 1
	}
	l.MaxUnavailable = min(l.MaxUnavailable, replicas)
	return l
}

// resolvePodCount returns a number of pods from a number or a percentage. Any string is a percentage; an invalid one
// counts as 0.
func resolvePodCount(amount *intstr.IntOrString, replicas int32, round func(float64) float64) float64 {
	if amount == nil {
		amount = &defaultPercentage
	}
	if amount.Type == intstr.Int {
		return float64(amount.IntVal)
	}
	percent, err := strconv.ParseInt(strings.TrimSuffix(amount.StrVal, "%"), 10, 32)
	if err != nil {
		return 0
	}
	return round(float64(percent) * float64(replicas) / 100)
}

// clampPodCount converts a value to a number of pods that is not negative, and small enough that the sum of two does
// not overflow.
func clampPodCount(pods float64) int32 {
	return int32(max(min(pods, math.MaxInt32/2), 0))
}

// MaxPods returns the maximum number of desired pods of all revisions together.
func (l RollingLimits) MaxPods() int32 {
	return clampPodCount(float64(l.Replicas) + float64(l.MaxSurge))
}

// MinAvailable returns the minimum number of available pods of all revisions together.
func (l RollingLimits) MinAvailable() int32 { return l.Replicas - l.MaxUnavailable }
