package expression

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/builtin"

	"github.com/serin-dev/serin/internal/budget"
)

var errText = errors.New("sum() takes numbers, not texts")

// charging has the functions that a rewritten program calls, with the budget of the evaluation that is running.
type charging struct{ *budget.Budget }

// registered is a function under the name by which programs call it.
type registered struct {
	key      string
	function *builtin.Function
}

// functions are those that the rewriter lets programs call.
func (b *charging) functions() []registered {
	all := []registered{
		identity(chargeValue, func(v any) error { _, _, err := b.Deep(v); return err }),
		identity(chargeText, func(v any) error { return b.Spend(budget.Shallow(v)) }),
		identity(chargeNumber, func(v any) error {
			if _, ok := v.(string); ok {
				return errText
			}
			return nil
		}),
		identity(chargeNumbers, b.numbers),
		{key: chargePattern, function: &builtin.Function{
			Name: chargePattern, Validate: lastType,
			Func: func(args ...any) (any, error) {
				size, _ := args[0].(int)
				return args[1], b.search(size, args[1])
			},
		}},
		{key: matchDynamic, function: &builtin.Function{
			Name: matchDynamic, Types: typesOf([]any{new(func(any, any) bool)}),
			Func: func(args ...any) (any, error) { return b.match(args[0], args[1]) },
		}},
	}
	for _, f := range builtin.Builtins {
		if !f.Predicate {
			all = append(all, registered{key: guarded + f.Name, function: b.guard(f)})
		}
	}
	return all
}

// identity is a function that returns its argument, of whatever type, unless it may not.
func identity(name string, may func(any) error) registered {
	return registered{key: name, function: &builtin.Function{
		Name: name, Validate: lastType,
		Func: func(args ...any) (any, error) { return args[0], may(args[0]) },
	}}
}

func lastType(args []reflect.Type) (reflect.Type, error) {
	if last := args[len(args)-1]; last != nil {
		return last, nil
	}
	return reflect.TypeFor[any](), nil
}

// typesOf are the types of functions, or of pointers to them.
func typesOf(functions []any) []reflect.Type {
	types := make([]reflect.Type, len(functions))
	for i, f := range functions {
		types[i] = reflect.TypeOf(f)
		if types[i].Kind() == reflect.Pointer {
			types[i] = types[i].Elem()
		}
	}
	return types
}

// numbers charges a list that is added up. Adding texts would copy the sum in each round.
func (b *charging) numbers(list any) error {
	if _, _, err := b.Deep(list); err != nil {
		return err
	}
	v := reflect.ValueOf(list)
	if v.Kind() != reflect.Slice && v.Kind() != reflect.Array {
		return nil // the language reports it
	}
	for i := range v.Len() {
		if _, ok := reflect.TypeAssert[string](v.Index(i)); ok {
			return errText
		}
	}
	return nil
}

// search charges looking for a pattern of a size.
func (b *charging) search(size int, text any) error {
	length := 0
	switch t := text.(type) {
	case string:
		length += len(t)
	case []byte:
		length += len(t)
	}
	return b.Spend(budget.SearchCost(size, length))
}

// match is the operator matches with a pattern that the program computes.
func (b *charging) match(text, pattern any) (bool, error) {
	if text == nil || pattern == nil {
		return false, nil
	}
	source, ok := pattern.(string)
	if !ok {
		return false, fmt.Errorf("matches takes a text, not %T", pattern)
	}
	if err := b.Spend(budget.StepCost * len(source)); err != nil {
		return false, err
	}
	size, err := budget.PatternSize(source)
	if err == nil {
		err = b.Spend(budget.StepCost * size) // it is compiled anew each time
	}
	if err == nil {
		err = b.search(size, text)
	}
	if err != nil {
		return false, err
	}
	compiled, err := regexp.Compile(source)
	if err != nil {
		return false, err
	}
	switch t := text.(type) {
	case string:
		return compiled.MatchString(t), nil
	case []byte:
		return compiled.Match(t), nil
	default:
		return false, fmt.Errorf("matches takes a text, not %T", text)
	}
}

// guard makes a function of the language charge its arguments before it runs.
func (b *charging) guard(f *builtin.Function) *builtin.Function {
	return &builtin.Function{
		Name: f.Name, Types: f.Types, Validate: f.Validate, Deref: f.Deref,
		Func: func(args ...any) (out any, err error) {
			if err := b.arguments(f.Name, args); err != nil {
				return nil, err
			}
			switch {
			case f.Func != nil:
				return f.Func(args...)
			case f.Safe != nil:
				out, _, err = f.Safe(args...)
				return out, err
			case len(args) == 1:
				return f.Fast(args[0]), nil
			default:
				return nil, fmt.Errorf("invalid number of arguments for %s (expected 1, got %d)", f.Name, len(args))
			}
		},
	}
}

// light are the functions that do not go through the lists and maps they are given.
var light = map[string]bool{
	"len": true, "type": true, "abs": true, "ceil": true, "floor": true, "round": true, "int": true, "float": true, "first": true, "last": true,
	"get": true, "take": true, "now": true, "duration": true, "date": true, "timezone": true, "bitand": true, "bitor": true, "bitxor": true,
	"bitnand": true, "bitshl": true, "bitshr": true, "bitushr": true, "bitnot": true,
}

// arguments charges those of a function of the language with what the call costs, its result included.
func (b *charging) arguments(name string, args []any) error {
	total, depth := 0, 0
	for _, arg := range args {
		cost := budget.Shallow(arg)
		if light[name] {
			if err := b.Spend(cost); err != nil {
				return err
			}
			continue
		}
		cost, d, err := b.Deep(arg)
		if err != nil {
			return err
		}
		total, depth = total+cost, max(depth, d)
	}
	return b.Spend(b.surplus(name, args, total, depth))
}

// surplus is what a function costs beyond its arguments; total and depth are theirs. All factors are bounded by the
// budget, so that none of this overflows.
func (b *charging) surplus(name string, args []any, total, depth int) int {
	switch name {
	case "repeat":
		n := number(at(args, 1))
		if n > maxCost {
			return maxCost + 1
		}
		return len(text(at(args, 0))) * max(n, 0)
	case "replace":
		count := strings.Count(text(at(args, 0)), text(at(args, 1)))
		return total + count*len(text(at(args, 2)))
	case "join":
		return total + elements(at(args, 0))*len(text(at(args, 1)))
	case "split", "splitAfter":
		return total + budget.StepCost*(1+strings.Count(text(at(args, 0)), text(at(args, 1))))
	case "toJSON":
		return total * (6 + depth)
	case "fromJSON":
		return total * 32
	case "flatten":
		return total * (1 + depth)
	case "sort":
		return total * bits.Len(uint(total))
	case "uniq":
		return total * (1 + elements(at(args, 0))/8)
	case "date", "timezone":
		return zoneCost
	default:
		return 2 * total
	}
}

func at(args []any, i int) any {
	if i < len(args) {
		return args[i]
	}
	return nil
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func number(v any) int {
	rv := reflect.ValueOf(v)
	switch {
	case rv.CanInt():
		return int(rv.Int())
	case rv.CanUint():
		return int(min(rv.Uint(), maxCost+1))
	case rv.CanFloat():
		return int(min(rv.Float(), maxCost+1))
	default:
		return 0
	}
}

func elements(v any) int {
	rv := reflect.ValueOf(v)
	if rv.Kind() == reflect.Slice || rv.Kind() == reflect.Array {
		return rv.Len()
	}
	return 0
}
