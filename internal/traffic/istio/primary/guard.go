package primary

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

// Patience is how long one request to the cluster may take, and how long nobody asks again after it did not answer.
const Patience = 5 * time.Second

// Guard keeps a cluster that does not answer from holding more than one pass at a time: after a request that was not
// answered all others end at once, but for one each Patience. What a cache has shown once can be read all the same.
type Guard struct {
	name  string
	clock clock.PassiveClock
	heard func(sentence string)

	mu sync.Mutex
	// cause is why the last request was not answered; nil: it was.
	cause error
	next  time.Time
	// shown are the kinds that the cluster has shown once. Of others one request is made at a time: to find out how a kind is
	// asked for knows no deadline but that of its own requests, and those wait for each other.
	shown sync.Map
	first chan struct{}
}

// NewGuard of the cluster that the Secret with that name leads to. heard is told when it stops to answer, with a sentence, and
// when it answers again, with an empty one.
func NewGuard(name string, clk clock.PassiveClock, heard func(sentence string)) *Guard {
	return &Guard{name: name, clock: clk, heard: heard, first: make(chan struct{}, 1)}
}

// Client is a client of the cluster whose errors say where they come from: traffic.ErrUnreachable where it does not answer or
// refuses to, traffic.ErrNotInstalled where it does not know a kind. Others are as they were.
func (g *Guard) Client(c client.Client) client.Client { return &guarded{Client: c, guard: g} }

// Reader is the same for a client that only reads, past any cache.
func (g *Guard) Reader(r client.Reader) client.Reader { return guardedReader{Reader: r, guard: g} }

// ask makes one request, unless it is known that nobody answers.
func (g *Guard) ask(ctx context.Context, request func(context.Context) error) error {
	if cause := g.silent(); cause != nil {
		return g.unreachable(cause)
	}
	bounded, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	err := request(bounded)
	if err != nil && ctx.Err() != nil {
		return err // who asked has gone
	}
	return g.judge(err)
}

// silent is why nobody is asked now; nil: this caller may ask.
func (g *Guard) silent() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if cause := g.known(now); cause != nil {
		return cause
	}
	g.next = now.Add(2 * Patience) // while it is silent, the others leave it to this one to hear whether it answers
	return nil
}

// known is why the cluster is silent, as long as it is not asked again.
func (g *Guard) known(now time.Time) error {
	if now.Before(g.next) {
		return g.cause
	}
	return nil
}

func (g *Guard) judge(err error) error {
	var status apierrors.APIStatus
	answered := errors.As(err, &status)
	switch {
	case err == nil:
		g.note(nil)
		return nil
	case meta.IsNoMatchError(err):
		g.note(nil)
		return traffic.Refuse(traffic.ErrNotInstalled, "the cluster of Secret %s does not know Istio's objects in the version that is asked for: install their definitions there, or correct -istio-api-version", g.name)
	case !answered:
		g.note(err)
		return g.unreachable(err)
	}
	g.note(nil)
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

// note remembers whether there was an answer, and tells of a change.
func (g *Guard) note(cause error) {
	g.mu.Lock()
	news := (g.cause == nil) != (cause == nil)
	g.cause, g.next = cause, g.clock.Now().Add(Patience)
	g.mu.Unlock()
	switch {
	case news && cause != nil:
		g.heard(g.unreachable(cause).Error())
	case news:
		g.heard("")
	}
}

// Why is what kept a request from its answer, or what was answered, without the address, which is of the Secret.
func Why(cause error) string {
	var status apierrors.APIStatus
	request, sent := errors.AsType[*url.Error](cause)
	name, unknown := errors.AsType[*net.DNSError](cause)
	operation, network := errors.AsType[*net.OpError](cause)
	slow, timed := errors.AsType[net.Error](cause)
	switch {
	case errors.Is(cause, context.DeadlineExceeded), timed && slow.Timeout():
		return "no answer within " + Patience.String()
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

// guarded is a client whose requests a guard lets through.
type guarded struct {
	client.Client
	guard *Guard
}

// Get implements client.Client. Of a kind that was shown once nobody waits: the cache has it.
func (c *guarded) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	kind := object.GetObjectKind().GroupVersionKind()
	if c.guard.knows(kind) {
		return c.Client.Get(ctx, key, object, options...)
	}
	end, err := c.guard.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = c.guard.ask(ctx, func(ctx context.Context) error { return c.Client.Get(ctx, key, object, options...) })
	if err == nil || apierrors.IsNotFound(err) {
		c.guard.shown.Store(kind, true)
	}
	return err
}

// begin waits until nobody else asks for a kind that was not shown yet, and not at all where the answer is known.
func (g *Guard) begin(ctx context.Context) (end func(), err error) {
	g.mu.Lock()
	cause := g.known(g.clock.Now())
	g.mu.Unlock()
	if cause != nil {
		return nil, g.unreachable(cause)
	}
	bounded, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case g.first <- struct{}{}:
		return func() { <-g.first }, nil
	case <-bounded.Done():
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, g.unreachable(bounded.Err())
	}
}

func (g *Guard) knows(kind schema.GroupVersionKind) bool {
	_, known := g.shown.Load(kind)
	return known
}

// List implements client.Client.
func (c *guarded) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.guard.ask(ctx, func(ctx context.Context) error { return c.Client.List(ctx, list, options...) })
}

// Create implements client.Client.
func (c *guarded) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return c.guard.ask(ctx, func(ctx context.Context) error { return c.Client.Create(ctx, object, options...) })
}

// Update implements client.Client.
func (c *guarded) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return c.guard.ask(ctx, func(ctx context.Context) error { return c.Client.Update(ctx, object, options...) })
}

// Patch implements client.Client.
func (c *guarded) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.guard.ask(ctx, func(ctx context.Context) error { return c.Client.Patch(ctx, object, patch, options...) })
}

// Delete implements client.Client.
func (c *guarded) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.guard.ask(ctx, func(ctx context.Context) error { return c.Client.Delete(ctx, object, options...) })
}

type guardedReader struct {
	client.Reader
	guard *Guard
}

// Get implements client.Reader.
func (r guardedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return r.guard.ask(ctx, func(ctx context.Context) error { return r.Reader.Get(ctx, key, object, options...) })
}

// Refusing is the client of a cluster that cannot be asked, for the reason that sentence says. Its error is of that kind:
// traffic.ErrNotInstalled where the Secret leads nowhere, so that nothing of anybody is there that could be given back.
func Refusing(kind error, sentence string) client.Client {
	return refusing{err: traffic.Refuse(kind, "%s", sentence)}
}

type refusing struct {
	client.Client // nil: whoever only reads and patches never asks it
	err           error
}

func (c refusing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return c.err
}

func (c refusing) List(context.Context, client.ObjectList, ...client.ListOption) error { return c.err }

func (c refusing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return c.err
}
