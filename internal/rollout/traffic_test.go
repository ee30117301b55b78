package rollout

import "testing"

// TestASubsetSelectsTheStableRevisionUntilTheNewOneHasPods: a proxy may still have an earlier weight for the subset.
func TestASubsetSelectsTheStableRevisionUntilTheNewOneHasPods(t *testing.T) {
	const stable, next, former = "stable", "next", "former"
	for name, tc := range map[string]struct {
		weight                     int32
		selected                   string
		stableAvailable, available int32
		want                       string
	}{
		"without a weight and without pods":             {0, stable, 2, 0, stable},
		"the new revision has a pod":                    {0, stable, 2, 1, next},
		"it has a weight":                               {10, stable, 2, 0, next},
		"the stable revision has no pods either":        {0, stable, 0, 0, next},
		"the subset selects another revision":           {0, former, 2, 0, next},
		"the subset selects a revision that is unknown": {0, "unknown", 2, 0, next},
		"the route has no subset":                       {0, "", 2, 0, next},
	} {
		f := facts{
			Snapshot: Snapshot{
				Route: Route{CanaryHash: tc.selected},
				ReplicaSets: []ReplicaSet{
					{Name: "cart-stable", Hash: stable, Available: tc.stableAvailable},
					{Name: "cart-next", Hash: next, Available: tc.available},
					{Name: "cart-former", Hash: former, Available: 3},
				},
			},
			stable: ReplicaSet{Name: "cart-stable", Hash: stable, Available: tc.stableAvailable},
		}
		if got := canaryDestination(f, trafficSplit{weight: tc.weight, canary: next}); got != tc.want {
			t.Errorf("%s: the canary weight is for %q, want %q", name, got, tc.want)
		}
	}
}
