package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

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
	r.left.Note(ctx, key, reason, func(sentence string) {
		if r.Health != nil {
			r.Health("peer of Rollouts", sentence)
		}
	})
	return sign, nil
}

// left is what people are told of a release that another controller acts on.
func left(sign peer.Sign) release.Event {
	return release.Event{Type: release.Warning, Reason: "LeftToArgoRollouts", Standing: true, Message: fmt.Sprintf(
		"Argo Rollouts acts on this Rollout (%s), so Serin does not: scale it to zero, or give -adopt-while-peer-runs where the two share Rollouts by namespace or instance id",
		sign.Text)}
}
