package oracle

import (
	"slices"
	"time"
)

// TimedBool is a property that is true or false, and the time of its last change. It is false at first.
type TimedBool struct {
	True bool
	// Since is when it last changed; zero: never.
	Since time.Time
}

// Set records the current value.
func (b *TimedBool) Set(value bool, now time.Time) {
	if b.True != value {
		b.True, b.Since = value, now
	}
}

// EverSince reports whether it was true at any time since then.
func (b *TimedBool) EverSince(then time.Time) bool { return b.True || b.Since.After(then) }

// AlwaysSince reports whether it was true at all times since then.
func (b *TimedBool) AlwaysSince(then time.Time) bool { return b.True && !b.Since.After(then) }

// Pods is what an observer knows of the pods of one revision. A nil pointer means that the revision has no pods.
type Pods struct {
	// Answering reports whether at least one pod can answer requests.
	Answering TimedBool
	// Serving is the number of pods that can serve users, Desired the number in the spec.
	Serving, Desired Timeline[int]
}

// AnsweredOnceSince reports whether a pod could answer at any time since then.
func (p *Pods) AnsweredOnceSince(then time.Time) bool { return p != nil && p.Answering.EverSince(then) }

// AnsweredSince reports whether a pod could answer at all times since then.
func (p *Pods) AnsweredSince(then time.Time) bool { return p != nil && p.Answering.AlwaysSince(then) }

// MaxServing returns the maximum number of pods that could serve at any time since then.
func (p *Pods) MaxServing(then time.Time) int {
	if p == nil {
		return 0
	}
	return MaxSince(p.Serving, then)
}

// MinServing returns the number of pods that could serve at all times since then.
func (p *Pods) MinServing(then time.Time) int {
	if p == nil {
		return 0
	}
	return MinSince(p.Serving, then)
}

// MaxSince returns the maximum of a timeline since then.
func MaxSince(t Timeline[int], then time.Time) int { return slices.Max(append(t.Since(then), 0)) }

// MinSince returns the minimum of a timeline since then. It is zero if the timeline begins later.
func MinSince(t Timeline[int], then time.Time) int {
	if len(t) == 0 || t[0].From.After(then) {
		return 0
	}
	return slices.Min(t.Since(then))
}

// maxSpans is the number of values of a timeline that are retained: no check needs older ones.
const maxSpans = 200

// SetCount records a number if it has changed.
func SetCount(t *Timeline[int], n int, now time.Time) {
	if last, counted := t.Last(); counted && last.Value == n {
		return
	}
	t.Set(n, now)
	*t = (*t)[max(0, len(*t)-maxSpans):]
}
