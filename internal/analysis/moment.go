package analysis

import (
	"fmt"
	"time"

	"github.com/expr-lang/expr"
)

// Moment is the one that an expression names, such as now() - duration("1h"). Empty: now.
func Moment(expression string, now time.Time) (time.Time, error) {
	if expression == "" {
		return now, nil
	}
	program, err := expr.Compile(expression, expr.MaxNodes(maxNodes), expr.DisableBuiltin("now"),
		expr.Function("now", func(...any) (any, error) { return now, nil }, new(func() time.Time)))
	if err != nil {
		return time.Time{}, fmt.Errorf("%s", firstLine(err))
	}
	out, err := expr.Run(program, nil)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s", firstLine(err))
	}
	at, ok := out.(time.Time)
	if !ok {
		return time.Time{}, fmt.Errorf("expected time.Time, but got %T", out)
	}
	return at, nil
}
