package corpus

import (
	"slices"
	"testing"
)

func TestParseRejectsIncompleteEntries(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		want       *Entry
	}{
		{"whole", "seed=7\nIt was wrong.\n", &Entry{Name: "whole", Seed: 7, Description: "It was wrong."}},
		{"few", "seed=7 only=crash#1,ship#cart-1\nOne.\nTwo.\n", &Entry{Name: "few", Seed: 7, Only: []string{"crash#1", "ship#cart-1"}, Description: "One.\nTwo."}},
		{"without", "seed=7 without=crash#1\nOne.\n", &Entry{Name: "without", Seed: 7, Without: []string{"crash#1"}, Description: "One."}},
		{"no seed", "only=crash#1\nIt was wrong.\n", nil},
		{"no number", "seed=many\nIt was wrong.\n", nil},
		{"no duration", "seed=7 lasts=long\nIt was wrong.\n", nil},
		{"no description", "seed=7\n\n", nil},
		{"unknown field", "seed=7 after=3\nIt was wrong.\n", nil},
	} {
		got, err := parse(test.name, test.text)
		switch {
		case (err == nil) != (test.want != nil):
			t.Errorf("%s: error %v", test.name, err)
		case test.want != nil && (got.Name != test.want.Name || got.Seed != test.want.Seed || got.Description != test.want.Description || !slices.Equal(got.Only, test.want.Only) || !slices.Equal(got.Without, test.want.Without)):
			t.Errorf("%s: want %+v, got %+v", test.name, *test.want, got)
		}
	}
}
