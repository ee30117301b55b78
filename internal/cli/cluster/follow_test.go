package cluster_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// following runs Follow in a synctest bubble. Each step waits until all goroutines are blocked, and returns the last state.
type following struct {
	states chan cluster.State
	ended  chan error
	cancel context.CancelFunc
	last   cluster.State
	count  int
}

func follow(t *testing.T, w *clitest.World, sel cluster.Selection) *following {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &following{states: make(chan cluster.State, 1000), ended: make(chan error, 1), cancel: cancel}
	go func() {
		f.ended <- w.Session.Follow(ctx, sel, func(s cluster.State) bool { f.states <- s; return true })
	}()
	f.settle()
	return f
}

func (f *following) settle() {
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

func (f *following) end(t *testing.T) {
	t.Helper()
	f.cancel()
	synctest.Wait()
	select {
	case err := <-f.ended:
		if err != nil {
			t.Errorf("follow ended with %v", err)
		}
	default:
		t.Error("follow does not end with its context")
	}
}

func TestFollowReportsEveryChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t, clitest.Cart+clitest.Controller)
		f := follow(t, w, cluster.Selection{Namespace: "shop"})
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
		if f.settle(); release().FailedChecks != 1 {
			t.Errorf("a changed status is not reported")
		}

		d := w.Deployment("cart")
		w.Change(d, func() { d.Spec.Replicas = ptr.To[int32](2) })
		if f.settle(); release().ClosedGate().Name != "canary-ready" {
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
		if f.settle(); len(release().Events) != 2 {
			t.Errorf("an event is not reported: %v", release().Events)
		}

		before := f.count
		f.settle()
		time.Sleep(time.Hour)
		if f.settle(); f.count != before {
			t.Errorf("reported %d states while nothing changed", f.count-before)
		}

		if err := w.Admin.Delete(t.Context(), w.Canary("cart")); err != nil {
			t.Fatal(err)
		}
		if f.settle(); len(f.last.Releases) != 0 {
			t.Errorf("a deleted release is still reported")
		}
	})
}

func TestFollowWaitsForAnUnreachableCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t, clitest.Cart)
		f := follow(t, w, cluster.Selection{Namespace: "shop", Names: []cluster.Name{{Name: "cart"}}})
		defer f.end(t)
		w.Fail(errors.New("dial tcp 10.0.0.1:443: connect: connection refused"))
		f.settle()
		if !slices.ContainsFunc(f.last.Lost, func(text string) bool { return strings.Contains(text, "connection refused") }) {
			t.Fatalf("nothing says that the cluster is away: %q", f.last.Lost)
		}
		if len(f.last.Releases) != 1 {
			t.Errorf("the observed state was lost")
		}
		c := w.Canary("cart")
		w.Change(c, func() { c.Status.FailedChecks = 1 })
		w.Fail(nil)
		time.Sleep(time.Minute)
		f.settle()
		if len(f.last.Lost) != 0 || f.last.Releases[0].Describe(time.Now()).FailedChecks != 1 {
			t.Errorf("after the cluster came back: lost %q, failed checks %d", f.last.Lost, f.last.Releases[0].Describe(time.Now()).FailedChecks)
		}
	})
}

func TestFollowRequiresPermissionToReadCanaries(t *testing.T) {
	w := clitest.NewWorld(t, clitest.Cart)
	w.Forbid("Canary")
	err := w.Session.Follow(t.Context(), cluster.Selection{}, func(cluster.State) bool { return true })
	if !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("got %v, want %v", err, cluster.ErrUnreachable)
	}
}

func TestFollowReportsMissingPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t, clitest.Cart)
		w.Forbid("Deployment", "Event")
		f := follow(t, w, cluster.Selection{Namespace: "shop"})
		defer f.end(t)
		seen, _ := f.last.Releases[0].(*explain.Canary)
		if len(f.last.Lost) != 3 || !slices.Contains(seen.Assumed, release.WorkloadPart) {
			t.Errorf("got lost %q, assumed %q; want three sentences, and the workload", f.last.Lost, seen.Assumed)
		}
	})
}
