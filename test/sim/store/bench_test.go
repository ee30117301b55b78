package store_test

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/store"
)

// cpu reports the CPU time of each operation, which, unlike the elapsed time, other load on the machine does not change.
func cpu(b *testing.B) func() {
	used := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	began := used()
	return func() { b.ReportMetric(float64((used()-began).Nanoseconds())/float64(b.N), "cpu-ns/op") }
}

// BenchmarkYardstick copies a Deployment: the minimum cost of a read, and a measure of the current speed of the machine.
func BenchmarkYardstick(b *testing.B) {
	w := newWorld(b)
	obj := w.create(deployment("podinfo"))
	defer cpu(b)()
	for b.Loop() {
		if obj.DeepCopy() == nil {
			b.Fatal("no copy")
		}
	}
}

func BenchmarkGetUnstructured(b *testing.B) {
	w := newWorld(b)
	w.create(deployment("podinfo"))
	obj := newObject(deploymentKind, "podinfo")
	defer cpu(b)()
	for b.Loop() {
		w.must(w.client.Get(b.Context(), keyOf("podinfo"), obj))
	}
}

func BenchmarkGetCanary(b *testing.B) {
	w := newWorld(b)
	w.create(canary("podinfo"))
	obj := &flaggerv1.Canary{}
	defer cpu(b)()
	for b.Loop() {
		w.must(w.client.Get(b.Context(), keyOf("podinfo"), obj))
	}
}

func BenchmarkGetCanaryFromCache(b *testing.B) {
	w := newWorld(b)
	w.create(canary("podinfo"))
	cached := w.server.NewCache(store.CacheOptions{}).Client("serin", store.Always)
	obj := &flaggerv1.Canary{}
	defer cpu(b)()
	for b.Loop() {
		w.must(cached.Get(b.Context(), keyOf("podinfo"), obj))
	}
}

func BenchmarkUpdateUnstructured(b *testing.B) {
	w := newWorld(b)
	w.create(deployment("podinfo"))
	obj := w.get(deploymentKind, "podinfo")
	replicas := int64(0)
	defer cpu(b)()
	for b.Loop() {
		replicas++
		obj.Object["spec"].(map[string]any)["replicas"] = replicas % 100
		w.must(w.client.Update(b.Context(), obj))
	}
}

func BenchmarkMergePatchReplicas(b *testing.B) {
	w := newWorld(b)
	w.create(deployment("podinfo"))
	obj := newObject(deploymentKind, "podinfo")
	patches := []client.Patch{
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`)), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":4}}`)),
	}
	i := 0
	defer cpu(b)()
	for b.Loop() {
		i++
		w.must(w.client.Patch(b.Context(), obj, patches[i%2]))
	}
}

// BenchmarkMergePatchRoute repeatedly changes the weights of a route whose definition has many rules, to few different values.
func BenchmarkMergePatchRoute(b *testing.B) {
	w := newWorld(b)
	w.create(httpRoute("podinfo"))
	obj := newObject(httpRouteKind, "podinfo")
	i := 0
	defer cpu(b)()
	for b.Loop() {
		i++
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"rules": rules(i % 100)}})
		w.must(err)
		w.must(w.client.Patch(b.Context(), obj, client.RawPatch(types.MergePatchType, patch)))
	}
}

func BenchmarkMergePatchCanaryStatus(b *testing.B) {
	w := newWorld(b)
	w.create(canary("podinfo"))
	obj := &flaggerv1.Canary{}
	w.must(w.client.Get(b.Context(), keyOf("podinfo"), obj))
	patches := []client.Patch{
		client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Progressing","canaryWeight":5,"failedChecks":0,"iterations":0,"serin":{"run":"a","gates":[{"name":"window","verdict":"Wait","since":"2026-01-01T00:00:00.000000Z","message":"observing"}]},"conditions":[{"type":"Promoted","status":"Unknown","reason":"Progressing","message":"New revision detected","lastTransitionTime":"2026-01-01T00:00:00Z","lastUpdateTime":"2026-01-01T00:00:00Z"}]}}`)),
		client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Progressing","canaryWeight":10,"failedChecks":1,"serin":{"run":"a","gates":[{"name":"window","verdict":"Pass","since":"2026-01-01T00:00:10.000000Z","message":"observed"}]}}}`)),
	}
	i := 0
	defer cpu(b)()
	for b.Loop() {
		i++
		w.must(w.client.Status().Patch(b.Context(), obj, patches[i%2]))
	}
}

func BenchmarkUpdateCanary(b *testing.B) {
	w := newWorld(b)
	w.create(canary("podinfo"))
	obj := &flaggerv1.Canary{}
	w.must(w.client.Get(b.Context(), keyOf("podinfo"), obj))
	defer cpu(b)()
	for b.Loop() {
		obj.Spec.SkipAnalysis = !obj.Spec.SkipAnalysis
		w.must(w.client.Update(b.Context(), obj))
	}
}

func BenchmarkNewServer(b *testing.B) {
	w := newWorld(b)
	defer cpu(b)()
	for b.Loop() {
		_, err := store.New(store.Options{Definitions: w.definitions, Scheme: w.scheme})
		w.must(err)
	}
}

// BenchmarkDeliver measures one change and its delivery to a cache.
func BenchmarkDeliver(b *testing.B) {
	w := newWorld(b)
	w.create(deployment("podinfo"))
	cache := w.server.NewCache(store.CacheOptions{})
	cache.Start(deploymentKind.GroupKind(), 0)
	obj := w.get(deploymentKind, "podinfo")
	replicas := int64(0)
	defer cpu(b)()
	for b.Loop() {
		replicas++
		obj.Object["spec"].(map[string]any)["replicas"] = replicas % 100
		w.must(w.client.Update(b.Context(), obj))
		if len(cache.Deliver(deploymentKind.GroupKind(), 1)) != 1 {
			b.Fatal("nothing came")
		}
	}
}
