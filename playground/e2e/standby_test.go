//go:build linux

package e2e_test

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/waittest"
	"github.com/serin-dev/serin/playground/apiproxy"
)

// TestAStandbyTakesOverWithFilledCaches kills the leader. The standby has watched the kinds of all Canaries before, so that it does
// not list them when it acquires the Lease, and serves the next release. Kinds of routes are watched from the first use.
func TestAStandbyTakesOverWithFilledCaches(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "standby")
	s.apply(deployment(t, "left", 1))
	s.waitForAvailable("left", 1)
	r := s.follow("left")
	s.startSerin("-enable-leader-election")
	s.apply(replaceTexts(t, flaggerCanary, "HOST", "standby.test"))
	r.waitForPhase("Initialized")

	name := s.processName() + "-second"
	proxy, kubeconfig, err := shared.StartCountingProxy(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	argv := slices.Concat([]string{serin}, shortIntervalFlags(), []string{"-namespace", s.namespace, "-enable-leader-election", "-kubeconfig", kubeconfig})
	if _, err := shared.StartProcess(name, argv, []string{"POD_NAMESPACE=" + s.namespace}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the standby's log:\n%s", shared.Tail(name, 30))
		}
		if err := shared.Kill(name); err != nil {
			t.Error(err)
		}
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	cached := []schema.GroupResource{canaries.GroupResource(), deployments.GroupResource(), scalers.GroupResource(), {Resource: "configmaps"}, {Resource: "secrets"}}
	waittest.Until(t, "the standby watches "+fmt.Sprint(cached), func() error {
		counts := proxy.Counts()
		for _, kind := range cached {
			if counts[apiproxy.Request{Verb: "watch", Group: kind.Group, Resource: kind.Resource}] == 0 {
				return fmt.Errorf("got requests %v", counts)
			}
		}
		return nil
	})
	before := proxy.Counts()
	if err := shared.Kill(s.processName()); err != nil {
		t.Fatal(err)
	}
	s.deployVersion("left", "v2")
	r.waitForEnd("Succeeded")
	during := proxy.Counts().Since(before)
	for _, kind := range cached {
		for _, verb := range []string{"list", "watch"} {
			if n := during[apiproxy.Request{Verb: verb, Group: kind.Group, Resource: kind.Resource}]; n > 0 {
				t.Errorf("after the takeover: %d requests to %s %s", n, verb, kind)
			}
		}
	}
}
