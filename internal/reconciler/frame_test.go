package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/leaktest"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/telemetry"
)

// singleObjectClient is a cluster with at most one object.
type singleObjectClient struct {
	client.Client
	name string
}

func (c *singleObjectClient) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if key.Name != c.name {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	into.SetNamespace(key.Namespace)
	into.SetName(key.Name)
	into.SetUID(types.UID(key.Name))
	return nil
}

func (c *singleObjectClient) Create(context.Context, client.Object, ...client.CreateOption) error {
	return nil
}

// TestNothingOutlivesItsObject creates and deletes ten thousand objects. All have events, and the reconciliations of some panic.
func TestNothingOutlivesItsObject(t *testing.T) {
	for _, kind := range []string{"AnalysisRun", "Experiment"} {
		t.Run(kind, func(t *testing.T) {
			cluster, registry := &singleObjectClient{}, prometheus.NewRegistry()
			outbox := telemetry.NewOutbox(clock.RealClock{}, logr.Discard())
			f := &Simple[*corev1.ConfigMap, map[string]string]{
				Frame: Frame[*corev1.ConfigMap, map[string]string]{
					Kind:   schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: kind},
					Client: cluster, Clock: clock.RealClock{}, Metrics: telemetry.New(registry),
					New:    func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
					Status: func(object *corev1.ConfigMap) *map[string]string { return &object.Data },
				},
				Recorder: telemetry.NewRecorder(cluster, outbox, clock.RealClock{}, ""),
			}
			f.ServeLabelled("", "", func(status map[string]string, message string) release.Decision[map[string]string] {
				return release.Decision[map[string]string]{Status: status, Events: []release.Event{{Message: message, Persistent: true}}}
			}, nil)
			f.ReconcileObject = func(ctx context.Context, object *corev1.ConfigMap) (reconcile.Result, error) {
				f.Report(ctx, object, []release.Event{{Message: "it begins"}, {Message: "it waits", Persistent: true}})
				if object.Name[len(object.Name)-1] == '7' {
					panic("a defect")
				}
				return reconcile.Result{}, nil
			}
			ctx := log.IntoContext(t.Context(), logr.Discard())
			leaktest.Check(t, registry, 10_000, func(from, to int) {
				for i := from; i < to; i++ {
					request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("object-", i)}}
					for _, cluster.name = range []string{request.Name, ""} {
						if _, err := f.Reconcile(ctx, request); err != nil {
							t.Fatal(err)
						}
						for outbox.AttemptNext(t.Context()) { //nolint:contextcheck // the frame passes the context of its caller
						}
					}
				}
			})
			if footprint := f.Footprint(); len(footprint) > 0 {
				t.Errorf("the process still has state of %v", footprint)
			}
		})
	}
}

// TestObjectsOfOtherShardsAreForgotten follows one object through the shards of two acquisitions: it is reconciled while its shard
// is held only, forgotten otherwise, and its first reconciliation after each acquisition has no memory.
func TestObjectsOfOtherShardsAreForgotten(t *testing.T) {
	var actions []string
	shards := sharding.NewHeld(sharding.LeaseNames("serin", 1))
	cluster := &singleObjectClient{name: "cart"}
	f := &Frame[*corev1.ConfigMap, map[string]string]{
		Kind:   schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Client: cluster, Clock: clock.RealClock{}, Metrics: telemetry.New(prometheus.NewRegistry()), Shards: shards,
		New:    func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		Serves: func(*corev1.ConfigMap) bool { return true },
		Forget: func(types.NamespacedName) { actions = append(actions, "forget") },
		ReconcileObject: func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
			actions = append(actions, "reconcile")
			return reconcile.Result{RequeueAfter: time.Hour}, nil
		},
		ReportPanic: func(context.Context, *corev1.ConfigMap, error) error { return nil },
		OnNotFound: func(context.Context, types.NamespacedName) (reconcile.Result, error) {
			actions = append(actions, "not found")
			return reconcile.Result{}, nil
		},
	}
	check := func(when string, want ...string) {
		t.Helper()
		actions = nil
		result, err := f.Reconcile(log.IntoContext(t.Context(), logr.Discard()), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "cart"}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, actions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if reconciled := slices.Contains(want, "reconcile"); (result.RequeueAfter > 0) != reconciled {
			t.Errorf("%s: requeued after %s", when, result.RequeueAfter)
		}
	}
	check("before the shard is acquired", "forget")
	shards.Acquire(0)
	check("after the acquisition", "forget", "reconcile")
	check("the next reconciliation", "reconcile")
	shards.Lose(0)
	check("after the loss", "forget")
	shards.Acquire(0)
	check("after the second acquisition", "forget", "reconcile")
	shards.Lose(0)
	shards.Acquire(0)
	check("after a loss without a reconciliation", "forget", "reconcile")
	cluster.name = ""
	check("after the deletion", "not found")
	if keys := f.AcquisitionKeys(); len(keys) > 0 {
		t.Errorf("the process still has state of %v", keys)
	}
}

// TestQueriesNeedACurrentObject: the object is read once per takeover, and only if there are queries.
func TestQueriesNeedACurrentObject(t *testing.T) {
	cluster := &countingReader{version: "30"}
	f := &Frame[*corev1.ConfigMap, map[string]string]{New: func() *corev1.ConfigMap { return &corev1.ConfigMap{} }}
	f.Newest = readyourwrites.NewNewestVersions("ConfigMap", cluster)
	at := func(version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "1", ResourceVersion: version}}
	}
	queries := []release.Query{{ID: "q"}}
	for _, step := range []struct {
		version string
		queries []release.Query
		stale   bool
		reads   int
	}{
		{"29", nil, false, 0},
		{"29", queries, true, 1},
		{"30", queries, false, 1},
		{"31", queries, false, 1},
	} {
		err := f.VerifyBeforeQueries(t.Context(), at(step.version), step.queries)
		if errors.Is(err, readyourwrites.ErrStale) != step.stale || err != nil && !step.stale || cluster.reads != step.reads {
			t.Errorf("version %s, %d queries: %v after %d reads", step.version, len(step.queries), err, cluster.reads)
		}
	}
}

// countingReader has one object, and counts how often it is read.
type countingReader struct {
	client.Reader
	version string
	reads   int
}

func (r *countingReader) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.reads++
	into.SetUID("1")
	into.SetResourceVersion(r.version)
	return nil
}
