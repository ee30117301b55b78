package oracle

import (
	"slices"
	"time"
)

// Condition is whether something is true, and since when. It is false at first.
type Condition struct {
	True bool
	// Since is when it last changed; zero: never.
	Since time.Time
}

// Set records whether it is true now.
func (c *Condition) Set(value bool, now time.Time) {
	if c.True != value {
		c.True, c.Since = value, now
	}
}

// Ever reports whether it was true at some moment since then.
func (c Condition) Ever(then time.Time) bool { return c.True || c.Since.After(then) }

// Always reports whether it was true at every moment since then.
func (c Condition) Always(then time.Time) bool { return c.True && !c.Since.After(then) }

// Pods is what an observer knows of the pods of one revision. A nil pointer means that the revision has none.
type Pods struct {
	// Answering: at least one pod can answer requests.
	Answering Condition
	// Serving is how many pods can serve users, Desired how many the spec asks for.
	Serving, Desired Timeline[int]
}

// CouldAnswer reports whether a pod could answer at some moment since then.
func (p *Pods) CouldAnswer(then time.Time) bool { return p != nil && p.Answering.Ever(then) }

// Answered reports whether a pod could answer at every moment since then.
func (p *Pods) Answered(then time.Time) bool { return p != nil && p.Answering.Always(then) }

// Most is how many pods could serve at once at some moment since then.
func (p *Pods) Most(then time.Time) int {
	if p == nil {
		return 0
	}
	return Most(p.Serving, then)
}

// Fewest is how many pods could serve at every moment since then.
func (p *Pods) Fewest(then time.Time) int {
	if p == nil {
		return 0
	}
	return Fewest(p.Serving, then)
}

// Most is the largest number of a timeline since then.
func Most(t Timeline[int], then time.Time) int { return slices.Max(append(t.Since(then), 0)) }

// Fewest is the smallest number of a timeline since then. Before its beginning there is nothing to count.
func Fewest(t Timeline[int], then time.Time) int {
	if len(t) == 0 || t[0].From.After(then) {
		return 0
	}
	return slices.Min(t.Since(then))
}

// remembered is how many numbers of a timeline are retained: no check asks for older ones.
const remembered = 200

// Count records a number where it has changed.
func Count(t *Timeline[int], n int, now time.Time) {
	if last, counted := t.Last(); counted && last.Value == n {
		return
	}
	t.Set(n, now)
	*t = (*t)[max(0, len(*t)-remembered):]
}
