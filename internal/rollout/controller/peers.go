package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/peer"
	"github.com/serin-dev/serin/internal/rollout"
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
		reason = rollout.LeftTo(sign.Text, sign.Until).Message
	}
	r.left.Note(ctx, key, reason, r.showPeer)
	return sign, nil
}

// showPeer shows in the health of the process for which other controller releases are left; empty: none is.
func (r *Reconciler) showPeer(sentence string) {
	if r.Health != nil {
		r.Health("peer of Rollouts", sentence)
	}
}
