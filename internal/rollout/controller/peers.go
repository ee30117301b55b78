package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/serin-dev/serin/internal/peer"
	"github.com/serin-dev/serin/internal/release"
)

// leftTo is who acts on a release in Serin's stead. Whoever runs Serin is told when it begins to leave releases to a peer,
// and when it goes on.
func (r *Reconciler) leftTo(ctx context.Context, key types.NamespacedName, now time.Time) (peer.Sign, error) {
	sign, err := r.Peers.Acting(ctx, key.Namespace, now)
	if err != nil {
		return sign, err
	}
	reason := ""
	if sign.Text != "" {
		reason = left(sign).Message
	}
	began, ended := r.memory.leave(key, reason)
	logger := log.FromContext(ctx)
	if began != "" {
		logger.Info("Stood back from releases that another controller acts on", "why", began)
	}
	if ended != "" {
		logger.Info("Went on, because the other controller is gone", "was", ended)
	}
	if r.Health != nil && (began != "" || ended != "") {
		r.Health("peer of Rollouts", r.memory.someLeft())
	}
	return sign, nil
}

// left is what people are told of a release that another controller acts on.
func left(sign peer.Sign) release.Event {
	return release.Event{Type: release.Warning, Reason: "LeftToArgoRollouts", Standing: true, Message: fmt.Sprintf(
		"Argo Rollouts acts on this Rollout (%s), so Serin does not: scale it to zero, or give -adopt-while-peer-runs where the two share Rollouts by namespace or instance id",
		sign.Text)}
}

// leave remembers to whom a release is left; empty: to nobody. began is the reason where no release was left for it before,
// ended where none is any more.
func (m *memory) leave(key types.NamespacedName, reason string) (began, ended string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	old := e.left
	if old == reason {
		return "", ""
	}
	e.left = reason
	if reason != "" {
		if m.left[reason]++; m.left[reason] == 1 {
			began = reason
		}
	}
	if old != "" {
		if m.left[old]--; m.left[old] == 0 {
			delete(m.left, old)
			ended = old
		}
	}
	return began, ended
}

// someLeft is a reason for which releases are left to a peer; empty: none is.
func (m *memory) someLeft() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	reasons := slices.Sorted(maps.Keys(m.left))
	if len(reasons) == 0 {
		return ""
	}
	return reasons[0]
}
