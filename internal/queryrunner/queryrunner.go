// Package queryrunner sends queries to external services outside the reconcile workers, and stores the answers.
//
// A decision hands out probes, a worker passes them on and goes its way; an answer is kept here, by the probe's ID, and
// brings the release back on the queue. It knows releases by name and UID, and probes by ID. It must not know what is
// asked, of whom, or what an answer means; and nothing in it may make a worker wait.
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

// minAnswers is how many answers are remembered of one release at least; beyond that the oldest is dropped. Most windows
// ask a handful of questions and only the answers of the open window count, so what is dropped is history. A release that
// needs more at once says so with Remember.
const minAnswers = 64

// The causes for which the context of a call is cancelled.
var (
	errForgotten = errors.New("the release is gone")
	errTimedOut  = errors.New("the call is over")
)

var errPanic = errors.New("a panic whose text is not shown")

// Key is one release: a name that is deleted and made again is another release.
type Key struct {
	types.NamespacedName
	UID types.UID
}

// SendFunc puts one question and sets Outcome, Value, Text and Query of its answer; the rest is the prober's. It runs
// outside every worker and must bound its own time and return soon after ctx is done. A panic in it is an answer, one
// in a goroutine that it starts is not caught.
type SendFunc func(ctx context.Context, key Key, probe release.Query) release.Answer

// Runner asks for releases of one kind. Of one release at most one question is out at a time, or as many as NewConcurrent
// allows, in the order in which the decision gave them. The slots of a pool are divided among namespaces, so that receivers
// that hang cost nobody but their own namespace, however many they are. All methods may be called at any time from
// anywhere, and none of them waits for an answer.
type Runner struct {
	clock      clock.PassiveClock
	limit      int
	perRelease int
	poolName   func(question any) string
	send       SendFunc
	onAnswer   func(types.NamespacedName)
	wake       chan struct{} // holds one token: something may have become ready to start

	mu       sync.Mutex
	releases map[types.NamespacedName]*releaseQueries
	pools    []*pool
	ended    bool
}

// pool is the questions that share slots: the releases whose next question is of it, and that have room for it.
type pool struct {
	name string
	*fairshare.Queue[*releaseQueries]
}

// releaseQueries is what the prober knows of one release.
type releaseQueries struct {
	key        Key
	answers    release.Answers
	maxAnswers int // answers that are kept
	queue      []release.Query
	inFlight   map[string]context.CancelCauseFunc // by the IDs that are out
	isWaiting  *pool                              // in which it waits; nil: in none
}

// New makes a prober with at most limit questions out in all (at least one), and one of each release. Each answer that
// is kept is announced with answered, which must not block: it puts the release back on the queue.
func New(clk clock.PassiveClock, limit int, ask SendFunc, answered func(types.NamespacedName)) *Runner {
	return NewConcurrent(clk, limit, 1, ask, answered)
}

// NewPooled is New with several pools of questions, each of which has limit slots of its own: questions that take long keep
// none waiting that do not.
func NewPooled(clk clock.PassiveClock, limit int, poolOf func(question any) string, ask SendFunc, answered func(types.NamespacedName)) *Runner {
	p := New(clk, limit, ask, answered)
	p.poolName = poolOf
	return p
}

// NewConcurrent is New for a kind whose questions do not depend on each other: of one release up to each may be out.
func NewConcurrent(clk clock.PassiveClock, limit, each int, ask SendFunc, answered func(types.NamespacedName)) *Runner {
	return &Runner{
		clock:      clk,
		limit:      max(limit, 1),
		perRelease: max(each, 1),
		poolName:   func(any) string { return "" },
		send:       ask,
		onAnswer:   answered,
		wake:       make(chan struct{}, 1),
		releases:   map[types.NamespacedName]*releaseQueries{},
	}
}

// Submit says what the newest decision wants to know, and returns at once. A probe that is out, or was answered by a call
// that did not begin before its Since, is not asked again. Probes that wait since an earlier Ask and are not in this
// one are dropped; the one that is out goes on and its answer is kept. What is asked before Run goes out when Run
// begins; after the end of Run nothing is asked any more.
func (p *Runner) Submit(key Key, probes []release.Query) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}

	a := p.releases[key.NamespacedName]
	if a != nil && a.key.UID != key.UID {
		p.dropRelease(key.NamespacedName)
		a = nil
	}
	if a == nil {
		if len(probes) == 0 {
			return
		}
		a = &releaseQueries{key: key, answers: release.Answers{}, maxAnswers: max(minAnswers, 2*p.perRelease), inFlight: map[string]context.CancelCauseFunc{}}
		p.releases[key.NamespacedName] = a
	}

	a.queue = nil
	queued := map[string]bool{}
	for _, probe := range probes {
		_, known := a.answers.AnswerTo(probe)
		if !known && !queued[probe.ID] && a.inFlight[probe.ID] == nil {
			a.queue = append(a.queue, probe)
			queued[probe.ID] = true
		}
	}
	p.enqueueRelease(a)
}

// SetAnswerLimit sets how many questions the spec of a release can ask within one window. Their answers are needed at once, and
// as many more are kept: a window may be observed again.
func (p *Runner) SetAnswerLimit(key Key, questions int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.releases[key.NamespacedName]; a != nil && a.key.UID == key.UID {
		a.maxAnswers = max(minAnswers, 2*p.perRelease, 2*questions)
	}
}

// Answers are the answers that are known of this release, those that are out included: their Ended is zero. Where the
// clock was set back, what was asked tomorrow was asked now, from now on: taken for the present anew each time, it would
// never pass. The caller owns the result.
func (p *Runner) Answers(key Key) release.Answers {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.releases[key.NamespacedName]
	if a == nil || a.key.UID != key.UID {
		return release.Answers{}
	}
	now := p.clock.Now()
	for id, answer := range a.answers {
		if answer.Began.After(now) {
			answer.Began = now
			a.answers[id] = answer
		}
	}
	return maps.Clone(a.answers)
}

// Forget drops what is known of a release and cancels what is out for it; an answer that comes later is dropped.
func (p *Runner) Forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropRelease(name)
}

// NextWaiting returns the next question of a release, if it waits for a slot.
func (p *Runner) NextWaiting(name types.NamespacedName) (question any, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.releases[name]
	if a == nil || a.isWaiting == nil {
		return nil, false
	}
	return a.queue[0].Request, true
}

// Keys are the releases of which something is known or asked.
func (p *Runner) Keys() []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.releases))
}

// Run asks until ctx is done. Then it cancels what is out, waits for it, and returns nil. It runs once.
func (p *Runner) Run(ctx context.Context) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		for {
			q, ok := p.TakeNext(ctx)
			if !ok {
				break
			}
			calls.Go(func() { p.RunQuery(q, p.sendQuery(q)) })
		}
		select {
		case <-ctx.Done():
			p.cancelAll()
			return nil
		case <-p.wake:
		}
	}
}

// RunningQuery is a question that is out.
type RunningQuery struct {
	Key   Key
	Probe release.Query

	release   *releaseQueries
	pool      *pool
	startedAt time.Time
	ctx       context.Context //nolint:containedctx // it is the call, and ends with it
	finish    context.CancelCauseFunc
}

// TakeNext takes the next question that may go out; none while nobody has one, or as many are out as may be. Each one that
// was taken must be answered. Run does both; whoever decides himself when an answer comes does it instead of Run.
func (p *Runner) TakeNext(ctx context.Context) (RunningQuery, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil || p.ended {
		return RunningQuery{}, false
	}
	for _, from := range p.pools {
		_, a, ok := from.Pop()
		if !ok {
			continue
		}
		a.isWaiting = nil
		probe := a.queue[0]
		a.queue = a.queue[1:]
		began := p.clock.Now()
		calling, cancel := context.WithCancelCause(ctx)
		a.inFlight[probe.ID] = cancel
		a.answers[probe.ID] = release.Answer{ID: probe.ID, Since: probe.Since, Began: began}
		p.enqueueRelease(a)
		return RunningQuery{Key: a.key, Probe: probe, release: a, pool: from, startedAt: began, ctx: calling, finish: cancel}, true
	}
	return RunningQuery{}, false
}

// RunQuery ends a question that was taken: the answer is kept and announced, unless nobody waits for it any more.
func (p *Runner) RunQuery(q RunningQuery, answer release.Answer) {
	answer.ID, answer.Since, answer.Began = q.Probe.ID, q.Probe.Since, q.startedAt
	cut := q.ctx.Err() != nil // what a shutdown cut off says nothing about the release
	q.finish(errTimedOut)
	if p.recordAnswer(q, answer) && !cut {
		p.onAnswer(q.Key.NamespacedName)
	}
}

// sendQuery asks, and makes an answer of a panic: a fault in one question must not end the process for all.
func (p *Runner) sendQuery(q RunningQuery) (answer release.Answer) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		// Only the runtime's own words are safe to show or to log; any other value may carry what was being sent.
		text, fault := "Serin could not ask this: a fault in Serin, its log has the details", errPanic
		if own, ok := cause.(runtime.Error); ok {
			text = fmt.Sprintf("Serin could not ask this: a fault in Serin (%v), its log has the details", own)
			fault = fmt.Errorf("panic: %w", own)
		}
		log.FromContext(q.ctx).Error(fault, "Asking panicked",
			"namespace", q.Key.Namespace, "name", q.Key.Name, "probe", q.Probe.ID, "stack", string(debug.Stack()))
		answer = release.Answer{Outcome: release.Broken, Text: text}
	}()
	return p.send(q.ctx, q.Key, q.Probe)
}

// recordAnswer records that a call is over, and says whether its answer was kept: not when the release is gone or the prober
// ended.
func (p *Runner) recordAnswer(q RunningQuery, answer release.Answer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.signal()
	a := q.release
	q.pool.ReleaseSlot(a.key.Namespace)
	if p.ended || p.releases[a.key.NamespacedName] != a {
		return false
	}
	delete(a.inFlight, answer.ID)
	answer.Ended = p.clock.Now()
	a.answers[answer.ID] = answer
	for len(a.answers) > a.maxAnswers {
		delete(a.answers, oldestAnswerID(a.answers))
	}
	p.enqueueRelease(a)
	return true
}

// enqueueRelease makes a release wait in the pool of its next question, where it has one and room for it.
func (p *Runner) enqueueRelease(a *releaseQueries) {
	var in *pool
	if len(a.queue) > 0 && len(a.inFlight) < p.perRelease {
		in = p.poolFor(p.poolName(a.queue[0].Request))
	}
	if a.isWaiting == in {
		return
	}
	if a.isWaiting != nil {
		a.isWaiting.Remove(a.key.Namespace, func(other *releaseQueries) bool { return other == a })
	}
	a.isWaiting = in
	if in != nil {
		in.Push(a.key.Namespace, a)
		p.signal()
	}
}

// poolFor is the one of a name. There are as many as there are kinds of questions.
func (p *Runner) poolFor(name string) *pool {
	for _, known := range p.pools {
		if known.name == name {
			return known
		}
	}
	added := &pool{name, fairshare.NewQueue[*releaseQueries](p.limit)}
	p.pools = append(p.pools, added)
	return added
}

func (p *Runner) dropRelease(name types.NamespacedName) {
	a := p.releases[name]
	if a == nil {
		return
	}
	a.queue = nil
	p.enqueueRelease(a)
	for _, cancel := range a.inFlight {
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
	default: // a token is there already, and Run looks at everything for one
	}
}

// oldestAnswerID is the ID of the answer whose call began first.
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
