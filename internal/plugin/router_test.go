package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/waittest"
)

// routedBy returns a Rollout whose router is a plugin with a configuration.
func routedBy(config string) *argov1.Rollout {
	r := &argov1.Rollout{}
	r.Namespace, r.Name = "shop", "cart"
	r.Spec.Strategy.Canary = &argov1.CanaryStrategy{TrafficRouting: &argov1.RolloutTrafficRouting{Plugins: map[string]json.RawMessage{"acme/test": json.RawMessage(config)}}}
	return r
}

// routerCalls are one call of each method.
var routerCalls = []RouterCall{
	{Method: "RemoveManagedRoutes"},
	{Method: "SetHeaderRoute", Header: &argov1.SetHeaderRoute{Name: "beta", Match: []argov1.HeaderRoutingMatch{{HeaderName: "x", HeaderValue: &argov1.StringMatch{Exact: "1"}}}}},
	{Method: "SetMirrorRoute", Mirror: &argov1.SetMirrorRoute{Name: "copy", Match: []argov1.RouteMatch{{}}}},
	{Method: "SetHeaderRoute", Header: &argov1.SetHeaderRoute{Name: "gone"}},
	{Method: "UpdateHash", CanaryHash: "b", StableHash: "a", Additional: []argov1.WeightDestination{{ServiceName: "exp", Weight: 5, PodTemplateHash: "e"}}},
	{Method: "SetWeight", Weight: 20, Additional: []argov1.WeightDestination{{ServiceName: "exp", Weight: 5, PodTemplateHash: "e"}}},
	{Method: "VerifyWeight", Weight: 20},
}

func TestRouterCalls(t *testing.T) {
	h, folder := newTestHost(t, nil), t.TempDir()
	journal, state := filepath.Join(folder, "journal"), filepath.Join(folder, "state")
	rollout := routedBy(fmt.Sprintf(`{"value": "verified", "journal": %q, "state": %q}`, journal, state))
	for _, c := range routerCalls {
		c.Plugin = "acme/test"
		verified, err := h.CallRouter(t.Context(), rollout, c)
		if err != nil || verified == Verified != (c.Method == "VerifyWeight") {
			t.Errorf("%s: %v, %v", c.Method, verified, err)
		}
	}
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	want := "RemoveManagedRoutes\nSetHeaderRoute beta 1\nSetMirrorRoute copy 1\nSetHeaderRoute gone 0\nUpdateHash b a 1\nSetWeight 20 1\nVerifyWeight 20\n"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("received calls (-want +got):\n%s", diff)
	}
	if text, err = os.ReadFile(state); err != nil || string(text) != `{"weight":20,"canary":"b","stable":"a","headers":["beta"],"mirrors":["copy"],"asked":1}` {
		t.Errorf("state %s, %v", text, err)
	}
}

func TestVerificationByRouterPlugins(t *testing.T) {
	h := newTestHost(t, nil)
	got := map[string]Verification{}
	for name, config := range map[string]string{"verified": `{"value":"verified"}`, "not": `{"value":"not"}`, "not implemented": `{}`, "nonsense": `{"behavior":"nonsense"}`} {
		verified, err := h.CallRouter(t.Context(), routedBy(config), RouterCall{Plugin: "acme/test", Method: "VerifyWeight", Weight: 20})
		if err != nil {
			t.Fatal(err)
		}
		got[name] = verified
	}
	if diff := cmp.Diff(map[string]Verification{"verified": Verified, "not": NotVerified, "not implemented": VerifyNotImplemented, "nonsense": 99}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRouterPluginErrors(t *testing.T) {
	h := newTestHost(t, nil)
	for _, test := range []struct{ plugin, method, config, want string }{
		{"acme/test", "SetWeight", `{"behavior":"error"}`, "SetWeight rpc call error: the test requires an error"},
		{"acme/test", "VerifyWeight", `{"behavior":"error"}`, "VerifyWeight rpc call error: the test requires an error"},
		{"acme/none", "SetWeight", `{}`, "acme/none: not configured: add it to trafficRouterPlugins of the ConfigMap argo-rollouts-config"},
		{"acme/test", "SetHeaderRoute", `{}`, "acme/test: the call SetHeaderRoute has no arguments"},
		{"acme/test", "SetWeight", `{"behavior":"crash"}`, "SetWeight rpc call error: "},
	} {
		_, err := h.CallRouter(t.Context(), routedBy(test.config), RouterCall{Plugin: test.plugin, Method: test.method})
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s with %s: %v, want %s", test.method, test.config, err, test.want)
		}
	}
}

// TestRouterPluginDoesNotAnswer: the process ends, so that the call cannot take effect after a later one, and the next call
// does not wait for a delay of restarts.
func TestRouterPluginDoesNotAnswer(t *testing.T) {
	h := newTestHost(t, func(o *Options) { o.CallTimeout = 2 * time.Second })
	weight := RouterCall{Plugin: "acme/test", Method: "SetWeight", Weight: 20}
	if _, err := h.CallRouter(t.Context(), routedBy(`{}`), weight); err != nil {
		t.Fatal(err)
	}
	p := h.plugins[pluginKey{Router, "acme/test"}].process
	_, err := h.CallRouter(t.Context(), routedBy(`{"behavior":"hang"}`), weight)
	var failed *CallError
	if !errors.As(err, &failed) || err.Error() != "SetWeight rpc call error: no answer within 2s" {
		t.Fatalf("got %v", err)
	}
	waittest.Receive(t, "the process has ended", p.ended.Done())
	if _, err := h.CallRouter(t.Context(), routedBy(`{}`), weight); err != nil {
		t.Errorf("the next call: %v", err)
	}
}
