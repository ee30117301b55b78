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

var errSumOfTexts = errors.New("sum() takes numbers, not texts")

// chargingFunctions contains the functions that a rewritten program calls, and the budget of the current evaluation.
type chargingFunctions struct{ *budget.Budget }

// namedFunction is a function and the name by which programs call it.
type namedFunction struct {
	key      string
	function *builtin.Function
}

// programFunctions returns the functions that the rewriter inserts into programs.
func (b *chargingFunctions) programFunctions() []namedFunction {
	all := []namedFunction{
		newIdentity(chargeValue, func(v any) error { _, _, err := b.SpendTree(v); return err }),
		newIdentity(chargeText, func(v any) error { return b.Spend(budget.ShallowCost(v)) }),
		newIdentity(chargeNumber, func(v any) error {
			if _, ok := v.(string); ok {
				return errSumOfTexts
			}
			return nil
		}),
		newIdentity(chargeNumbers, b.chargeNumberList),
		{key: chargePattern, function: &builtin.Function{
			Name: chargePattern, Validate: lastArgumentType,
			Func: func(args ...any) (any, error) {
				size, _ := args[0].(int)
				return args[1], b.chargeSearch(size, args[1])
			},
		}},
		{key: matchDynamic, function: &builtin.Function{
			Name: matchDynamic, Types: functionTypes([]any{new(func(any, any) bool)}),
			Func: func(args ...any) (any, error) { return b.matchPattern(args[0], args[1]) },
		}},
	}
	for _, f := range builtin.Builtins {
		if !f.Predicate {
			all = append(all, namedFunction{key: guardedPrefix + f.Name, function: b.guardFunction(f)})
		}
	}
	return all
}

// newIdentity returns a function that returns its argument, of any type, unless may returns an error.
func newIdentity(name string, check func(any) error) namedFunction {
	return namedFunction{key: name, function: &builtin.Function{
		Name: name, Validate: lastArgumentType,
		Func: func(args ...any) (any, error) { return args[0], check(args[0]) },
	}}
}

func lastArgumentType(args []reflect.Type) (reflect.Type, error) {
	if last := args[len(args)-1]; last != nil {
		return last, nil
	}
	return reflect.TypeFor[any](), nil
}

// functionTypes returns the types of functions, or of pointers to them.
func functionTypes(functions []any) []reflect.Type {
	types := make([]reflect.Type, len(functions))
	for i, f := range functions {
		types[i] = reflect.TypeOf(f)
		if types[i].Kind() == reflect.Pointer {
			types[i] = types[i].Elem()
		}
	}
	return types
}

// chargeNumberList charges a list that is added up. It refuses texts, because adding them would copy the sum each time.
func (b *chargingFunctions) chargeNumberList(list any) error {
	if _, _, err := b.SpendTree(list); err != nil {
		return err
	}
	v := reflect.ValueOf(list)
	if v.Kind() != reflect.Slice && v.Kind() != reflect.Array {
		return nil // the language reports it
	}
	for i := range v.Len() {
		if _, ok := reflect.TypeAssert[string](v.Index(i)); ok {
			return errSumOfTexts
		}
	}
	return nil
}

// chargeSearch charges the search for a pattern of a size.
func (b *chargingFunctions) chargeSearch(size int, text any) error {
	length := 0
	switch t := text.(type) {
	case string:
		length += len(t)
	case []byte:
		length += len(t)
	}
	return b.Spend(budget.SearchCost(size, length))
}

// matchPattern implements the operator matches for a pattern that the program computes.
func (b *chargingFunctions) matchPattern(text, pattern any) (bool, error) {
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
		err = b.Spend(budget.StepCost * size) // it is compiled for each match
	}
	if err == nil {
		err = b.chargeSearch(size, text)
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

// guardFunction returns a function of the language that charges its arguments before it runs.
func (b *chargingFunctions) guardFunction(f *builtin.Function) *builtin.Function {
	return &builtin.Function{
		Name: f.Name, Types: f.Types, Validate: f.Validate, Deref: f.Deref,
		Func: func(args ...any) (out any, err error) {
			if err := b.chargeArguments(f.Name, args); err != nil {
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

// constantCostFunctions are the functions that do not iterate over the elements of their arguments.
var constantCostFunctions = map[string]bool{
	"len": true, "type": true, "abs": true, "ceil": true, "floor": true, "round": true, "int": true, "float": true, "first": true, "last": true,
	"get": true, "take": true, "now": true, "duration": true, "date": true, "timezone": true, "bitand": true, "bitor": true, "bitxor": true,
	"bitnand": true, "bitshl": true, "bitshr": true, "bitushr": true, "bitnot": true,
}

// chargeArguments charges the arguments of a function of the language, and the cost of the call including its result.
func (b *chargingFunctions) chargeArguments(name string, args []any) error {
	total, depth := 0, 0
	for _, arg := range args {
		cost := budget.ShallowCost(arg)
		if constantCostFunctions[name] {
			if err := b.Spend(cost); err != nil {
				return err
			}
			continue
		}
		cost, d, err := b.SpendTree(arg)
		if err != nil {
			return err
		}
		total, depth = total+cost, max(depth, d)
	}
	return b.Spend(b.surplusCost(name, args, total, depth))
}

// surplusCost returns the cost of a function in addition to its arguments, whose total cost and depth are given. All factors
// are bounded by the budget, so that nothing overflows.
func (b *chargingFunctions) surplusCost(name string, args []any, total, depth int) int {
	switch name {
	case "repeat":
		n := intValue(argumentAt(args, 1))
		if n > maxCost {
			return maxCost + 1
		}
		return len(stringValue(argumentAt(args, 0))) * max(n, 0)
	case "replace":
		count := strings.Count(stringValue(argumentAt(args, 0)), stringValue(argumentAt(args, 1)))
		return total + count*len(stringValue(argumentAt(args, 2)))
	case "join":
		return total + countElements(argumentAt(args, 0))*len(stringValue(argumentAt(args, 1)))
	case "split", "splitAfter":
		return total + budget.StepCost*(1+strings.Count(stringValue(argumentAt(args, 0)), stringValue(argumentAt(args, 1))))
	case "toJSON":
		return total * (6 + depth)
	case "fromJSON":
		return total * 32
	case "flatten":
		return total * (1 + depth)
	case "sort":
		return total * bits.Len(uint(total))
	case "uniq":
		return total * (1 + countElements(argumentAt(args, 0))/8)
	case "date", "timezone":
		return zoneCost
	default:
		return 2 * total
	}
}

func argumentAt(args []any, i int) any {
	if i < len(args) {
		return args[i]
	}
	return nil
}

func stringValue(v any) string {
	s, _ := v.(string)
	return s
}

func intValue(v any) int {
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

func countElements(v any) int {
	rv := reflect.ValueOf(v)
	if rv.Kind() == reflect.Slice || rv.Kind() == reflect.Array {
		return rv.Len()
	}
	return 0
}
