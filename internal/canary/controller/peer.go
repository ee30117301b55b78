package controller

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/watching"
)

var deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// acting is the Flagger that acts on Canaries of a namespace.
func acting(ctx context.Context, peers *watching.Peers, namespace string, now time.Time) (canary.Peer, error) {
	sign, err := peers.Acting(ctx, namespace, now)
	return canary.Peer{Sign: sign.Text, Until: sign.Until}, err
}

// all releases, because a peer acts on any.
func (r *Reconciler) all(ctx context.Context) []reconcile.Request {
	var list flaggerv1.CanaryList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		log.FromContext(ctx).Error(err, "Looked for the Canaries that a Flagger may act on")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// leftTo is who acts on a release in Serin's stead. Whoever runs Serin is told when it begins to leave releases to a peer,
// and when it goes on.
func (r *Reconciler) leftTo(ctx context.Context, key types.NamespacedName, now time.Time) (canary.Peer, error) {
	p, err := acting(ctx, r.Peers, key.Namespace, now)
	if err != nil {
		return p, err
	}
	if p.Acts() {
		r.known.Forget(key) // what is read of it now is old when the peer is gone
	}
	message := ""
	if p.Acts() {
		message = p.Message()
	}
	r.left.Note(ctx, key, message, r.showPeer)
	return p, nil
}

// showPeer shows in the health of the process for which other controller releases are left; empty: none is.
func (r *Reconciler) showPeer(sentence string) {
	if r.Health != nil {
		r.Health("peer", sentence)
	}
}
