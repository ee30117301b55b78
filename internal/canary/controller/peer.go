package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/peer"
)

// Peers looks for a Flagger that lives. It reads caches: its Deployments by an index, and the few leases of its name.
type Peers struct {
	Client client.Reader
	// LeasesUnread is why leases cannot be looked at, as a sentence; empty: they can.
	LeasesUnread string
}

var deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// byPeer is the index of the Deployments that run a Flagger.
const byPeer = "runs"

// IndexPeers lets caches find the Deployments that run a Flagger without looking at all.
func IndexPeers(ctx context.Context, indexer client.FieldIndexer) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(deploymentKind)
	err := indexer.IndexField(ctx, object, byPeer, func(object client.Object) []string {
		if _, is := peerOf(object); is {
			return []string{peer.Lease}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Deployments by what they run: %w", err)
	}
	return nil
}

// peerOf is the Flagger that a Deployment runs.
func peerOf(object client.Object) (peer.Controller, bool) {
	generic, ok := object.(*unstructured.Unstructured)
	if !ok {
		return peer.Controller{}, false
	}
	containers, _, _ := unstructured.NestedFieldNoCopy(generic.Object, "spec", "template", "spec", "containers")
	if list, _ := containers.([]any); !peer.Possible(list) {
		return peer.Controller{}, false
	}
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(generic.Object, deployment); err != nil {
		return peer.Controller{}, false // the API server has checked it
	}
	return peer.Flagger(deployment)
}

// acting is the Flagger that acts on Canaries of a namespace.
func (p *Peers) acting(ctx context.Context, namespace string, now time.Time) (canary.Peer, error) {
	if p == nil {
		return canary.Peer{}, nil
	}
	// Others write what is read here, so there are no latest writes of ours to wait for.
	options := []client.ListOption{client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency}
	found := &unstructured.UnstructuredList{}
	found.SetGroupVersionKind(deploymentKind.GroupVersion().WithKind("DeploymentList"))
	if err := p.Client.List(ctx, found, append(options, client.MatchingFields{byPeer: peer.Lease})...); err != nil {
		return canary.Peer{}, fmt.Errorf("list the Deployments of Flagger: %w", err)
	}
	var deployments []peer.Controller
	for i := range found.Items {
		if controller, is := peerOf(&found.Items[i]); is {
			deployments = append(deployments, controller)
		}
	}
	var leases coordinationv1.LeaseList
	if p.LeasesUnread == "" {
		if err := p.Client.List(ctx, &leases, options...); err != nil {
			return canary.Peer{}, fmt.Errorf("list the leases of Flagger: %w", err)
		}
	}
	sign := peer.Acting(namespace, deployments, leases.Items, now)
	return canary.Peer{Sign: sign.Text, Until: sign.Until}, nil
}

// toldByPeer is true for changes by which a Flagger may have come or gone. A lease that is merely renewed is none: whoever
// waits for its end looks again then.
func toldByPeer(kind schema.GroupKind, before, after client.Object) bool {
	if kind == deploymentKind.GroupKind() {
		old, was := peerAt(before)
		now, is := peerAt(after)
		return was != is || (old.Ready > 0) != (now.Ready > 0) || !slices.Equal(old.Args, now.Args)
	}
	return holder(before) != holder(after)
}

func peerAt(object client.Object) (peer.Controller, bool) {
	if object == nil {
		return peer.Controller{}, false
	}
	return peerOf(object)
}

func holder(object client.Object) string {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return lease.Namespace + "/" + *lease.Spec.HolderIdentity
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
	p, err := r.Peers.acting(ctx, key.Namespace, now)
	if err != nil {
		return p, err
	}
	if p.Acts() {
		r.memory.knows(key, version{}) // what is read of it now is old when the peer is gone
	}
	began, ended := r.memory.leave(key, p)
	logger := log.FromContext(ctx)
	if began != "" {
		logger.Info("Stood back from releases that another controller acts on", "why", began)
	}
	if ended != "" {
		logger.Info("Went on, because the other controller is gone", "was", ended)
	}
	if r.Health != nil && (began != "" || ended != "") {
		r.Health("peer", r.memory.someLeft())
	}
	return p, nil
}

// leave remembers to whom a release is left. began is the reason where no release was left for it before, ended where none
// is any more.
func (m *memory) leave(key types.NamespacedName, p canary.Peer) (began, ended string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	message := ""
	if p.Acts() {
		message = p.Message()
	}
	e := m.entry(key)
	old := e.left
	if old == message {
		return "", ""
	}
	e.left = message
	if message != "" {
		if m.left[message]++; m.left[message] == 1 {
			began = message
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
