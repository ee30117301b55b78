package pods

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// amount parses maxSurge or maxUnavailable: a number, or a string in quotes; "" is nil.
func amount(text string) *intstr.IntOrString {
	if text == "" {
		return nil
	}
	if n, err := strconv.Atoi(text); err == nil {
		return new(intstr.FromInt32(int32(n)))
	}
	return new(intstr.FromString(strings.Trim(text, `"`)))
}

func TestRollingLimitsAreResolvedLikeThoseOfDeployments(t *testing.T) {
	for _, test := range []struct {
		replicas           int32
		surge, unavailable string
		wantS, wantU       int32
	}{
		{1, "", "", 1, 0},
		{2, "", "", 1, 0},
		{3, "", "", 1, 0},
		{4, "", "", 1, 1},
		{5, "", "", 2, 1},
		{8, "", "", 2, 2},
		{10, "", "", 3, 2},
		{20, "", "", 5, 5},
		{4, `"25"`, `"25%"`, 1, 1},             // with or without the sign
		{10, "0", "5%", 0, 1},                  // both resolve to 0
		{10, `"0%"`, `"0%"`, 0, 1},             //
		{3, "7", "7", 7, 3},                    // stepInput most all pods are unavailable
		{0, "2", "2", 2, 0},                    // no pod can be unavailable
		{0, "0", "0", 0, 0},                    //
		{-5, "1", "1", 1, 0},                   // not in a healthy cluster
		{4, "-3", "-3", 0, 1},                  //
		{10, `"1.5%"`, `"many"`, 0, 1},         // invalid
		{10, `"200%"`, `"200%"`, 20, 10},       //
		{1 << 30, `"900%"`, "0", 1<<30 - 1, 0}, // does not overflow
	} {
		got := NewRollingLimits(test.replicas, amount(test.surge), amount(test.unavailable))
		if got.MaxSurge != test.wantS || got.MaxUnavailable != test.wantU {
			t.Errorf("%d replicas, maxSurge %s, maxUnavailable %s: surge %d, unavailable %d; want %d, %d",
				test.replicas, test.surge, test.unavailable, got.MaxSurge, got.MaxUnavailable, test.wantS, test.wantU)
		}
	}
}

func TestApproximateWeightChoosesTheClosestRatio(t *testing.T) {
	for _, test := range []struct {
		n, weight      int32
		tight, surging string // canary/stable without and with a surge; empty: not checked
	}{
		{10, 10, "1/9", "1/9"},
		{10, 41, "4/6", "4/6"},
		{10, 45, "5/5", "5/6"},
		{10, 25, "3/7", "3/8"},
		{10, 5, "1/9", "1/10"},
		{10, 1, "1/9", "1/10"},
		{10, 99, "9/1", "10/1"},
		{10, 33, "", "3/7"},
		{10, 37, "", "4/7"},
		{4, 33, "1/3", "2/3"},
		{4, 10, "1/3", "1/4"},
		{4, 60, "2/2", "3/2"},
		{3, 50, "2/1", "2/2"},
		{5, 50, "3/2", "3/3"},
		{7, 35, "2/5", "3/5"},
		{2, 10, "1/1", "1/2"},
		{1, 1, "", "1/1"},
		{1, 50, "", "1/1"},
		{1, 99, "", "1/1"},
		{1, 49, "0/1", ""},
		{1, 50, "1/0", ""},
		{10, 0, "0/10", "0/10"},
		{10, 100, "10/0", "10/0"},
		{10, 95, "0/10", ""},
		{5, 90, "0/5", ""},
		{100, 33, "33/67", "33/67"},
		{0, 50, "0/0", "0/0"},
		{4, -5, "0/4", "0/4"},
		{4, 500, "4/0", "4/0"},
	} {
		for surge, want := range map[int32]string{0: test.tight, 1: test.surging} {
			s := approximateWeight(test.n, test.weight, 100, surge)
			if got := fmt.Sprintf("%d/%d", s.Canary, s.Stable); want != "" && got != want {
				t.Errorf("%d%% of %d pods, surge %d: %s, want %s", test.weight, test.n, surge, got, want)
			}
		}
	}
}

// TestApproximateWeightIsOptimal compares with a search over all splits of n and n+1 pods, unless the rules about empty
// sides and ties exclude the best one.
func TestApproximateWeightIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, most := rapid.Int32Range(2, 60).Draw(t, "n"), rapid.SampledFrom([]int32{100, 1000, 7}).Draw(t, "most")
		weight, surge := rapid.Int32Range(0, most).Draw(t, "weight"), rapid.Int32Range(0, 2).Draw(t, "surge")
		got := approximateWeight(n, weight, most, surge)
		if got.Canary < 0 || got.Stable < 0 {
			t.Fatalf("negative: %+v", got)
		}
		if total := got.Canary + got.Stable; total != n && (surge == 0 || total != n+1) {
			t.Fatalf("%d pods for %d replicas", total, n)
		}
		if weight == 0 || weight == most || isTied(n, weight, most) || isTied(n+1, weight, most) {
			return
		}
		totals := []int32{n}
		if surge > 0 {
			totals = append(totals, n+1)
		}
		for _, total := range totals {
			for canary := int32(1); canary < total; canary++ {
				if other := (ReplicaCounts{canary, total - canary}); isCloser(other, got, weight, most) {
					t.Fatalf("%d of %d on %d pods: %+v, and %+v is nearer", weight, most, n, got, other)
				}
			}
		}
	})
}

// TestNextCountsStayWithinTheLimits contains examples of one calculation.
func TestNextCountsStayWithinTheLimits(t *testing.T) {
	for _, test := range []struct {
		n, weight                   int32
		surge, unavailable          string
		newSpec, newAvailable       int32
		stableSpec, stableAvailable int32
		others, wantNew, wantStable int32
	}{
		{10, 20, "2", "0", 0, 0, 10, 10, 0, 2, 10},
		{10, 20, "20%", "0", 2, 2, 10, 10, 0, 2, 8},
		{10, 30, "2", "0", 0, 0, 10, 10, 0, 2, 10},
		{10, 20, "0", "2", 0, 0, 10, 10, 0, 0, 8},
		{10, 50, "2", "1", 0, 0, 10, 10, 0, 2, 9},
		{10, 0, "1", "1", 1, 1, 10, 10, 0, 0, 10},
		{10, 100, "3", "0", 6, 3, 7, 8, 0, 6, 7},
		{10, 30, "1", "0", 0, 0, 1, 1, 3, 1, 7},
		{10, 30, "0", "3", 4, 4, 8, 5, 0, 3, 7},
		{10, 100, "1", "0", 10, 8, 10, 2, 0, 9, 2},
		{10, 30, "0", "1", 4, 2, 8, 6, 3, 4, 8},
		{10, 5, "0", "1", 0, 0, 10, 10, 0, 0, 9},
		{10, 5, "0", "1", 0, 0, 9, 9, 0, 1, 9},
		{10, 10, "0%", "0%", 0, 0, 10, 10, 0, 0, 9},
		{4, 100, "1", "0", 0, 0, 4, 1, 0, 1, 4},
		{4, 100, "1", "0", 1, 1, 4, 1, 0, 1, 3},
		{4, 0, "1", "0", 4, 4, 0, 0, 0, 4, 1},
		{4, 0, "1", "0", 4, 4, 1, 0, 0, 4, 1},
		{4, 0, "1", "0", 4, 4, 1, 1, 0, 3, 1},
		{3, 99, "0", "2", 0, 0, 3, 3, 0, 0, 1},
		{3, 99, "0", "2", 0, 0, 1, 1, 0, 2, 1},
		{1, 51, "0", "1", 0, 0, 1, 1, 0, 0, 0},
		{1, 51, "0", "1", 0, 0, 0, 0, 0, 1, 0},
		{4, 100, "4", "4", 0, 0, 4, 4, 0, 4, 0},
		{4, 100, "3", "0", 0, 0, 4, 4, 0, 3, 4},
		{8, 100, "2", "0", 2, 0, 4, 4, 0, 6, 4},
		{4, 100, "2", "0", 6, 0, 4, 4, 0, 2, 4},
		{4, 100, "1", "0", 1, 0, 4, 4, 0, 1, 4},
	} {
		l := NewRollingLimits(test.n, amount(test.surge), amount(test.unavailable))
		p := CurrentPods{New: ReplicaSetPods{test.newSpec, test.newAvailable}, Stable: ReplicaSetPods{test.stableSpec, test.stableAvailable}, HasDistinctStable: true, Others: test.others}
		got := l.NextCounts(p, l.CountsForWeight(test.weight, 100, true))
		if want := (ReplicaCounts{test.wantNew, test.wantStable}); got != want {
			t.Errorf("%d replicas, weight %d, surge %s, unavailable %s, new %d(%d), stable %d(%d), others %d: %d/%d, want %d/%d",
				test.n, test.weight, test.surge, test.unavailable, test.newSpec, test.newAvailable, test.stableSpec, test.stableAvailable,
				test.others, got.Canary, got.Stable, want.Canary, want.Stable)
		}
	}
}

// scaleOnce scales one side, the stable one first, as the caller does.
func (l RollingLimits) scaleOnce(p *CurrentPods, want ReplicaCounts) bool {
	next := l.NextCounts(*p, want)
	switch {
	case next.Stable != p.Stable.SpecReplicas:
		p.Stable.SpecReplicas = next.Stable
	case next.Canary != p.New.SpecReplicas:
		p.New.SpecReplicas = next.Canary
	default:
		return false
	}
	return true
}

// makeAvailable makes all desired pods available.
func (p *CurrentPods) makeAvailable() {
	p.New.Available, p.Stable.Available = p.New.SpecReplicas, p.Stable.SpecReplicas
}

// TestNextCountsOfWholeReleases contains examples of whole releases, in which every pod becomes available immediately. Each entry
// contains the pods of canary and stable.
func TestNextCountsOfWholeReleases(t *testing.T) {
	for _, test := range []struct {
		name               string
		n, weight          int32
		surge, unavailable string
		want               string // … is any number of passes
	}{
		{"first step of 10%", 10, 10, "25%", "0", "0/10 1/10 1/9"},
		{"41%", 10, 41, "25%", "0", "0/10 3/10 3/7 4/7 4/6"},
		{"10% with defaults", 10, 10, "", "", "0/10 0/9 1/9"},
		{"half without surge", 10, 50, "0", "25%", "0/10 0/8 2/8 2/6 4/6 4/5 5/5"},
		{"no steps, defaults", 10, 100, "", "", "0/10 0/8 5/8 5/3 10/3 10/0"},
		{"no steps, one at a time above", 10, 100, "1", "0", "0/10 1/10 1/9 2/9 … 10/1 10/0"},
		{"no steps, one at a time below", 10, 100, "0", "1", "0/10 0/9 1/9 1/8 … 9/0 10/0"},
		{"no steps, room for all", 4, 100, "100%", "25%", "0/4 0/3 4/3 …"},
		{"abort half way, surge", 10, 0, "25%", "0", "5/5 5/8 2/8 2/10 0/10"},
		{"abort half way, no surge", 10, 0, "0", "1", "5/5 4/5 4/6 3/6 … 0/9 0/10"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := NewRollingLimits(test.n, amount(test.surge), amount(test.unavailable))
			want := strings.Fields(test.want)
			p := CurrentPods{HasDistinctStable: true}
			if _, err := fmt.Sscanf(want[0], "%d/%d", &p.New.SpecReplicas, &p.Stable.SpecReplicas); err != nil {
				t.Fatal(err)
			}
			p.makeAvailable()
			got := []string{want[0]}
			for l.scaleOnce(&p, l.CountsForWeight(test.weight, 100, true)) {
				got = append(got, fmt.Sprintf("%d/%d", p.New.SpecReplicas, p.Stable.SpecReplicas))
				p.makeAvailable()
			}
			head, tail, open := strings.Cut(test.want, "…")
			text := strings.Join(got, " ")
			if !open && text != test.want || !strings.HasPrefix(text, strings.TrimSpace(head)) || !strings.HasSuffix(text, strings.TrimSpace(tail)) {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
		})
	}
}

// TestNextCountsOfRandomReleases runs random histories: between two calculations, the weight changes, and pods become available
// or fail, in any order. There are never more pods than permitted, never fewer available ones than permitted except for failed
// pods, and the goal is reached once pods are healthy.
func TestNextCountsOfRandomReleases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int32Range(0, 25).Draw(t, "n")
		l := NewRollingLimits(n, new(intstr.FromInt32(rapid.Int32Range(0, n+2).Draw(t, "surge"))), new(intstr.FromInt32(rapid.Int32Range(0, n+2).Draw(t, "unavailable"))))
		p := CurrentPods{HasDistinctStable: true, Stable: ReplicaSetPods{n, n}}
		weight := int32(0)
		for range rapid.IntRange(0, 40).Draw(t, "length") {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				weight = rapid.Int32Range(0, 100).Draw(t, "weight")
			case 1:
				p.New.Available = rapid.Int32Range(0, p.New.SpecReplicas).Draw(t, "new available")
			case 2:
				p.Stable.Available = rapid.Int32Range(0, p.Stable.SpecReplicas).Draw(t, "stable available")
			default:
				l.scaleOnceChecked(t, &p, weight)
			}
		}
		seen := map[ReplicaCounts]bool{}
		for p.makeAvailable(); l.scaleOnceChecked(t, &p, weight); p.makeAvailable() {
			if at := (ReplicaCounts{p.New.SpecReplicas, p.Stable.SpecReplicas}); seen[at] {
				t.Fatalf("is at %+v for the second time", at)
			} else {
				seen[at] = true
			}
		}
		if want, at := l.CountsForWeight(weight, 100, true), (ReplicaCounts{p.New.SpecReplicas, p.Stable.SpecReplicas}); at != want {
			t.Fatalf("rests at %+v of %+v, want %+v", at, l, want)
		}
	})
}

// scaleOnceChecked calculates once, and checks the invariants.
func (l RollingLimits) scaleOnceChecked(t *rapid.T, p *CurrentPods, weight int32) bool {
	before := *p
	moved := l.scaleOnce(p, l.CountsForWeight(weight, 100, true))
	if p.New.SpecReplicas < 0 || p.Stable.SpecReplicas < 0 {
		t.Fatalf("from %+v to %+v: fewer pods than none", before, *p)
	}
	if grew := p.New.SpecReplicas > before.New.SpecReplicas || p.Stable.SpecReplicas > before.Stable.SpecReplicas; grew && p.New.SpecReplicas+p.Stable.SpecReplicas > l.MaxPods() {
		t.Fatalf("from %+v to %+v: %d pods, and at most %d are allowed", before, *p, p.New.SpecReplicas+p.Stable.SpecReplicas, l.MaxPods())
	}
	// A shrinking ReplicaSet first removes pods that are not available.
	left := min(p.New.Available, p.New.SpecReplicas) + min(p.Stable.Available, p.Stable.SpecReplicas)
	p.New.Available, p.Stable.Available = min(p.New.Available, p.New.SpecReplicas), min(p.Stable.Available, p.Stable.SpecReplicas)
	had := before.New.Available + before.Stable.Available
	if left < had && left < l.MinAvailable() {
		t.Fatalf("from %+v to %+v: %d pods stay available, and at least %d must", before, *p, left, l.MinAvailable())
	}
	return moved
}

// TestOthersAreRemovedFirst: neither side shrinks while another revision has pods.
func TestOthersAreRemovedFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int32Range(0, 25).Draw(t, "n")
		l := NewRollingLimits(n, nil, nil)
		side := func(name string) ReplicaSetPods {
			spec := rapid.Int32Range(0, 30).Draw(t, name)
			return ReplicaSetPods{spec, rapid.Int32Range(0, spec).Draw(t, name+" available")}
		}
		p := CurrentPods{New: side("new"), Stable: side("stable"), HasDistinctStable: true, Others: rapid.Int32Range(1, 10).Draw(t, "others")}
		next := l.NextCounts(p, l.CountsForWeight(rapid.Int32Range(0, 100).Draw(t, "weight"), 100, true))
		if next.Canary < p.New.SpecReplicas || next.Stable < p.Stable.SpecReplicas {
			t.Fatalf("from %+v to %+v although others have pods", p, next)
		}
	})
}
