package rollout

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/test/sim/store"
)

// destinations are the receivers of each rule of a route, with their weights, in place.
func destinations(content map[string]any) [][]map[string]any {
	var out [][]map[string]any
	for _, place := range [][2]string{{"http", "route"}, {"rules", "backendRefs"}} {
		rules, _, _ := unstructured.NestedFieldNoCopy(content, "spec", place[0])
		for _, rule := range items(rules) {
			out = append(out, items(rule[place[1]]))
		}
	}
	return out
}

// items are the objects of a list.
func items(value any) []map[string]any {
	list, _ := value.([]any)
	out := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if object, ok := item.(map[string]any); ok {
			out = append(out, object)
		}
	}
	return out
}

// host is the Service of a destination.
func host(destination map[string]any) string {
	if name, ok := destination["name"].(string); ok {
		return name
	}
	name, _, _ := unstructured.NestedString(destination, "destination", "host")
	return name
}

// share is one Service of a route and its weight.
type share struct {
	Service string
	Weight  int
}

// weightsOf are the shares of a route's last rule, which is for everybody that no rule before it means.
func weightsOf(v *store.Version) []share {
	if v == nil {
		return nil
	}
	rules := destinations(v.Content())
	if len(rules) == 0 {
		return nil
	}
	var shares []share
	for _, destination := range rules[len(rules)-1] {
		weight, given := destination["weight"].(int64)
		if !given && destination["name"] != nil {
			weight = 1 // what the Gateway API means by none
		}
		shares = append(shares, share{host(destination), int(weight)})
	}
	return shares
}

// weightOf is the share of a Service.
func weightOf(shares []share, service string) int {
	i := slices.IndexFunc(shares, func(s share) bool { return s.Service == service })
	if i < 0 {
		return 0
	}
	return shares[i].Weight
}

// reweigh gives the canary a weight, and the stable side the rest, where a rule has both. It is false where none has.
func reweigh(content map[string]any, canary string, weight int64) bool {
	changed := false
	for _, to := range destinations(content) {
		if len(to) != 2 {
			continue
		}
		for _, destination := range to {
			destination["weight"] = 100 - weight
			if host(destination) == canary {
				destination["weight"] = weight
			}
		}
		changed = true
	}
	return changed
}
