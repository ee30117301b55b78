package oracle

import "time"

// Timeline is a value over time: each span begins where the one before ends.
type Timeline[T any] []Span[T]

// Span is a value and when it became valid.
type Span[T any] struct {
	Value T
	From  time.Time
}

// Set makes a value valid from now on.
func (t *Timeline[T]) Set(value T, now time.Time) { *t = append(*t, Span[T]{value, now}) }

// Last is the newest span; false: there is none.
func (t Timeline[T]) Last() (Span[T], bool) {
	if len(t) == 0 {
		return Span[T]{}, false
	}
	return t[len(t)-1], true
}

// Changed is when the newest value became valid; zero: there is none.
func (t Timeline[T]) Changed() time.Time {
	last, _ := t.Last()
	return last.From
}

// Replaced reports whether a value was replaced by another one after that moment.
func (t Timeline[T]) Replaced(after time.Time) bool { return len(t) > 1 && t.Changed().After(after) }

// Since are the values that were valid at some moment after then, or are valid now.
func (t Timeline[T]) Since(then time.Time) []T {
	var out []T
	for i, span := range t {
		if i == len(t)-1 || t[i+1].From.After(then) {
			out = append(out, span.Value)
		}
	}
	return out
}

// Until is the part of the timeline up to a moment.
func (t Timeline[T]) Until(moment time.Time) Timeline[T] {
	n := len(t)
	for n > 0 && t[n-1].From.After(moment) {
		n--
	}
	return t[:n]
}
