package kept

import (
	"slices"
	"testing"
)

func TestReadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		want       *History
	}{
		{"whole", "seed=7\nIt was wrong.\n", &History{Name: "whole", Seed: 7, Why: "It was wrong."}},
		{"few", "seed=7 only=crash#1,ship#cart-1\nOne.\nTwo.\n", &History{Name: "few", Seed: 7, Only: []string{"crash#1", "ship#cart-1"}, Why: "One.\nTwo."}},
		{"no seed", "only=crash#1\nIt was wrong.\n", nil},
		{"no number", "seed=many\nIt was wrong.\n", nil},
		{"no reason", "seed=7\n\n", nil},
		{"something else", "seed=7 after=3\nIt was wrong.\n", nil},
	} {
		got, err := read(test.name, test.text)
		switch {
		case (err == nil) != (test.want != nil):
			t.Errorf("%s: error %v", test.name, err)
		case test.want != nil && (got.Name != test.want.Name || got.Seed != test.want.Seed || got.Why != test.want.Why || !slices.Equal(got.Only, test.want.Only)):
			t.Errorf("%s: want %+v, got %+v", test.name, *test.want, got)
		}
	}
}
