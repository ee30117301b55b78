package istio

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Read takes the weights from the last rule that names the canary: the weighted one comes after those for cookies.
// Istio does not report what its proxies serve.
func (r Renderer) Read(t traffic.Target, existing []*unstructured.Unstructured) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	service := existing[virtualService]
	if service == nil {
		return out, nil
	}
	ref := r.Refs(t)[virtualService]
	key := "http"
	if tcp(t) {
		key = "tcp"
	}
	list, _, err := unstructured.NestedFieldNoCopy(service.Object, "spec", key)
	if err != nil {
		return out, fmt.Errorf("read %s: %w", ref, err)
	}
	var primary, canary int
	for _, rule := range traffic.Maps(list) {
		p, c, named, err := weights(t, rule)
		if err != nil {
			return out, fmt.Errorf("read %s: spec.%s: %w", ref, key, err)
		}
		if named {
			out.Found, primary, canary = true, p, c
		}
		if host, _, _ := unstructured.NestedString(rule, "mirror", "host"); host == t.CanaryService {
			out.Route.Mirror = release.Mirror{On: true, Percent: percent(rule)}
		}
	}
	if !out.Found {
		return traffic.Observed{Confirmed: traffic.CannotTell}, nil
	}
	if primary+canary == 0 {
		return out, fmt.Errorf("read %s: the weights of %s and %s are both 0: give one of them requests", ref, t.Primary, t.CanaryService)
	}
	out.Route.Canary = traffic.Share(primary, canary)
	return out, nil
}

func weights(t traffic.Target, rule map[string]any) (primary, canary int, namesCanary bool, err error) {
	for _, d := range traffic.Maps(rule["route"]) {
		host, _, _ := unstructured.NestedString(d, "destination", "host")
		if host != t.Primary && host != t.CanaryService {
			continue
		}
		weight, err := traffic.Number(d["weight"])
		if err != nil || weight < 0 {
			return 0, 0, false, fmt.Errorf("the weight of %s is %v, which is not a number from 0", host, d["weight"])
		}
		if host == t.Primary {
			primary = int(weight)
		} else {
			canary, namesCanary = int(weight), true
		}
	}
	return primary, canary, namesCanary, nil
}

// percent is 0 where the router copies all.
func percent(rule map[string]any) int {
	value, _, _ := unstructured.NestedFieldNoCopy(rule, "mirrorPercentage", "value")
	n, err := traffic.Number(value)
	if err != nil {
		return 0
	}
	return int(math.Round(n))
}
