package metrictest

import (
	"math"
	"strings"
	"testing"
)

// Fuzz throws generated answers at what reads those of a provider: whatever a server says, the reading ends, and what
// comes of it can be judged and shown.
func Fuzz(f *testing.F, read func(answer []byte) (float64, error), seeds ...string) {
	f.Helper()
	for _, seed := range append(seeds, "", "null", "{}", "[]", "[null]", `{"data":null}`, strings.Repeat("[", 20_000)) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		value, err := read(answer)
		if math.IsNaN(value) {
			t.Error("a value that is NaN")
		}
		if err == nil {
			return
		}
		if value != 0 {
			t.Errorf("%v and %v", value, err)
		}
		if len(err.Error()) > 256 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		if len(answer) > 24 && strings.Contains(err.Error(), string(answer)) {
			t.Errorf("%q repeats the answer", err)
		}
	})
}
