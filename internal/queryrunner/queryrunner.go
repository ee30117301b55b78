// Package queryrunner sends queries to external services outside the reconcile workers, and stores the answers.
//
// A reconciliation submits the queries of its decision and does not wait. The package stores each answer by the ID of its query
// and requeues the release. It knows releases by name and UID, and queries by ID. It must not know the content of a query, its
// receiver, or the meaning of an answer, and none of its functions may block a worker.
package queryrunner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/serin-dev/serin/internal/fairshare"
	"github.com/serin-dev/serin/internal/release"
)

// minAnswers is the number of answers that are stored per release at least; beyond the limit the oldest is dropped. Most windows
// send a handful of queries and only the answers of the current window count, so that dropped answers are history.
// SetAnswerLimit raises the limit for a release with more queries.
const minAnswers = 64

// The causes for which the context of a call is cancelled.
var (
	errForgotten = errors.New("the release is deleted")
	errFinished  = errors.New("the call has ended")
)

var errPanic = errors.New("a panic whose text is not shown")

// Key identifies a release: a release that is deleted and recreated under the same name is another one.
type Key struct {
	types.NamespacedName
	UID types.UID
}

// SendFunc sends one query and sets Outcome, Value, Text and Query of its answer; the Runner sets the other fields. It runs
// outside the workers, must limit its own duration, and must return soon after ctx is done. A panic in it becomes an answer; a
// panic in a goroutine that it starts is not recovered.
type SendFunc func(ctx context.Context, key Key, query release.Query) release.Answer

// AnswerFunc requeues a release after an answer. last is true if no other query of the release waits or is in flight. It must not
// block.
type AnswerFunc func(name types.NamespacedName, last bool)

// Runner sends the queries of the releases of one kind. Of each release at most one query is in flight at a time, or as many as
// NewConcurrent permits, in the order of the decision. The slots of a pool are divided among namespaces, so that receivers of one
// namespace that do not answer delay no other; see ReserveFirstQueries for those of many namespaces. All methods are safe for concurrent use, and none
// except Run waits for an answer.
type Runner struct {
	clock      clock.PassiveClock
	limit      int
	reserve    int
	perRelease int
	poolName   func(request any) string
	send       SendFunc
	onAnswer   AnswerFunc
	permitted  func(namespace string) error
	wake       chan struct{} // has room for one token: a query may be ready to send

	mu       sync.Mutex
	releases map[types.NamespacedName]*releaseQueries
	pools    []*pool
	ended    bool
}

// pool contains the releases that wait for a slot of it to send their next query.
type pool struct {
	name string
	*fairshare.Queue[*releaseQueries]
}

// releaseQueries contains the queries and answers of one release.
type releaseQueries struct {
	key         Key
	answers     release.Answers
	maxAnswers  int // the number of answers to store
	queue       []release.Query
	inFlight    map[string]context.CancelCauseFunc // by query ID
	waitingPool *pool                              // the pool in which the release waits; nil if it does not wait
}

// New returns a Runner with at most limit queries in flight (at least one), and one per release. It calls onAnswer after it has
// stored an answer.
func New(clk clock.PassiveClock, limit int, send SendFunc, onAnswer AnswerFunc) *Runner {
	return NewConcurrent(clk, limit, 1, send, onAnswer)
}

// NewPooled is like New with several pools of queries, each with limit slots of its own, so that slow queries of one pool do not
// delay those of another.
func NewPooled(
	clk clock.PassiveClock, limit int, poolName func(request any) string, send SendFunc, onAnswer AnswerFunc,
) *Runner {
	p := New(clk, limit, send, onAnswer)
	p.poolName = poolName
	return p
}

// NewConcurrent is like New for a kind with independent queries: up to perRelease queries of one release may be in flight.
func NewConcurrent(clk clock.PassiveClock, limit, perRelease int, send SendFunc, onAnswer AnswerFunc) *Runner {
	return &Runner{
		clock:      clk,
		limit:      max(limit, 1),
		perRelease: max(perRelease, 1),
		poolName:   func(any) string { return "" },
		send:       send,
		onAnswer:   onAnswer,
		permitted:  func(string) error { return nil },
		wake:       make(chan struct{}, 1),
		releases:   map[types.NamespacedName]*releaseQueries{},
	}
}

// RequirePermission lets the Runner send the queries of a namespace only while permitted returns nil for it. Otherwise a query
// is dropped and its release requeued, so that it is decided again. permitted must not block. It must be called before Run.
func (p *Runner) RequirePermission(permitted func(namespace string) error) { p.permitted = permitted }

// ReserveFirstQueries adds slots to each pool that only the first query in flight of a namespace uses, while all slots of the
// limit are in use. Queries that hang in up to that many namespaces then delay none of another. It must be called before Submit.
func (p *Runner) ReserveFirstQueries(slots int) { p.reserve = slots }

// Submit replaces the waiting queries of a release by those of the latest decision, and returns at once. It returns the error of
// RequirePermission if there are queries that must not be sent now; the caller decides again later. It does not send a query
// again that is in flight, or that was answered by a call that began at or after its Since. A query in flight continues even if
// it is not among the submitted ones, and its answer is stored. Queries that are submitted before Run are sent when Run begins;
// after the end of Run nothing is sent.
func (p *Runner) Submit(key Key, queries []release.Query) error {
	var denied error
	if len(queries) > 0 {
		if denied = p.permitted(key.Namespace); denied != nil {
			queries = nil
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replaceQueries(key, queries)
	return denied
}

func (p *Runner) replaceQueries(key Key, queries []release.Query) {
	if p.ended {
		return
	}

	r := p.releases[key.NamespacedName]
	if r != nil && r.key.UID != key.UID {
		p.dropRelease(key.NamespacedName)
		r = nil
	}
	if r == nil {
		if len(queries) == 0 {
			return
		}
		r = &releaseQueries{key: key, answers: release.Answers{}, maxAnswers: max(minAnswers, 2*p.perRelease), inFlight: map[string]context.CancelCauseFunc{}}
		p.releases[key.NamespacedName] = r
	}

	r.queue = nil
	queued := map[string]bool{}
	for _, query := range queries {
		_, answered := r.answers.AnswerTo(query)
		if !answered && !queued[query.ID] && r.inFlight[query.ID] == nil {
			r.queue = append(r.queue, query)
			queued[query.ID] = true
		}
	}
	p.enqueueRelease(r)
}

// SetAnswerLimit sets the number of queries that the spec of a release can send within one window. All their answers are needed
// together, and twice as many are stored, because a window may be observed again.
func (p *Runner) SetAnswerLimit(key Key, queries int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.releases[key.NamespacedName]; r != nil && r.key.UID == key.UID {
		r.maxAnswers = max(minAnswers, 2*p.perRelease, 2*queries)
	}
}

// Answers returns the stored answers of a release, and those of queries in flight, whose Ended is zero. If the clock was set
// back, times in the future are set to the current time once and for all: computed in each call, they would always be the
// current time, and a query that is repeated some time after its answer would never be sent again. The caller owns the result.
func (p *Runner) Answers(key Key) release.Answers {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.releases[key.NamespacedName]
	if r == nil || r.key.UID != key.UID {
		return release.Answers{}
	}
	now := p.clock.Now()
	for id, answer := range r.answers {
		if answer.Began.After(now) || answer.Ended.After(now) {
			answer.Began, answer.Ended = earlierOf(answer.Began, now), earlierOf(answer.Ended, now)
			r.answers[id] = answer
		}
	}
	return maps.Clone(r.answers)
}

// earlierOf returns the earlier of two times.
func earlierOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Forget drops the state of a release and cancels its queries in flight; a late answer is dropped.
func (p *Runner) Forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropRelease(name)
}

// NextWaiting returns the next request of a release if it waits for a slot.
func (p *Runner) NextWaiting(name types.NamespacedName) (request any, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.releases[name]
	if r == nil || r.waitingPool == nil {
		return nil, false
	}
	return r.queue[0].Request, true
}

// Keys returns the releases with queries or answers.
func (p *Runner) Keys() []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.releases))
}

// Run sends queries until ctx is done. Then it cancels the queries in flight, waits for their end, and returns nil. It must be
// called at most once.
func (p *Runner) Run(ctx context.Context) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		for {
			q, ok := p.TakeNext(ctx)
			if !ok {
				break
			}
			calls.Go(func() { p.FinishQuery(q, p.sendQuery(q)) })
		}
		select {
		case <-ctx.Done():
			p.cancelAll()
			return nil
		case <-p.wake:
		}
	}
}

// RunningQuery is a query in flight.
type RunningQuery struct {
	Key   Key
	Query release.Query

	release   *releaseQueries
	pool      *pool
	startedAt time.Time
	ctx       context.Context //nolint:containedctx // the struct represents the call and ends with it
	finish    context.CancelCauseFunc
}

// TakeNext takes the next query to send, with a slot. It returns false if no query waits or no slot is free. Every query must be
// passed to FinishQuery. These two methods are an alternative to Run for callers that control when an answer arrives.
func (p *Runner) TakeNext(ctx context.Context) (RunningQuery, bool) {
	next, ok, denied := p.takePermitted(ctx)
	for _, name := range denied {
		p.onAnswer(name, true)
	}
	return next, ok
}

// takePermitted also returns the releases whose queries were dropped because they must not be sent now.
func (p *Runner) takePermitted(ctx context.Context) (next RunningQuery, ok bool, denied []types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil || p.ended {
		return RunningQuery{}, false, nil
	}
	for _, from := range p.pools {
		for _, r, ok := from.Pop(); ok; _, r, ok = from.Pop() {
			r.waitingPool = nil
			if p.permitted(r.key.Namespace) == nil {
				return p.start(ctx, r, from), true, denied
			}
			from.ReleaseSlot(r.key.Namespace)
			r.queue = nil
			denied = append(denied, r.key.NamespacedName)
		}
	}
	return RunningQuery{}, false, denied
}

// start starts the first query of a release, which has a slot.
func (p *Runner) start(ctx context.Context, r *releaseQueries, from *pool) RunningQuery {
	query := r.queue[0]
	r.queue = r.queue[1:]
	began := p.clock.Now()
	callCtx, cancel := context.WithCancelCause(ctx)
	r.inFlight[query.ID] = cancel
	r.answers[query.ID] = release.Answer{ID: query.ID, Since: query.Since, Began: began}
	p.enqueueRelease(r)
	return RunningQuery{Key: r.key, Query: query, release: r, pool: from, startedAt: began, ctx: callCtx, finish: cancel}
}

// FinishQuery ends a query that TakeNext has returned. It stores the answer and calls onAnswer, unless the release was
// forgotten or the Runner has ended.
func (p *Runner) FinishQuery(q RunningQuery, answer release.Answer) {
	answer.ID, answer.Since, answer.Began = q.Query.ID, q.Query.Since, q.startedAt
	cancelled := q.ctx.Err() != nil // the answer of a query that a shutdown cancels is meaningless
	q.finish(errFinished)
	if stored, last := p.recordAnswer(q, answer); stored && !cancelled {
		p.onAnswer(q.Key.NamespacedName, last)
	}
}

// sendQuery sends a query and converts a panic into an answer: a defect in one query must not end the process.
func (p *Runner) sendQuery(q RunningQuery) (answer release.Answer) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		// Only texts of the Go runtime are safe to show or to log; any other value may contain the data that was being sent.
		text, logged := "Serin could not send this query because of a defect in Serin: its log has the details", errPanic
		if runtimeErr, ok := cause.(runtime.Error); ok {
			text = fmt.Sprintf("Serin could not send this query because of a defect in Serin (%v): its log has the details", runtimeErr)
			logged = fmt.Errorf("panic: %w", runtimeErr)
		}
		log.FromContext(q.ctx).Error(logged, "Query panicked",
			"namespace", q.Key.Namespace, "name", q.Key.Name, "query", q.Query.ID, "stack", string(debug.Stack()))
		answer = release.Answer{Outcome: release.Broken, Text: text}
	}()
	return p.send(q.ctx, q.Key, q.Query)
}

// recordAnswer records the end of a call and reports whether its answer was stored, and whether it was the last one. It is not
// stored after the deletion of the release or the end of the Runner.
func (p *Runner) recordAnswer(q RunningQuery, answer release.Answer) (stored, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.signal()
	r := q.release
	q.pool.ReleaseSlot(r.key.Namespace)
	if p.ended || p.releases[r.key.NamespacedName] != r {
		return false, false
	}
	delete(r.inFlight, answer.ID)
	answer.Ended = p.clock.Now()
	r.answers[answer.ID] = answer
	for len(r.answers) > r.maxAnswers {
		delete(r.answers, oldestAnswerID(r.answers))
	}
	p.enqueueRelease(r)
	return true, len(r.queue)+len(r.inFlight) == 0
}

// enqueueRelease adds a release to the pool of its next query, unless it has none or has reached its limit of queries in flight.
func (p *Runner) enqueueRelease(r *releaseQueries) {
	var next *pool
	if len(r.queue) > 0 && len(r.inFlight) < p.perRelease {
		next = p.poolFor(p.poolName(r.queue[0].Request))
	}
	if r.waitingPool == next {
		return
	}
	if r.waitingPool != nil {
		r.waitingPool.Remove(r.key.Namespace, func(other *releaseQueries) bool { return other == r })
	}
	r.waitingPool = next
	if next != nil {
		next.Push(r.key.Namespace, r)
		p.signal()
	}
}

// poolFor returns the pool of a name and creates it if necessary. There are as many pools as kinds of queries.
func (p *Runner) poolFor(name string) *pool {
	for _, known := range p.pools {
		if known.name == name {
			return known
		}
	}
	added := &pool{name, fairshare.NewQueueWithReserve[*releaseQueries](p.limit, p.reserve)}
	p.pools = append(p.pools, added)
	return added
}

func (p *Runner) dropRelease(name types.NamespacedName) {
	r := p.releases[name]
	if r == nil {
		return
	}
	r.queue = nil
	p.enqueueRelease(r)
	for _, cancel := range r.inFlight {
		cancel(errForgotten)
	}
	delete(p.releases, name)
}

func (p *Runner) cancelAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	clear(p.releases)
}

func (p *Runner) signal() {
	select {
	case p.wake <- struct{}{}:
	default: // there is a token already, and Run examines all pools for each token
	}
}

// oldestAnswerID returns the ID of the answer whose call began first.
func oldestAnswerID(answers release.Answers) string {
	var id string
	var began time.Time
	for key, answer := range answers {
		if id == "" || answer.Began.Before(began) {
			id, began = key, answer.Began
		}
	}
	return id
}
