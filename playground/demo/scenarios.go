//go:build linux

package demo

import (
	"maps"
	"slices"
)

// Outcome is the outcome of a release.
type Outcome string

// The outcomes of a release. Stuck means that the release did not end; no scenario expects it.
const (
	Promoted   Outcome = "promoted"
	RolledBack Outcome = "rolled back"
	Stuck      Outcome = "stuck"
)

// errorPercent is the environment variable with which the demo application fails requests.
const errorPercent = "ERROR_PERCENT"

// Scenario is a release of one version and its expected outcome.
type Scenario struct {
	// Target is the application that is released.
	Target *Target
	// Name identifies the scenario in the output for programs, Story describes it to users.
	Name, Story string
	// Version is the image's tag; Env configures the errors and the latency of the demo application.
	Version string
	Env     map[string]string
	Want    Outcome
}

// Scenarios returns the scenarios in the order in which they run. The first promotes v2 of cart, so the next two are rolled back
// to v2.
func Scenarios() []Scenario {
	return []Scenario{
		{
			Target: Cart, Name: "good", Version: "v2", Want: Promoted,
			Story: "v2 is a good version: it receives 20, 40, 60 % of the requests and is promoted",
		},
		{
			Target: Cart, Name: "failing", Version: "v3", Env: map[string]string{errorPercent: "10"}, Want: RolledBack,
			Story: "v3 fails 10 % of its requests: it receives 20 % of them, fails its checks and is rolled back",
		},
		{
			Target: Cart, Name: "slow", Version: "v4", Env: map[string]string{"LATENCY": "900ms"}, Want: RolledBack,
			Story: "v4 takes 0.9 s for each answer, the maximum is 0.5 s: it is rolled back too",
		},
		{
			Target: Web, Name: "rollout", Version: "v2", Want: Promoted,
			Story: "the Rollout web sends 25, then 50 % of the requests to v2, analyzes its success rate and promotes it",
		},
	}
}

// patch returns the JSON patch of the workload that starts the release.
func (s Scenario) patch() []map[string]any {
	env := []any{} // without the variables of the previous scenario
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		env = append(env, map[string]any{"name": name, "value": s.Env[name]})
	}
	const container = "/spec/template/spec/containers/0"
	return []map[string]any{
		{"op": "replace", "path": container + "/image", "value": image + ":" + s.Version},
		{"op": "add", "path": container + "/env", "value": env},
	}
}
