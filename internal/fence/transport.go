package fence

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

type transport struct {
	leases *Leases
	next   http.RoundTripper
}

// WrappedRoundTripper returns the wrapped transport. Without it, client-go logs that it cannot cancel a request.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	resource, name := resourceOf(request.URL.Path)
	if resource == "leases" && isWrite(request.Method) {
		return t.writeLease(request, name)
	}
	if isWrite(request.Method) && resource != "events" && !strings.HasSuffix(resource, "reviews") {
		if err := t.leases.Check(request.Context()); err != nil {
			if request.Body != nil { // a transport closes it in any case
				_ = request.Body.Close()
			}
			return nil, err
		}
		request = t.leases.fenceBody(request)
	}
	return t.next.RoundTrip(request)
}

// fenceBody returns a request whose body cannot be read while a fence is closed. Between the check in RoundTrip and the
// connection, a request waits for a connection or for the requests before it, and the process may be suspended there. A request
// without its body is not executed.
func (l *Leases) fenceBody(request *http.Request) *http.Request {
	if request.Body == nil || request.Body == http.NoBody {
		return request
	}
	fenced := request.WithContext(request.Context())
	ctx := request.Context()
	permitted := func() error { return l.Check(ctx) }
	fenced.Body = fencedBody{request.Body, permitted}
	if request.GetBody != nil { // a transport sends a request again whose connection was lost
		fenced.GetBody = func() (io.ReadCloser, error) {
			body, err := request.GetBody()
			if err != nil {
				return nil, err
			}
			return fencedBody{body, permitted}, nil
		}
	}
	return fenced
}

// fencedBody is the body of a write.
type fencedBody struct {
	io.ReadCloser
	permitted func() error
}

// Read implements io.Reader.
func (b fencedBody) Read(p []byte) (int, error) {
	if err := b.permitted(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// writeLease sends a request that writes a Lease. The name is empty in a request that creates one. Of the Leases that have no
// fence, a process writes only its own, which states that it is a member: any process may write that.
func (t *transport) writeLease(request *http.Request, name string) (*http.Response, error) {
	var lease *coordinationv1.Lease // nil: the request does not contain the complete Lease
	if request.Body != nil {
		body, err := io.ReadAll(request.Body)
		_ = request.Body.Close() // a transport closes it in any case
		if err != nil {
			return nil, err
		}
		request = request.Clone(request.Context())
		request.Body = io.NopCloser(bytes.NewReader(body))
		lease = decodeLease(body)
	}
	if name == "" && lease != nil {
		name = lease.Name
	}
	fence := t.leases.fence(name)
	switch {
	case fence == nil:
		return t.next.RoundTrip(request)
	case lease != nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == ""):
		return t.release(request, fence)
	default:
		return t.renew(request, fence)
	}
}

// renew sends a request that acquires or renews a Lease.
func (t *transport) renew(request *http.Request, fence *Fence) (*http.Response, error) {
	sent := t.leases.clock.Now()
	response, err := t.next.RoundTrip(request)
	switch {
	case err != nil:
	case response.StatusCode/100 == 2:
		fence.Renew(sent)
	case response.StatusCode == http.StatusConflict || response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusUnprocessableEntity:
		// The Lease was deleted or written by another process; a patch that requires a holder is invalid then. The election tries to
		// renew it until its deadline all the same. If the process still holds the Lease, the next renewal succeeds and permits writes
		// again.
		fence.close()
	}
	return response, err
}

// release sends the release of a Lease, unless it has expired: the election releases the Lease that is stored, even if that is
// the one of its successor (client-go 0.37). The fence is closed first, because the election also releases a Lease that it could
// not renew in time while the workers continue, and another process may acquire it immediately.
func (t *transport) release(request *http.Request, fence *Fence) (*http.Response, error) {
	if err := fence.Check(); err != nil {
		return nil, err
	}
	renewed := fence.close()
	response, err := t.next.RoundTrip(request)
	if err == nil && response.StatusCode/100 != 2 {
		fence.reopen(renewed) // the Lease was not released, and a conflict is retried
	}
	return response, err
}

// decodeLease returns the Lease in the body of a request; nil: it contains none.
func decodeLease(body []byte) *coordinationv1.Lease {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	lease, ok := object.(*coordinationv1.Lease)
	if err != nil || !ok {
		return nil
	}
	return lease
}

func isWrite(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// resourceOf returns the resource and the name in the path of a request to the API server, for example "leases" and "serin" in
// /apis/coordination.k8s.io/v1/namespaces/shop/leases/serin; empty if the path has none.
func resourceOf(path string) (resource, name string) {
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
		return "", ""
	}
	parts = parts[versionAt+1:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) > 1 {
		name = parts[1]
	}
	return parts[0], name
}
