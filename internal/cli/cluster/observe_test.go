package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// observeCart observes Canary cart ten seconds after the start of its window.
func observeCart(t *testing.T, w *clitest.FakeCluster) (explain.Release, explain.Controller) {
	t.Helper()
	time.Sleep(10 * time.Second) // in the synctest bubble, which advances the time at once
	observations, err := w.Session.Observe(t.Context(), cluster.Selection{Namespace: "shop", Names: []cluster.Name{{Name: "cart"}}})
	if err != nil {
		t.Fatal(err)
	}
	return observations.Releases[0].Describe(w.Session.Clock.Now()), observations.Controller
}

// gateVerdicts returns the names of the gates with their verdicts.
func gateVerdicts(r explain.Release) []string {
	var out []string
	for _, g := range r.Gates {
		out = append(out, g.Name+" "+g.Verdict)
	}
	return out
}

func TestObserveReturnsTheGatesOfTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart+clitest.SerinDeployment)
		got, controller := observeCart(t, w)
		want := []string{"canary-ready pass", "canary-endpoints pass", "window wait", "route-confirmed pass", "old-samples pass", "request-success-rate wait", "primary-ready pass"}
		if diff := cmp.Diff(want, gateVerdicts(got)); diff != "" {
			t.Errorf("gates (-want +got):\n%s", diff)
		}
		if got.NextStep != "weight 40" || got.Weight != 20 || got.State != release.InProgress {
			t.Errorf("got next step %q, weight %d, state %s; want weight 40, 20, %s", got.NextStep, got.Weight, got.State, release.InProgress)
		}
		if len(got.Unread) > 0 {
			t.Errorf("some objects could not be read: %v", got.Unread)
		}
		if len(got.Events) != 1 {
			t.Errorf("got %d events, want 1", len(got.Events))
		}
		if controller.State != explain.Running {
			t.Errorf("controller: got %+v, want running", controller)
		}
	})
}

// TestARepeatedEventHasItsPeriod: its count includes earlier releases.
func TestARepeatedEventHasItsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const single = `lastTimestamp: "2000-01-01T00:00:00Z"
count: 1`
		if !strings.Contains(clitest.Cart, single) {
			t.Fatal("the test data have no such event")
		}
		w := clitest.NewFakeCluster(t, strings.Replace(clitest.Cart, single, "lastTimestamp: \"2000-01-01T00:00:05Z\"\ncount: 2", 1)+clitest.SerinDeployment)
		got, _ := observeCart(t, w)
		if want := " (2 times since 00:00:00Z)"; len(got.Events) != 1 || got.Events[0].Repetitions() != want {
			t.Errorf("got %+v, want one event with%s", got.Events, want)
		}
	})
}

func TestObserveUsesTheStatusWithoutPermissions(t *testing.T) {
	for _, tc := range []struct {
		forbidden []string
		unread    string
		gates     []string
	}{
		{[]string{"Secret"}, "Secrets", []string{"canary-ready pass", "canary-endpoints pass", "window wait", "route-confirmed pass", "old-samples pass", "request-success-rate wait", "primary-ready pass"}},
		{[]string{"HTTPRoute"}, "HTTPRoutes", []string{"canary-ready pass", "canary-endpoints pass", "window wait", "old-samples pass", "request-success-rate wait", "primary-ready pass"}},
		{[]string{"Deployment"}, "Deployments", []string{"window wait", "old-samples pass", "request-success-rate wait"}},
		{[]string{"Event"}, "Events", []string{"canary-ready pass", "canary-endpoints pass", "window wait", "route-confirmed pass", "old-samples pass", "request-success-rate wait", "primary-ready pass"}},
		{[]string{"EndpointSlice"}, "EndpointSlices", []string{"canary-ready pass", "canary-endpoints pass", "window wait", "route-confirmed pass", "old-samples pass", "request-success-rate wait", "primary-ready pass"}},
		{[]string{"Deployment", "Secret", "HTTPRoute", "Event", "Lease"}, "Deployments", []string{"window wait", "old-samples pass", "request-success-rate wait"}},
	} {
		t.Run(strings.Join(tc.forbidden, ","), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := clitest.NewFakeCluster(t, clitest.Cart)
				w.Forbid(tc.forbidden...)
				got, _ := observeCart(t, w)
				if diff := cmp.Diff(tc.gates, gateVerdicts(got)); diff != "" {
					t.Errorf("gates (-want +got):\n%s", diff)
				}
				if got.NextStep != "weight 40" || got.Weight != 20 {
					t.Errorf("got next step %q at weight %d, want weight 40 at 20", got.NextStep, got.Weight)
				}
				if !slices.ContainsFunc(got.Unread, func(text string) bool { return strings.HasPrefix(text, "No permission to read "+tc.unread) }) {
					t.Errorf("no message reports that %s could not be read: %q", tc.unread, got.Unread)
				}
			})
		})
	}
}

func TestAChangedTargetIsObservedWithoutAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.Cart)
		d := w.Deployment("cart")
		w.Change(d, func() { d.Spec.Template.Spec.Containers[0].Image = "cart:v3" })
		got, _ := observeCart(t, w)
		if want := "all traffic returns to cart-primary"; got.NextStep != want {
			t.Errorf("next step of a release whose target changed: got %q, want %q", got.NextStep, want)
		}
	})
}

// serinLease returns the Lease of a Serin that announces flags.
func serinLease(args ...string) string {
	text, _ := json.Marshal(args)
	return fmt.Sprintf(`
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: serin, namespace: kube-system, annotations: {serin.dev/flags: %q}}
spec: {holderIdentity: laptop-1, leaseDurationSeconds: 60, renewTime: "2000-01-01T00:00:00.000000Z"}`, text)
}

func TestControllerIsDetectedByItsSigns(t *testing.T) {
	const lease = `
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: flagger-leader-election, namespace: flagger-system}
spec: {holderIdentity: flagger-1, leaseDurationSeconds: 15, renewTime: "2000-01-01T00:00:05.000000Z"}`
	const released = `
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: serin, namespace: serin-system}
spec: {holderIdentity: "", leaseDurationSeconds: 1, renewTime: "2000-01-01T00:00:05.000000Z"}`
	loadtester := strings.Replace(clitest.SerinDeployment, "[controller,", "[loadtester,", 1)
	for _, tc := range []struct {
		name, manifests string
		forbidden       []string
		writtenAt       time.Time
		want            explain.ControllerState
	}{
		{name: "a ready Deployment", manifests: clitest.SerinDeployment, want: explain.Running},
		{name: "a Deployment without ready pods", manifests: strings.Replace(clitest.SerinDeployment, "readyReplicas: 1", "readyReplicas: 0", 1), want: explain.NotFound},
		{name: "a load tester", manifests: loadtester, want: explain.NotFound},
		{name: "a controller of another namespace", manifests: strings.Replace(clitest.SerinDeployment, "controller,", "controller, -namespace=kitchen,", 1), want: explain.NotFound},
		{name: "a held lease", manifests: lease, want: explain.Running},
		{name: "a lease of Serin", manifests: serinLease(""), want: explain.Running},
		{name: "a lease of the Serin of another namespace", manifests: serinLease("--namespace=kitchen"), want: explain.NotFound},
		{name: "an expired lease", manifests: strings.Replace(lease, "2000-", "1999-", 1), want: explain.NotFound},
		{name: "a recent status write", writtenAt: time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC), want: explain.Active},
		{name: "a recent status write before the lease was released", manifests: released, writtenAt: time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC), want: explain.NotFound},
		{name: "a recent status write after the lease was released", manifests: released, writtenAt: time.Date(2000, 1, 1, 0, 0, 7, 0, time.UTC), want: explain.Active},
		{name: "a recent status write beside a lease of Flagger", manifests: strings.Replace(released, "name: serin", "name: flagger-leader-election", 1), writtenAt: time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC), want: explain.Active},
		{name: "an old status write", writtenAt: time.Date(1999, 1, 1, 0, 0, 1, 0, time.UTC), want: explain.NotFound},
		{name: "no permission to read Leases", forbidden: []string{"Lease"}, want: explain.Unknown},
		{name: "no sign", want: explain.NotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := clitest.NewFakeCluster(t, clitest.Cart+tc.manifests)
				w.Forbid(tc.forbidden...)
				if !tc.writtenAt.IsZero() {
					c := w.Canary("cart")
					at := metav1.NewTime(tc.writtenAt)
					w.Change(c, func() {
						c.ManagedFields = []metav1.ManagedFieldsEntry{{
							Manager: "serin", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "flagger.app/v1beta1", Time: &at,
							Subresource: "status", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:phase":{}}}`),
						}}
					})
				}
				if _, got := observeCart(t, w); got.State != tc.want {
					t.Errorf("got %+v, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestTheFlagsOfTheControllerSetTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := strings.Replace(clitest.Cart, "interval: 30s", "interval: 2s", 1)
		for _, tc := range []struct {
			name      string
			manifests string
			flags     []string
			want      time.Duration
		}{
			{"flags of the Deployment", short + clitest.SerinDeployment, nil, 2 * time.Second},
			{"flags that the Lease announces", short + serinLease("--min-analysis-interval=1s"), nil, 2 * time.Second},
			{"flags of the Serin of another namespace", short + serinLease("--min-analysis-interval=1s", "--namespace=kitchen"), nil, 10 * time.Second},
			{"flags that the user specified", short, []string{"-min-analysis-interval=3s"}, 3 * time.Second},
			{"minimum in the status", strings.Replace(short, "gates:", "gates:\n    - {name: window, verdict: pass, message: observed for 2s}", 1), nil, 2 * time.Second},
			{"gate in the status", strings.Replace(short, "gates:", "gates:\n    - {name: window, verdict: wait, opener: time, until: \"2000-01-01T00:00:02.000000Z\"}", 1), nil, 2 * time.Second},
			{"default", short, nil, 10 * time.Second},
		} {
			w := clitest.NewFakeCluster(t, tc.manifests)
			w.Session.ControllerFlags = tc.flags
			got, _ := observeCart(t, w)
			if length := got.Window.End.Sub(got.Window.Start); length != tc.want {
				t.Errorf("%s: got a window of %s, want %s", tc.name, length, tc.want)
			}
		}
	})
}

func TestErrorsHaveTheirKind(t *testing.T) {
	for _, tc := range []struct {
		name    string
		fail    error
		release string
		want    error
	}{
		{"no such release", nil, "basket", cluster.ErrNotFound},
		{"no such kind", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "flagger.app", Kind: "Canary"}}, "cart", cluster.ErrNotFound},
		{"no response", errors.New("dial tcp 127.0.0.1:6443: connect: connection refused"), "cart", cluster.ErrUnreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := clitest.NewFakeCluster(t, clitest.Cart)
			w.FailRequests(tc.fail)
			_, err := w.Session.Observe(t.Context(), cluster.Selection{Namespace: "shop", Names: []cluster.Name{{Name: tc.release}}})
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	w := clitest.NewFakeCluster(t, clitest.Cart)
	w.Forbid("Canary")
	if _, err := w.Session.Observe(t.Context(), cluster.Selection{}); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("without permission to list Canaries: got %v, want %v", err, cluster.ErrUnreachable)
	}
}
