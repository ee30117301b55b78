//go:build linux

package demo

import (
	"maps"
	"slices"
)

// Outcome is how a release ends.
type Outcome string

// The outcomes of an act. Stuck is none that an act may want.
const (
	Promoted   Outcome = "promoted"
	RolledBack Outcome = "rolled back"
	Stuck      Outcome = "stuck"
)

// errorPercent is the variable by which the demo application fails requests.
const errorPercent = "ERROR_PERCENT"

// Scenario is one version and what has to become of it.
type Scenario struct {
	// Name is for machines, Story for people.
	Name, Story string
	// Version is the image's tag, Env makes the version as good or bad as the story says.
	Version string
	Env     map[string]string
	Want    Outcome
}

// Scenarios are the demo, in order. The first promotes v2, so it is v2 that takes its users back in the others.
func Scenarios() []Scenario {
	return []Scenario{
		{
			Name: "good", Version: "v2", Want: Promoted,
			Story: "v2 is a good version: it gets 20, 40, 60 % of the requests and is promoted",
		},
		{
			Name: "failing", Version: "v3", Env: map[string]string{errorPercent: "10"}, Want: RolledBack,
			Story: "v3 fails 10 % of its requests: it gets 20 % of them, fails its checks and is rolled back",
		},
		{
			Name: "slow", Version: "v4", Env: map[string]string{"LATENCY": "900ms"}, Want: RolledBack,
			Story: "v4 takes 0.9 s for each answer, 0.5 s are allowed: it is rolled back too",
		},
	}
}

// targetPatch is the change of the Deployment that begins the act.
func (a Scenario) targetPatch() map[string]any {
	// Without this the variables of the last act would stay.
	env := []any{map[string]any{"$patch": "replace"}}
	for _, name := range slices.Sorted(maps.Keys(a.Env)) {
		env = append(env, map[string]any{"name": name, "value": a.Env[name]})
	}
	container := map[string]any{"name": name, "image": image + ":" + a.Version, "env": env}
	return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{container},
	}}}}
}
