package oracle

import (
	"slices"
	"testing"
	"time"

	"github.com/serin-dev/serin/test/sim"
)

func TestTimelineReturnsTheValuesThatWereValid(t *testing.T) {
	t.Parallel()
	noon := sim.StartTime
	var specs Timeline[string]
	specs.Set("first", noon)
	specs.Set("second", noon.Add(time.Minute))
	for _, test := range []struct {
		since time.Time
		want  []string
	}{
		{noon.Add(time.Minute - 1), []string{"first", "second"}},
		{noon.Add(time.Minute), []string{"second"}},
		{noon.Add(time.Hour), []string{"second"}},
	} {
		if got := specs.Since(test.since); !slices.Equal(got, test.want) {
			t.Errorf("since %s: got %q, want %q", test.since, got, test.want)
		}
	}
	if got := specs.Until(noon.Add(time.Second)).Since(noon); !slices.Equal(got, []string{"first"}) {
		t.Errorf("before the change: got %q", got)
	}
	if !specs.Replaced(noon) || specs.Replaced(noon.Add(time.Minute)) || specs[:1].Replaced(noon.Add(-time.Hour)) {
		t.Error("a value is not reported as replaced exactly when a later one has become valid")
	}
}

func TestDifferencesReturnsPaths(t *testing.T) {
	t.Parallel()
	before := map[string]any{"spec": map[string]any{"replicas": int64(1), "template": map[string]any{"a": "b"}}, "kind": "Deployment"}
	after := map[string]any{"spec": map[string]any{"replicas": int64(2), "template": map[string]any{"a": "c"}}, "status": map[string]any{}}
	if got, want := Differences(before, after, "", 2), []string{"kind", "spec/replicas", "spec/template", "status"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Differences(before, before, "", 2); got != nil {
		t.Errorf("an object differs from itself: %q", got)
	}
}

func TestSecrecyReportsNewSecretsOnly(t *testing.T) {
	t.Parallel()
	c := &Secrecy{Planted: "hush"}
	known := map[string]any{"message": "hush, known"}
	object := map[string]any{"known": known, "b": []any{"b: hush"}, "a": map[string]any{"text": "a: hush"}}
	if got, want := c.disclosed(object, map[string]any{"known": known}), "a: hush"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := c.disclosed(map[string]any{"known": known}, map[string]any{"known": known}); got != "" {
		t.Errorf("an unchanged value is reported: %q", got)
	}
}
