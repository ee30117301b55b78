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
	answer func(ctx context.Context) error
	asked  int
}

func (c *remoteCluster) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	c.asked++
	return c.answer(ctx)
}

func (c *remoteCluster) Patch(ctx context.Context, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
	c.asked++
	return c.answer(ctx)
}

func (c *remoteCluster) says(err error) { c.answer = func(context.Context) error { return err } }

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

// TestOneAsksWhetherASilentClusterAnswers: while one request is sent to a cluster that does not respond, the others fail at
// once.
func TestOneAsksWhetherASilentClusterAnswers(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var heard []string
	cluster := &remoteCluster{}
	c := remotecluster.NewGuard("mesh.istio-system", clk, func(sentence string) { heard = append(heard, sentence) }).Client(cluster)
	wants := func(asked int) {
		t.Helper()
		if cluster.asked != asked {
			t.Errorf("asked %d times, want %d", cluster.asked, asked)
		}
	}
	cluster.says(refused)
	for range 3 {
		err := get(t.Context(), c)
		if !errors.Is(err, traffic.ErrUnreachable) || !strings.Contains(fmt.Sprint(err), "Secret mesh.istio-system") || !strings.Contains(err.Error(), "(connection refused)") ||
			strings.Contains(err.Error(), "h1dden") || strings.Contains(err.Error(), "10.9.8.7") {
			t.Errorf("it says %v", err)
		}
	}
	wants(1)
	clk.SetTime(clk.Now().Add(remotecluster.RequestTimeout))
	cluster.answer = func(ctx context.Context) error { // while one asks, another comes
		if err := patch(ctx, c); !errors.Is(err, traffic.ErrUnreachable) {
			t.Errorf("beside the one who asks: %v", err)
		}
		return refused
	}
	_ = get(t.Context(), c)
	wants(2)
	clk.SetTime(clk.Now().Add(remotecluster.RequestTimeout))
	cluster.says(apierrors.NewNotFound(virtualServices, "cart"))
	for range 2 {
		if err := get(t.Context(), c); !apierrors.IsNotFound(err) {
			t.Errorf("answered: %v", err)
		}
	}
	wants(4)
	if len(heard) != 2 || heard[0] == "" || heard[1] != "" {
		t.Errorf("heard %q, want once that it is silent and once that it is not", heard)
	}
}

// TestWhatWasShownIsReadWhileTheClusterIsSilent: the cache has it; only writes end.
func TestWhatWasShownIsReadWhileTheClusterIsSilent(t *testing.T) {
	cluster := &remoteCluster{}
	c := remotecluster.NewGuard("mesh", clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), func(string) {}).Client(cluster)
	cluster.says(nil)
	if err := get(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	cluster.says(refused)
	if err := patch(t.Context(), c); !errors.Is(err, traffic.ErrUnreachable) {
		t.Errorf("a write: %v", err)
	}
	cluster.says(nil)
	if err := get(t.Context(), c); err != nil {
		t.Errorf("a read of what the cache has: %v", err)
	}
	if err := patch(t.Context(), c); !errors.Is(err, traffic.ErrUnreachable) {
		t.Errorf("a write right after one that failed: %v", err)
	}
}

// TestARequestThatIsNotAnsweredEnds after the timeout of the guard. A request whose caller cancels it does not count as a
// failure of the cluster.
func TestARequestThatIsNotAnsweredEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &remoteCluster{answer: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		c := remotecluster.NewGuard("mesh", clock.RealClock{}, func(string) {}).Client(cluster)
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := get(gone, c); !errors.Is(err, context.Canceled) || errors.Is(err, traffic.ErrUnreachable) {
			t.Errorf("who went away is told %v", err)
		}
		began := time.Now()
		if err := get(t.Context(), c); !errors.Is(err, traffic.ErrUnreachable) || !strings.Contains(err.Error(), "no answer within 5s") {
			t.Errorf("it says %v", err)
		}
		if took := time.Since(began); took != remotecluster.RequestTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// TestManyWaitForOneFirstAnswer: no request waits longer than the guard allows, although requests have no deadline of their
// own.
func TestManyWaitForOneFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &remoteCluster{answer: func(context.Context) error { <-time.After(remotecluster.RequestTimeout); return refused }}
		c := remotecluster.NewGuard("mesh", clock.RealClock{}, func(string) {}).Client(cluster)
		began := time.Now()
		var passes sync.WaitGroup
		for i := range 10 {
			passes.Go(func() {
				<-time.After(time.Duration(i) * time.Millisecond)
				if err := get(t.Context(), c); !errors.Is(err, traffic.ErrUnreachable) {
					t.Errorf("it says %v", err)
				}
			})
		}
		passes.Wait()
		if took := time.Since(began); took > remotecluster.RequestTimeout+10*time.Millisecond || cluster.asked != 1 {
			t.Errorf("%d requests took %s", cluster.asked, took)
		}
		cluster.says(nil)
		<-time.After(remotecluster.RequestTimeout)
		if err := get(t.Context(), c); err != nil {
			t.Errorf("when it is back: %v", err)
		}
	})
}

// TestAnAnswerIsToldAsWhatItIs: only who refuses Serin altogether is waited for.
func TestAnAnswerIsToldAsWhatItIs(t *testing.T) {
	for _, tc := range []struct {
		answer error
		want   error
	}{
		{apierrors.NewUnauthorized("who are you"), traffic.ErrUnreachable},
		{apierrors.NewForbidden(virtualServices, "cart", errors.New("no")), traffic.ErrUnreachable},
		{apierrors.NewInternalError(errors.New("etcd")), traffic.ErrUnreachable},
		{fmt.Errorf("asked: %w", apierrors.NewServiceUnavailable("later")), traffic.ErrUnreachable},
		{&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: remotecluster.Group, Kind: "VirtualService"}}, traffic.ErrNotInstalled},
		{apierrors.NewConflict(virtualServices, "cart", errors.New("changed")), nil},
		{apierrors.NewBadRequest("that"), nil},
		{context.DeadlineExceeded, traffic.ErrUnreachable},
		{&net.DNSError{Err: "no such host", Name: "h1dden"}, traffic.ErrUnreachable},
		{errors.New("h1dden"), traffic.ErrUnreachable},
	} {
		cluster := &remoteCluster{}
		cluster.says(tc.answer)
		err := patch(t.Context(), remotecluster.NewGuard("mesh", clock.RealClock{}, func(string) {}).Client(cluster))
		kinds := []error{traffic.ErrUnreachable, traffic.ErrNotInstalled}
		is := slices.IndexFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
		if tc.want == nil && (is >= 0 || !errors.Is(err, tc.answer)) || tc.want != nil && !errors.Is(err, tc.want) || strings.Contains(err.Error(), "h1dden") {
			t.Errorf("%v becomes %v", tc.answer, err)
		}
	}
}

func TestARefusingClientSaysWhy(t *testing.T) {
	c := remotecluster.Refusing(traffic.ErrNotInstalled, "Secret mesh is none")
	for _, err := range []error{get(t.Context(), c), patch(t.Context(), c), c.List(t.Context(), &unstructured.UnstructuredList{})} {
		if !errors.Is(err, traffic.ErrNotInstalled) || err.Error() != "Secret mesh is none" {
			t.Errorf("it says %v", err)
		}
	}
}
