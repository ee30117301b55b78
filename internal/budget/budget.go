// Package budget bounds the cost of evaluating expressions and message templates of users.
//
// The evaluator charges each step, and each value with all its elements, before it is used. A value that refers to the same
// list many times thus costs what it would cost to print, and one that contains itself is too deep. The package must not
// know what is evaluated, or what the result is for.
package budget

import (
	"context"
	"errors"
	"reflect"
	"regexp/syntax"
)

// StepCost is the cost of an iteration of a loop, a call, a value, a list or a map. The unit is about a byte: it is the size
// of a reference. For a text, its length is added.
const StepCost = 16

// The limits of single values.
const (
	maxDepth   = 1000   // lists and maps that are nested in each other
	maxPattern = 10_000 // instructions of a regular expression
)

var (
	// ErrExceeded is the error of an evaluation that costs too much.
	ErrExceeded = errors.New("it needs too much time or memory: use fewer loops, and smaller lists and texts")
	// ErrPattern is the error of a regular expression that costs too much, whatever it is applied to.
	ErrPattern = errors.New("the regular expression is too large: use smaller repetitions")
)

// Budget is the remaining cost of one evaluation. It is not safe for concurrent use.
type Budget struct {
	ctx       context.Context //nolint:containedctx // the context of the evaluation, which both end with
	remaining int
	exceeded  error
}

// New returns the budget of an evaluation that ends with ctx.
func New(ctx context.Context, limit int) *Budget { return &Budget{ctx: ctx, remaining: limit} }

// Err returns why the evaluation must end; nil if it may continue.
func (b *Budget) Err() error { return b.exceeded }

// Spend charges a cost. After the first error, it always returns that error.
func (b *Budget) Spend(cost int) error {
	if b.exceeded != nil {
		return b.exceeded
	}
	if b.remaining -= cost; cost < 0 || b.remaining < 0 {
		b.exceeded = ErrExceeded
	} else if b.ctx.Err() != nil {
		b.exceeded = context.Cause(b.ctx)
	}
	return b.exceeded
}

// SpendTree charges a value with all its elements, and returns its cost and depth.
func (b *Budget) SpendTree(value any) (cost, depth int, err error) {
	cost, depth, err = b.MeasureTree(value)
	if err == nil {
		err = b.Spend(cost)
	}
	return cost, depth, err
}

// MeasureTree returns the cost of a value with all its elements, and its depth, without charging it. A value that costs more
// than the remaining budget exceeds it.
func (b *Budget) MeasureTree(value any) (cost, depth int, err error) {
	return b.measureTree(reflect.ValueOf(value), 0)
}

func (b *Budget) measureTree(v reflect.Value, level int) (cost, depth int, err error) {
	if level > maxDepth {
		b.exceeded = ErrExceeded
		return 0, 0, b.exceeded
	}
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		if v.IsNil() || v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
			return StepCost, level, nil // a struct of a library, such as a time zone or a version
		}
		v = v.Elem()
	}
	depth = level
	add := func(element reflect.Value) error {
		c, d, err := b.measureTree(element, level+1)
		if cost += c; err == nil && cost > b.remaining {
			b.exceeded = ErrExceeded
			err = b.exceeded
		}
		depth = max(depth, d)
		return err
	}
	switch cost = StepCost; v.Kind() {
	case reflect.String:
		cost += v.Len()
	case reflect.Slice, reflect.Array:
		if isScalar(v.Type().Elem().Kind()) {
			return cost + v.Len()*StepCost, level + 1, nil
		}
		for i := range v.Len() {
			if err := add(v.Index(i)); err != nil {
				return cost, depth, err
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if err := add(entries.Key()); err != nil {
				return cost, depth, err
			}
			if err := add(entries.Value()); err != nil {
				return cost, depth, err
			}
		}
	default: // numbers, booleans, functions, times: they have no elements
	}
	return cost, depth, nil
}

func isScalar(k reflect.Kind) bool { return k >= reflect.Bool && k <= reflect.Complex128 }

// ShallowCost returns the cost of a text, or of a reference to any other value.
func ShallowCost(value any) int {
	if text, ok := value.(string); ok {
		return StepCost + len(text)
	}
	return StepCost
}

// PatternSize returns the approximate number of instructions of a regular expression. It is 1 for an invalid pattern, whose
// error is reported when it is compiled.
func PatternSize(pattern string) (int, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 1, nil //nolint:nilerr // see above
	}
	size := countInstructions(parsed)
	if size > maxPattern {
		return maxPattern, ErrPattern
	}
	return size, nil
}

// countInstructions counts the instructions of a parsed pattern. It stops counting beyond maxPattern.
func countInstructions(r *syntax.Regexp) int {
	n := 1 + len(r.Rune)
	for _, sub := range r.Sub {
		if n += countInstructions(sub); n > maxPattern {
			return n
		}
	}
	if r.Op == syntax.OpRepeat {
		n *= max(r.Min, r.Max, 1)
	}
	return n
}

// SearchCost returns the cost of searching a text of a length for a pattern of a size.
func SearchCost(size, text int) int { return (1 + size/8) * (StepCost + text) }
