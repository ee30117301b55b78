package controller

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/release"
)

// sharedQueueCluster is a cluster with a release of another kind, and a queue that lets one of the two be in progress.
type sharedQueueCluster struct {
	*fakeCluster
	line  *queue.Queue
	other queue.StoredEntry
	woken []types.NamespacedName
}

func newSharedQueueCluster(t *testing.T, manifests ...string) *sharedQueueCluster {
	t.Helper()
	b := &sharedQueueCluster{fakeCluster: newFakeCluster(t, manifests...), line: queue.New(release.ConcurrencyLimits{Cluster: 1}, "")}
	b.other = queue.StoredEntry{Entry: release.QueueEntry{Kind: "Canary", Namespace: "shop", Name: "cart"}, Version: "1"}
	b.line.Register(queue.Kind{
		Name: "Canary",
		List: func(context.Context, string) ([]queue.StoredEntry, error) { return []queue.StoredEntry{b.other}, nil },
		Get: func(context.Context, types.NamespacedName) (queue.StoredEntry, bool, error) {
			return b.other, true, nil
		},
	})
	own := QueueKind(b.client, true)
	own.Wake = func(key types.NamespacedName) { b.woken = append(b.woken, key) }
	b.line.Register(own)
	b.configure(func(parts *Parts) { parts.Queue = b.line })
	return b
}

// moves sets whether the other release is in progress.
func (b *sharedQueueCluster) moves(is bool) {
	b.Helper()
	was := b.other.Entry
	b.other.Entry.InProgress = is
	if err := b.line.WakeNext(b.Context(), was, b.other.Entry); err != nil {
		b.Fatal(err)
	}
}

func (b *sharedQueueCluster) waits(t *testing.T) {
	t.Helper()
	status := b.rollout().Status
	if status.Phase != argov1.RolloutPhaseProgressing || !slices.Equal(b.replicaSetNames(), []string{"cart:1=2"}) {
		t.Fatalf("%s (%s), ReplicaSets %v", status.Phase, status.Message, b.replicaSetNames())
	}
}

func TestARolloutWaitsInTheQueue(t *testing.T) {
	b := newSharedQueueCluster(t, cart, cartService)
	b.moves(true)
	b.settle() // its first revision does not wait
	b.edit(withImage("cart:2"))
	b.settle()
	b.waits(t)
	status := b.rollout().Status
	if own := status.Serin; own == nil || own.Queue == nil || own.Queue.Aside || len(own.Gates) == 0 || own.Gates[0].Name != "turn" {
		t.Fatalf("the status shows %+v", own)
	}
	since := status.Serin.Queue.Since
	b.writes, b.live = nil, nil
	for range 3 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.writes) > 0 || len(b.live) > 0 {
		t.Errorf("waiting costs requests: wrote %v, read %v", b.writes, b.live)
	}
	b.reconciler = New(b.reconciler.Parts) // the place survives a restart
	b.edit(withImage("cart:3"))
	b.settle()
	if own := b.rollout().Status.Serin; own == nil || own.Queue == nil || !own.Queue.Since.Equal(&since) {
		t.Errorf("waits since %+v, before the restart since %v", own, since)
	}
	b.moves(false)
	if !slices.Equal(b.woken, []types.NamespacedName{key}) {
		t.Fatalf("woke %v", b.woken)
	}
	b.settle()
	status = b.rollout().Status
	if status.Phase != argov1.RolloutPhasePaused || !slices.Equal(b.replicaSetNames(), []string{"cart:1=1", "cart:3=1"}) || status.Serin.Queue != nil {
		t.Errorf("%s (%s), ReplicaSets %v, queue %+v", status.Phase, status.Message, b.replicaSetNames(), status.Serin.Queue)
	}
	if turn, err := b.line.MayStart(t.Context(), b.other.Entry, false, b.clock.Now()); err != nil || turn.Open {
		t.Errorf("a Canary starts beside a Rollout in progress: %v, %v", turn, err)
	}
}

// A release that ends while the next one is reconciled wakes it: the watch of Rollouts notifies the queue.
func TestARolloutThatEndsWakesTheNext(t *testing.T) {
	b := newSharedQueueCluster(t, cart, cartService)
	b.settle()
	before := b.rollout()
	b.edit(withImage("cart:2"))
	b.settle()
	moving := b.rollout()
	other := b.other.Entry
	b.other.Entry.Waiting, b.other.Entry.Since = true, b.clock.Now()
	var woken []types.NamespacedName
	b.line.Register(queue.Kind{
		Name: "Canary",
		List: func(context.Context, string) ([]queue.StoredEntry, error) { return []queue.StoredEntry{b.other}, nil },
		Get: func(context.Context, types.NamespacedName) (queue.StoredEntry, bool, error) {
			return b.other, true, nil
		},
		Wake: func(key types.NamespacedName) { woken = append(woken, key) },
	})
	kind := schema.GroupKind{Group: "argoproj.io", Kind: argov1.RolloutKind}
	b.reconciler.AffectedReleases(t.Context(), kind, before, moving)
	if len(woken) > 0 {
		t.Fatalf("woke %v as it began", woken)
	}
	b.edit(withImage("cart:1"))
	b.settle()
	b.reconciler.AffectedReleases(t.Context(), kind, moving, b.rollout())
	if want := (types.NamespacedName{Namespace: other.Namespace, Name: other.Name}); !slices.Equal(woken, []types.NamespacedName{want}) {
		t.Errorf("woke %v", woken)
	}
}

// A release whose ReplicaSet the API server rejects retains its place, and no other release waits for it.
func TestARejectedReleaseDoesNotBlockTheQueue(t *testing.T) {
	b := newSharedQueueCluster(t, cart, cartService)
	b.settle()
	b.moves(true)
	b.edit(withImage("cart:2"))
	b.settle()
	b.refuse = func(verb string, object client.Object) error {
		if _, is := object.(*argov1.Rollout); is || verb != "create" {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "replicasets"}, object.GetName(), errors.New("quota"))
	}
	b.moves(false)
	for range 3 {
		_, _ = b.reconcile()
	}
	own := b.rollout().Status.Serin
	if own == nil || own.Queue == nil || !own.Queue.Aside {
		t.Fatalf("the status shows %+v", own)
	}
	turn, err := b.line.MayStart(t.Context(), b.other.Entry, false, b.clock.Now())
	if err != nil || !turn.Open {
		t.Fatalf("others wait for it: %v, %v", turn, err)
	}
	b.line.RecordOutcome("Canary", key, queue.Outcome{})
	b.refuse = nil
	b.settle()
	if got := b.replicaSetNames(); !slices.Equal(got, []string{"cart:1=1", "cart:2=1"}) {
		t.Errorf("ReplicaSets %v", got)
	}
}

// If the installed definition drops status.serin, the process itself records which releases wait.
func TestTheQueueWorksWithoutStoredPlaces(t *testing.T) {
	b := newSharedQueueCluster(t, cart, cartService)
	patches := 0
	b.replaceClient(interceptor.NewClient(b.client, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			patches++
			if err := c.SubResource(of).Patch(ctx, object, patch, options...); err != nil {
				return err
			}
			stored, is := object.(*argov1.Rollout)
			if !is || stored.Status.Serin == nil {
				return nil
			}
			stored.Status.Serin = nil
			return c.Status().Update(ctx, stored)
		},
	}))
	b.settle()
	b.moves(true)
	b.edit(withImage("cart:2"))
	b.settle()
	b.waits(t)
	if patches = 0; !slices.Equal(b.line.Keys(argov1.RolloutKind), []types.NamespacedName{key}) {
		t.Fatalf("the queue remembers %v", b.line.Keys(argov1.RolloutKind))
	}
	for range 3 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if patches > 0 {
		t.Errorf("the status is written %d times to no avail", patches)
	}
	b.moves(false)
	if !slices.Equal(b.woken, []types.NamespacedName{key}) {
		t.Fatalf("woke %v", b.woken)
	}
	b.settle()
	if got := b.replicaSetNames(); !slices.Equal(got, []string{"cart:1=1", "cart:2=1"}) {
		t.Errorf("ReplicaSets %v", got)
	}
}
