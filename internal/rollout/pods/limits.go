package pods

import (
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Limits bound a rolling update: maxSurge and maxUnavailable, resolved to numbers of pods.
type Limits struct {
	// Replicas is the number of pods that the Rollout asks for.
	Replicas int32
	// Surge is the number of pods that may exist beyond Replicas, Unavailable the number that may be missing from it.
	Surge, Unavailable int32
}

// defaultShare is the value of maxSurge and maxUnavailable that are not set. A string is a percentage.
var defaultShare = intstr.FromString("25")

// NewLimits resolves maxSurge and maxUnavailable for a number of replicas. Where both resolve to 0, one pod may be
// missing: the update could never start otherwise.
func NewLimits(replicas int32, surge, unavailable *intstr.IntOrString) Limits {
	replicas = max(replicas, 0)
	l := Limits{
		Replicas:    replicas,
		Surge:       clamp(resolve(surge, replicas, math.Ceil)),
		Unavailable: clamp(resolve(unavailable, replicas, math.Floor)),
	}
	if l.Surge == 0 && l.Unavailable == 0 {
		l.Unavailable = 1
	}
	l.Unavailable = min(l.Unavailable, replicas)
	return l
}

// resolve returns a number of pods from a number or a percentage. Any string is a percentage; an unreadable one counts
// as 0.
func resolve(amount *intstr.IntOrString, replicas int32, round func(float64) float64) float64 {
	if amount == nil {
		amount = &defaultShare
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

// clamp converts to a number of pods that is not negative and cannot overflow when two are added.
func clamp(pods float64) int32 {
	return int32(max(min(pods, math.MaxInt32/2), 0))
}

// MaxPods is the number of pods that all revisions together may ask for.
func (l Limits) MaxPods() int32 { return clamp(float64(l.Replicas) + float64(l.Surge)) }

// MinAvailable is the number of pods of all revisions together that must remain available.
func (l Limits) MinAvailable() int32 { return l.Replicas - l.Unavailable }
