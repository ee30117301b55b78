package rollout

import (
	"fmt"
	"slices"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// placeOf is where a destination leads to.
func placeOf(destination map[string]any) place {
	if name, ok := destination["name"].(string); ok {
		return place{Service: name}
	}
	to, _ := destination["destination"].(map[string]any)
	return placeIn(to)
}

// placeIn is where a destination of Istio leads to, as it is named inside.
func placeIn(to map[string]any) place {
	host, _ := to["host"].(string)
	subset, _ := to["subset"].(string)
	return place{host, subset}
}

// share is one place of a route and its weight.
type share struct {
	place
	Weight int
}

func (s share) String() string { return fmt.Sprintf("{%s %d}", s.place, s.Weight) }

// weightsOf are the shares of a route's last rule, which matches the requests that no rule before it matches.
func weightsOf(v *store.Version) []share {
	if v == nil {
		return nil
	}
	rules := actors.Destinations(v.Content())
	if len(rules) == 0 {
		return nil
	}
	var shares []share
	for _, destination := range rules[len(rules)-1] {
		weight, given := destination["weight"].(int64)
		if !given && destination["name"] != nil {
			weight = 1 // what the Gateway API means by none
		}
		shares = append(shares, share{placeOf(destination), int(weight)})
	}
	return shares
}

// weightOf is the share of a place.
func weightOf(shares []share, at place) int {
	i := slices.IndexFunc(shares, func(s share) bool { return s.place == at })
	if i < 0 {
		return 0
	}
	return shares[i].Weight
}
