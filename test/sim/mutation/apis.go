package mutation

// API is an API with the mutants that its simulation runs must detect.
type API struct {
	// Name by which the simulator knows it.
	Name    string
	Mutants []Mutant
	// Elsewhere are the invariants that no run of it can violate, and the tests that cover them.
	Elsewhere map[string]string
}

// APIs are all of them.
var APIs = []API{
	{"canary", Canaries, Elsewhere},
	{"rollout", Rollouts, RolloutsElsewhere},
}
