package jsontree_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/serin-dev/serin/internal/jsontree"
)

// randomValue returns a random value of few names and values, so that two of them often have common parts.
func randomValue(r *rand.Rand, depth int) any {
	kinds := 8
	if depth == 0 {
		kinds = 6
	}
	switch r.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2, 3:
		return int64(r.IntN(3))
	case 4:
		return float64(r.IntN(3)) + 0.5
	case 5:
		return fmt.Sprint("s", r.IntN(3))
	case 6:
		list := make([]any, r.IntN(3))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	default:
		return randomObject(r, depth-1)
	}
}

func randomObject(r *rand.Rand, depth int) map[string]any {
	out := map[string]any{}
	for range r.IntN(5) {
		out[fmt.Sprint("k", r.IntN(5))] = randomValue(r, depth)
	}
	return out
}

// similarObject returns a copy with a few changes, or an entirely new object.
func similarObject(r *rand.Rand, of map[string]any) map[string]any {
	if r.IntN(4) == 0 {
		return randomObject(r, 4)
	}
	out := runtime.DeepCopyJSON(of)
	for at, steps := out, r.IntN(4); steps >= 0; steps-- {
		key := fmt.Sprint("k", r.IntN(5))
		if inner, ok := at[key].(map[string]any); ok && steps > 0 {
			at = inner
			continue
		}
		if r.IntN(3) == 0 {
			delete(at, key)
		} else {
			at[key] = randomValue(r, 2)
		}
	}
	return out
}

func encodeJSON(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestEqualAndMergePatchMatchALibrary compares with a library that computes patches of encoded objects.
func TestEqualAndMergePatchMatchALibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	empty := 0
	for range 20_000 {
		from := randomObject(r, 4)
		to := similarObject(r, from)
		text, err := jsonpatch.CreateMergePatch(encodeJSON(t, from), encodeJSON(t, to))
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := utiljson.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		wasFrom, wasTo := encodeJSON(t, from), encodeJSON(t, to)
		got := jsontree.MergePatch(from, to)
		if string(encodeJSON(t, got)) != string(encodeJSON(t, want)) {
			t.Fatalf("from %s to %s:\ngot  %s\nwant %s", wasFrom, wasTo, encodeJSON(t, got), encodeJSON(t, want))
		}
		equal := reflect.DeepEqual(from, to)
		if jsontree.Equal(from, to) != equal || equal != (len(got) == 0) {
			t.Fatalf("equal: %t, and patch %s, for %s and %s", jsontree.Equal(from, to), encodeJSON(t, got), wasFrom, wasTo)
		}
		if string(encodeJSON(t, from)) != string(wasFrom) || string(encodeJSON(t, to)) != string(wasTo) {
			t.Fatal("the objects were modified")
		}
		if equal {
			empty++
		}
	}
	if empty < 500 || empty > 15_000 {
		t.Errorf("%d of the pairs were equal: the test proves too little", empty)
	}
}

func TestEqualComparesIntegersAndFloats(t *testing.T) {
	if !jsontree.Equal(int64(2), 2.0) || !jsontree.Equal(2.0, int64(2)) || jsontree.Equal(int64(2), 2.5) || jsontree.Equal(2.5, int64(2)) {
		t.Error("integers of both types are not equal, or a fraction equals an integer")
	}
}

func TestPinResourceVersion(t *testing.T) {
	if got := string(encodeJSON(t, jsontree.PinResourceVersion(map[string]any{"spec": nil}, "7"))); got != `{"metadata":{"resourceVersion":"7"},"spec":null}` {
		t.Error(got)
	}
	if got := string(encodeJSON(t, jsontree.PinResourceVersion(map[string]any{"metadata": map[string]any{"labels": nil}}, "7"))); got != `{"metadata":{"labels":null,"resourceVersion":"7"}}` {
		t.Error(got)
	}
}
