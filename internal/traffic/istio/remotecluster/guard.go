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

// RequestTimeout is the limit for one request to the cluster, and the interval without requests after one was not answered.
const RequestTimeout = 5 * time.Second

// Guard prevents a cluster that does not answer from blocking more than one reconciliation at a time: after a request that was
// not answered, all others fail at once, except for one in each RequestTimeout. Kinds that are cached can still be read.
type Guard struct {
	name     string
	clock    clock.PassiveClock
	onChange func(message string)

	mu sync.Mutex
	// cause is why the last request was not answered; nil: it was.
	cause error
	next  time.Time
	// cached are the kinds that were read once. For others, there is one request at a time: discovery has no deadline except
	// that of its own requests, and those wait for each other.
	cached    sync.Map
	discovery chan struct{}
}

// NewGuard creates the guard of the cluster in the Secret with that name. onChange is called with a message when the cluster
// stops answering, and with an empty one when it answers again.
func NewGuard(name string, clk clock.PassiveClock, onChange func(message string)) *Guard {
	return &Guard{name: name, clock: clk, onChange: onChange, discovery: make(chan struct{}, 1)}
}

// Client is a client of the cluster whose errors name the cluster: traffic.ErrUnreachable if it does not answer or refuses to,
// traffic.ErrNotInstalled if it does not know a kind. Other errors are unchanged.
func (g *Guard) Client(c client.Client) client.Client { return &guarded{Client: c, guard: g} }

// Reader is the same for a client that only reads, without a cache.
func (g *Guard) Reader(r client.Reader) client.Reader { return guardedReader{Reader: r, guard: g} }

// send sends one request, unless the cluster is known not to answer.
func (g *Guard) send(ctx context.Context, request func(context.Context) error) error {
	if cause := g.reserve(); cause != nil {
		return g.unreachable(cause)
	}
	bounded, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	err := request(bounded)
	if err != nil && ctx.Err() != nil {
		return err // the caller has gone
	}
	return g.classify(err)
}

// reserve returns why no request is sent now; nil: this caller may send one.
func (g *Guard) reserve() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if cause := g.recentCause(now); cause != nil {
		return cause
	}
	g.next = now.Add(2 * RequestTimeout) // while it does not answer, only this caller tries
	return nil
}

// recentCause is why the last request was not answered, until the next one may be sent.
func (g *Guard) recentCause(now time.Time) error {
	if now.Before(g.next) {
		return g.cause
	}
	return nil
}

// classify records whether the cluster has answered, and returns the error for the caller.
func (g *Guard) classify(err error) error {
	var status apierrors.APIStatus
	answered := errors.As(err, &status)
	switch {
	case err == nil:
		g.record(nil)
		return nil
	case meta.IsNoMatchError(err):
		g.record(nil)
		return traffic.Refuse(traffic.ErrNotInstalled, "the cluster of Secret %s does not know Istio's objects in the version that is asked for: install their definitions there, or correct -istio-api-version", g.name)
	case !answered:
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
	return traffic.Refuse(traffic.ErrUnreachable, "the cluster of Secret %s, which has the Istio objects of Rollouts, does not answer (%s): nothing that needs it moves until it does", g.name, Why(cause))
}

// record stores whether there was an answer, and reports a change.
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

// Why is why a request was not answered, or the message of the answer, without the address, which is from the Secret.
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

// beginDiscovery waits until no other caller reads a kind for the first time. It returns at once if the cluster is known not to
// answer.
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

// Refusing is the client of a cluster that requests cannot be sent to, for the reason in message. Its errors are of that kind:
// traffic.ErrNotInstalled if the Secret is invalid, so that there are no objects that would have to be restored.
func Refusing(kind error, message string) client.Client {
	return refusing{err: traffic.Refuse(kind, "%s", message)}
}

type refusing struct {
	client.Client // nil: callers only read and patch
	err           error
}

func (c refusing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return c.err
}

func (c refusing) List(context.Context, client.ObjectList, ...client.ListOption) error { return c.err }

func (c refusing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return c.err
}
