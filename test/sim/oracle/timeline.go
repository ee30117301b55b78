package oracle

import "time"

// Timeline is a value over time. Each span begins where the previous one ends.
type Timeline[T any] []Span[T]

// Span is a value and the time at which it became valid.
type Span[T any] struct {
	Value T
	From  time.Time
}

// Set records a value that is valid from now on.
func (t *Timeline[T]) Set(value T, now time.Time) { *t = append(*t, Span[T]{value, now}) }

// Last returns the newest span, or false if there is none.
func (t Timeline[T]) Last() (Span[T], bool) {
	if len(t) == 0 {
		return Span[T]{}, false
	}
	return t[len(t)-1], true
}

// Changed returns when the newest value became valid, or zero if there is none.
func (t Timeline[T]) Changed() time.Time {
	last, _ := t.Last()
	return last.From
}

// Replaced reports whether a value was replaced by another one after the given time.
func (t Timeline[T]) Replaced(after time.Time) bool { return len(t) > 1 && t.Changed().After(after) }

// Since returns the values that were valid at any time after then, including the current one.
func (t Timeline[T]) Since(then time.Time) []T {
	var out []T
	for i, span := range t {
		if i == len(t)-1 || t[i+1].From.After(then) {
			out = append(out, span.Value)
		}
	}
	return out
}

// Until returns the part of the timeline up to the given time.
func (t Timeline[T]) Until(moment time.Time) Timeline[T] {
	n := len(t)
	for n > 0 && t[n-1].From.After(moment) {
		n--
	}
	return t[:n]
}
