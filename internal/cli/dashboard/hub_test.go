package dashboard

import (
	"errors"
	"testing"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/cli/cluster"
)

// TestLostClusterRemainsLostWhileTimePasses: a description that only time has changed is no sign of the cluster.
func TestLostClusterRemainsLostWhileTimePasses(t *testing.T) {
	h := newHub(t.Context(), &cluster.Session{Clock: clock.RealClock{}}, nil)
	h.update(cluster.State{})
	h.fail(errors.New("connection refused"))
	h.renew()
	if status := h.heartbeat(); !status.Lost || len(status.Notes) != 1 {
		t.Errorf("got %+v, want a lost cluster", status)
	}
	h.update(cluster.State{})
	if status := h.heartbeat(); status.Lost || len(status.Notes) != 0 {
		t.Errorf("got %+v, want a cluster that responds again", status)
	}
}
