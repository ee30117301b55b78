package cluster

import (
	"slices"
	"testing"
)

// TestSizesDuringARollout uses the rules of the documentation of Deployments, under "Rolling Update Deployment" and
// "Proportional scaling". The example of 10 replicas, maxSurge 3 and maxUnavailable 2 is taken from there.
func TestSizesDuringARollout(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name                         string
		replicas, surge, unavailable int
		fresh                        size
		old                          []size
		grown                        int
		shrunk                       []int // with the size that fresh has
	}{
		{"the first pods", 3, 1, 0, size{}, nil, 3, []int{}},
		{"room above", 4, 1, 1, size{}, []size{{4, 4}}, 1, []int{3}},
		{"no room", 4, 1, 0, size{1, 0}, []size{{4, 4}}, 1, []int{4}},
		{"one is available", 4, 1, 0, size{1, 1}, []size{{4, 4}}, 1, []int{3}},
		{"pods that are not available go first", 4, 1, 0, size{1, 1}, []size{{2, 2}, {2, 0}}, 1, []int{2, 1}},
		{"done", 4, 1, 1, size{4, 4}, []size{{1, 1}}, 4, []int{0}},
		{"too many", 2, 1, 0, size{5, 5}, nil, 2, []int{}},
		{"to none", 0, 0, 0, size{2, 2}, []size{{1, 1}}, 0, []int{0}},
	} {
		w := deploymentSpec{replicas: test.replicas, surge: test.surge, unavailable: test.unavailable}
		if got := w.nextNewSize(test.fresh, test.old); got != test.grown {
			t.Errorf("%s: want the newest grown to %d, got %d", test.name, test.grown, got)
		}
		if got := w.nextOldSizes(test.fresh, test.old); !slices.Equal(got, test.shrunk) {
			t.Errorf("%s: want the old shrunk to %v, got %v", test.name, test.shrunk, got)
		}
	}
}

func TestSizesAfterAChangeOfReplicas(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		replicas, surge int
		sizes           []int
		before          int
		want            []int
	}{
		{15, 3, []int{8, 5}, 10, []int{11, 7}},
		{5, 3, []int{8, 5}, 10, []int{5, 3}},
		{0, 1, []int{3, 1}, 3, []int{0, 0}},
	} {
		w := deploymentSpec{replicas: test.replicas, surge: test.surge}
		if got := w.proportionalSizes(test.sizes, test.before); !slices.Equal(got, test.want) {
			t.Errorf("%v of %d to %d: want %v, got %v", test.sizes, test.before, test.replicas, test.want, got)
		}
	}
}

func TestFractions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value any
		whole int
		up    bool
		want  int
	}{
		{"25%", 3, true, 1},
		{"25%", 3, false, 0},
		{"25%", 4, true, 1},
		{"100%", 7, false, 7},
		{"0%", 7, true, 0},
		{int64(2), 1, false, 2},
		{"nonsense", 4, true, 0},
		{nil, 4, true, 0},
	} {
		if got := fraction(test.value, test.whole, test.up); got != test.want {
			t.Errorf("%v of %d (up: %t): want %d, got %d", test.value, test.whole, test.up, test.want, got)
		}
	}
}

func TestHostsNameServices(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"cart": "cart", "cart.shop": "cart", "cart.shop.svc": "cart", "cart.shop.svc.cluster.local": "cart",
		"cart.other": "cart.other", "example.com": "example.com",
	} {
		if got := serviceOf(host, "shop"); got != want {
			t.Errorf("%s: want %s, got %s", host, want, got)
		}
	}
}
