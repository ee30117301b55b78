package store

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// manifest is a Canary without matches, which only the slow path validates.
const manifest = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: x}
spec:
  provider: istio
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: x}
  progressDeadlineSeconds: 60
  skipAnalysis: false
  service: {port: 80, targetPort: http, portDiscovery: true, gatewayRefs: [{name: a}], gateways: [b], hosts: [c], retries: {attempts: 3, perTryTimeout: 1s}, headers: {request: {add: {a: b}}}}
  analysis:
    interval: 10s
    threshold: 5
    maxWeight: 50
    stepWeights: [1, 5]
    sessionAffinity: {cookieName: c}
    metrics: [{name: m, interval: 1m, thresholdRange: {min: 99.5}, templateRef: {name: t, namespace: other}}]
    webhooks: [{name: w, type: rollout, url: "http://a.test/", timeout: 5s, metadata: {a: b}}]
    alerts: [{name: a, severity: info, providerRef: {name: p}}]
status:
  phase: Progressing
  canaryWeight: 10
  failedChecks: 0
  lastTransitionTime: "2026-01-01T00:00:00Z"
  trackedConfigs: {a: b}
  conditions: [{type: Promoted, status: "True", reason: R, message: m, lastUpdateTime: "2026-01-01T00:00:00Z", lastTransitionTime: "2026-01-01T00:00:00Z"}]
  serin: {gates: [{name: window, verdict: Wait, since: "2026-01-01T00:00:00.000001Z", message: m}]}
`

// TestQuickPathMatchesTheAPIMachinery verifies that the quick path of validation accepts nothing that the code of the real API
// server rejects, for arbitrary changes of an object.
func TestQuickPathMatchesTheAPIMachinery(t *testing.T) {
	definitions, err := Serin()
	if err != nil {
		t.Fatal(err)
	}
	c, err := definitions.kinds[schema.GroupKind{Group: "flagger.app", Kind: "Canary"}].compile()
	if err != nil {
		t.Fatal(err)
	}
	var original map[string]any
	if err := yaml.Unmarshal([]byte(manifest), &original); err != nil {
		t.Fatal(err)
	}
	original = cloneMap(original)
	if faults := c.validateSlowly(original, nil); len(faults) > 0 {
		t.Fatalf("the object that is disturbed is not valid: %v", faults)
	}
	random := rand.New(rand.NewPCG(1, 1))
	accepted, quick := 0, 0
	for range 3000 {
		object := cloneMap(original)
		for range 1 + random.IntN(3) {
			disturb(random, object)
		}
		c.complete(object)
		faults := c.validateSlowly(object, nil)
		if len(faults) == 0 {
			accepted++
		}
		if c.root.checkMap(object, nil, true) == valid {
			quick++
			if len(faults) > 0 {
				t.Fatalf("%s\nis taken for valid, and is not: %v", jsonOf(t, object), faults)
			}
		}
	}
	if quick < accepted*9/10 || accepted < 300 || accepted > 2700 {
		t.Errorf("of 3000 objects %d are valid, and %d the quick way: the test or the quick way is of little use", accepted, quick)
	}
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// disturb changes one field of an object.
func disturb(random *rand.Rand, object map[string]any) {
	at := object
	for {
		names := slices.DeleteFunc(sortedKeys(at), func(name string) bool { return name == "apiVersion" || name == "kind" || name == "metadata" })
		if len(names) == 0 {
			return
		}
		name := names[random.IntN(len(names))]
		if list, ok := at[name].([]any); ok && len(list) > 0 && random.IntN(3) > 0 {
			if inner, ok := list[random.IntN(len(list))].(map[string]any); ok {
				at = inner
				continue
			}
		}
		if inner, ok := at[name].(map[string]any); ok && random.IntN(8) > 0 {
			at = inner
			continue
		}
		values := []any{
			nil, "", "x", "10s", strings.Repeat("x", 300), int64(0), int64(-1), int64(7), 0.5, true,
			[]any{},
			[]any{nil, "x", int64(1)},
			map[string]any{},
			map[string]any{"name": nil, "unknown": "x"},
			[]any{map[string]any{"name": "x"}},
		}
		switch random.IntN(6) {
		case 0:
			delete(at, name)
		case 1:
			at["unknown"] = values[random.IntN(len(values))]
		default:
			at[name] = values[random.IntN(len(values))]
		}
		return
	}
}
