package readyourwrites_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/serin-dev/serin/internal/readyourwrites"
)

// laggingClient is a client whose reads show the state of the last call of catchUp.
type laggingClient struct {
	t     *testing.T
	live  client.WithWatch
	shown map[string]*unstructured.Unstructured
	clock *clocktesting.FakePassiveClock
	*readyourwrites.Client
}

func newLaggingClient(t *testing.T) *laggingClient {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	l := &laggingClient{
		t: t, live: fake.NewClientBuilder().WithScheme(scheme).Build(), shown: map[string]*unstructured.Unstructured{},
		clock: clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0)),
	}
	cached := interceptor.NewClient(l.live, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
			u, ok := into.(*unstructured.Unstructured)
			if shown := l.shown[key.Name]; ok && shown != nil {
				shown.DeepCopyInto(u)
				return nil
			}
			return apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, key.Name)
		},
	})
	l.Client = readyourwrites.New(cached, l.live, l.clock)
	return l
}

func service(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Service"})
	u.SetNamespace("shop")
	u.SetName(name)
	return u
}

// catchUp updates the shown state of an object.
func (l *laggingClient) catchUp(name string) {
	l.t.Helper()
	now := service(name)
	err := l.live.Get(l.t.Context(), client.ObjectKeyFromObject(now), now)
	switch {
	case apierrors.IsNotFound(err):
		delete(l.shown, name)
	case err != nil:
		l.t.Fatal(err)
	default:
		l.shown[name] = now
	}
}

func (l *laggingClient) get() (*unstructured.Unstructured, error) {
	seen := service("cart")
	return seen, l.Get(l.t.Context(), client.ObjectKeyFromObject(seen), seen)
}

func (l *laggingClient) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func TestVersionsOlderThanOurWriteAreStale(t *testing.T) {
	l := newLaggingClient(t)
	l.must(l.live.Create(t.Context(), service("cart")))
	l.catchUp("cart")
	seen, err := l.get()
	l.must(err)

	changed := seen.DeepCopy()
	changed.SetAnnotations(map[string]string{"weight": "40"})
	l.must(l.Patch(t.Context(), changed, client.MergeFrom(seen)))
	if _, err := l.get(); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("right after the write: got %v", err)
	}
	before := l.shown["cart"]
	l.catchUp("cart")
	if seen, err = l.get(); err != nil || seen.GetAnnotations()["weight"] != "40" {
		t.Errorf("after the watch event: got %v, %v", seen, err)
	}
	l.shown["cart"] = before
	if _, err := l.get(); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("after the watch returned an older version: got %v", err)
	}
	other := service("cart")
	other.SetUID("created-before")
	other.SetResourceVersion("1")
	l.shown["cart"] = other
	if _, err := l.get(); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("an object that was deleted before our write: got %v", err)
	}
	other.SetUID("recreated")
	other.SetResourceVersion("9000")
	if _, err := l.get(); err != nil {
		t.Errorf("recreated by another client: got %v", err)
	}
}

func TestACreatedObjectIsNotReportedMissing(t *testing.T) {
	l := newLaggingClient(t)
	if _, err := l.get(); !apierrors.IsNotFound(err) {
		t.Fatalf("before the creation: got %v", err)
	}
	l.must(l.Create(t.Context(), service("cart")))
	if _, err := l.get(); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("right after the creation: got %v", err)
	}
	l.clock.SetTime(l.clock.Now().Add(time.Minute))
	if _, err := l.get(); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("a minute later, while it exists: got %v", err)
	}
	l.catchUp("cart")
	if _, err := l.get(); err != nil {
		t.Errorf("after the watch event: got %v", err)
	}
	delete(l.shown, "cart")
	if _, err := l.get(); !apierrors.IsNotFound(err) {
		t.Errorf("deleted after the cache had it: got %v", err)
	}
	l.must(l.live.Delete(t.Context(), service("cart")))
	l.must(l.Create(t.Context(), service("cart")))
	l.must(l.live.Delete(t.Context(), service("cart")))
	l.clock.SetTime(l.clock.Now().Add(time.Minute))
	for range 2 {
		if _, err := l.get(); !apierrors.IsNotFound(err) {
			t.Errorf("deleted by another client before any watch event: got %v", err)
		}
	}
}

func TestTheWriteCheckOfTheContextPreventsWrites(t *testing.T) {
	l := newLaggingClient(t)
	existing := service("existing")
	if err := l.Create(t.Context(), existing); err != nil {
		t.Fatal(err)
	}
	errRefused := errors.New("refused")
	ctx := readyourwrites.WithWriteCheck(t.Context(), func(context.Context, client.Object) error { return errRefused })
	for name, write := range map[string]func() error{
		"create": func() error { return l.Create(ctx, service("new")) },
		"update": func() error { return l.Update(ctx, existing) },
		"patch":  func() error { return l.Patch(ctx, existing, client.RawPatch(types.MergePatchType, []byte(`{}`))) },
		"delete": func() error { return l.Delete(ctx, existing) },
	} {
		if err := write(); !errors.Is(err, errRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
