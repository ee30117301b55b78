package remotecluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio/remotecluster"
)

// remoteCluster is a client of a cluster that returns configured responses and counts requests.
type remoteCluster struct {
	client.Client
	answer   func(ctx context.Context) error
	requests int
}

func (c *remoteCluster) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	c.requests++
	return c.answer(ctx)
}

func (c *remoteCluster) Patch(ctx context.Context, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
	c.requests++
	return c.answer(ctx)
}

func (c *remoteCluster) respondsWith(err error) {
	c.answer = func(context.Context) error { return err }
}

var (
	virtualServices = schema.GroupResource{Group: remotecluster.Group, Resource: "virtualservices"}
	refused         = &url.Error{Op: "Get", URL: "https://h1dden.example.com", Err: &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 9, 8, 7)}, Err: syscall.ECONNREFUSED}}
)

func virtualService() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: remotecluster.Group, Version: "v1", Kind: "VirtualService"})
	return object
}

func get(ctx context.Context, c client.Client) error {
	return c.Get(ctx, client.ObjectKey{Name: "cart"}, virtualService())
}

func patch(ctx context.Context, c client.Client) error {
	return c.Patch(ctx, virtualService(), client.RawPatch("", nil))
}

// TestOneRequestTestsAClusterThatDoesNotRespond: while one request is sent to a cluster that does not respond, the others fail at
// once.
func TestOneRequestTestsAClusterThatDoesNotRespond(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var messages []string
	cluster := &remoteCluster{}
	c := remotecluster.NewGuard("mesh.istio-system", clk, func(message string) { messages = append(messages, message) }).Client(cluster)
	wantRequests := func(requests int) {
		t.Helper()
		if cluster.requests != requests {
			t.Errorf("%d requests, want %d", cluster.requests, requests)
		}
	}
	cluster.respondsWith(refused)
	for range 3 {
		err := get(t.Context(), c)
		if !errors.Is(err, traffic.ErrUnreachable) || !strings.Contains(fmt.Sprint(err), "Secret mesh.istio-system") || !strings.Contains(err.Error(), "(connection refused)") ||
			strings.Contains(err.Error(), "h1dden") || strings.Contains(err.Error(), "10.9.8.7") {
			t.Errorf("got %v", err)
		}
	}
	wantRequests(1)
	clk.SetTime(clk.Now().Add(remotecluster.RequestTimeout))
	cluster.answer = func(ctx context.Context) error { // a second request during the first
		if err := patch(ctx, c); !errors.Is(err, traffic.ErrUnreachable) {
			t.Errorf("a second request: %v", err)
		}
		return refused
	}
	_ = get(t.Context(), c)
	wantRequests(2)
	clk.SetTime(clk.Now().Add(remotecluster.RequestTimeout))
	cluster.respondsWith(apierrors.NewNotFound(virtualServices, "cart"))
	for range 2 {
		if err := get(t.Context(), c); !apierrors.IsNotFound(err) {
			t.Errorf("a response: %v", err)
		}
	}
	wantRequests(4)
	if len(messages) != 2 || messages[0] == "" || messages[1] != "" {
		t.Errorf("got the messages %q, want one when it stops responding and one when it responds again", messages)
	}
}

// TestCachedKindsAreReadWhileTheClusterDoesNotRespond: reads are served from the cache; only writes fail.
func TestCachedKindsAreReadWhileTheClusterDoesNotRespond(t *testing.T) {
	cluster := &remoteCluster{}
	c := remotecluster.NewGuard("mesh", clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), func(string) {}).Client(cluster)
	cluster.respondsWith(nil)
	if err := get(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	cluster.respondsWith(refused)
	if err := patch(t.Context(), c); !errors.Is(err, traffic.ErrUnreachable) {
		t.Errorf("a write: %v", err)
	}
	cluster.respondsWith(nil)
	if err := get(t.Context(), c); err != nil {
		t.Errorf("a read of a cached kind: %v", err)
	}
	if err := patch(t.Context(), c); !errors.Is(err, traffic.ErrUnreachable) {
		t.Errorf("a write immediately after one that failed: %v", err)
	}
}

// TestARequestWithoutAResponseEnds after the timeout of the guard. A request whose caller cancels it does not count as a
// failure of the cluster.
func TestARequestWithoutAResponseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &remoteCluster{answer: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		c := remotecluster.NewGuard("mesh", clock.RealClock{}, func(string) {}).Client(cluster)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := get(cancelled, c); !errors.Is(err, context.Canceled) || errors.Is(err, traffic.ErrUnreachable) {
			t.Errorf("a cancelled request: %v", err)
		}
		began := time.Now()
		if err := get(t.Context(), c); !errors.Is(err, traffic.ErrUnreachable) || !strings.Contains(err.Error(), "no answer within 5s") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != remotecluster.RequestTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// TestManyCallersWaitForOneFirstResponse: no request waits longer than the guard allows, although requests have no deadline of their
// own.
func TestManyCallersWaitForOneFirstResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &remoteCluster{answer: func(context.Context) error { <-time.After(remotecluster.RequestTimeout); return refused }}
		c := remotecluster.NewGuard("mesh", clock.RealClock{}, func(string) {}).Client(cluster)
		began := time.Now()
		var callers sync.WaitGroup
		for i := range 10 {
			callers.Go(func() {
				<-time.After(time.Duration(i) * time.Millisecond)
				if err := get(t.Context(), c); !errors.Is(err, traffic.ErrUnreachable) {
					t.Errorf("got %v", err)
				}
			})
		}
		callers.Wait()
		if took := time.Since(began); took > remotecluster.RequestTimeout+10*time.Millisecond || cluster.requests != 1 {
			t.Errorf("%d requests took %s", cluster.requests, took)
		}
		cluster.respondsWith(nil)
		<-time.After(remotecluster.RequestTimeout)
		if err := get(t.Context(), c); err != nil {
			t.Errorf("after it responds again: %v", err)
		}
	})
}

// TestResponsesAreClassified: callers wait only for a cluster that refuses Serin altogether.
func TestResponsesAreClassified(t *testing.T) {
	for _, tc := range []struct {
		answer error
		want   error
	}{
		{apierrors.NewUnauthorized("who are you"), traffic.ErrUnreachable},
		{apierrors.NewForbidden(virtualServices, "cart", errors.New("no")), traffic.ErrUnreachable},
		{apierrors.NewInternalError(errors.New("etcd")), traffic.ErrUnreachable},
		{fmt.Errorf("requests: %w", apierrors.NewServiceUnavailable("later")), traffic.ErrUnreachable},
		{&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: remotecluster.Group, Kind: "VirtualService"}}, traffic.ErrNotInstalled},
		{apierrors.NewConflict(virtualServices, "cart", errors.New("changed")), nil},
		{apierrors.NewBadRequest("that"), nil},
		{context.DeadlineExceeded, traffic.ErrUnreachable},
		{&net.DNSError{Err: "no such host", Name: "h1dden"}, traffic.ErrUnreachable},
		{errors.New("h1dden"), traffic.ErrUnreachable},
	} {
		cluster := &remoteCluster{}
		cluster.respondsWith(tc.answer)
		err := patch(t.Context(), remotecluster.NewGuard("mesh", clock.RealClock{}, func(string) {}).Client(cluster))
		kinds := []error{traffic.ErrUnreachable, traffic.ErrNotInstalled}
		is := slices.IndexFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
		if tc.want == nil && (is >= 0 || !errors.Is(err, tc.answer)) || tc.want != nil && !errors.Is(err, tc.want) || strings.Contains(err.Error(), "h1dden") {
			t.Errorf("%v becomes %v", tc.answer, err)
		}
	}
}

func TestARefusingClientReturnsTheReason(t *testing.T) {
	c := remotecluster.Refusing(traffic.ErrNotInstalled, "Secret mesh is none")
	for _, err := range []error{get(t.Context(), c), patch(t.Context(), c), c.List(t.Context(), &unstructured.UnstructuredList{})} {
		if !errors.Is(err, traffic.ErrNotInstalled) || err.Error() != "Secret mesh is none" {
			t.Errorf("got %v", err)
		}
	}
}
