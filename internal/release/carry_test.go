package release_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/serin-dev/serin/internal/release"
)

func TestPodsForAllTrafficIsAtMostTheDesiredNumber(t *testing.T) {
	for _, tt := range []struct {
		name                     string
		desired, carriedBy, want int32
	}{
		{"none desired", 0, 5, 0},
		{"no pod carried it", 10, 0, 1},
		{"fewer carried it than desired", 40, 10, 10},
		{"more carried it than desired", 3, 10, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := release.PodsForAllTraffic(tt.desired, tt.carriedBy); got != tt.want {
				t.Errorf("PodsForAllTraffic(%d, %d) = %d, want %d", tt.desired, tt.carriedBy, got, tt.want)
			}
		})
	}
}

func TestCarriedWeightIsProportionalToAvailablePods(t *testing.T) {
	for _, tt := range []struct {
		name                           string
		total, available, enough, want int32
	}{
		{"no pod", 100, 0, 10, 0},
		{"one of three, rounded down", 100, 1, 3, 33},
		{"all", 100, 10, 10, 100},
		{"more than enough", 100, 40, 10, 100},
		{"none needed", 100, 0, 0, 100},
		{"weights of a router with a total of 1000", 1000, 1, 3, 333},
		{"no overflow", 1 << 30, 1 << 30, 1<<31 - 1, 1 << 29},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := release.CarriedWeight(tt.total, tt.available, tt.enough); got != tt.want {
				t.Errorf("CarriedWeight(%d, %d, %d) = %d, want %d", tt.total, tt.available, tt.enough, got, tt.want)
			}
		})
	}
}

func TestCarriedWeightGrowsWithPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, enough := rapid.Int32Range(1, 1000).Draw(t, "total"), rapid.Int32Min(0).Draw(t, "enough")
		available := rapid.Int32Range(0, 1<<31-2).Draw(t, "available")
		less, more := release.CarriedWeight(total, available, enough), release.CarriedWeight(total, available+1, enough)
		if less < 0 || less > more || more > total {
			t.Fatalf("%d pods carry %d of %d, one more %d", available, less, total, more)
		}
	})
}
