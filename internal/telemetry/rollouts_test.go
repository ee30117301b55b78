package telemetry

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
)

func TestARolloutShowsTheSeriesThatDashboardsRead(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	shown := Rollout{Namespace: "shop", Name: "cart", Strategy: "canary", Phase: "Progressing", Desired: 4, Available: 3, Updated: 1}
	m.SetRollout(shown)
	m.SetRollout(shown)
	shown.Phase, shown.Available, shown.Updated = "Completed", 5, 4
	m.SetRollout(shown)
	m.CountRolloutEvent("shop", "cart", "Normal", "RolloutCompleted")
	m.RecordRolloutRelease("Promoted", 90*time.Second, time.Minute)
	m.CountReconcileFailure(rolloutKind, types.NamespacedName{Namespace: "shop", Name: "cart"})
	m.RecordReconciliation(rolloutKind, types.NamespacedName{Namespace: "shop", Name: "cart"}, 250*time.Millisecond)
	want := []string{
		`rollout_duration_seconds_count{status="Promoted"} 1`,
		`rollout_duration_seconds_sum{status="Promoted"} 90`,
		`rollout_events_total{name="cart",namespace="shop",reason="RolloutCompleted",type="Normal"} 1`,
		`rollout_info_replicas_available{name="cart",namespace="shop"} 5`,
		`rollout_info_replicas_desired{name="cart",namespace="shop"} 4`,
		`rollout_info_replicas_unavailable{name="cart",namespace="shop"} 0`,
		`rollout_info_replicas_updated{name="cart",namespace="shop"} 4`,
		`rollout_info{name="cart",namespace="shop",phase="Completed",strategy="canary",traffic_router=""} 1`,
		`rollout_manual_pause_duration_seconds_count{status="Promoted"} 1`,
		`rollout_manual_pause_duration_seconds_sum{status="Promoted"} 60`,
		`rollout_phase{name="cart",namespace="shop",phase="Abort",strategy="canary"} 0`,
		`rollout_phase{name="cart",namespace="shop",phase="Completed",strategy="canary"} 1`,
		`rollout_phase{name="cart",namespace="shop",phase="Error",strategy="canary"} 0`,
		`rollout_phase{name="cart",namespace="shop",phase="InvalidSpec",strategy="canary"} 0`,
		`rollout_phase{name="cart",namespace="shop",phase="Paused",strategy="canary"} 0`,
		`rollout_phase{name="cart",namespace="shop",phase="Progressing",strategy="canary"} 0`,
		`rollout_phase{name="cart",namespace="shop",phase="Timeout",strategy="canary"} 0`,
		`rollout_progression_duration_seconds_count{status="Promoted"} 1`,
		`rollout_progression_duration_seconds_sum{status="Promoted"} 30`,
		`rollout_reconcile_count{name="cart",namespace="shop"} 1`,
		`rollout_reconcile_error{name="cart",namespace="shop"} 1`,
		`rollout_reconcile_sum{name="cart",namespace="shop"} 0.25`,
	}
	expect(t, "series", series(t, registry), want)

	m.SetWaitingGate(rolloutKind, "shop", "cart", WaitingGate{"pods", release.ByCluster, time.Unix(1, 0)})
	m.ForgetRollout("shop", "cart")
	remaining := slices.DeleteFunc(series(t, registry), func(line string) bool { return !strings.Contains(line, `name="cart"`) })
	expect(t, "series of a deleted Rollout", remaining, []string{})

	// The reconciliation that finds it deleted ends after that, and so do notifications.
	m.RecordReconciliation(rolloutKind, types.NamespacedName{Namespace: "shop", Name: "cart"}, time.Second)
	m.CountReconcileFailure(rolloutKind, types.NamespacedName{Namespace: "shop", Name: "cart"})
	m.CountRolloutEvent("shop", "cart", "Warning", "NotificationFailed")
	remaining = slices.DeleteFunc(series(t, registry), func(line string) bool { return !strings.Contains(line, `name="cart"`) })
	expect(t, "series after late records", remaining, []string{})
	if len(m.rollouts.shown)+len(m.rollouts.countedEvents) != 0 {
		t.Errorf("state that remains: %v %v", m.rollouts.shown, m.rollouts.countedEvents)
	}
}
