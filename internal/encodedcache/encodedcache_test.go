package encodedcache_test

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

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/encodedcache"
	"github.com/serin-dev/serin/internal/waittest"
)

const team = "team" // an annotation, and the index of it

// TestAnEncodedCacheIsIndistinguishable: a cache of this package and one of the library show the same objects to readers and to
// event handlers, after each change.
func TestAnEncodedCacheIsIndistinguishable(t *testing.T) {
	api := newAPIServer(t)
	cart, pay := deployment("cart", "1.0", "blue"), deployment("pay", "1.0", "red")
	api.set(cart)
	api.set(pay)
	plain, encoded := api.newCache(t, nil), api.newCache(t, &encodedcache.Recent{})
	for _, change := range []struct {
		name string
		do   func()
	}{
		{"two objects", func() {}},
		{"an update", func() { api.set(deployment("cart", "2.0", "red")) }},
		{"an update without an annotation and labels", func() {
			bare := deployment("pay", "1.1", "")
			bare.SetAnnotations(nil)
			bare.SetLabels(nil)
			api.set(bare)
		}},
		{"a new object", func() { api.set(deployment("stock", "1.0", "blue")) }},
		{"a deleted one", func() { api.remove("pay") }},
		{"a deletion that no watch reports", func() {
			api.breakWatchesAfter(func() { api.removeSilently("stock") })
		}},
		{"a new object of that name", func() { api.set(deployment("stock", "3.0", "red")) }},
	} {
		change.do()
		versions := api.versions()
		for name, c := range map[string]*observedCache{"library": plain, "encoded": encoded} {
			waittest.Until(t, "the cache of the "+name+" shows "+change.name, func() error { return c.shows(t.Context(), versions) })
		}
		if diff := cmp.Diff(plain.read(t), encoded.read(t)); diff != "" {
			t.Errorf("after %s, readers of the library's cache (-) and of this one (+) see:\n%s", change.name, diff)
		}
	}
	waittest.Until(t, "both caches have reported the same events", func() error {
		if diff := cmp.Diff(plain.recorded(), encoded.recorded()); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	if events := plain.recorded(); len(events) < 7 {
		t.Errorf("only %d events were reported", len(events))
	}
}

// TestACopyMayBeModified: only a reader that asks for no copy shares the content.
func TestACopyMayBeModified(t *testing.T) {
	api := newAPIServer(t)
	api.set(deployment("cart", "1.0", "blue"))
	recent := &encodedcache.Recent{}
	c := api.newCache(t, recent)
	get := func(options ...client.GetOption) *unstructured.Unstructured {
		t.Helper()
		object := newObject()
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "cart"}, object, options...); err != nil {
			t.Fatal(err)
		}
		return object
	}
	list := func(options ...client.ListOption) *unstructured.Unstructured {
		t.Helper()
		all := newList()
		if err := c.List(t.Context(), all, options...); err != nil || len(all.Items) != 1 {
			t.Fatalf("%d objects, %v", len(all.Items), err)
		}
		return &all.Items[0]
	}
	want := deployment("cart", "1.0", "blue").Object["spec"]
	for name, copied := range map[string]*unstructured.Unstructured{"get": get(), "list": list()} {
		if err := unstructured.SetNestedField(copied.Object, "mine", "spec", "template", "spec", "nodeName"); err != nil {
			t.Fatal(err)
		}
		for _, read := range []*unstructured.Unstructured{get(), list(), get(client.UnsafeDisableDeepCopy)} {
			if diff := cmp.Diff(want, read.Object["spec"]); diff != "" {
				t.Errorf("a change of the copy of %s is visible to others:\n%s", name, diff)
			}
		}
	}
	identity := func(object *unstructured.Unstructured) string { return fmt.Sprintf("%p", object.Object) }
	shared := identity(get(client.UnsafeDisableDeepCopy))
	if got := identity(list(client.UnsafeDisableDeepCopy)); got != shared {
		t.Error("two readers without a copy decode the object twice")
	}
	recent.Forget()
	if got := get(client.UnsafeDisableDeepCopy); identity(got) == shared || !cmp.Equal(want, got.Object["spec"]) {
		t.Errorf("after Forget, the object is still decoded, or differs: %v", got.Object["spec"])
	}
}

// TestTypedObjectsAreStoredAsTheyAre: only unstructured objects consist of maps.
func TestTypedObjectsAreStoredAsTheyAre(t *testing.T) {
	api := newAPIServer(t)
	api.set(deployment("cart", "1.0", "blue"))
	c := api.newCache(t, &encodedcache.Recent{})
	var typed appsv1.Deployment
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "cart"}, &typed); err != nil || typed.Spec.Template.Spec.Containers[0].Image != "cart:1.0" {
		t.Errorf("got %v, %v", typed.Spec, err)
	}
	var all appsv1.DeploymentList
	if err := c.List(t.Context(), &all); err != nil || len(all.Items) != 1 {
		t.Errorf("listed %d objects, %v", len(all.Items), err)
	}
}

func newObject() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	return object
}

func newList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	return list
}

// deployment has numbers of both kinds, characters that JSON escapes, and fields that no library knows.
func deployment(name, tag, owner string) *unstructured.Unstructured {
	object := newObject()
	object.SetNamespace("shop")
	object.SetName(name)
	object.SetLabels(map[string]string{"app": name})
	object.SetAnnotations(map[string]string{team: owner, "note": "a < b & c \u2028"})
	object.Object["spec"] = map[string]any{
		"replicas": int64(3), "unknownField": map[string]any{"ratio": 0.25, "list": []any{int64(1), "two", nil, true}},
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": name + ":" + tag}}}},
	}
	return object
}

// observedCache is a running cache with its events.
type observedCache struct {
	cache.Cache

	mu     sync.Mutex
	events []map[string]any
}

// read returns what readers see.
func (c *observedCache) read(t *testing.T) map[string]any {
	t.Helper()
	seen := map[string]any{}
	for _, name := range []string{"cart", "pay", "stock"} {
		for how, options := range map[string][]client.GetOption{"copy": nil, "shared": {client.UnsafeDisableDeepCopy}} {
			object := newObject()
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, object, options...); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			} else if err != nil {
				object.Object = map[string]any{"error": err.Error()}
			}
			seen[how+" of "+name] = object.Object
		}
	}
	for how, options := range map[string][]client.ListOption{
		"all": nil, "shared": {client.UnsafeDisableDeepCopy}, "namespace": {client.InNamespace("shop")}, "other namespace": {client.InNamespace("bank")},
		"label": {client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(labels.Set{"app": "cart"})}}, "index": {client.MatchingFields{team: "red"}},
	} {
		list := newList()
		if err := c.List(t.Context(), list, options...); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return len(a.GetName()) - len(b.GetName()) })
		var objects []any
		for _, item := range list.Items {
			objects = append(objects, item.Object)
		}
		seen["list of "+how] = objects
	}
	return seen
}

// shows returns an error unless the cache contains the versions of the objects, by name.
func (c *observedCache) shows(ctx context.Context, versions map[string]string) error {
	list := newList()
	if err := c.List(ctx, list); err != nil {
		return err
	}
	got := map[string]string{}
	for _, item := range list.Items {
		got[item.GetName()] = item.GetResourceVersion()
	}
	if !maps.Equal(got, versions) {
		return fmt.Errorf("the cache contains %v, want %v", got, versions)
	}
	return nil
}

func (c *observedCache) record(event string, objects ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := map[string]any{"event": event}
	for i, object := range objects {
		if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			entry["event"], object = event+" missed: "+missed.Key, missed.Obj
		}
		entry[strconv.Itoa(i)] = object.(*unstructured.Unstructured).Object
	}
	c.events = append(c.events, entry)
}

func (c *observedCache) recorded() []map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// apiServer serves Deployments, and controls what its watches deliver.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex
	version  int
	objects  map[string]*unstructured.Unstructured
	watches  map[chan any]bool
	stopping chan struct{}
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{objects: map[string]*unstructured.Unstructured{}, watches: map[chan any]bool{}, stopping: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/apps/v1/deployments", s.listOrWatch)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		close(s.stopping)
		s.Close()
	})
	return s
}

// newCache starts a cache, and records the events of Deployments. recent is nil for a cache of the library.
func (s *apiServer) newCache(t *testing.T, recent *encodedcache.Recent) *observedCache {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	options := cache.Options{Mapper: mapper, DefaultTransform: cache.TransformStripManagedFields()}
	if recent != nil {
		options.NewInformer = recent.NewInformer
	}
	c, err := cache.New(&rest.Config{Host: s.URL}, options)
	if err != nil {
		t.Fatal(err)
	}
	observed := &observedCache{Cache: c}
	err = c.IndexField(t.Context(), newObject(), team, func(object client.Object) []string { return []string{object.GetAnnotations()[team]} })
	if err != nil {
		t.Fatal(err)
	}
	informer, err := c.GetInformer(t.Context(), newObject(), cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, initial bool) { observed.record(fmt.Sprintf("add, initially: %t", initial), object) },
		UpdateFunc: func(before, after any) { observed.record("update", before, after) },
		DeleteFunc: func(object any) { observed.record("delete", object) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := waittest.Receive(t, "the cache ends", ended); err != nil {
			t.Error(err)
		}
	})
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not start")
	}
	return observed
}

// set stores an object, and reports it to the watches.
func (s *apiServer) set(object *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	event := "ADDED"
	uid := "uid-" + strconv.Itoa(s.version)
	if existing := s.objects[object.GetName()]; existing != nil {
		event, uid = "MODIFIED", string(existing.GetUID())
	}
	if err := unstructured.SetNestedField(object.Object, uid, "metadata", "uid"); err != nil {
		panic(err)
	}
	object.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[object.GetName()] = object
	s.send(event, object)
}

func (s *apiServer) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	removed := s.objects[name].DeepCopy()
	removed.SetResourceVersion(strconv.Itoa(s.version))
	delete(s.objects, name)
	s.send("DELETED", removed)
}

// removeSilently removes an object without an event. The caller holds the lock.
func (s *apiServer) removeSilently(name string) {
	s.version++
	delete(s.objects, name)
}

// send reports an event to all watches. The caller holds the lock.
func (s *apiServer) send(event string, object *unstructured.Unstructured) {
	for watch := range s.watches {
		watch <- map[string]any{"type": event, "object": object.DeepCopy().Object}
	}
}

// breakWatchesAfter makes a change that no watch reports, because all of them end with it.
func (s *apiServer) breakWatchesAfter(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	for watch := range s.watches {
		// The version is too old to continue from it, so that the cache lists again.
		watch <- map[string]any{"type": "ERROR", "object": map[string]any{
			"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Expired", "code": http.StatusGone,
		}}
		close(watch)
	}
	clear(s.watches)
}

// versions returns the versions of all objects, by name.
func (s *apiServer) versions() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]string{}
	for name, object := range s.objects {
		all[name] = object.GetResourceVersion()
	}
	return all
}

func (s *apiServer) listOrWatch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		items := []any{}
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			items = append(items, s.objects[name].Object)
		}
		encode(w, map[string]any{
			"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}, "items": items,
		})
		return
	}
	if r.URL.Query().Get("sendInitialEvents") != "" {
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`, http.StatusUnprocessableEntity)
		return
	}
	s.mu.Lock()
	if r.URL.Query().Get("resourceVersion") != strconv.Itoa(s.version) {
		s.mu.Unlock()
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`, http.StatusGone)
		return
	}
	events := make(chan any, 16)
	s.watches[events] = true
	s.mu.Unlock()
	flush := func() {
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
	}
	flush()
	for {
		select {
		case event, open := <-events:
			if !open {
				return
			}
			encode(w, event)
			flush()
		case <-s.stopping:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func encode(w http.ResponseWriter, value any) {
	if err := json.NewEncoder(w).Encode(value); err != nil {
		panic(err)
	}
}
