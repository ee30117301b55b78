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
	// Name identifies the scenario in the output for programs, Story describes it to users.
	Name, Story string
	// Version is the image's tag; Env configures the errors and the latency of the demo application.
	Version string
	Env     map[string]string
	Want    Outcome
}

// Scenarios returns the scenarios in the order in which they run. The first promotes v2, so the others are rolled back to v2.
func Scenarios() []Scenario {
	return []Scenario{
		{
			Name: "good", Version: "v2", Want: Promoted,
			Story: "v2 is a good version: it receives 20, 40, 60 % of the requests and is promoted",
		},
		{
			Name: "failing", Version: "v3", Env: map[string]string{errorPercent: "10"}, Want: RolledBack,
			Story: "v3 fails 10 % of its requests: it receives 20 % of them, fails its checks and is rolled back",
		},
		{
			Name: "slow", Version: "v4", Env: map[string]string{"LATENCY": "900ms"}, Want: RolledBack,
			Story: "v4 takes 0.9 s for each answer, the maximum is 0.5 s: it is rolled back too",
		},
	}
}

// targetPatch returns the patch of the Deployment that starts the release.
func (s Scenario) targetPatch() map[string]any {
	// The variables of the previous scenario are removed: a strategic merge patch would otherwise merge the lists.
	env := []any{map[string]any{"$patch": "replace"}}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		env = append(env, map[string]any{"name": name, "value": s.Env[name]})
	}
	container := map[string]any{"name": name, "image": image + ":" + s.Version, "env": env}
	return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{container},
	}}}}
}
