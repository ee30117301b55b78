package metric

import (
	"context"
	"net/http"
	"time"

	"github.com/serin-dev/serin/internal/fairshare"
	"github.com/serin-dev/serin/internal/outbound"
)

// The numbers of measurements whose responses are decoded at the same time. A hostile response needs forty times its length in
// memory when it is decoded, and one namespace may receive 192 responses at once.
const (
	maxAnalysisDecoders = 4
	maxCanaryDecoders   = 2
)

// The slots of the process. Those of Canaries are separate, because AnalysisRuns evaluate conditions in theirs.
var (
	analysisDecoders = fairshare.NewSemaphore(maxAnalysisDecoders)
	canaryDecoders   = fairshare.NewSemaphore(maxCanaryDecoders)
)

// decodingKey is the key of the decoding in a context.
type decodingKey struct{}

// decoding is the slot of one measurement, which sends one request at a time.
type decoding struct {
	slots     *fairshare.Semaphore
	namespace string
	release   func() // nil: the measurement has no slot
}

// LimitAnalysis returns the context of one measurement of an AnalysisRun in a namespace. The measurement waits for a slot after
// each response, and has it until its next request: decoded responses exist only in slots, and requests to hanging servers
// occupy none. Namespaces share the slots fairly. The returned function ends the measurement; its result may be used until then.
func LimitAnalysis(ctx context.Context, namespace string) (limited context.Context, end func()) {
	return limit(ctx, analysisDecoders, namespace)
}

// LimitCanary is LimitAnalysis for one measurement of a Canary.
func LimitCanary(ctx context.Context, namespace string) (limited context.Context, end func()) {
	return limit(ctx, canaryDecoders, namespace)
}

func limit(ctx context.Context, slots *fairshare.Semaphore, namespace string) (context.Context, func()) {
	d := &decoding{slots: slots, namespace: namespace}
	return context.WithValue(ctx, decodingKey{}, d), d.end
}

// AcquireSlot waits until the measurement of a context has a slot, or returns the cause for which the context ended. Fetch calls
// it after each response.
func AcquireSlot(ctx context.Context) error {
	d, ok := ctx.Value(decodingKey{}).(*decoding)
	if !ok || d.release != nil {
		return nil
	}
	var err error
	d.release, err = d.slots.Acquire(ctx, d.namespace)
	return err
}

// ReleaseSlot releases the slot of the measurement of a context before it waits for something. Fetch calls it before each
// request.
func ReleaseSlot(ctx context.Context) {
	if d, ok := ctx.Value(decodingKey{}).(*decoding); ok {
		d.end()
	}
}

func (d *decoding) end() {
	if d.release != nil {
		d.release()
		d.release = nil
	}
}

// LibraryClient returns a client for a library of a service. As after Fetch, responses are decoded in a slot.
func LibraryClient(client *outbound.Client, limit int64, timeout time.Duration) *http.Client {
	c := client.HTTP(limit, timeout)
	c.Transport = slotTransport{next: c.Transport}
	return c
}

type slotTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. The response is already read.
func (t slotTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ReleaseSlot(r.Context())
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := AcquireSlot(r.Context()); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return response, nil
}
