package teeth

// API is an API whose histories must find the mistakes that are made in it.
type API struct {
	// Name by which the simulator knows it.
	Name  string
	Teeth []Tooth
	// Elsewhere are the invariants that no history of it can break, and what holds them.
	Elsewhere map[string]string
}

// APIs are all of them.
var APIs = []API{
	{"canary", Teeth, Elsewhere},
	{"rollout", Rollouts, RolloutsElsewhere},
}
