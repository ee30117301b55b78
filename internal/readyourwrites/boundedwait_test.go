package readyourwrites_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/waittest"
)

// expireAtOnce is an AfterFunc for which the interval has already passed.
func expireAtOnce(_ time.Duration, f func()) (stop func() bool) {
	f()
	return func() bool { return false }
}

// waitingClient is a client whose cache contains only cached, and which waits until the caller gives up, as long as a write is
// awaited.
type waitingClient struct {
	client.Client
	cached    *corev1.ConfigMap // nil: not in the cache
	observing bool              // the cache has observed all writes
	waits     int
}

func (c *waitingClient) wait(ctx context.Context, disabled bool) error {
	if disabled || c.observing {
		return nil
	}
	c.waits++
	<-ctx.Done()
	return fmt.Errorf("failed to wait for cache to catch up: %w", ctx.Err())
}

func (c *waitingClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := c.wait(ctx, (&client.GetOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency); err != nil {
		return err
	}
	if configMap, ok := into.(*corev1.ConfigMap); ok && c.cached != nil {
		c.cached.DeepCopyInto(configMap)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
}

func (c *waitingClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := c.wait(ctx, (&client.ListOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency); err != nil {
		return err
	}
	if configMaps, ok := list.(*corev1.ConfigMapList); ok && c.cached != nil {
		configMaps.Items = append(configMaps.Items, *c.cached)
	}
	return nil
}

func configMap(version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", ResourceVersion: version}}
}

// TestTheEndOfAWait: a read that waits is answered as soon as the cache contains the current state of what was written.
func TestTheEndOfAWait(t *testing.T) {
	const deleted = "" // in the column of the cache and of the API server: there is no object
	for _, test := range []struct {
		name                     string
		cached, current, written string
		waits                    bool
	}{
		{"the cache contains the write", "20", "20", "20", false},
		{"the cache contains the write, another one follows", "20", "30", "20", false},
		{"the cache contains a later version", "30", "30", "20", false},
		{"the cache contains an older version", "10", "20", "20", true},
		{"a created object is not in the cache", deleted, "20", "20", true},
		{"deleted by others before the cache observed the write", deleted, deleted, "20", false},
		{"deleted by others, and the cache contains an older version", "10", deleted, "20", true},
		{"recreated by others after a deletion", deleted, "40", "20", true},
		{"our deletion was not observed", "10", deleted, deleted, true},
		{"our deletion was observed as absence", deleted, deleted, deleted, false},
		{"a finalizer delays our deletion", "30", "30", deleted, false},
		{"a finalizer delays our deletion, which is not in the cache", "10", "30", deleted, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			live := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
					if test.current == deleted {
						return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
					}
					into.SetResourceVersion(test.current)
					return nil
				},
				Patch: func(_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
					object.SetResourceVersion(test.written)
					return nil
				},
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return nil },
			}).Build()
			for name, read := range map[string]func(context.Context, client.Client) error{
				"get": func(ctx context.Context, c client.Client) error {
					return client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "cart"}, &corev1.ConfigMap{}))
				},
				"list": func(ctx context.Context, c client.Client) error { return c.List(ctx, &corev1.ConfigMapList{}) },
			} {
				waiting := &waitingClient{Client: live}
				if test.cached != deleted {
					waiting.cached = configMap(test.cached)
				}
				ctx, cancel := context.WithCancel(t.Context())
				bounded := readyourwrites.WithBoundedWait(waiting, live, clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0)), func(d time.Duration, f func()) (stop func() bool) {
					if waiting.waits == 2 {
						cancel() // the caller gives up
					}
					return expireAtOnce(d, f)
				})
				write := bounded.Patch(ctx, configMap(""), client.RawPatch(types.MergePatchType, []byte(`{}`)))
				if test.written == deleted {
					write = bounded.Delete(ctx, configMap(""))
				}
				if write != nil {
					t.Fatal(write)
				}
				err := read(ctx, bounded)
				if errors.Is(err, context.Canceled) != test.waits || err != nil && !test.waits {
					t.Errorf("%s: got %v, want that it waits: %t", name, err, test.waits)
				}
				if err == nil {
					err = read(ctx, bounded) // an observed write is not awaited again
				}
				if want := map[bool]int{false: 1, true: 3}[test.waits]; waiting.waits != want {
					t.Errorf("%s: waited %d times, want %d (%v)", name, waiting.waits, want, err)
				}
				cancel()
			}
		})
	}
}

// TestOnlyReadsThatFollowAWriteWait: neither the first read, nor a read of another kind, nor one after the cache caught up waits.
func TestOnlyReadsThatFollowAWriteWait(t *testing.T) {
	live := fake.NewClientBuilder().WithObjects(configMap("")).Build()
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	waiting := &waitingClient{Client: live, cached: configMap("1")}
	bounded := readyourwrites.WithBoundedWait(waiting, live, clk, func(time.Duration, func()) func() bool { return func() bool { return true } })
	canceled, cancel := context.WithCancel(t.Context())
	cancel() // a read that waits ends immediately
	list := func() error { return bounded.List(canceled, &corev1.ConfigMapList{}) }
	write := func() {
		t.Helper()
		if err := bounded.Update(t.Context(), configMap("")); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name   string
		before func()
		read   func() error
		waits  int
	}{
		{"before any write", func() {}, list, 0},
		{"after a write", write, list, 1},
		{"an object that was not written", func() {}, func() error {
			return client.IgnoreNotFound(bounded.Get(canceled, client.ObjectKey{Namespace: "shop", Name: "other"}, &corev1.ConfigMap{}))
		}, 1},
		{"another kind", func() {}, func() error { return bounded.List(canceled, &corev1.SecretList{}) }, 1},
		{"without consistency", func() {}, func() error {
			return bounded.List(canceled, &corev1.ConfigMapList{}, client.DisableReadYourWritesConsistency)
		}, 1},
		{"still not observed", func() {}, list, 2},
		{"observed", func() { waiting.observing = true }, list, 2},
		{"once it was observed", func() { waiting.observing = false }, list, 2},
		{"after another write", write, list, 3},
		{"after the write has expired", func() { clk.SetTime(clk.Now().Add(time.Hour)); writeSecret(t, bounded) }, list, 3},
	} {
		step.before()
		before := waiting.waits
		if err := step.read(); (err != nil) != (waiting.waits > before) {
			t.Errorf("%s: %v", step.name, err)
		}
		if waiting.waits != step.waits {
			t.Errorf("%s: waited %d times, want %d", step.name, waiting.waits, step.waits)
		}
	}
}

func writeSecret(t *testing.T, c client.Client) {
	t.Helper()
	if err := c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "token"}}); err != nil {
		t.Fatal(err)
	}
}

// TestAVersionThatNoWatchDelivers reproduces the indefinite wait with the real client and the real cache: the watch breaks
// before it delivers a write, and the object is deleted meanwhile.
func TestAVersionThatNoWatchDelivers(t *testing.T) {
	api := newAPIServer(t)
	api.set("cart", "original")
	cl, err := cluster.New(&rest.Config{Host: api.URL}, func(o *cluster.Options) {
		o.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: new(true)}
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			return mapper, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cl.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !cl.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache did not start")
	}
	var configMaps corev1.ConfigMapList
	bounded := readyourwrites.WithBoundedWait(cl.GetClient(), cl.GetAPIReader(), clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0)), expireAtOnce)
	if err := bounded.List(ctx, &configMaps); err != nil || len(configMaps.Items) != 1 {
		t.Fatalf("the first list has %d objects, %v", len(configMaps.Items), err)
	}

	written := configMap("")
	if err := bounded.Patch(ctx, written, client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"b"}}`))); err != nil {
		t.Fatal(err)
	}
	api.remove("cart")
	api.breakWatches()
	waittest.Until(t, "the cache has listed again", func() error {
		err := cl.GetCache().Get(ctx, client.ObjectKeyFromObject(written), &corev1.ConfigMap{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the deleted object is still in the cache (%T)", err)
	})
	canceled, stopWaiting := context.WithCancel(ctx)
	stopWaiting()
	for range 30 { // a list that does not wait succeeds in half of the cases, although its context is canceled
		if err := cl.GetClient().List(canceled, &configMaps); err == nil {
			t.Fatal("the client of the library no longer waits: the bound is not needed any more")
		}
	}
	for range 2 {
		if err := bounded.List(ctx, &configMaps); err != nil || len(configMaps.Items) != 0 {
			t.Errorf("after the deletion: %d objects, %v", len(configMaps.Items), err)
		}
	}
}

// apiServer serves the ConfigMaps of one namespace, and controls what its watches deliver.
type apiServer struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	version  int
	objects  map[string]*corev1.ConfigMap
	watches  map[chan struct{}]bool
	stopping chan struct{}
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{t: t, objects: map[string]*corev1.ConfigMap{}, watches: map[chan struct{}]bool{}, stopping: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/configmaps", s.listOrWatch)
	mux.HandleFunc("GET /api/v1/namespaces/shop/configmaps/{name}", s.get)
	mux.HandleFunc("PATCH /api/v1/namespaces/shop/configmaps/{name}", s.patch)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		close(s.stopping)
		s.Close()
	})
	return s
}

func (s *apiServer) set(name, text string) *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	stored := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(s.version)},
		Data:       map[string]string{"text": text},
	}
	s.objects[name] = stored
	return stored
}

func (s *apiServer) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	delete(s.objects, name)
}

func (s *apiServer) breakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for watch := range s.watches {
		close(watch)
	}
	clear(s.watches)
}

func (s *apiServer) listOrWatch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		s.mu.Lock()
		list := &corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)},
		}
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			list.Items = append(list.Items, *s.objects[name])
		}
		s.mu.Unlock()
		s.respond(w, http.StatusOK, list)
		return
	}
	broken := make(chan struct{})
	s.mu.Lock()
	current, refused := strconv.Itoa(s.version), r.URL.Query().Get("sendInitialEvents") != ""
	expired := r.URL.Query().Get("resourceVersion") != current
	if !refused && !expired {
		s.watches[broken] = true
	}
	s.mu.Unlock()
	switch {
	case refused:
		s.respond(w, http.StatusUnprocessableEntity, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
	case expired:
		s.respond(w, http.StatusGone, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
	default: // a watch without events
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			s.t.Error(err)
		}
		select {
		case <-broken:
		case <-r.Context().Done():
		case <-s.stopping:
		}
	}
}

func (s *apiServer) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	stored := s.objects[r.PathValue("name")]
	s.mu.Unlock()
	if stored == nil {
		s.respond(w, http.StatusNotFound, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
		return
	}
	s.respond(w, http.StatusOK, stored)
}

func (s *apiServer) patch(w http.ResponseWriter, r *http.Request) {
	s.respond(w, http.StatusOK, s.set(r.PathValue("name"), "changed"))
}

func (s *apiServer) respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.t.Error(err)
	}
}
