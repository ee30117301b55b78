package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/store"
)

// scaled creates the Deployment x and changes its replicas n times, to 11, 12, ….
func (w *world) scaled(n int) {
	w.t.Helper()
	w.create(deployment("x"))
	w.rescale("x", 1, n)
}

func (w *world) rescale(name string, from, to int) {
	w.t.Helper()
	for i := from; i <= to; i++ {
		w.must(w.patch(deploymentKind, name, fmt.Sprintf("{spec: {replicas: %d}}", 10+i)))
	}
}

func replicas(v *store.Version) any {
	if v == nil {
		return nil
	}
	return v.Content()["spec"].(map[string]any)["replicas"]
}

// describe describes changes.
func describe(changes []store.Change) []string {
	var out []string
	for _, c := range changes {
		line := fmt.Sprintf("%s %v→%v", c.Key.Name, replicas(c.Old), replicas(c.New))
		if c.Missed {
			line += " missed"
		}
		out = append(out, line)
	}
	return out
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestCacheAdvancesOnlyOnRequest(t *testing.T) {
	w := newWorld(t)
	kind := deploymentKind.GroupKind()
	w.scaled(1)
	cache := w.server.NewCache(store.CacheOptions{})
	expect(t, "start", describe(cache.Start(kind, 0)), []string{"x <nil>→11"})
	w.rescale("x", 2, 4)
	w.create(deployment("z"))
	expect(t, "peek", replicas(cache.Peek(kind, keyOf("x"))), any(int64(11)))
	expect(t, "pending", cache.Pending(kind), 4)
	expect(t, "waiting", len(cache.Waiting()), 1)
	expect(t, "deliver", describe(cache.Deliver(kind, 1)), []string{"x 11→12"})
	expect(t, "coalesce", describe(cache.Coalesce(kind, 9)), []string{"x 12→14", "z <nil>→2"})
	w.must(w.client.Delete(t.Context(), newObject(deploymentKind, "x")))
	expect(t, "deletion", describe(cache.Deliver(kind, 9)), []string{"x 14→<nil>"})
	expect(t, "waiting at the end", len(cache.Waiting()), 0)
}

func TestCacheStartsBehind(t *testing.T) {
	w := newWorld(t)
	kind := deploymentKind.GroupKind()
	w.scaled(3)
	cache := w.server.NewCache(store.CacheOptions{})
	expect(t, "start", describe(cache.Start(kind, 2)), []string{"x <nil>→11"})
	expect(t, "deliver", describe(cache.Deliver(kind, 9)), []string{"x 11→12", "x 12→13"})
}

func TestRewindDeliversEventsAgain(t *testing.T) {
	w := newWorld(t)
	kind := deploymentKind.GroupKind()
	w.scaled(3)
	cache := w.server.NewCache(store.CacheOptions{})
	cache.Start(kind, 0)
	expect(t, "rewound", cache.Rewind(kind, 2), 2)
	expect(t, "meanwhile", replicas(cache.Peek(kind, keyOf("x"))), any(int64(13)))
	expect(t, "again", describe(cache.Deliver(kind, 1)), []string{"x 13→12"})
	expect(t, "and on", describe(cache.Deliver(kind, 9)), []string{"x 12→13"})
	w.must(w.client.Delete(t.Context(), newObject(deploymentKind, "x")))
	cache.Deliver(kind, 1)
	cache.Rewind(kind, 1)
	expect(t, "a deletion of what is not known", describe(cache.Deliver(kind, 1)), []string(nil))
	cache.Rewind(kind, 2)
	expect(t, "back to life", describe(cache.Deliver(kind, 1)), []string{"x <nil>→13"})
	expect(t, "and gone", describe(cache.Deliver(kind, 1)), []string{"x 13→<nil>"})
}

func TestRelist(t *testing.T) {
	w := newWorld(t)
	kind := deploymentKind.GroupKind()
	w.scaled(1)
	w.create(deployment("z"))
	cache := w.server.NewCache(store.CacheOptions{})
	cache.Start(kind, 0)
	cache.Disconnect(kind)
	w.must(w.client.Delete(t.Context(), newObject(deploymentKind, "x")))
	w.rescale("z", 1, 2)
	expect(t, "while disconnected", describe(cache.Deliver(kind, 9)), []string(nil))
	expect(t, "newer", describe(cache.Relist(kind, 1)), []string{"z 2→11", "x 11→<nil> missed"})
	cache.Resume(kind)
	expect(t, "on from there", describe(cache.Deliver(kind, 9)), []string{"z 11→12"})
	expect(t, "older", describe(cache.Relist(kind, 3)), []string{"x <nil>→11", "z 12→2"})
	expect(t, "on from there", describe(cache.Deliver(kind, 9)), []string{"x 11→<nil>", "z 2→11", "z 11→12"})
}

// TestViewsConverge verifies that a cache contains the current state once everything was delivered, regardless of earlier
// operations.
func TestViewsConverge(t *testing.T) {
	w := newWorld(t)
	kind := deploymentKind.GroupKind()
	cache := w.server.NewCache(store.CacheOptions{})
	cache.Start(kind, 0)
	for i := range 60 {
		name := string(rune('a' + i%5))
		if w.server.Peek(kind, keyOf(name)) == nil {
			w.create(deployment(name))
		} else if i%7 == 0 {
			w.must(w.client.Delete(t.Context(), newObject(deploymentKind, name)))
		} else {
			w.rescale(name, i, i)
		}
		switch i % 11 {
		case 2:
			cache.Relist(kind, i%4)
		case 5:
			cache.Rewind(kind, i%6)
		default:
			cache.Deliver(kind, i%3)
		}
	}
	cache.Deliver(kind, cache.Pending(kind))
	var want, got []*store.Version
	want = w.server.All(kind)
	for _, v := range want {
		got = append(got, cache.Peek(kind, v.Key()))
	}
	for i := range want {
		if want[i] != got[i] {
			t.Errorf("the cache has %s, and %s is true", got[i], want[i])
		}
	}
}

func TestCachedReads(t *testing.T) {
	w := newWorld(t)
	w.create(canary("a"))
	cache := w.server.NewCache(store.CacheOptions{})
	w.must(cache.IndexField(t.Context(), &flaggerv1.Canary{}, "spec.targetRef", func(o client.Object) []string {
		return []string{o.(*flaggerv1.Canary).Spec.TargetRef.Name}
	}))
	c := cache.Client("serin", store.Never)
	got := &flaggerv1.Canary{}
	w.must(c.Get(t.Context(), keyOf("a"), got))
	expect(t, "kind", got.GroupVersionKind(), canaryKind)
	w.create(canary("b"))
	err := c.Get(t.Context(), keyOf("b"), got)
	if !apierrors.IsNotFound(err) || err.Error() != `Canary.flagger.app "b" not found` {
		t.Errorf("what the cache has not seen answers %v", err)
	}
	cache.Deliver(canaryKind.GroupKind(), 1)
	list := &flaggerv1.CanaryList{}
	w.must(c.List(t.Context(), list, client.InNamespace(namespace), client.MatchingFields{"spec.targetRef": "b"}, client.UnsafeDisableDeepCopy))
	if len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("the index gives %+v", list.Items)
	}
	if err := c.List(t.Context(), list, client.MatchingFields{"spec.other": "b"}); err == nil {
		t.Error("an index that does not exist answers")
	}
	w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {a: b}}, data: {a: b}}")
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(configMapKind)
	w.must(c.Get(t.Context(), keyOf("c"), partial))
	expect(t, "labels", partial.Labels, map[string]string{"a": "b"})
	expect(t, "watched", cache.Watched(), []store.Watch{
		{Kind: configMapKind.GroupKind(), Representation: store.MetadataOnly}, {Kind: canaryKind.GroupKind(), Representation: store.Typed},
	})
}

// TestReadYourWrites verifies which reads wait for which writes.
func TestReadYourWrites(t *testing.T) {
	typedPatch := func(ctx context.Context, c client.Client) error {
		return c.Status().Patch(ctx, canaryX(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`)))
	}
	genericPatch := func(ctx context.Context, c client.Client) error {
		return c.Patch(ctx, newObject(deploymentKind, "x"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":9}}`)))
	}
	genericDelete := func(ctx context.Context, c client.Client) error {
		return c.Delete(ctx, newObject(deploymentKind, "x"))
	}
	typedGet := func(ctx context.Context, c client.Client) error { return c.Get(ctx, keyOf("x"), &flaggerv1.Canary{}) }
	typedGetUnasked := func(ctx context.Context, c client.Client) error {
		return c.Get(ctx, keyOf("x"), &flaggerv1.Canary{}, client.DisableReadYourWritesConsistency)
	}
	typedGetOther := func(ctx context.Context, c client.Client) error {
		return client.IgnoreNotFound(c.Get(ctx, keyOf("z"), &flaggerv1.Canary{}))
	}
	typedList := func(ctx context.Context, c client.Client) error { return c.List(ctx, &flaggerv1.CanaryList{}) }
	genericGet := func(ctx context.Context, c client.Client) error {
		return client.IgnoreNotFound(c.Get(ctx, keyOf("x"), newObject(deploymentKind, "x")))
	}
	for _, c := range []struct {
		name        string
		mode        store.ReadYourWrites
		write, read func(context.Context, client.Client) error
		waits       bool
	}{
		{"off", store.Never, typedPatch, typedGet, false},
		{"typed", store.AsLibrary, typedPatch, typedGet, true},
		{"typed list", store.AsLibrary, typedPatch, typedList, true},
		{"another object", store.AsLibrary, typedPatch, typedGetOther, false},
		{"not asked for", store.AsLibrary, typedPatch, typedGetUnasked, false},
		{"unstructured, as the library", store.AsLibrary, genericPatch, genericGet, false},
		{"unstructured, as promised", store.Always, genericPatch, genericGet, true},
		{"unstructured deletion", store.AsLibrary, genericDelete, genericGet, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.create(canary("x"))
			w.create(deployment("x"))
			waits := 0
			var cache *store.Cache
			cache = w.server.NewCache(store.CacheOptions{Await: func(_ context.Context, wait store.Wait) error {
				waits++
				if len(cache.Deliver(wait.Kind, 1)) == 0 {
					return errors.New("nothing to deliver")
				}
				return nil
			}})
			own := cache.Client("serin", c.mode)
			w.must(c.read(t.Context(), own)) // begins the watch
			w.must(c.write(t.Context(), own))
			w.must(c.read(t.Context(), own))
			expect(t, "waited", waits > 0, c.waits)
			w.must(c.read(t.Context(), own))
			expect(t, "waited once more", waits > 1, false)
		})
	}
}

// TestReadsOfARewoundCache verifies that an observed write counts as observed even if the cache was rewound since. The library
// behaves in the same way, which is why no controller may rely on it alone.
func TestReadsOfARewoundCache(t *testing.T) {
	w := newWorld(t)
	w.create(canary("x"))
	cache := w.server.NewCache(store.CacheOptions{})
	own := cache.Client("serin", store.Always)
	w.must(own.Get(t.Context(), keyOf("x"), &flaggerv1.Canary{}))
	w.must(own.Status().Patch(t.Context(), canaryX(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`))))
	cache.Deliver(canaryKind.GroupKind(), 1)
	cache.Relist(canaryKind.GroupKind(), 1)
	got := &flaggerv1.Canary{}
	w.must(own.Get(t.Context(), keyOf("x"), got))
	expect(t, "phase", got.Status.Phase, flaggerv1.CanaryPhase(""))
}

func TestReadFailsWithoutDelivery(t *testing.T) {
	w := newWorld(t)
	w.create(canary("x"))
	own := w.server.NewCache(store.CacheOptions{}).Client("serin", store.Always)
	w.must(own.Get(t.Context(), keyOf("x"), &flaggerv1.Canary{}))
	w.must(own.Status().Patch(t.Context(), canaryX(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`))))
	if err := own.Get(t.Context(), keyOf("x"), &flaggerv1.Canary{}); err == nil {
		t.Error("a read that has to wait for ever answers")
	}
}

// script is a hook whose answers depend on the call.
type script struct {
	before, after func(store.Call) store.Fault
	calls         []string
}

func (s *script) Before(c store.Call) store.Fault {
	s.calls = append(s.calls, c.String())
	if s.before == nil {
		return store.Fault{}
	}
	return s.before(c)
}

func (s *script) After(c store.Call, err error) store.Fault {
	s.calls = append(s.calls, fmt.Sprintf("done: %v", err))
	if s.after == nil {
		return store.Fault{}
	}
	return s.after(c)
}

func TestFaults(t *testing.T) {
	write := func(w *world) error {
		return w.patch(deploymentKind, "x", "{spec: {replicas: 9}}")
	}
	of := func(fault func(store.Call) error) func(store.Call) store.Fault {
		return func(c store.Call) store.Fault { return store.Fault{Err: fault(c)} }
	}
	for _, c := range []struct {
		name   string
		hook   script
		want   metav1.StatusReason
		writes bool
	}{
		{"error before", script{before: of(store.ServerError)}, metav1.StatusReasonInternalError, false},
		{"error after", script{after: of(store.ServerError)}, metav1.StatusReasonInternalError, true},
		{"timeout after", script{after: of(store.Timeout)}, metav1.StatusReasonTimeout, true},
		{"broken connection", script{after: of(store.Broken)}, metav1.StatusReasonUnknown, true},
		{"conflict", script{before: of(store.Conflict)}, metav1.StatusReasonConflict, false},
		{"forbidden", script{before: of(store.Forbidden)}, metav1.StatusReasonForbidden, false},
		{"unavailable", script{before: of(store.Unavailable)}, metav1.StatusReasonServiceUnavailable, false},
		{"too many requests", script{before: of(func(c store.Call) error { return store.TooManyRequests(c, 3e9) })}, metav1.StatusReasonTooManyRequests, false},
		{"denied", script{before: of(func(c store.Call) error { return store.Denied(c, "the quota is used up") })}, metav1.StatusReasonForbidden, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.create(deployment("x"))
			w.server.SetHook(&c.hook)
			err := write(w)
			if err == nil || apierrors.ReasonForError(err) != c.want {
				t.Errorf("the call answers %v", err)
			}
			expect(t, "written", replicas(w.server.Peek(deploymentKind.GroupKind(), keyOf("x"))) == any(int64(9)), c.writes)
		})
	}
}

func TestKills(t *testing.T) {
	for _, after := range []bool{false, true} {
		w := newWorld(t)
		w.create(deployment("x"))
		kill := func(store.Call) store.Fault { return store.Fault{Kill: true} }
		hook := &script{before: kill}
		if after {
			hook = &script{after: kill}
		}
		w.server.SetHook(hook)
		func() {
			defer func() {
				killed, ok := recover().(store.Killed)
				if !ok || killed.Committed != after {
					t.Errorf("the call ended with %v", killed)
				}
			}()
			err := w.patch(deploymentKind, "x", "{spec: {replicas: 9}}")
			t.Errorf("the caller lives, with %v", err)
		}()
		expect(t, "written", replicas(w.server.Peek(deploymentKind.GroupKind(), keyOf("x"))) == any(int64(9)), after)
	}
}
