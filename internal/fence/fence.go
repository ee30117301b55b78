// Package fence prevents a process that no longer holds the leader Lease from writing to the cluster.
//
// Leader election alone does not: a process that was suspended (a stopped container, a live migration, a long page-in) for
// longer than its Lease continues where it stopped, and its workers write what they decided before another process took
// over, until the election notices the loss. The resourceVersion of a write protects the object that the decision was based
// on, but not a route that was reset in the meantime.
//
// It must not know what is written, why, or which objects belong together. It cannot stop a request whose body was handed to the
// connection before the process was suspended: such a request fails by its resourceVersion, or not at all.
package fence

import (
	"bytes"
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
	// closed is when the Lease was released or found lost. A renewal that was sent before, and is answered later, does not count.
	closed time.Time
}

// New returns a closed Fence: it permits nothing until the first renewal. The duration is that of the Lease.
func New(clk clock.PassiveClock, duration time.Duration) *Fence {
	return &Fence{clock: clk, duration: duration}
}

// Renew records that the Lease was acquired or renewed by a request that was sent at that time.
func (f *Fence) Renew(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sent.After(f.renewed) && !sent.Before(f.closed) {
		f.renewed = sent
	}
}

// close closes the Fence until the next renewal, and returns the time of the last one.
func (f *Fence) close() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	renewed := f.renewed
	f.renewed, f.closed = time.Time{}, f.clock.Now()
	return renewed
}

// reopen undoes close. renewed is the time of the last renewal before it.
func (f *Fence) reopen(renewed time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = time.Time{}
	if renewed.After(f.renewed) {
		f.renewed = renewed
	}
}

// Check returns ErrNotLeader, with the age of the last renewal, if a write must not be sent now.
func (f *Fence) Check() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	renewed := f.renewed
	f.mu.Unlock()
	if renewed.IsZero() {
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

// Transport wraps the transport of a client of the API server: it observes renewals and releases of the Lease, and fails
// writes with ErrNotLeader while the fence is closed. Reads pass, and so do events, which report what was already written, and
// reviews of permissions, which store nothing.
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

// WrappedRoundTripper returns the wrapped transport. Without it, client-go logs that it cannot cancel a request.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	resource := resourceOf(request.URL.Path)
	if resource == "leases" && isWrite(request.Method) {
		return t.writeLease(request)
	}
	if isWrite(request.Method) && resource != "events" && !strings.HasSuffix(resource, "reviews") {
		if err := t.fence.Check(); err != nil {
			if request.Body != nil { // a transport closes it in any case
				_ = request.Body.Close()
			}
			return nil, err
		}
		request = t.fence.fenceBody(request)
	}
	return t.next.RoundTrip(request)
}

// fenceBody returns a request whose body cannot be read while the fence is closed. Between the check in RoundTrip and the
// connection, a request waits for a connection or for the requests before it, and the process may be suspended there. A request
// without its body is not executed.
func (f *Fence) fenceBody(request *http.Request) *http.Request {
	if request.Body == nil || request.Body == http.NoBody {
		return request
	}
	fenced := request.WithContext(request.Context())
	fenced.Body = fencedBody{request.Body, f}
	if request.GetBody != nil { // a transport sends a request again whose connection was lost
		fenced.GetBody = func() (io.ReadCloser, error) {
			body, err := request.GetBody()
			if err != nil {
				return nil, err
			}
			return fencedBody{body, f}, nil
		}
	}
	return fenced
}

// fencedBody is the body of a write.
type fencedBody struct {
	io.ReadCloser
	fence *Fence
}

// Read implements io.Reader.
func (b fencedBody) Read(p []byte) (int, error) {
	if err := b.fence.Check(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// writeLease sends a Lease. The process writes no Lease but its own.
func (t *transport) writeLease(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		body, err := io.ReadAll(request.Body)
		_ = request.Body.Close() // a transport closes it in any case
		if err != nil {
			return nil, err
		}
		request = request.Clone(request.Context())
		request.Body = io.NopCloser(bytes.NewReader(body))
		if isRelease(body) {
			return t.release(request)
		}
	}
	sent := t.fence.clock.Now()
	response, err := t.next.RoundTrip(request)
	switch {
	case err != nil:
	case response.StatusCode/100 == 2:
		t.fence.Renew(sent)
	case response.StatusCode == http.StatusConflict || response.StatusCode == http.StatusNotFound:
		// The Lease was deleted or written by another process. The election tries to renew it until its deadline all the same.
		// If the process still holds the Lease, the next renewal succeeds and permits writes again.
		t.fence.close()
	}
	return response, err
}

// release sends the release of the Lease, unless it has expired: the election releases the Lease that is stored, even if that is
// the one of its successor (client-go 0.37). The fence is closed first, because the election also releases a Lease that it could
// not renew in time while the workers continue, and another process may acquire it immediately.
func (t *transport) release(request *http.Request) (*http.Response, error) {
	if err := t.fence.Check(); err != nil {
		return nil, err
	}
	renewed := t.fence.close()
	response, err := t.next.RoundTrip(request)
	if err == nil && response.StatusCode/100 != 2 {
		t.fence.reopen(renewed) // the Lease was not released, and a conflict is retried
	}
	return response, err
}

// isRelease reports whether the body of a request is a Lease without a holder.
func isRelease(body []byte) bool {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	lease, ok := object.(*coordinationv1.Lease)
	return err == nil && ok && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "")
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
