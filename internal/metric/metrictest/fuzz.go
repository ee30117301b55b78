package metrictest

import (
	"math"
	"strings"
	"testing"
)

// Fuzz passes generated responses to read, which parses those of a provider. It checks that a value is never NaN, and that an
// error may be shown to users.
func Fuzz(f *testing.F, read func(answer []byte) (float64, error), seeds ...string) {
	f.Helper()
	for _, seed := range append(seeds, "", "null", "{}", "[]", "[null]", `{"data":null}`, strings.Repeat("[", 20_000)) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		value, err := read(answer)
		if math.IsNaN(value) {
			t.Error("the value is NaN")
		}
		if err == nil {
			return
		}
		if value != 0 {
			t.Errorf("got the value %v and the error %v", value, err)
		}
		if len(err.Error()) > 256 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		if len(answer) > 24 && strings.Contains(err.Error(), string(answer)) {
			t.Errorf("%q repeats the response", err)
		}
	})
}
