package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// idleViewers is the number of viewers who look at the same list.
const idleViewers = 5

// TestIdleViewersCauseNoRequests follows a cluster with all requests.
func TestIdleViewersCauseNoRequests(t *testing.T) {
	const releases = 100
	synctest.Test(t, func(t *testing.T) {
		manifests := make([]string, 0, releases)
		for i := range releases {
			manifests = append(manifests, fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: canary-%05d, namespace: shop, uid: uid-%d, generation: 1}
spec: {provider: kubernetes, targetRef: {apiVersion: apps/v1, kind: Deployment, name: canary-%d}, service: {port: 80}, analysis: {interval: 30s, threshold: 2, iterations: 2}}
status: {phase: Succeeded, canaryWeight: 0, failedChecks: 0, iterations: 0, lastTransitionTime: "1999-12-31T23:59:00Z"}`, i, i, i))
		}
		w := clitest.NewFakeCluster(t, strings.Join(manifests, "\n---\n"))
		h := newHub(t.Context(), w.Session, []cluster.Selection{{}})
		checkIdleViewers(t, w, h, releases)
	})
}

// TestIdleViewersReceiveOneSnapshotOfManyReleases has 10,000 releases, which were observed before.
func TestIdleViewersReceiveOneSnapshotOfManyReleases(t *testing.T) {
	const releases = 10_000
	w := clitest.NewFakeCluster(t, clitest.Cart)
	observed := manyObservations(t, w, releases)
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t.Context(), w.Session, nil)
		h.stop = func() {} // it follows nothing
		h.update(t.Context(), cluster.State{Releases: observed})
		checkIdleViewers(t, w, h, releases)
	})
}

// checkIdleViewers lets viewers look at a list while nothing changes.
func checkIdleViewers(t *testing.T, w *clitest.FakeCluster, h *hub, releases int) {
	t.Helper()
	var requests atomic.Int64
	w.CountRequests(func() { requests.Add(1) })
	ctx, cancel := context.WithCancel(t.Context())
	viewers := make([]*httptest.ResponseRecorder, idleViewers)
	var group sync.WaitGroup
	for i := range viewers {
		viewers[i] = httptest.NewRecorder()
		group.Go(func() {
			defer h.enter()() //nolint:contextcheck // the hub outlives the request
			streamFleet(ctx, newEventWriter(viewers[i]), h, filter{}, "")
		})
	}
	time.Sleep(5 * time.Second) // of the bubble: until the first observation
	synctest.Wait()
	t.Logf("the first observation of %d releases sent %d requests", releases, requests.Load())
	requests.Store(0)
	time.Sleep(2 * heartbeatInterval)
	synctest.Wait()
	if n := requests.Load(); n > 0 {
		t.Errorf("idle viewers caused %d requests to the API server", n)
	}
	cancel()
	group.Wait()
	h.mu.Lock()
	h.stop()
	h.mu.Unlock()
	synctest.Wait()
	for i, viewer := range viewers {
		body := viewer.Body.Bytes()
		snapshots, heartbeats := bytes.Count(body, []byte("event: fleet\n")), bytes.Count(body, []byte("event: heartbeat\n"))
		if sent := bytes.Count(body, []byte(`"phase":`)); snapshots != 1 || sent != releases || heartbeats < 2 || viewer.Code != http.StatusOK {
			t.Errorf("viewer %d received %d snapshots with %d releases and %d heartbeats, want one with %d", i, snapshots, sent, heartbeats, releases)
		}
	}
}

// manyObservations returns the observation of Canary cart with many names.
func manyObservations(t testing.TB, w *clitest.FakeCluster, n int) []explain.Observation {
	t.Helper()
	observed, err := w.Session.Observe(t.Context(), cluster.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	cart, ok := observed.Releases[0].(*explain.Canary)
	if !ok {
		t.Fatalf("got a %T", observed.Releases[0])
	}
	out := make([]explain.Observation, 0, n)
	for i := range n {
		one, object := *cart, *cart.Object
		object.Name = fmt.Sprintf("cart-%05d", i)
		one.Object, one.Snapshot.Plan.Name = &object, object.Name
		out = append(out, &one)
	}
	return out
}

func TestRecordingsAreBounded(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	h := newHub(t.Context(), w.Session, nil)
	observed := manyObservations(t, w, maxRecordings+50)
	h.update(t.Context(), cluster.State{Releases: observed[:50]})
	h.update(t.Context(), cluster.State{Releases: observed})
	recorded := 0
	for key, e := range h.entries {
		if len(e.memory.recorder.Series) > 0 {
			recorded++
		} else if key.Name >= "cart-00050" {
			t.Errorf("the recording of %s was deleted, which has changed last", key.Name)
		}
	}
	if recorded != maxRecordings {
		t.Errorf("%d recordings, want %d", recorded, maxRecordings)
	}
	h.update(t.Context(), cluster.State{Releases: observed[:1]})
	if len(h.entries) != 1 {
		t.Errorf("%d releases are remembered, want the one that exists", len(h.entries))
	}
}

// countedObservation counts its descriptions.
type countedObservation struct {
	explain.Observation

	described *atomic.Int64
}

func (o countedObservation) Describe(now time.Time) explain.Release {
	o.described.Add(1)
	return o.Observation.Describe(now)
}

// changedCanary returns the observation of a Canary after a failed check.
func changedCanary(observed explain.Observation, failedChecks int) explain.Observation {
	changed := *observed.(*explain.Canary) //nolint:forcetypeassert // the tests have no others
	object := *changed.Object
	object.ResourceVersion, object.Status.FailedChecks = fmt.Sprint("failed-", failedChecks), failedChecks
	changed.Object, changed.Snapshot.Status.FailedChecks = &object, failedChecks
	return &changed
}

// TestAChangeDescribesNoOtherRelease changes one of 10,000 releases in progress, whose descriptions are all outdated: the times of
// their next steps depend on the current time.
func TestAChangeDescribesNoOtherRelease(t *testing.T) {
	const releases, changed = 10_000, 4321
	w := clitest.NewFakeCluster(t, clitest.Cart)
	observed := manyObservations(t, w, releases)
	var described atomic.Int64
	counted := make([]explain.Observation, releases)
	for i := range observed {
		counted[i] = countedObservation{observed[i], &described}
	}
	h := newHub(t.Context(), w.Session, nil)
	h.update(t.Context(), cluster.State{Releases: counted})
	if n := described.Load(); n != releases {
		t.Fatalf("described %d releases at first, want %d", n, releases)
	}
	_, version, _, _ := h.fleet(0, filter{})

	described.Store(0)
	next := slices.Clone(counted)
	next[changed] = countedObservation{changedCanary(observed[changed], 1), &described}
	h.update(t.Context(), cluster.State{Releases: next})
	if n := described.Load(); n != 1 {
		t.Errorf("a change of one release described %d releases", n)
	}
	fleet, version, _, hasNews := h.fleet(version, filter{})
	if !hasNews || fleet.Complete || len(fleet.Releases) != 1 || fleet.Releases[0].Name != "cart-04321" || fleet.Releases[0].FailedChecks != 1 {
		t.Errorf("viewers received %d releases (complete: %t), want the changed one", len(fleet.Releases), fleet.Complete)
	}

	described.Store(0)
	h.update(t.Context(), cluster.State{Releases: next[1:]})
	if n := described.Load(); n != 0 {
		t.Errorf("a deletion described %d releases", n)
	}
	if fleet, _, _, _ := h.fleet(version, filter{}); len(fleet.Releases) != 0 || len(fleet.Removed) != 1 || fleet.Removed[0].Name != "cart-00000" {
		t.Errorf("viewers received %d releases and the removals %v, want that of cart-00000", len(fleet.Releases), fleet.Removed)
	}
	for range releases/maxRenewed + 1 {
		described.Store(0)
		h.renew(t.Context())
		if n := described.Load(); n != maxRenewed {
			t.Fatalf("described %d releases because time has passed, want %d at once", n, maxRenewed)
		}
	}
}

// BenchmarkFleet describes 10,000 releases in progress and encodes them, as for the first viewer.
func BenchmarkFleet(b *testing.B) {
	w := clitest.NewFakeCluster(b, clitest.Cart)
	observed := manyObservations(b, w, 10_000)
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		h := newHub(b.Context(), &cluster.Session{Clock: clock.RealClock{}}, nil)
		h.update(b.Context(), cluster.State{Releases: observed})
		fleet, _, _, _ := h.fleet(0, filter{})
		text, err := json.Marshal(fleet)
		if err != nil {
			b.Fatal(err)
		}
		size = len(text)
	}
	b.ReportMetric(float64(size), "bytes/snapshot")
}

// BenchmarkChange describes what an event changes while 10,000 releases are in progress: one release, or, for comparison, all.
func BenchmarkChange(b *testing.B) {
	const releases = 10_000
	w := clitest.NewFakeCluster(b, clitest.Cart)
	observed := manyObservations(b, w, releases)
	for _, changed := range []int{1, releases} {
		b.Run(fmt.Sprintf("releases=%d", changed), func(b *testing.B) {
			h := newHub(b.Context(), &cluster.Session{Clock: clock.RealClock{}}, nil)
			h.update(b.Context(), cluster.State{Releases: observed})
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				next := slices.Clone(observed)
				for j := range changed {
					next[j] = changedCanary(observed[j], i)
				}
				h.update(b.Context(), cluster.State{Releases: next})
			}
		})
	}
}
