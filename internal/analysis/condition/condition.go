// Package condition evaluates the expressions in the metrics of AnalysisRuns: success and failure conditions, and the
// ends of range queries.
//
// It knows the functions that conditions may call, and the phase that follows from the two conditions of a metric. It
// must not know how a value was measured, or the consequence of the result. Package expression bounds each evaluation.
package condition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/expression"
)

// errNoData is the error of a condition that requires a value, but there is none.
var errNoData = errors.New("metric result is nil or empty: no data returned from the metric provider")

// EvaluatePhase returns the phase of a measurement according to the two conditions of its metric, each of which may be
// empty. value is the result of a provider: a number, a string, a boolean, a list or a map of these, or nil.
// EvaluatePhase fails if a condition cannot be evaluated.
func EvaluatePhase(ctx context.Context, value any, success, failure string) (argov1.AnalysisPhase, error) {
	succeeded, err := evaluateField(ctx, "successCondition", success, value)
	if err != nil {
		return "", err
	}
	failed, err := evaluateField(ctx, "failureCondition", failure, value)
	if err != nil {
		return "", err
	}
	switch {
	case failed:
		return argov1.AnalysisPhaseFailed, nil
	case succeeded, success == "":
		return argov1.AnalysisPhaseSuccessful, nil
	case failure == "":
		return argov1.AnalysisPhaseFailed, nil
	default:
		return argov1.AnalysisPhaseInconclusive, nil
	}
}

func evaluateField(ctx context.Context, field, condition string, value any) (bool, error) {
	if condition == "" {
		return false, nil
	}
	holds, err := Evaluate(ctx, condition, value)
	if err != nil && isEmptyResult(value) {
		err = errNoData
	}
	if err != nil {
		return false, fmt.Errorf("could not evaluate %s %q: %w", field, condition, err)
	}
	return holds, nil
}

// Evaluate evaluates a condition about a value, which the condition refers to as result.
func Evaluate(ctx context.Context, condition string, value any) (bool, error) {
	value = dereference(value)
	variables := map[string]any{"result": value}
	options := expression.Options{Variables: variables, Functions: conditionFunctions(value)}
	out, err := expression.Evaluate(ctx, condition, options, variables)
	if err != nil {
		return false, err
	}
	holds, ok := out.(bool)
	if !ok {
		return false, fmt.Errorf("expected bool, but got %T", out)
	}
	return holds, nil
}

// Check reports why a condition cannot be evaluated, whatever the value is: its syntax, or a variable or function that does not
// exist.
func Check(condition string) error {
	_, err := expression.Compile(condition, expression.Options{Untyped: []string{"result"}, Functions: conditionFunctions(nil)})
	return err
}

// conditionFunctions returns the functions that conditions may call in addition to those of the expression language.
// isNil and default apply to the result, whatever their argument is: existing conditions depend on it.
func conditionFunctions(result any) []expression.Function {
	unary := func(name string, call func(any) (any, error), signature any) expression.Function {
		return expression.Function{Name: name, Call: func(args ...any) (any, error) { return call(args[0]) }, Types: []any{signature}}
	}
	return []expression.Function{
		unary("asInt", asInt, new(func(any) int64)),
		unary("asFloat", func(v any) (any, error) { return asFloat(v) }, new(func(any) float64)),
		unary("isNaN", func(v any) (any, error) {
			f, err := asFloat(v)
			return math.IsNaN(f), err
		}, new(func(any) bool)),
		unary("isInf", func(v any) (any, error) {
			f, err := asFloat(v)
			return math.IsInf(f, 0), err
		}, new(func(any) bool)),
		unary("isNil", func(any) (any, error) { return isNil(result), nil }, new(func(any) bool)),
		{Name: "default", Types: []any{new(func(any, any) any)}, Call: func(args ...any) (any, error) {
			if isNil(result) {
				return args[1], nil
			}
			return result, nil
		}},
	}
}

func asInt(v any) (any, error) {
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return rv.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if rv.Uint() > math.MaxInt64 {
			return nil, fmt.Errorf("asInt(%d): the value is too large", rv.Uint())
		}
		return int64(rv.Uint()), nil //nolint:gosec // it was compared with the maximum
	case reflect.Float32, reflect.Float64:
		f := math.Trunc(rv.Float())
		if !(f >= math.MinInt64 && f < math.MaxInt64) {
			return nil, fmt.Errorf("asInt(%v): the value cannot be converted to an integer", rv.Float())
		}
		return int64(f), nil
	case reflect.String:
		n, err := strconv.ParseInt(rv.String(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("asInt(%q): the value is not an integer", rv.String())
		}
		return n, nil
	default:
		return nil, fmt.Errorf("asInt() not supported on type %T", v)
	}
}

func asFloat(v any) (float64, error) {
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return float64(rv.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return float64(rv.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return rv.Float(), nil
	case reflect.String:
		f, err := strconv.ParseFloat(rv.String(), 64)
		if err != nil {
			return 0, fmt.Errorf("asFloat(%q): the value is not a number", rv.String())
		}
		return f, nil
	default:
		return 0, fmt.Errorf("asFloat() not supported on type %T", v)
	}
}

// dereference returns the value that a pointer refers to.
func dereference(v any) any {
	rv := reflect.ValueOf(v)
	for rv.Kind() == reflect.Pointer {
		if rv.IsNil() {
			return nil
		}
		rv = rv.Elem()
	}
	if !rv.IsValid() {
		return nil
	}
	return rv.Interface()
}

// isNil reports whether a value is nil, or a nil list or map.
func isNil(v any) bool {
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Slice, reflect.Map, reflect.Pointer:
		return rv.IsNil()
	default:
		return false
	}
}

// isEmptyResult reports whether a result contains no data: it is nil or an empty list.
func isEmptyResult(v any) bool {
	v = dereference(v)
	return isNil(v) || reflect.ValueOf(v).Kind() == reflect.Slice && reflect.ValueOf(v).Len() == 0
}
