package expression

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/builtin"
	"github.com/google/go-cmp/cmp"
)

// hostileExpressions are expressions that each cost gigabytes or hours if nothing limits them.
var hostileExpressions = map[string]string{
	"doubled text":        `let a = repeat("x", 900000); let b=a+a+a+a+a+a; let c=b+b+b+b+b+b+b+b+b+b; let d=c+c+c+c; len(d)>0`,
	"nested loops":        `let a = 1..1000; all(a, all(a, all(a, #>0)))`,
	"nested empty loops":  `let a = 1..100000; all(a, all(a, true))`,
	"large range":         `len(1..100000000) > 1`,
	"many ranges":         strings.Repeat(`len(1..100000) + `, 150) + `1 > 0`,
	"repeated text":       `len(repeat('x', 1000000000)) > 1`,
	"repeated twice":      `len(repeat(repeat('x', 1000000), 1000000)) > 1`,
	"repeated very often": `len(repeat(repeat('x', 100000), int(1e18))) > 1`,
	"doubled list":        `let a = [1,1,1,1,1,1,1,1,1,1]; let b=[a,a,a,a,a,a,a,a,a,a]; let c=[b,b,b,b,b,b,b,b,b,b]; let d=[c,c,c,c,c,c,c,c,c,c]; let e=[d,d,d,d,d,d,d,d,d,d]; let f=[e,e,e,e,e,e,e,e,e,e]; let g=[f,f,f,f,f,f,f,f,f,f]; let h=[g,g,g,g,g,g,g,g,g,g]; let i=[h,h,h,h,h,h,h,h,h,h]; len(toJSON(i)) > 0`,
	"doubled map":         `let a = {"a": "` + strings.Repeat("x", 1000) + `"}; let b={"a":a,"b":a,"c":a,"d":a}; let c={"a":b,"b":b,"c":b,"d":b}; let d={"a":c,"b":c,"c":c,"d":c}; let e={"a":d,"b":d,"c":d,"d":d}; let f={"a":e,"b":e,"c":e,"d":e}; let g={"a":f,"b":f,"c":f,"d":f}; let h={"a":g,"b":g,"c":g,"d":g}; let i={"a":h,"b":h,"c":h,"d":h}; let j={"a":i,"b":i,"c":i,"d":i}; let k={"a":j,"b":j,"c":j,"d":j}; len(string(k)) > 0`,
	"doubled by a loop":   `len(reduce(1..60, [#acc, #acc], [1])) > 0`,
	"texts by a loop":     `len(reduce(1..60, #acc + #acc, "x")) > 0`,
	"replaced":            `let a = repeat("x", 1000000); len(replace(a, "", a)) > 0`,
	"joined":              `let a = repeat("x", 1000000); len(join(map(1..100000, "y"), a)) > 0`,
	"joined the same":     `let a = repeat("x", 1000000); len(join(map(1..100000, a))) > 0`,
	"mapped the same":     `let a = repeat("x", 1000000); len(string(map(1..100000, a))) > 0`,
	"split":               `let a = repeat("x", 1000000); len(map(1..100, split(a, ""))) > 0`,
	"compared":            `let a = repeat("x", 1000000); let b = a + "x"; let c = a + "y"; all(1..100000, b != c)`,
	"compared lists":      `let a = map(1..100000, #); let b = map(1..100000, #); all(1..100000, a == b)`,
	"searched":            `let a = repeat("x", 1000000); all(1..100000, not (a contains "y"))`,
	"searched lists":      `let a = 1..100000; all(1..100000, not (-1 in a))`,
	"pattern":             `let a = repeat("x", 1000000); all(1..1000, not (a matches "` + strings.Repeat("x{500}", 15) + `"))`,
	"large pattern":       `"x" matches "` + strings.Repeat("x{1000}", 400) + `"`,
	"computed pattern":    `"x" matches repeat("x{1000}", 2000)`,
	"computed patterns":   `all(1..100000, not ("x" matches "x{900}" + string(#)))`,
	"sum of texts":        `let a = repeat("x", 100); len(sum(map(1..100000, a))) > 0`,
	"sum of mapped texts": `let a = repeat("x", 100); len(sum(1..100000, a)) > 0`,
	"sorted":              `let a = repeat("x", 1000000); len(sortBy(1..100000, # % 2 == 0 ? a : a + "x")) > 0`,
	"unique":              `len(uniq(1..200000)) > 0`,
	"decoded":             `len(fromJSON("[" + repeat("1,", 400000) + "1]")) > 0`,
	"time zones":          `all(1..100000, date("2023-08-14 00:00:00", "2006-01-02 15:04:05", "Europe/Zurich") != nil)`,
	"numbers of texts":    `let a = repeat("0", 1000000); all(1..100000, float(a) == 0)`,
	"own function":        `let a = repeat("1", 1000000); all(1..100000, own(a) != nil)`,
	"builtin by its name": `len(::repeat(::repeat('x', 1000000), 1000000)) > 1`,
	"piped":               `"x" | repeat(1000000) | repeat(1000000) | len() > 1`,
	"long":                strings.Repeat("1 > 1 && ", 5000) + "true",
	"many nodes":          strings.Repeat("1>0&&", 1500) + "true",
	"flattened":           `let a = 1..100; len(flatten(map(1..1000, map(1..1000, a)))) > 0`,
	"medians of the same": `let a = 1..1000; let b = map(1..1000, a); let c = map(1..1000, b); median(c) > 0`,
	"grouped":             `let a = repeat("x", 1000000); len(groupBy(1..100000, a + string(#))) > 0`,
	"counted":             `let a = map(1..100000, true); all(1..100000, count(a) > 0)`,
	"deep list as text":   `len(toJSON(reduce(1..100000, [#acc], 1))) > 0`,
	"upper":               `let a = repeat("x", 1000000); all(1..100000, upper(a) != "")`,
	"lengths of texts":    `let a = repeat("x", 1000000); all(1..100000, len(a) > 0)`,
	"parsed format":       `let a = repeat("2006", 100000); all(1..100000, now().Format(a) != "")`,
}

func ownFunction() Options {
	return Options{Functions: []Function{{Name: "own", Call: func(args ...any) (any, error) { return args[0], nil }, Types: []any{new(func(any) any)}}}}
}

// allocatedBytes returns how many bytes a function allocates in total.
func allocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostileExpressionsEnd checks that each fails with an error, and allocates no more than several concurrent evaluations
// may.
func TestHostileExpressionsEnd(t *testing.T) {
	const most = 256 << 20 // total allocations, of which only a part is live
	for name, source := range hostileExpressions {
		t.Run(name, func(t *testing.T) {
			var value any
			var err error
			used := allocatedBytes(func() { value, err = Evaluate(t.Context(), source, ownFunction(), map[string]any{"result": 1.0}) })
			if err == nil {
				t.Errorf("got %v, want an error", value)
			}
			if used > most {
				t.Errorf("allocated %d MiB, want at most %d: %v", used>>20, most>>20, err)
			}
		})
	}
}

// TestEvaluationsEndWithTheirContext covers an evaluation that is within its budget.
func TestEvaluationsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the release is gone")
	rounds := 0
	o := Options{Functions: []Function{{
		Name: "tick", Types: []any{new(func() bool)},
		Call: func(...any) (any, error) {
			if rounds++; rounds == 10 {
				cancel(cause)
			}
			return true, nil
		},
	}}}
	_, err := Evaluate(ctx, "all(1..1000, tick())", o, nil)
	if !errors.Is(err, cause) || rounds > 10 {
		t.Errorf("got %v after %d rounds, want %v after 10", err, rounds, cause)
	}
}

// TestEvaluationsEndAfterTheirTime covers an evaluation that is within its budget and whose context does not end, on the clock of
// a bubble: it ends at the first charge after maxTime, and not before.
func TestEvaluationsEndAfterTheirTime(t *testing.T) {
	for _, tt := range []struct {
		pause  time.Duration // of the tenth round
		rounds int
		want   error
	}{
		{maxTime - 1, 1000, nil},
		{maxTime + 1, 10, ErrTooSlow},
	} {
		t.Run(tt.pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rounds := 0
				o := Options{Functions: []Function{{
					Name: "tick", Types: []any{new(func() bool)},
					Call: func(...any) (any, error) {
						if rounds++; rounds == 10 {
							<-time.After(tt.pause)
						}
						return true, nil
					},
				}}}
				_, err := Evaluate(t.Context(), "all(1..1000, tick())", o, nil)
				if !errors.Is(err, tt.want) || rounds != tt.rounds {
					t.Errorf("got %v after %d rounds, want %v after %d", err, rounds, tt.want, tt.rounds)
				}
			})
		})
	}
}

// TestResultsEqualThoseOfTheLanguage compares results with those of the language without a budget.
func TestResultsEqualThoseOfTheLanguage(t *testing.T) {
	variables := map[string]any{
		"result": []any{map[string]any{"name": "a", "value": 1.5}, map[string]any{"name": "b", "value": 0.5}},
		"floats": []float64{0.99, 0.98, 0.97}, "text": "ready: 10", "unit": 1, "nothing": nil,
		"nested": map[string]any{"data": map[string]any{"ok": true, "rates": []any{1, 2.5, "3"}}},
		"moment": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	for _, source := range []string{
		`all(result, #.value > 0.1)`, `any(result, .value > 1)`, `filter(result, {#.value > 1})[0].name`, `map(result, #.value)`,
		`len(filter(floats, # >= 0.98)) / len(floats)`, `sum(floats) / len(floats)`, `sum(result, #.value)`, `count(result, #.name == "a")`,
		`none(floats, # < 0.5) && one(result, .name == "b")`, `mean(floats) > 0.9`, `max(floats)`, `min(map(result, #.value))`, `median(floats)`,
		`text matches "^ready: [0-9]+$"`, `text not matches "x"`, `text matches "r" + "eady"`, `nothing matches "x"`, `text contains "ready" and text startsWith "r"`,
		`text endsWith "10"`, `int(split(text, " ")[1]) in 5..15`, `"a" in map(result, .name)`, `nested.data.ok && nested["data"]?.rates[1] > 2`,
		`nested.missing?.deeper ?? 7`, `nothing == nil`, `unit == 1.0`, `floats == [0.99, 0.98, 0.97]`, `{"a": 1, ("b"): [2]}.b[0]`, `let x = floats[0]; x * 2 > 1 ? "y" : "n"`,
		`if unit > 0 { "pos" } else { "neg" }`, `reduce(floats, #acc + #, 0)`, `sortBy(result, #.value)[0].name`, `groupBy(result, #.name)["a"][0].value`, `sort([3, 1, 2])`,
		`uniq([1, 1, 2])`, `flatten([[1], [2, [3]]])`, `join(map(result, .name), ",")`, `upper("a") + lower("B") + trim(" c ")`, `replace("aaa", "a", "b")`,
		`repeat("ab", 3)`, `toJSON(nested.data.ok)`, `fromJSON("{\"a\": [1]}").a[0]`, `toBase64("abc")`, `fromBase64("YWJj")`, `first(floats) + last(floats)`, `get(nested, "data").ok`,
		`take(floats, 2)`, `keys({"a": 1})`, `values({"a": 1})`, `toPairs({"a": 1})`, `fromPairs([["a", 1]])`, `reverse([1, 2])`, `concat([1], [2])`, `findIndex(floats, # < 0.99)`,
		`find(result, .name == "b").value`, `floor(1.5) + ceil(1.5) + round(1.5) + abs(-1)`, `type(unit)`, `string(1.5)`, `duration("1h").Minutes()`,
		`moment.Add(duration("90s")).Unix()`, `moment - duration("1h") < moment`, `date("2026-01-02").Year()`, `floats[1:]`, `text[0:5]`, `-unit + +unit`, `2 ** 3 % 5`, `1..3`, `not (unit > 0)`,
		`unit | string()`, `text | split(" ") | last()`, `::len(floats)`, `bitand(5, 4)`, `indexOf(text, ":")`, `hasPrefix(text, "r")`, `nested.data.rates[2] == "3"`, `[1, "a", nil, true][2] == nil`,
		// expressions that fail
		`unit + "a"`, `nothing > 1`, `floats[7]`, `nested.data.ok.x`, `unknown()`, `all(unit, true)`, `len(unit)`, `text matches "("`, `text matches "(" + ""`, `1 +`, `int("x")`, `split(unit, "a")`, `repeat("a", -1)`,
	} {
		want, wantErr := expr.Eval(source, variables)
		got, err := Evaluate(t.Context(), source, Options{}, variables)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %v, the language alone: %v %s", source, err, wantErr, diff)
		}
	}
}

// TestLargeResultsAreWithinTheBudget checks that the budget suffices for ordinary conditions about thousands of values.
func TestLargeResultsAreWithinTheBudget(t *testing.T) {
	var result []any
	for i := range 5000 {
		result = append(result, map[string]any{"name": fmt.Sprintf("pod-%d", i), "value": float64(i) / 5000, "ok": true})
	}
	text := strings.Repeat("an ordinary line of a log\n", 100_000)
	for _, source := range []string{
		`all(result, #.value < 1)`, `len(filter(result, #.value > 0.5)) > 100 && all(result, #.ok)`, `sum(map(result, #.value)) / len(result) < 1`,
		`none(result, #.name == "pod-x" || #.name startsWith "x")`, `not (text contains "error") && not (text matches "(?i)fatal|panic")`,
		`mean(map(filter(result, .ok), .value)) < 1 && max(map(result, .value)) < 1`, `len(sort(map(result, .value))) == 5000`,
	} {
		value, err := Evaluate(t.Context(), source, Options{}, map[string]any{"result": result, "text": text})
		if err != nil || value != true {
			t.Errorf("%s: got %v, %v", source, value, err)
		}
	}
}

func TestProgramsRunRepeatedly(t *testing.T) {
	program, err := Compile("all(1..20000, # > a)", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 { // together more than one budget
		if value, err := program.Run(t.Context(), map[string]any{"a": 0}); err != nil || value != true {
			t.Fatalf("got %v, %v", value, err)
		}
	}
}

// TestConstantCostFunctionsExist detects functions that a new version of the language has renamed.
func TestConstantCostFunctionsExist(t *testing.T) {
	for name := range constantCostFunctions {
		if !slices.Contains(builtin.Names, name) {
			t.Errorf("%s is not a function of the language", name)
		}
	}
}

func FuzzEvaluate(f *testing.F) {
	for _, source := range hostileExpressions {
		f.Add(source, "text", 0.5)
	}
	f.Fuzz(func(t *testing.T, source, text string, number float64) {
		variables := map[string]any{"result": []any{number, text, map[string]any{text: number}}, "text": text, "number": number}
		used := allocatedBytes(func() { _, _ = Evaluate(t.Context(), source, ownFunction(), variables) })
		if used > 512<<20 {
			t.Fatalf("%q allocated %d MiB", source, used>>20)
		}
	})
}
