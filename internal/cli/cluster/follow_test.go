package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// followRun runs Follow in a synctest bubble, and records the last state and the number of states.
type followRun struct {
	states chan cluster.State
	result chan error
	cancel context.CancelFunc
	last   cluster.State
	count  int
}

func startFollow(t *testing.T, w *clitest.FakeCluster, sel cluster.Selection) *followRun {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &followRun{states: make(chan cluster.State, 1000), result: make(chan error, 1), cancel: cancel}
	go func() {
		f.result <- w.Session.Follow(ctx, sel, func(s cluster.State) bool { f.states <- s; return true })
	}()
	f.waitUntilIdle()
	return f
}

// waitUntilIdle waits until all goroutines of the bubble are blocked.
func (f *followRun) waitUntilIdle() {
	time.Sleep(time.Second) // in the synctest bubble: simultaneous changes are observed once
	synctest.Wait()
	for {
		select {
		case f.last = <-f.states:
			f.count++
		default:
			return
		}
	}
}

func (f *followRun) end(t *testing.T) {
	t.Helper()
	f.cancel()
	synctest.Wait()
	select {
	case err := <-f.result:
		if err != nil {
			t.Errorf("follow ended with %v", err)
		}
	default:
		t.Error("follow does not end with its context")
	}
}

func TestFollowReportsEveryChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart+clitest.SerinDeployment)
		f := startFollow(t, w, cluster.Selection{Namespace: "shop"})
		defer f.end(t)
		release := func() *explain.Release {
			t.Helper()
			if len(f.last.Releases) != 1 {
				t.Fatalf("got %d releases, want 1", len(f.last.Releases))
			}
			r := f.last.Releases[0].Describe(w.Session.Clock.Now())
			return &r
		}
		if got := release(); got.Weight != 20 || got.ClosedGate().Name != "window" || len(got.Events) != 1 {
			t.Fatalf("first state: weight %d, first gate %v, %d events", got.Weight, got.ClosedGate(), len(got.Events))
		}

		c := w.Canary("cart")
		w.Change(c, func() { c.Status.FailedChecks = 1 })
		if f.waitUntilIdle(); release().FailedChecks != 1 {
			t.Errorf("a changed status is not reported")
		}

		d := w.Deployment("cart")
		w.Change(d, func() { d.Spec.Replicas = ptr.To[int32](2) })
		if f.waitUntilIdle(); release().ClosedGate().Name != "canary-ready" {
			t.Errorf("missing pods are not reported: %v", release().ClosedGate())
		}

		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: "cart.2"},
			InvolvedObject: corev1.ObjectReference{Kind: "Canary", Namespace: "shop", Name: "cart"},
			Type:           "Warning", Message: "Halt cart.shop advancement", LastTimestamp: metav1.NewTime(w.Session.Clock.Now()),
		}
		if err := w.Admin.Create(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		if f.waitUntilIdle(); len(release().Events) != 2 {
			t.Errorf("an event is not reported: %v", release().Events)
		}

		before := f.count
		f.waitUntilIdle()
		time.Sleep(time.Hour)
		if f.waitUntilIdle(); f.count != before {
			t.Errorf("reported %d states while nothing changed", f.count-before)
		}

		if err := w.Admin.Delete(t.Context(), w.Canary("cart")); err != nil {
			t.Fatal(err)
		}
		if f.waitUntilIdle(); len(f.last.Releases) != 0 {
			t.Errorf("a deleted release is still reported")
		}
	})
}

// stopSerin scales Serin to zero.
func stopSerin(t *testing.T, w *clitest.FakeCluster) {
	t.Helper()
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = "serin-system", "serin"
	w.Change(d, func() { d.Spec.Replicas, d.Status = ptr.To[int32](0), appsv1.DeploymentStatus{} })
}

// During a release, no change of a release may follow the end of the controller.
func TestFollowReportsThatTheControllerHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart+clitest.SerinDeployment)
		f := startFollow(t, w, cluster.Selection{Namespace: "shop"})
		defer f.end(t)
		if got := f.last.Controller; got.State != explain.Running {
			t.Fatalf("first state: %v", got)
		}
		stopSerin(t, w)
		time.Sleep(time.Hour)
		if f.waitUntilIdle(); f.last.Controller.State != explain.NotFound {
			t.Errorf("an hour after the controller has stopped: %v", f.last.Controller)
		}
		d := &appsv1.Deployment{}
		d.Namespace, d.Name = "serin-system", "serin"
		w.Change(d, func() { d.Status.ReadyReplicas = 1 })
		time.Sleep(time.Minute)
		if f.waitUntilIdle(); f.last.Controller.State != explain.Running {
			t.Errorf("a minute after the controller has started: %v", f.last.Controller)
		}
	})
}

// An idle release causes no requests, so the end of the controller is noticed at the next change.
func TestFollowReadsTheControllersAtAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart+clitest.SerinDeployment)
		c := w.Canary("cart")
		w.Change(c, func() { c.Status.Phase = flaggerv1.CanaryPhaseSucceeded })
		f := startFollow(t, w, cluster.Selection{Namespace: "shop"})
		defer f.end(t)
		stopSerin(t, w)
		requests := 0
		w.CountRequests(func() { requests++ })
		time.Sleep(time.Hour)
		if f.waitUntilIdle(); requests > 0 {
			t.Errorf("an idle release caused %d requests", requests)
		}
		w.Change(c, func() { c.Labels = map[string]string{"team": "shop"} })
		if f.waitUntilIdle(); f.last.Controller.State != explain.NotFound {
			t.Errorf("after a change: %v", f.last.Controller)
		}
	})
}

func TestFollowUsesChangedFlags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart+clitest.SerinDeployment)
		f := startFollow(t, w, cluster.Selection{Namespace: "shop"})
		defer f.end(t)
		before := f.last.Releases[0]
		d := &appsv1.Deployment{}
		d.Namespace, d.Name = "serin-system", "serin"
		w.Change(d, func() {
			d.Spec.Template.Spec.Containers[0].Args = append(d.Spec.Template.Spec.Containers[0].Args, "-drain-delay=1m")
		})
		time.Sleep(time.Minute)
		if f.waitUntilIdle(); f.last.Releases[0] == before {
			t.Error("the release was not observed again")
		}
	})
}

// Canaries of preview environments come and go, each in its own namespace.
func TestFollowEndsTheStreamsOfDeletedReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart)
		f := startFollow(t, w, cluster.Selection{})
		defer f.end(t)
		preview := func(number int) {
			t.Helper()
			c := w.Canary("cart")
			c.ResourceVersion, c.UID, c.Namespace = "", "", fmt.Sprintf("preview-%d", number)
			if err := w.Admin.Create(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			f.waitUntilIdle()
			if err := w.Admin.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			f.waitUntilIdle()
		}
		preview(0)          // the streams of kinds remain
		const releases = 20 // each would leave a goroutine; a finalizer that runs by chance counts as one, too
		before := runtime.NumGoroutine()
		for i := range releases {
			preview(i + 1)
		}
		if after := runtime.NumGoroutine(); after >= before+releases || len(f.last.Releases) != 1 {
			t.Errorf("%d releases, %d goroutines before and %d after %d releases came and went", len(f.last.Releases), before, after, releases)
		}
	})
}

func TestFollowOmitsEventsOfAFormerRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart)
		f := startFollow(t, w, cluster.Selection{Namespace: "shop"})
		defer f.end(t)
		createEvent := func(name string, uid types.UID) {
			t.Helper()
			event := &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: name},
				InvolvedObject: corev1.ObjectReference{Kind: "Canary", Namespace: "shop", Name: "cart", UID: uid},
				Message:        name, LastTimestamp: metav1.NewTime(w.Session.Clock.Now()),
			}
			if err := w.Admin.Create(t.Context(), event); err != nil {
				t.Fatal(err)
			}
		}
		createEvent("cart.former", "former")
		c := w.Canary("cart")
		createEvent("cart.own", c.UID)
		if err := w.Admin.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		f.waitUntilIdle()
		c.ResourceVersion, c.UID = "", "recreated"
		if err := w.Admin.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		createEvent("cart.recreated", "recreated")
		f.waitUntilIdle()
		var got []string
		for _, event := range f.last.Releases[0].Describe(w.Session.Clock.Now()).Events {
			got = append(got, event.Message)
		}
		if !slices.Equal(got, []string{"cart.recreated"}) {
			t.Errorf("the events of the release are %q", got)
		}
		seen, err := w.Session.Observe(t.Context(), cluster.Selection{Namespace: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range seen.Releases[0].Describe(w.Session.Clock.Now()).Events {
			if event.Message == "cart.own" || event.Message == "cart.former" {
				t.Errorf("Observe returns the event %q", event.Message)
			}
		}
	})
}

// TestFollowReusesUnchangedObservations: who receives a state finds what changed by comparing observations.
func TestFollowReusesUnchangedObservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart+"\n---\n"+clitest.WebRollout)
		f := startFollow(t, w, cluster.Selection{Namespace: "shop"})
		defer f.end(t)
		check := func(change string, wantCart, wantWeb bool) {
			t.Helper()
			before := f.last.Releases
			f.waitUntilIdle()
			if len(before) != 2 || len(f.last.Releases) != 2 {
				t.Fatalf("%s: got %d and %d releases, want two", change, len(before), len(f.last.Releases))
			}
			if cart, web := before[0] != f.last.Releases[0], before[1] != f.last.Releases[1]; cart != wantCart || web != wantWeb {
				t.Errorf("%s: another observation of cart %t, want %t; of web %t, want %t", change, cart, wantCart, web, wantWeb)
			}
		}
		c := w.Canary("cart")
		w.Change(c, func() { c.Status.FailedChecks = 1 })
		check("the Canary changes", true, false)
		w.ScaleReplicaSet("web-new", 1, 0)
		check("a ReplicaSet of the Rollout changes", false, true)
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: "web.2"},
			InvolvedObject: corev1.ObjectReference{Kind: "Rollout", Namespace: "shop", Name: "web"},
			Type:           "Normal", Message: "Rollout is paused", LastTimestamp: metav1.NewTime(w.Session.Clock.Now()),
		}
		if err := w.Admin.Create(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		check("an event about the Rollout", false, true)
		d := w.Deployment("cart-primary")
		w.Change(d, func() { d.Spec.Replicas = ptr.To[int32](3) })
		check("the primary of the Canary changes", true, false)
		other := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}}
		if err := w.Admin.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		check("another Deployment is created", false, false)
	})
}

func TestFollowWaitsForAnUnreachableCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart)
		f := startFollow(t, w, cluster.Selection{Namespace: "shop", Names: []cluster.Name{{Name: "cart"}}})
		defer f.end(t)
		w.FailRequests(errors.New("dial tcp 10.0.0.1:443: connect: connection refused"))
		f.waitUntilIdle()
		if !slices.ContainsFunc(f.last.Interruptions, func(text string) bool { return strings.Contains(text, "connection refused") }) {
			t.Fatalf("the interruptions do not contain the error of the cluster: %q", f.last.Interruptions)
		}
		if len(f.last.Releases) != 1 {
			t.Errorf("the observed state was lost")
		}
		c := w.Canary("cart")
		w.Change(c, func() { c.Status.FailedChecks = 1 })
		w.FailRequests(nil)
		time.Sleep(time.Minute)
		f.waitUntilIdle()
		if len(f.last.Interruptions) != 0 || f.last.Releases[0].Describe(time.Now()).FailedChecks != 1 {
			t.Errorf("after the cluster responds again: interruptions %q, failed checks %d", f.last.Interruptions, f.last.Releases[0].Describe(time.Now()).FailedChecks)
		}
	})
}

func TestFollowRequiresPermissionToReadCanaries(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	w.Forbid("Canary")
	err := w.Session.Follow(t.Context(), cluster.Selection{}, func(cluster.State) bool { return true })
	if !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("got %v, want %v", err, cluster.ErrUnreachable)
	}
}

func TestFollowReportsMissingPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart)
		w.Forbid("Deployment", "Event")
		f := startFollow(t, w, cluster.Selection{Namespace: "shop"})
		defer f.end(t)
		observed, _ := f.last.Releases[0].(*explain.Canary)
		if len(f.last.Interruptions) != 3 || !slices.Contains(observed.Assumed, release.WorkloadPart) {
			t.Errorf("got interruptions %q, assumed %q; want three sentences, and the workload", f.last.Interruptions, observed.Assumed)
		}
	})
}
