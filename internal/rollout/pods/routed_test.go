package pods

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

func setWeight(weight int32) argov1.CanaryStep { return argov1.CanaryStep{SetWeight: &weight} }

func setScale(scale argov1.SetCanaryScale) argov1.CanaryStep {
	return argov1.CanaryStep{SetCanaryScale: &scale}
}

var (
	scaleTo     = func(pods int32) argov1.CanaryStep { return setScale(argov1.SetCanaryScale{Replicas: &pods}) }
	scaleLike   = func(weight int32) argov1.CanaryStep { return setScale(argov1.SetCanaryScale{Weight: &weight}) }
	scaleFollow = setScale(argov1.SetCanaryScale{MatchTrafficWeight: true})
)

// stepInput returns the input for a step with a router.
func stepInput(replicas, index int32, steps ...argov1.CanaryStep) TrafficRoutedPods {
	return TrafficRoutedPods{StepProgress: StepProgress{Steps: steps, Index: &index}, Replicas: replicas, MaxWeight: DefaultMaxWeight}
}

func (r TrafficRoutedPods) with(change func(*TrafficRoutedPods)) TrafficRoutedPods {
	change(&r)
	return r
}

func TestTrafficRoutedPodsFollowTheWeight(t *testing.T) {
	minPods := func(pods int32) func(*TrafficRoutedPods) {
		return func(r *TrafficRoutedPods) { r.MinPodsPerReplicaSet = pods }
	}
	dynamic := func(canary, stable int32) func(*TrafficRoutedPods) {
		return func(r *TrafficRoutedPods) { r.DynamicStableScale, r.RecordedWeights = true, &Weights{canary, stable} }
	}
	steps := []argov1.CanaryStep{scaleLike(25), setWeight(50), scaleTo(3), scaleFollow}
	for _, test := range []struct {
		name string
		r    TrafficRoutedPods
		want ReplicaCounts
	}{
		{"a quarter of 4", stepInput(4, 0, setWeight(25)), ReplicaCounts{1, 4}},
		{"a third of 10", stepInput(10, 0, setWeight(33)), ReplicaCounts{4, 10}},
		{"half of 3", stepInput(3, 0, setWeight(50)), ReplicaCounts{2, 3}},
		{"at least 2", stepInput(10, 0, setWeight(5)).with(minPods(2)), ReplicaCounts{2, 10}},
		{"at least 2 of 1", stepInput(1, 0, setWeight(100)).with(minPods(2)), ReplicaCounts{1, 1}},
		{"at least 2 of those that have any", stepInput(10, 0, setWeight(0)).with(minPods(2)), ReplicaCounts{0, 10}},
		{"a number of pods", stepInput(1, 1, scaleTo(9), setWeight(100)), ReplicaCounts{9, 1}},
		{"a number of pods, below the least", stepInput(10, 0, scaleTo(1)).with(minPods(2)), ReplicaCounts{1, 10}},
		{"more than all", stepInput(4, 0, scaleLike(200)), ReplicaCounts{8, 4}},
		{"pods apart from traffic", stepInput(10, 1, scaleLike(10), setWeight(90)), ReplicaCounts{1, 10}},
		{"scale by weight", stepInput(4, 0, steps...), ReplicaCounts{1, 4}},
		{"scale by weight stays", stepInput(4, 1, steps...), ReplicaCounts{1, 4}},
		{"scale by number", stepInput(4, 2, steps...), ReplicaCounts{3, 4}},
		{"pods follow traffic again", stepInput(4, 3, steps...), ReplicaCounts{2, 4}},
		{"all steps done", stepInput(4, 4, steps...), ReplicaCounts{4, 4}},
		{"a scale that says nothing", stepInput(4, 1, setWeight(25), setScale(argov1.SetCanaryScale{})), ReplicaCounts{1, 4}},
		{"no steps", TrafficRoutedPods{Replicas: 4, MaxWeight: DefaultMaxWeight}, ReplicaCounts{4, 4}},
		{"another total", TrafficRoutedPods{StepProgress: stepInput(4, 0, setWeight(250)).StepProgress, Replicas: 4, MaxWeight: 1000}, ReplicaCounts{1, 4}},
		{"dynamic, a quarter reached", stepInput(4, 0, setWeight(25)).with(dynamic(25, 75)), ReplicaCounts{1, 3}},
		{"dynamic, three quarters reached", stepInput(4, 1, setWeight(25), setWeight(75)).with(dynamic(75, 25)), ReplicaCounts{3, 1}},
		{"dynamic, three quarters just entered", stepInput(4, 1, setWeight(25), setWeight(75)).with(dynamic(25, 75)), ReplicaCounts{3, 3}},
		{"dynamic, half just entered, with all pods", stepInput(4, 1, scaleLike(100), setWeight(50)).with(dynamic(0, 100)), ReplicaCounts{4, 4}},
		{"dynamic, half reached, with all pods", stepInput(4, 1, scaleLike(100), setWeight(50)).with(dynamic(50, 50)), ReplicaCounts{4, 2}},
		{"dynamic, decreased to a fifth, with all pods", stepInput(4, 2, scaleLike(100), setWeight(50), setWeight(20)).with(dynamic(50, 50)), ReplicaCounts{4, 4}},
		{"dynamic, first time", stepInput(4, 0, setWeight(25)).with(func(r *TrafficRoutedPods) { r.DynamicStableScale = true }), ReplicaCounts{1, 4}},
		{"dynamic, aborted before the router had weights", stepInput(4, 0, setWeight(50)).with(func(r *TrafficRoutedPods) { r.DynamicStableScale, r.Aborted = true, true }), ReplicaCounts{0, 4}},
		{"aborted", stepInput(1, 0, scaleTo(1)).with(func(r *TrafficRoutedPods) { r.Aborted, r.AbortScaleDownDelaySeconds = true, new(int32(30)) }), ReplicaCounts{0, 1}},
		{"aborted, and kept", stepInput(1, 0, scaleTo(1)).with(func(r *TrafficRoutedPods) { r.Aborted, r.AbortScaleDownDelaySeconds = true, new(int32(0)) }), ReplicaCounts{1, 1}},
		{"promoted in full", stepInput(4, 0, scaleTo(1)).with(func(r *TrafficRoutedPods) { r.FullyPromoted = true }), ReplicaCounts{4, 4}},
	} {
		if got := test.r.CountsBehindRouter(); got != test.want {
			t.Errorf("%s: %d/%d, want %d/%d", test.name, got.Canary, got.Stable, test.want.Canary, test.want.Stable)
		}
	}
}

// TestTrafficReturnsAsStablePodsBecomeAvailable follows 4 replicas that are aborted with three quarters of the traffic: traffic
// returns as pods of the stable revision become available, and pods of the new one are removed after their traffic.
func TestTrafficReturnsAsStablePodsBecomeAvailable(t *testing.T) {
	r := stepInput(4, 0, setWeight(25), setWeight(75))
	r.DynamicStableScale, r.Aborted, r.RecordedWeights, r.PodsForAllTraffic = true, true, &Weights{75, 25}, 4
	for _, step := range []struct {
		new, stable int32 // available
		want        ReplicaCounts
		weight      int32
	}{
		{3, 1, ReplicaCounts{3, 3}, 75},
		{3, 2, ReplicaCounts{2, 3}, 50},
		{2, 3, ReplicaCounts{1, 3}, 25},
		{1, 3, ReplicaCounts{1, 4}, 25},
		{1, 4, ReplicaCounts{0, 4}, 0},
	} {
		r.NewAvailable, r.StableAvailable = step.new, step.stable
		weight := r.RetainedWeight()
		if weight != step.weight {
			t.Errorf("%d new and %d stable pods available: weight %d, want %d", step.new, step.stable, weight, step.weight)
		}
		r.RecordedWeights = &Weights{weight, DefaultMaxWeight - weight}
		if got := r.CountsBehindRouter(); got.Canary < step.want.Canary || got.Stable < step.want.Stable {
			t.Errorf("%d new and %d stable pods available: %d/%d, want at least %d/%d",
				step.new, step.stable, got.Canary, got.Stable, step.want.Canary, step.want.Stable)
		}
	}
	r.NewAvailable, r.StableAvailable = 0, 4
	if got := r.CountsBehindRouter(); got != (ReplicaCounts{0, 4}) {
		t.Errorf("at the end: %d/%d, want 0/4", got.Canary, got.Stable)
	}
}

// TestRetainedWeightNeverOverloadsStable: during a return, the stable side receives no more traffic than it can carry,
// and keeps the traffic that it has.
func TestRetainedWeightNeverOverloadsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := stepInput(rapid.Int32Range(1, 20).Draw(t, "n"), 0, setWeight(rapid.Int32Range(0, 100).Draw(t, "a")), setWeight(rapid.Int32Range(0, 100).Draw(t, "b")))
		recorded := rapid.Int32Range(0, 100).Draw(t, "recorded")
		r.DynamicStableScale, r.Aborted, r.RecordedWeights, r.PodsForAllTraffic = true, true, &Weights{recorded, DefaultMaxWeight - recorded}, rapid.Int32Range(1, r.Replicas).Draw(t, "enough")
		r.StableAvailable = rapid.Int32Range(0, r.Replicas).Draw(t, "stable")
		r.NewAvailable = rapid.Int32Range(0, r.Replicas).Draw(t, "new")
		weight := r.RetainedWeight()
		if weight < 0 || weight > recorded {
			t.Fatalf("weight %d, of %d so far", weight, recorded)
		}
		if weight > max(0, DefaultMaxWeight-DefaultMaxWeight*r.StableAvailable/r.PodsForAllTraffic) {
			t.Fatalf("weight %d, although %d stable pods of %d that are enough are available", weight, r.StableAvailable, r.PodsForAllTraffic)
		}
		if carried := min(DefaultMaxWeight, DefaultMaxWeight*r.StableAvailable/r.PodsForAllTraffic); weight < recorded && DefaultMaxWeight-weight > carried {
			t.Fatalf("weight %d leaves %d to the stable side, which carries %d", weight, DefaultMaxWeight-weight, carried)
		}
	})
}

// TestReturnEndsWhenTheStablePodsAreComplete: once the stable side has all its pods, all traffic returns even if the pods of
// the new revision are not removed, because they are retained or because of a minimum.
func TestReturnEndsWhenTheStablePodsAreComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := stepInput(rapid.Int32Range(1, 20).Draw(t, "n"), 0, setWeight(rapid.Int32Range(0, 100).Draw(t, "a")), setWeight(rapid.Int32Range(0, 100).Draw(t, "b")))
		switch scale := (&argov1.SetCanaryScale{}); rapid.IntRange(0, 2).Draw(t, "scale") {
		case 1:
			scale.Weight = new(rapid.Int32Range(0, 100).Draw(t, "scale weight"))
			r.Steps = append([]argov1.CanaryStep{{SetCanaryScale: scale}}, r.Steps...)
		case 2:
			scale.Replicas = new(rapid.Int32Range(0, 20).Draw(t, "scale replicas"))
			r.Steps = append([]argov1.CanaryStep{{SetCanaryScale: scale}}, r.Steps...)
		}
		r.DynamicStableScale, r.Aborted, r.PodsForAllTraffic = true, true, r.Replicas
		r.MinPodsPerReplicaSet = rapid.Int32Range(0, 5).Draw(t, "least")
		r.AbortScaleDownDelaySeconds = rapid.Ptr(rapid.Int32Range(0, 1), true).Draw(t, "delay")
		r.NewAvailable = rapid.Int32Range(0, r.Replicas).Draw(t, "new")
		weight := rapid.Int32Range(0, 100).Draw(t, "recorded")
		for range 2 * r.Replicas {
			r.RecordedWeights = &Weights{weight, DefaultMaxWeight - weight}
			weight = r.RetainedWeight()
			want := r.CountsBehindRouter()
			r.StableAvailable = want.Stable
			if r.AbortScaleDownDelaySeconds == nil { // otherwise they are retained, possibly indefinitely
				r.NewAvailable = min(r.NewAvailable, want.Canary)
			}
		}
		if weight != 0 {
			t.Fatalf("the new side keeps %d, with %d pods", weight, r.NewAvailable)
		}
	})
}

func TestWeightAtReturnsTheLastSetWeight(t *testing.T) {
	steps := []argov1.CanaryStep{{Pause: &argov1.RolloutPause{}}, setWeight(10), {}, setWeight(30)}
	for index, want := range []int32{0, 10, 10, 30, 30} {
		if got := WeightAt(steps, int32(index)); got != want {
			t.Errorf("step %d: weight %d, want %d", index, got, want)
		}
	}
	for index, want := range []int32{0, 0, 10, 10, 30} {
		if got := WeightBefore(steps, int32(index)); got != want {
			t.Errorf("before step %d: weight %d, want %d", index, got, want)
		}
	}
	for index, want := range map[int32]int32{-5: 0, 4: DefaultMaxWeight, 99: DefaultMaxWeight} {
		p := StepProgress{Steps: steps, Index: &index}
		if got := p.WeightForPods(DefaultMaxWeight); got != want {
			t.Errorf("step %d, which there is not: weight %d, want %d", index, got, want)
		}
	}
}

func TestThresholdIsReached(t *testing.T) {
	percent := func(value int32) *argov1.ReplicaProgressThreshold {
		return &argov1.ReplicaProgressThreshold{Type: argov1.ProgressPercent, Value: value}
	}
	pods := func(value int32) *argov1.ReplicaProgressThreshold {
		return &argov1.ReplicaProgressThreshold{Type: argov1.ProgressPods, Value: value}
	}
	for _, test := range []struct {
		name            string
		threshold       *argov1.ReplicaProgressThreshold
		spec, available int32
		desired         int32
		want            bool
	}{
		{"all", nil, 4, 4, 4, true},
		{"one missing", nil, 4, 3, 4, false},
		{"one too many asked for", nil, 5, 4, 4, false},
		{"none of none", nil, 0, 0, 0, true},
		{"90% of 10", percent(90), 10, 9, 10, true},
		{"91% of 10", percent(91), 10, 9, 10, false},
		{"a third", percent(33), 3, 1, 3, true},
		{"percent of none", percent(90), 0, 0, 0, true},
		{"2 pods", pods(2), 10, 2, 10, true},
		{"2 pods, one there", pods(2), 10, 1, 10, false},
		{"below zero is none", percent(-1), 10, 9, 10, false},
		{"below zero is none, all there", pods(-1), 10, 10, 10, true},
	} {
		if got := IsReached(test.threshold, ReplicaSetPods{test.spec, test.available}, test.desired); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestScaleDownDecisions(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limits := RollingLimits{Replicas: 10, MaxSurge: 3, MaxUnavailable: 2} // 8 must remain
	old := func(name string, revision int64, spec, available int32, change ...func(*OldReplicaSet)) OldReplicaSet {
		o := OldReplicaSet{Name: name, Revision: revision, ReplicaSetPods: ReplicaSetPods{spec, available}}
		for _, c := range change {
			c(&o)
		}
		return o
	}
	until := func(after time.Duration) func(*OldReplicaSet) {
		return func(o *OldReplicaSet) { o.ScaleDownDeadline = now.Add(after) }
	}
	referenced := func(o *OldReplicaSet) { o.Referenced = true }
	basic := ScaleDownInput{Now: now, Limits: limits, NewAvailable: 5, StableAvailable: 2}
	routed := ScaleDownInput{Now: now, Limits: limits, UsesRouter: true, NewAvailable: 5, StableAvailable: 5, Delay: 30 * time.Second}
	promoted := routed
	promoted.Promoted = true
	limited := promoted
	limited.RevisionLimit = new(int32(1))
	atOnce := promoted
	atOnce.Delay = 0
	short := routed
	short.NewAvailable, short.StableAvailable = 0, 4
	for _, test := range []struct {
		name      string
		scaleDown ScaleDownInput
		old       []OldReplicaSet
		want      []ScaleDownDecision
	}{
		{"nothing to drain", basic, []OldReplicaSet{old("a", 1, 0, 0)}, nil},
		{"as many as are to spare", basic, []OldReplicaSet{old("a", 1, 3, 3), old("b", 2, 1, 1)}, []ScaleDownDecision{{Name: "b"}, {Name: "a", Pods: 1}}},
		{"none to spare", basic, []OldReplicaSet{old("a", 1, 1, 1)}, nil},
		{"those that are not available go first", basic, []OldReplicaSet{old("a", 1, 3, 1)}, []ScaleDownDecision{{Name: "a", Pods: 1}}},
		{"a router: all at once", routed, []OldReplicaSet{old("a", 1, 4, 4)}, []ScaleDownDecision{{Name: "a"}}},
		{"a router: pods are missing", short, []OldReplicaSet{old("a", 1, 4, 4)}, nil},
		{"a router: still referenced", routed, []OldReplicaSet{old("a", 1, 4, 4, referenced)}, nil},
		{"a router: waits", routed, []OldReplicaSet{old("a", 1, 4, 4, until(time.Second))}, []ScaleDownDecision{{Name: "a", Pods: 4, Until: now.Add(time.Second)}}},
		{"a router: has waited", routed, []OldReplicaSet{old("a", 1, 4, 4, until(0), referenced)}, []ScaleDownDecision{{Name: "a"}}},
		{
			"promoted: begins to wait", promoted,
			[]OldReplicaSet{old("a", 1, 4, 4)},
			[]ScaleDownDecision{{Name: "a", Pods: 4, ScaleDownDeadline: now.Add(30 * time.Second), Until: now.Add(30 * time.Second)}},
		},
		{"promoted: no delay", atOnce, []OldReplicaSet{old("a", 1, 4, 4)}, []ScaleDownDecision{{Name: "a"}}},
		{
			"promoted: only the newest may wait", limited,
			[]OldReplicaSet{old("a", 1, 4, 4, until(9)), old("b", 2, 4, 4, until(9))},
			[]ScaleDownDecision{{Name: "b", Pods: 4, Until: now.Add(9)}, {Name: "a"}},
		},
	} {
		if diff := cmp.Diff(test.want, test.scaleDown.DecideCanary(test.old)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestScaleDownKeepsAvailability: without a router, no reconciliation removes required pods, and finally no old pods
// remain if enough others exist.
func TestScaleDownKeepsAvailability(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int32Range(0, 20).Draw(t, "n")
		d := ScaleDownInput{Limits: NewRollingLimits(n, nil, nil), NewAvailable: rapid.Int32Range(0, n).Draw(t, "new"), StableAvailable: rapid.Int32Range(0, n).Draw(t, "stable")}
		var old []OldReplicaSet
		for i := range rapid.IntRange(0, 4).Draw(t, "old") {
			spec := rapid.Int32Range(0, 10).Draw(t, "spec")
			old = append(old, OldReplicaSet{Name: string(rune('a' + i)), Revision: int64(i), ReplicaSetPods: ReplicaSetPods{spec, rapid.Int32Range(0, spec).Draw(t, "available")}})
		}
		before := d.NewAvailable + d.StableAvailable
		for _, rs := range old {
			before += rs.Available
		}
		after := before
		for _, disposition := range d.DecideCanary(old) {
			for _, rs := range old {
				if rs.Name == disposition.Name {
					if disposition.Pods < 0 || disposition.Pods >= rs.SpecReplicas {
						t.Fatalf("%+v becomes %+v", rs, disposition)
					}
					after -= max(0, rs.Available-disposition.Pods)
				}
			}
		}
		if after < before && after < d.Limits.MinAvailable() {
			t.Fatalf("%d of %d pods stay available, and %d must", after, before, d.Limits.MinAvailable())
		}
	})
}
