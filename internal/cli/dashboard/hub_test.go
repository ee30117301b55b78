package dashboard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// TestLostClusterRemainsLostWhileTimePasses: a description that only time has changed is no sign of the cluster.
func TestLostClusterRemainsLostWhileTimePasses(t *testing.T) {
	h := newHub(t.Context(), &cluster.Session{Clock: clock.RealClock{}}, nil)
	h.update(t.Context(), cluster.State{})
	h.fail(t.Context(), errors.New("connection refused"))
	h.renew(t.Context())
	if status := h.heartbeat(); !status.Lost || len(status.Notes) != 1 {
		t.Errorf("got %+v, want a lost cluster", status)
	}
	h.update(t.Context(), cluster.State{})
	if status := h.heartbeat(); status.Lost || len(status.Notes) != 0 {
		t.Errorf("got %+v, want a cluster that responds again", status)
	}
}

// TestLostClusterDeletesNoRelease: what was not read may exist.
func TestLostClusterDeletesNoRelease(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	h := newHub(t.Context(), w.Session, nil)
	cart := manyObservations(t, w, 1)
	find := func(when string, wantFound, wantReady bool) {
		t.Helper()
		if e, _, isReady, _ := h.find(cart[0].Key()); (e != nil) != wantFound || isReady != wantReady {
			t.Errorf("%s: found %t, ready %t", when, e != nil, isReady)
		}
	}
	h.fail(t.Context(), errors.New("connection refused"))
	find("lost before the releases were read", false, false)
	h.update(t.Context(), cluster.State{Releases: cart})
	h.fail(t.Context(), errors.New("connection refused"))
	find("lost", true, true)
	h.update(t.Context(), cluster.State{})
	find("deleted", false, true)
}

// TestIdleHubForgetsAllButRecordings lets a hub stop, and deletes a release before the viewer reconnects.
func TestIdleHubForgetsAllButRecordings(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	observed := manyObservations(t, w, 2)
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t.Context(), &cluster.Session{Clock: clock.RealClock{}}, nil)
		ctx, stop := context.WithCancel(t.Context())
		h.stop = stop // it follows nothing
		leave := h.enter()
		h.update(ctx, cluster.State{Releases: observed})
		before, version, _, _ := h.fleet(0, filter{})
		if len(before.Releases) != 2 {
			t.Fatalf("got %+v", before)
		}
		leave()
		time.Sleep(idleDelay) // of the bubble
		synctest.Wait()
		if h.isFollowing() {
			t.Fatal("the hub has not stopped")
		}
		isEmpty := func(when string) {
			t.Helper()
			if n := len(h.published.entries) + len(h.entries) + len(h.state.Releases); n != 0 || !h.describer.ValidUntil().IsZero() {
				t.Errorf("%s: %d releases are remembered, and descriptions until %s", when, n, h.describer.ValidUntil())
			}
			if _, _, isReady, _ := h.find(explain.Key{}); isReady {
				t.Errorf("%s: viewers see an old state", when)
			}
		}
		isEmpty("after the stop")
		h.update(ctx, cluster.State{Releases: observed})
		isEmpty("after a late update")
		h.fail(ctx, errors.New("connection refused"))
		isEmpty("after a late failure")
		h.renew(ctx)
		isEmpty("after a late renewal")

		h.update(t.Context(), cluster.State{Releases: []explain.Observation{changedCanary(observed[0], 1)}})
		fleet, next, _, hasNews := h.fleet(version, filter{})
		if !hasNews || !fleet.Complete || len(fleet.Releases) != 1 || next <= version {
			t.Errorf("a stream that reconnects receives %+v with version %d after %d, want all releases", fleet, next, version)
		}
		e, _, _, _ := h.find(observed[0].Key())
		weights, measured := e.memory.recorded()
		for _, at := range []time.Time{weights[0].At, measured[0].Points[0].At} {
			if !at.Equal(before.Now) {
				t.Errorf("a recording begins at %s, want %s, before the stop", at, before.Now)
			}
		}
		if len(h.recordings) != 0 {
			t.Errorf("%d recordings are kept twice", len(h.recordings))
		}
	})
}
