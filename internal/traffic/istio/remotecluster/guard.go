package remotecluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/traffic"
)

// RequestTimeout is the timeout of one request to the cluster, and the interval without requests after one failed.
const RequestTimeout = 5 * time.Second

// Guard prevents a cluster that does not respond from blocking more than one reconciliation at a time: after a request
// without a response, all others fail at once, except for one in each RequestTimeout. Cached kinds can still be read.
type Guard struct {
	name     string
	clock    clock.PassiveClock
	onChange func(message string)

	mu sync.Mutex
	// cause is why the last request had no response; nil if it had one.
	cause error
	next  time.Time
	// cached are the kinds that were read once. For other kinds, only one request is sent at a time: discovery has no
	// deadline except for those of its own requests, which wait for each other.
	cached    sync.Map
	discovery chan struct{}
}

// NewGuard creates the guard of the cluster in the Secret with that name. onChange is called with a message when the cluster
// stops responding, and with an empty one when it responds again.
func NewGuard(name string, clk clock.PassiveClock, onChange func(message string)) *Guard {
	return &Guard{name: name, clock: clk, onChange: onChange, discovery: make(chan struct{}, 1)}
}

// Client returns a client of the cluster whose errors name the cluster: traffic.ErrUnreachable if it does not respond or
// refuses the controller, traffic.ErrNotInstalled if it does not know a kind. Other errors are unchanged.
func (g *Guard) Client(c client.Client) client.Client { return &guarded{Client: c, guard: g} }

// Reader returns such a client without a cache, which only reads.
func (g *Guard) Reader(r client.Reader) client.Reader { return guardedReader{Reader: r, guard: g} }

// send sends one request, unless the cluster is known not to respond.
func (g *Guard) send(ctx context.Context, request func(context.Context) error) error {
	if cause := g.reserve(); cause != nil {
		return g.unreachable(cause)
	}
	bounded, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	err := request(bounded)
	if err != nil && ctx.Err() != nil {
		return err // the caller has cancelled the request
	}
	return g.classify(err)
}

// reserve returns why no request may be sent now; nil if this caller may send one.
func (g *Guard) reserve() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if cause := g.recentCause(now); cause != nil {
		return cause
	}
	g.next = now.Add(2 * RequestTimeout) // until there is a response, only this caller tries
	return nil
}

// recentCause is why the last request had no response, until the next one may be sent.
func (g *Guard) recentCause(now time.Time) error {
	if now.Before(g.next) {
		return g.cause
	}
	return nil
}

// classify records whether the cluster responded, and returns the error for the caller.
func (g *Guard) classify(err error) error {
	var status apierrors.APIStatus
	responded := errors.As(err, &status)
	switch {
	case err == nil:
		g.record(nil)
		return nil
	case meta.IsNoMatchError(err):
		g.record(nil)
		return traffic.Refuse(traffic.ErrNotInstalled, "the cluster of Secret %s does not know Istio's objects in the requested version: install their CustomResourceDefinitions there, or correct -istio-api-version", g.name)
	case !responded:
		g.record(err)
		return g.unreachable(err)
	}
	g.record(nil)
	switch code := status.Status().Code; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return traffic.Refuse(traffic.ErrUnreachable, "the cluster of Secret %s, which has the Istio objects of Rollouts, refuses Serin: %s", g.name, status.Status().Message)
	default:
		return err
	}
}

func (g *Guard) unreachable(cause error) error {
	return traffic.Refuse(traffic.ErrUnreachable, "the cluster of Secret %s, which has the Istio objects of Rollouts, does not respond (%s): releases that need it wait until it does", g.name, Why(cause))
}

// record stores whether there was a response, and reports a change.
func (g *Guard) record(cause error) {
	g.mu.Lock()
	changed := (g.cause == nil) != (cause == nil)
	g.cause, g.next = cause, g.clock.Now().Add(RequestTimeout)
	g.mu.Unlock()
	switch {
	case changed && cause != nil:
		g.onChange(g.unreachable(cause).Error())
	case changed:
		g.onChange("")
	}
}

// Why is why a request had no response, or the message of the response, without the address, which comes from the Secret.
func Why(cause error) string {
	var status apierrors.APIStatus
	request, sent := errors.AsType[*url.Error](cause)
	name, unknown := errors.AsType[*net.DNSError](cause)
	operation, network := errors.AsType[*net.OpError](cause)
	slow, timed := errors.AsType[net.Error](cause)
	switch {
	case errors.Is(cause, context.DeadlineExceeded), timed && slow.Timeout():
		return "no answer within " + RequestTimeout.String()
	case errors.As(cause, &status):
		return status.Status().Message
	case unknown:
		return name.Err
	case network:
		return operation.Err.Error()
	case sent:
		return request.Err.Error()
	default:
		return "no connection"
	}
}

// guarded is a client whose requests are sent through a guard.
type guarded struct {
	client.Client
	guard *Guard
}

// Get implements client.Client. For a cached kind it never waits.
func (c *guarded) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	kind := object.GetObjectKind().GroupVersionKind()
	if c.guard.isCached(kind) {
		return c.Client.Get(ctx, key, object, options...)
	}
	end, err := c.guard.beginDiscovery(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = c.guard.send(ctx, func(ctx context.Context) error { return c.Client.Get(ctx, key, object, options...) })
	if err == nil || apierrors.IsNotFound(err) {
		c.guard.cached.Store(kind, true)
	}
	return err
}

// beginDiscovery waits until no other caller reads a kind for the first time. It returns at once if the cluster is known not
// to respond.
func (g *Guard) beginDiscovery(ctx context.Context) (end func(), err error) {
	g.mu.Lock()
	cause := g.recentCause(g.clock.Now())
	g.mu.Unlock()
	if cause != nil {
		return nil, g.unreachable(cause)
	}
	bounded, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	select {
	case g.discovery <- struct{}{}:
		return func() { <-g.discovery }, nil
	case <-bounded.Done():
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, g.unreachable(bounded.Err())
	}
}

func (g *Guard) isCached(kind schema.GroupVersionKind) bool {
	_, cached := g.cached.Load(kind)
	return cached
}

// List implements client.Client.
func (c *guarded) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.guard.send(ctx, func(ctx context.Context) error { return c.Client.List(ctx, list, options...) })
}

// Create implements client.Client.
func (c *guarded) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return c.guard.send(ctx, func(ctx context.Context) error { return c.Client.Create(ctx, object, options...) })
}

// Update implements client.Client.
func (c *guarded) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return c.guard.send(ctx, func(ctx context.Context) error { return c.Client.Update(ctx, object, options...) })
}

// Patch implements client.Client.
func (c *guarded) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.guard.send(ctx, func(ctx context.Context) error { return c.Client.Patch(ctx, object, patch, options...) })
}

// Delete implements client.Client.
func (c *guarded) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.guard.send(ctx, func(ctx context.Context) error { return c.Client.Delete(ctx, object, options...) })
}

type guardedReader struct {
	client.Reader
	guard *Guard
}

// Get implements client.Reader.
func (r guardedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return r.guard.send(ctx, func(ctx context.Context) error { return r.Reader.Get(ctx, key, object, options...) })
}

// Refusing returns the client of a cluster to which no requests can be sent, for the reason in message. Its errors are of
// that kind: traffic.ErrNotInstalled if the Secret is invalid, so that no objects have to be restored.
func Refusing(kind error, message string) client.Client {
	return refusingClient{err: traffic.Refuse(kind, "%s", message)}
}

type refusingClient struct {
	client.Client // nil: callers only read and patch
	err           error
}

func (c refusingClient) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return c.err
}

func (c refusingClient) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return c.err
}

func (c refusingClient) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return c.err
}
