package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	testingclock "k8s.io/utils/clock/testing"
)

const lease = 15 * time.Second

func TestFencePermitsWritesWhileTheLeaseIsValid(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		name    string
		renewed []time.Duration // after the start, when the renewals were sent
		at      time.Duration
		allowed bool
	}{
		{"never renewed", nil, 0, false},
		{"just acquired", []time.Duration{0}, 0, true},
		{"a moment before the end", []time.Duration{0}, lease - time.Nanosecond, true},
		{"at the end", []time.Duration{0}, lease, false},
		{"renewed", []time.Duration{0, 10 * time.Second}, lease, true},
		{"the answer to an older renewal arrives late", []time.Duration{10 * time.Second, 2 * time.Second}, 20 * time.Second, true},
		{"suspended", []time.Duration{0}, time.Hour, false},
		{"renewed after a suspension", []time.Duration{0, time.Hour}, time.Hour, true},
	} {
		clk := testingclock.NewFakePassiveClock(start.Add(test.at))
		f := New(clk, lease, "serin")
		for _, sent := range test.renewed {
			f.Renew(start.Add(sent))
		}
		if err := f.Check(); (err == nil) != test.allowed || err != nil && !errors.Is(err, ErrNotLeader) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestClientGoFindsTheTransportThatCancelsRequests(t *testing.T) {
	next := &http.Transport{}
	wrapper, ok := NewLeases(testingclock.NewFakeClock(time.Now()), lease, "serin").Transport(next).(utilnet.RoundTripperWrapper)
	if !ok || wrapper.WrappedRoundTripper() != next {
		t.Error("the transport does not return what it wraps")
	}
}

func TestAProcessWithoutLeaderElectionPermitsEverything(t *testing.T) {
	var l *Leases
	if err := l.Check(WithLease(t.Context(), "serin-shard-0")); err != nil {
		t.Error(err)
	}
	next := http.DefaultTransport
	if l.Transport(next) != next {
		t.Error("the transport is wrapped")
	}
}

// fakeServer answers every request with one status.
type fakeServer struct {
	status   int
	received []string
}

func (s *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.received = append(s.received, r.Method+" "+r.URL.Path)
	return &http.Response{StatusCode: s.status, Body: http.NoBody, Request: r}, nil
}

// leaseBody returns a Lease; an empty holder releases it.
func leaseBody(name, holder string) string {
	return fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},"spec":{"holderIdentity":%q}}`, name, holder)
}

func newRequest(ctx context.Context, t *testing.T, method, path, body string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, "https://cluster"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func TestTransportSendsNoWriteWithoutTheLease(t *testing.T) {
	const ownLease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/serin"
	clk := testingclock.NewFakeClock(time.Now())
	server := &fakeServer{status: http.StatusConflict}
	transport := NewLeases(clk, lease, "serin").Transport(server)
	send := func(method, path string) error {
		request := newRequest(t.Context(), t, method, path, leaseBody("serin", "a"))
		response, err := transport.RoundTrip(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	writes := []string{
		"PATCH /apis/networking.istio.io/v1/namespaces/shop/virtualservices/cart", "POST /api/v1/namespaces/shop/services",
		"DELETE /apis/apps/v1/namespaces/shop/replicasets/cart-1", "PATCH /apis/flagger.app/v1beta1/namespaces/shop/canaries/cart/status",
		"PUT /proxied/cluster/api/v1/namespaces/shop/configmaps/cart", "POST /api/v1/namespaces",
	}
	others := []string{
		"GET /api/v1/namespaces/shop/services", "POST /api/v1/namespaces/shop/events", "PATCH /apis/events.k8s.io/v1/namespaces/shop/events/a",
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "GET /version",
	}
	attempt := func(requests []string) (refused int) {
		for _, one := range requests {
			method, path, _ := strings.Cut(one, " ")
			if err := send(method, path); errors.Is(err, ErrNotLeader) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return refused
	}
	check := func(when string, wantRefused int) {
		t.Helper()
		server.received = nil
		if refused := attempt(writes) + attempt(others); refused != wantRefused || len(server.received) != len(writes)+len(others)-wantRefused {
			t.Errorf("%s: %d refused, want %d; received %v", when, refused, wantRefused, server.received)
		}
	}

	check("before the first renewal", len(writes))
	_ = send(http.MethodPut, ownLease)
	check("after a renewal that conflicted", len(writes))
	server.status = http.StatusOK
	_ = send(http.MethodGet, ownLease)
	check("after the Lease was read", len(writes))
	_ = send(http.MethodPut, ownLease)
	check("after a renewal", 0)
	clk.Step(lease)
	check("after the Lease has expired", len(writes))
	_ = send(http.MethodPost, strings.TrimSuffix(ownLease, "/serin"))
	check("after the Lease was created again", 0)
}

// The real client of the leader election writes the Lease, in the encoding that it prefers.
func TestNothingIsWrittenAfterTheLeaseIsGivenUp(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = w.Write(content)
	}))
	t.Cleanup(api.Close)
	for _, contentType := range []string{"", runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		clk := testingclock.NewFakeClock(time.Now())
		leases := NewLeases(clk, lease, "serin")
		f := leases.leader
		config := &rest.Config{Host: api.URL, ContentConfig: rest.ContentConfig{ContentType: contentType}}
		config.Wrap(leases.Transport)
		client, err := coordinationclient.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "serin", Name: "serin"}, Client: client}
		if err := lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "serin-1"}); err != nil {
			t.Fatal(err)
		}
		if err := f.Check(); err != nil {
			t.Errorf("content type %q: after the Lease was acquired: %v", contentType, err)
		}
		sent := clk.Now()
		clk.Step(time.Second)
		if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
			t.Fatal(err)
		}
		f.Renew(sent) // a renewal that was sent before is answered later
		if err := f.Check(); !errors.Is(err, ErrNotLeader) {
			t.Errorf("content type %q: after the Lease was given up: %v", contentType, err)
		}
	}
}

// TestNoBodyIsSentAfterTheLeaseEnded: a suspended process continues with requests that were already permitted, and that wait for
// a connection. Both versions of HTTP send the header of such a request, and end it without its body.
func TestNoBodyIsSentAfterTheLeaseEnded(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		received := make(chan error, 2) // of both requests, so that no handler waits
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				err = fmt.Errorf("%s with the body %q", r.Proto, body)
			} else {
				err = nil
			}
			received <- err
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		t.Cleanup(server.Close)

		clk := testingclock.NewFakeClock(time.Now())
		leases := NewLeases(clk, lease, "serin")
		f := leases.leader
		f.Renew(clk.Now())
		transport := leases.Transport(suspended{clk, server.Client().Transport})
		for _, resend := range []bool{false, true} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL+"/api/v1/namespaces/shop/services/cart", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			if resend { // as a transport does after it lost the connection
				request = leases.fenceBody(request)
				if request.Body, err = request.GetBody(); err != nil {
					t.Fatal(err)
				}
			}
			f.Renew(clk.Now())
			response, err := transport.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if !errors.Is(err, ErrNotLeader) {
				t.Errorf("HTTP/2 %t, sent again %t: got error %v", http2, resend, err)
			}
		}
		server.Close() // after the end of its handlers
		close(received)
		for err := range received { // none if the connections never carried a header
			if err != nil {
				t.Errorf("HTTP/2 %t: the server received %v", http2, err)
			}
		}
	}
}

// suspended is a transport in which the process is suspended for longer than the Lease.
type suspended struct {
	clock *testingclock.FakeClock
	next  http.RoundTripper
}

func (s suspended) RoundTrip(request *http.Request) (*http.Response, error) {
	s.clock.Step(2 * lease)
	return s.next.RoundTrip(request)
}

// TestTransportReleasesOnlyAValidLease: a process that was suspended released the Lease of its successor, which continued to
// write while a third process acquired it.
func TestTransportReleasesOnlyAValidLease(t *testing.T) {
	const ownLease = "https://cluster/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/serin"
	clk := testingclock.NewFakeClock(time.Now())
	server := &fakeServer{status: http.StatusOK}
	leases := NewLeases(clk, lease, "serin")
	fence := leases.leader
	send := func(holder string) error {
		body := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","spec":{` + holder + `"leaseDurationSeconds":1}}`
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, ownLease, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := leases.Transport(server).RoundTrip(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	check := func(what string, err, wantErr error, open bool, requests int) {
		t.Helper()
		if !errors.Is(err, wantErr) || (fence.Check() == nil) != open || len(server.received) != requests {
			t.Errorf("%s: %v, fence %v, received %v", what, err, fence.Check(), server.received)
		}
	}
	const renewal, release = `"holderIdentity":"a",`, ""

	check("renewal", send(renewal), nil, true, 1)
	server.status = http.StatusConflict
	check("release that conflicts", send(release), nil, true, 2)
	check("renewal of a Lease that another process has written", send(renewal), nil, false, 3)
	server.status = http.StatusOK
	check("renewal after that", send(renewal), nil, true, 4)
	check("release", send(release), nil, false, 5)
	check("second release", send(release), ErrNotLeader, false, 5)
	check("acquisition", send(renewal), nil, true, 6)
	clk.Step(lease)
	check("release of an expired Lease", send(release), ErrNotLeader, false, 6)
}
