package rollout

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// destinationOf returns the destination that an entry of a route names.
func destinationOf(content map[string]any) destination {
	if name, ok := content["name"].(string); ok {
		return destination{Service: name}
	}
	if upstream, found, _ := unstructured.NestedString(content, "destination", "upstream", "name"); found { // of Gloo
		return destination{Service: upstream}
	}
	if subset, ok := content["serviceSubset"].(string); ok { // of Consul
		service, _ := content["service"].(string)
		return destination{service, subset}
	}
	to, _ := content["destination"].(map[string]any)
	return istioDestinationOf(to)
}

// istioDestinationOf returns the destination that a destination field of Istio names.
func istioDestinationOf(to map[string]any) destination {
	host, _ := to["host"].(string)
	subset, _ := to["subset"].(string)
	return destination{host, subset}
}

// weightedDestination is a destination of a route with its weight.
type weightedDestination struct {
	destination
	Weight int
}

func (s weightedDestination) String() string { return fmt.Sprintf("{%s %d}", s.destination, s.Weight) }

// weightsOf returns the destinations of a route's last rule, which matches all requests that no earlier rule matches.
func weightsOf(v *store.Version) []weightedDestination {
	if v == nil {
		return nil
	}
	rules := actors.Destinations(v.Content())
	if len(rules) == 0 {
		return nil
	}
	var weights []weightedDestination
	for _, destination := range rules[len(rules)-1] {
		weight, given := destination["weight"].(int64)
		if !given && destination["name"] != nil {
			weight = 1 // the default of the Gateway API
		}
		weights = append(weights, weightedDestination{destinationOf(destination), int(weight)})
	}
	return weights
}

// weightOf returns the weight of a destination.
func weightOf(weights []weightedDestination, at destination) int {
	i := slices.IndexFunc(weights, func(s weightedDestination) bool { return s.destination == at })
	if i < 0 {
		return 0
	}
	return weights[i].Weight
}
