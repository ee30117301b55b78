package condition

import (
	"context"
	"fmt"
	"time"

	"github.com/serin-dev/serin/internal/expression"
)

// EvaluateTime returns the time that an expression describes, such as now() - duration("1h"). Empty: now.
func EvaluateTime(ctx context.Context, source string, now time.Time) (time.Time, error) {
	if source == "" {
		return now, nil
	}
	out, err := expression.Evaluate(ctx, source, expression.Options{Functions: []expression.Function{{
		Name: "now", Types: []any{new(func() time.Time)}, Call: func(...any) (any, error) { return now, nil },
	}}}, nil)
	if err != nil {
		return time.Time{}, err
	}
	at, ok := out.(time.Time)
	if !ok {
		return time.Time{}, fmt.Errorf("expected time.Time, but got %T", out)
	}
	return at, nil
}
