package rollout

import (
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Limits are what a rolling update may use beside the pods that are asked for.
type Limits struct {
	// Replicas are asked for.
	Replicas int32
	// Surge is how many pods there may be above them, Unavailable how many may be missing.
	Surge, Unavailable int32
}

// defaultShare is what maxSurge and maxUnavailable are without a value: a text, so a percentage.
var defaultShare = intstr.FromString("25")

// NewLimits resolves maxSurge and maxUnavailable for a number of replicas.
//
// Where both come out as nothing, one pod may be missing, because otherwise nothing could ever move.
func NewLimits(replicas int32, surge, unavailable *intstr.IntOrString) Limits {
	replicas = max(replicas, 0)
	l := Limits{
		Replicas:    replicas,
		Surge:       clamp(share(surge, replicas, math.Ceil)),
		Unavailable: clamp(share(unavailable, replicas, math.Floor)),
	}
	if l.Surge == 0 && l.Unavailable == 0 {
		l.Unavailable = 1
	}
	l.Unavailable = min(l.Unavailable, replicas)
	return l
}

// share is a number of pods, or a percentage of them. Any text is a percentage; one that cannot be read is none.
func share(of *intstr.IntOrString, replicas int32, round func(float64) float64) float64 {
	if of == nil {
		of = &defaultShare
	}
	if of.Type == intstr.Int {
		return float64(of.IntVal)
	}
	percent, err := strconv.ParseInt(strings.TrimSuffix(of.StrVal, "%"), 10, 32)
	if err != nil {
		return 0
	}
	return round(float64(percent) * float64(replicas) / 100)
}

// clamp is a number of pods: whole, not below zero.
func clamp(pods float64) int32 {
	return int32(max(min(pods, math.MaxInt32/2), 0))
}

// MostPods is how many pods of all revisions together may be asked for.
func (l Limits) MostPods() int32 { return clamp(float64(l.Replicas) + float64(l.Surge)) }

// LeastAvailable is how many pods of all revisions together must stay available.
func (l Limits) LeastAvailable() int32 { return l.Replicas - l.Unavailable }

// podsFor is how many of n pods carry a weight out of most, rounded up.
func podsFor(weight, n, most int32) int32 {
	if most <= 0 || weight <= 0 || n <= 0 {
		return 0
	}
	return clamp(math.Ceil(float64(weight) * float64(n) / float64(most)))
}
