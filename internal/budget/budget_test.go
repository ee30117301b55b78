package budget

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestSharedValuesAreChargedEachTime(t *testing.T) {
	b := New(t.Context(), 1<<20)
	shared := any([]any{"12345678", "12345678"})
	for range 30 {
		shared = []any{shared, shared}
	}
	if _, _, err := b.SpendTree([]any{"abc", 1, nil, map[string]any{"k": []float64{1, 2}}}); err != nil || b.remaining < 1<<20-300 {
		t.Errorf("a small value: %v, %d remain", err, b.remaining)
	}
	if _, _, err := b.SpendTree(shared); !errors.Is(err, ErrExceeded) {
		t.Errorf("a value of 2^30 elements: %v", err)
	}
	if err := b.Spend(0); !errors.Is(err, ErrExceeded) {
		t.Errorf("after it was exceeded: %v", err)
	}
}

func TestValueThatContainsItself(t *testing.T) {
	self := map[string]any{}
	self["self"] = self
	if _, _, err := New(t.Context(), 1<<30).SpendTree(self); !errors.Is(err, ErrExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestBudgetEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	b, cause := New(ctx, 1<<20), errors.New("gone")
	if err := b.Spend(1); err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	if err := b.Spend(1); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestPatternSize(t *testing.T) {
	for pattern, large := range map[string]bool{
		"^ready: [0-9]+$": false, "(": false, `(?i)fatal|panic`: false, "x{1000}": false, "(x{30}){30}": false,
		strings.Repeat("x{1000}", 20): true, "(x{100}){10}(x{100}){10}(x{500}){2}" + strings.Repeat("(ab){500}", 8): true,
	} {
		size, err := PatternSize(pattern)
		if (err != nil) != large {
			t.Errorf("%s: %d, %v", pattern, size, err)
		}
	}
}
