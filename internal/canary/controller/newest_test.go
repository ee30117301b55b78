package controller

import (
	"context"
	"errors"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
)

// reads counts reads.
type reads struct {
	client.Reader
	n int
}

func (r *reads) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.n++
	return r.Reader.Get(ctx, key, object, options...)
}

// A Canary with transition effects is read once before them; an idle one only must not be older than the last known version.
func TestACanaryIsReadOnceBeforeTransitionEffects(t *testing.T) {
	at := func(version string, phase flaggerv1.CanaryPhase) *flaggerv1.Canary {
		return &flaggerv1.Canary{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "1", ResourceVersion: version},
			Status:     flaggerv1.CanaryStatus{Phase: phase},
		}
	}
	moves, rests := flaggerv1.CanaryPhaseInitializing, flaggerv1.CanaryPhaseInitialized
	for _, test := range []struct {
		name    string
		live    *flaggerv1.Canary
		wrote   string // the version that this process wrote before; empty: none
		cached  []*flaggerv1.Canary
		behind  []bool
		reading int
	}{
		{"an old list", at("30", rests), "", []*flaggerv1.Canary{at("10", moves), at("20", rests), at("30", rests)}, []bool{true, true, false}, 1},
		{"a list that is up to date", at("30", moves), "", []*flaggerv1.Canary{at("30", moves), at("31", moves)}, []bool{false, false}, 1},
		{"at rest nothing is read", at("30", rests), "", []*flaggerv1.Canary{at("10", rests)}, []bool{false}, 0},
		{"a new one", at("30", moves), "", []*flaggerv1.Canary{at("10", "")}, []bool{false}, 0},
		{"what this process wrote itself", at("30", moves), "30", []*flaggerv1.Canary{at("29", moves), at("29", rests), at("30", moves)}, []bool{true, true, false}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			reads := &reads{Reader: fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(test.live).Build()}
			r := New(Parts{APIReader: reads})
			if test.wrote != "" {
				r.newest.RecordVersion(client.ObjectKeyFromObject(test.live), at(test.wrote, moves))
			}
			for i, cached := range test.cached {
				err := r.checkNewest(t.Context(), cached, canary.IsActivePhase(cached.Status.Phase))
				if got := errors.Is(err, readyourwrites.ErrStale); got != test.behind[i] || err != nil && !got {
					t.Errorf("version %s: %v, behind should be %t", cached.ResourceVersion, err, test.behind[i])
				}
			}
			if reads.n != test.reading {
				t.Errorf("%d reads, want %d", reads.n, test.reading)
			}
		})
	}
}

// After a conflict nothing is decided on the replaced version, which the cache may still have for a while: its effects would be
// applied again.
func TestAConflictMakesTheCanaryBeReadAgain(t *testing.T) {
	live := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "1", ResourceVersion: "30"}}
	cached := live.DeepCopy()
	cached.ResourceVersion, cached.Status.Phase = "29", flaggerv1.CanaryPhaseProgressing
	cluster := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(live).WithStatusSubresource(live).Build()
	reads := &reads{Reader: cluster}
	r := New(Parts{Observer: Observer{Client: cluster}, APIReader: reads})
	key := client.ObjectKeyFromObject(live)
	r.newest.RecordVersion(key, cached)
	if err := r.checkNewest(t.Context(), cached, true); err != nil || reads.n != 0 {
		t.Fatalf("before the conflict: %v after %d reads, want none", err, reads.n)
	}
	s := &observation{object: cached, snapshot: canary.Snapshot{Status: cached.Status}}
	decision := canary.Decision{Status: flaggerv1.CanaryStatus{Phase: flaggerv1.CanaryPhasePromoting}}
	if _, err := r.writeStatus(t.Context(), s, decision, reconciler.Explanation{Due: true}); !apierrors.IsConflict(err) {
		t.Fatalf("got %v, want a conflict", err)
	}
	if err := r.checkNewest(t.Context(), cached, true); !errors.Is(err, readyourwrites.ErrStale) || reads.n != 1 {
		t.Errorf("after the conflict: %v after %d reads, want ErrBehind after one", err, reads.n)
	}
}

// TestATakeoverRepeatsNoWebhook: a process that takes over an idle release with an old status, in which a post-rollout webhook is still
// to be called, has nothing to write, so that nothing else would reveal that the status is old.
func TestATakeoverRepeatsNoWebhook(t *testing.T) {
	cart := canaryWithQueries("cart", "http://127.0.0.1:1", "http://127.0.0.1:1")
	cart.Spec.Analysis.Metrics = nil
	cart.Spec.Analysis.Webhooks = []flaggerv1.CanaryWebhook{{Name: "tidy", Type: flaggerv1.PostRolloutHook, URL: "http://127.0.0.1:1"}}
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, cart)
	key := client.ObjectKeyFromObject(cart)
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
	w.workloads.deploy(w.canary(t, key))
	w.waitFor(t, "the call of the webhook", func() (bool, string) {
		status := w.canary(t, key).Status
		return status.Phase == flaggerv1.CanaryPhaseSucceeded && status.Serin.Intent == "", string(status.Phase)
	})

	stale := w.canary(t, key)
	version, err := strconv.Atoi(stale.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	stale.ResourceVersion, stale.Status.Serin.Intent = strconv.Itoa(version-1), "completed"
	parts := w.reconciler.Parts
	parts.Queries = queryrunner.NewPooled(parts.Clock, maxQueriesPerPool, Pool, nil, func(types.NamespacedName, bool) {})
	parts.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if cached, ok := object.(*flaggerv1.Canary); ok {
				stale.DeepCopyInto(cached)
				return nil
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	result, err := New(parts).Reconcile(w.ctx, reconcile.Request{NamespacedName: key})
	if _, waits := parts.Queries.NextWaiting(key); waits || err != nil || result.RequeueAfter == 0 {
		t.Errorf("the webhook is called again: %v; %+v, %v", waits, result, err)
	}
}
