// Package fence prevents a process that no longer holds the leader Lease from writing to the cluster.
//
// Leader election alone does not: a process that was suspended (a stopped container, a live migration, a long page-in) for
// longer than its Lease continues where it stopped, and its workers write what they decided before another process took
// over, until the election notices the loss. The resourceVersion of a write protects the object that the decision was based
// on, but not a route that was reset in the meantime.
//
// It must not know what is written, why, or which objects belong together. It cannot stop a request that was sent before the
// process was suspended: such a request fails by its resourceVersion, or not at all.
package fence

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
)

// ErrNotLeader is why a write was not sent.
var ErrNotLeader = errors.New("this process does not hold the leader Lease")

// Fence permits writes while the Lease is valid: for the duration of the Lease after the last successful renewal was sent.
// A candidate takes over no earlier, because it counts from when it observed that renewal. A nil Fence permits everything.
type Fence struct {
	clock    clock.PassiveClock
	duration time.Duration

	mu      sync.Mutex
	renewed time.Time
	closed  bool
}

// New returns a closed Fence: it permits nothing until the first renewal. The duration is that of the Lease.
func New(clk clock.PassiveClock, duration time.Duration) *Fence {
	return &Fence{clock: clk, duration: duration}
}

// Renew records that the Lease was acquired or renewed by a request that was sent at that time.
func (f *Fence) Renew(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sent.After(f.renewed) {
		f.renewed = sent
	}
}

// Close permits nothing from now on, because the process gives the Lease up.
func (f *Fence) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// Check returns ErrNotLeader, with the age of the last renewal, if a write must not be sent now.
func (f *Fence) Check() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	renewed, closed := f.renewed, f.closed
	f.mu.Unlock()
	if closed || renewed.IsZero() {
		return ErrNotLeader
	}
	now := f.clock.Now()
	// The monotonic clock stops while the machine is suspended, and the wall clock may be set: the longer of both counts. At
	// worst, a wall clock that was set forward delays a write until the next renewal.
	if age := max(now.Sub(renewed), now.Round(0).Sub(renewed.Round(0))); age >= f.duration {
		return fmt.Errorf("%w: it was last renewed %s ago, and is valid for %s", ErrNotLeader, age.Truncate(time.Millisecond), f.duration)
	}
	return nil
}

// Transport wraps the transport of a client of the API server: it observes renewals of the Lease, and fails writes with
// ErrNotLeader while the fence is closed. Reads pass, and so do events, which report what was already written, and reviews
// of permissions, which store nothing.
func (f *Fence) Transport(next http.RoundTripper) http.RoundTripper {
	if f == nil {
		return next
	}
	return &transport{fence: f, next: next}
}

type transport struct {
	fence *Fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	resource := resourceOf(request.URL.Path)
	if resource == "leases" {
		return t.renew(request)
	}
	if isWrite(request.Method) && resource != "events" && !strings.HasSuffix(resource, "reviews") {
		if err := t.fence.Check(); err != nil {
			if request.Body != nil { // a transport closes it in any case
				_ = request.Body.Close()
			}
			return nil, err
		}
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper returns the wrapped transport, through which client-go cancels requests.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// renew sends a request for a Lease. The process writes no Lease but its own. A process that ends writes one without a holder, so
// that its successor need not wait: a worker that has not ended yet must not write afterwards.
func (t *transport) renew(request *http.Request) (*http.Response, error) {
	sent := t.fence.clock.Now()
	if isWrite(request.Method) && releasesLease(request) {
		t.fence.Close()
	}
	response, err := t.next.RoundTrip(request)
	if err == nil && isWrite(request.Method) && response.StatusCode/100 == 2 {
		t.fence.Renew(sent)
	}
	return response, err
}

// releasesLease reports whether a request writes a Lease without a holder.
func releasesLease(request *http.Request) bool {
	if request.GetBody == nil {
		return false
	}
	body, err := request.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil {
		return false
	}
	lease := &coordinationv1.Lease{} // encoded as JSON or protobuf, as the client prefers
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(content, nil, lease); err != nil {
		return false
	}
	return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == ""
}

func isWrite(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// resourceOf returns the resource in the path of a request to the API server, for example "leases" in
// /apis/coordination.k8s.io/v1/namespaces/shop/leases/serin; empty if the path has none.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	// The address of the API server may itself have a path, as behind a proxy.
	for len(parts) > 0 && parts[0] != "api" && parts[0] != "apis" {
		parts = parts[1:]
	}
	versionAt := 1 // api/v1
	if len(parts) > 0 && parts[0] == "apis" {
		versionAt = 2 // apis/GROUP/VERSION
	}
	if len(parts) <= versionAt+1 {
		return ""
	}
	parts = parts[versionAt+1:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		return parts[2]
	}
	return parts[0]
}
