package istio

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Read reads the weights from the last rule that names the canary: the weighted rule follows those for cookies. Istio does
// not report what its proxies serve.
func (r Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	ref, service := existing[virtualService].Ref, existing[virtualService].Object
	if service == nil {
		return out, nil
	}
	key := "http"
	if tcp(t) {
		key = "tcp"
	}
	list, _, err := unstructured.NestedFieldNoCopy(service.Object, "spec", key)
	if err != nil {
		return out, fmt.Errorf("read %s: %w", ref, err)
	}
	var weighted map[string]int
	var matched bool // a rule for all other requests follows
	var mirror release.Mirror
	for _, rule := range traffic.Maps(list) {
		weights, err := t.SideWeights(traffic.Maps(rule["route"]), hostOf)
		if err != nil {
			return out, fmt.Errorf("read %s: spec.%s: %w", ref, key, err)
		}
		if _, named := weights[t.CanaryService]; named {
			weighted, matched = weights, false
		} else if len(weights) > 0 {
			matched = true
		}
		if host, _, _ := unstructured.NestedString(rule, "mirror", "host"); host == t.CanaryService {
			mirror = release.Mirror{Enabled: true, Percent: percent(rule)}
		}
	}
	if weighted == nil {
		return out, nil
	}
	out, err = traffic.ObserveShare(ref, weighted, t.StableService, t.CanaryService)
	out.Route.Mirror, out.Matched = mirror, matched
	return out, err
}

// percent is 0 if the router copies all requests.
func percent(rule map[string]any) int {
	value, _, _ := unstructured.NestedFieldNoCopy(rule, "mirrorPercentage", "value")
	n, err := traffic.Number(value)
	if err != nil {
		return 0
	}
	return int(math.Round(n))
}
