package mutation

// API is an API with the mutants that its simulation runs must detect.
type API struct {
	// Name is the name of the API in the simulator.
	Name    string
	Mutants []Mutant
	// Elsewhere contains the invariants that no run of the API can violate, and the tests that cover them.
	Elsewhere map[string]string
}

// APIs are all APIs with mutants.
var APIs = []API{
	{"canary", Canaries, Elsewhere},
	{"rollout", Rollouts, RolloutsElsewhere},
}
