// Package prober puts questions to the outside beside the reconcile workers and keeps what came back.
//
// A decision hands out probes, a worker passes them on and goes its way; an answer is kept here, by the probe's ID, and
// brings the release back on the queue. It knows releases by name and UID, and probes by ID. It must not know what is
// asked, of whom, or what an answer means; and nothing in it may make a worker wait.
package prober

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
	errOver      = errors.New("the call is over")
)

var errFault = errors.New("a panic whose text is not shown")

// Key is one release: a name that is deleted and made again is another release.
type Key struct {
	types.NamespacedName
	UID types.UID
}

// AskFunc puts one question and sets Outcome, Value, Text and Query of its answer; the rest is the prober's. It runs
// outside every worker and must bound its own time and return soon after ctx is done. A panic in it is an answer, one
// in a goroutine that it starts is not caught.
type AskFunc func(ctx context.Context, key Key, probe release.Probe) release.Answer

// Prober asks for releases of one kind. Of one release at most one question is out at a time, or as many as NewAbreast
// allows, in the order in which the decision gave them. The slots of a pool are divided among namespaces, so that receivers
// that hang cost nobody but their own namespace, however many they are. All methods may be called at any time from
// anywhere, and none of them waits for an answer.
type Prober struct {
	clock    clock.PassiveClock
	limit    int
	each     int
	poolOf   func(question any) string
	ask      AskFunc
	answered func(types.NamespacedName)
	wake     chan struct{} // holds one token: something may have become ready to start

	mu       sync.Mutex
	releases map[types.NamespacedName]*asking
	pools    []*pool
	ended    bool
}

// pool is the questions that share slots: the releases whose next question is of it, and that have room for it.
type pool struct {
	name string
	*fairshare.Queue[*asking]
}

// asking is what the prober knows of one release.
type asking struct {
	key     Key
	answers release.Answers
	most    int // answers that are kept
	queue   []release.Probe
	out     map[string]context.CancelCauseFunc // by the IDs that are out
	waits   *pool                              // in which it waits; nil: in none
}

// New makes a prober with at most limit questions out in all (at least one), and one of each release. Each answer that
// is kept is announced with answered, which must not block: it puts the release back on the queue.
func New(clk clock.PassiveClock, limit int, ask AskFunc, answered func(types.NamespacedName)) *Prober {
	return NewAbreast(clk, limit, 1, ask, answered)
}

// NewPooled is New with several pools of questions, each of which has limit slots of its own: questions that take long keep
// none waiting that do not.
func NewPooled(clk clock.PassiveClock, limit int, poolOf func(question any) string, ask AskFunc, answered func(types.NamespacedName)) *Prober {
	p := New(clk, limit, ask, answered)
	p.poolOf = poolOf
	return p
}

// NewAbreast is New for a kind whose questions do not depend on each other: of one release up to each may be out.
func NewAbreast(clk clock.PassiveClock, limit, each int, ask AskFunc, answered func(types.NamespacedName)) *Prober {
	return &Prober{
		clock:    clk,
		limit:    max(limit, 1),
		each:     max(each, 1),
		poolOf:   func(any) string { return "" },
		ask:      ask,
		answered: answered,
		wake:     make(chan struct{}, 1),
		releases: map[types.NamespacedName]*asking{},
	}
}

// Ask says what the newest decision wants to know, and returns at once. A probe that is out, or was answered by a call
// that did not begin before its Since, is not asked again. Probes that wait since an earlier Ask and are not in this
// one are dropped; the one that is out goes on and its answer is kept. What is asked before Run goes out when Run
// begins; after the end of Run nothing is asked any more.
func (p *Prober) Ask(key Key, probes []release.Probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}

	a := p.releases[key.NamespacedName]
	if a != nil && a.key.UID != key.UID {
		p.forget(key.NamespacedName)
		a = nil
	}
	if a == nil {
		if len(probes) == 0 {
			return
		}
		a = &asking{key: key, answers: release.Answers{}, most: max(minAnswers, 2*p.each), out: map[string]context.CancelCauseFunc{}}
		p.releases[key.NamespacedName] = a
	}

	a.queue = nil
	queued := map[string]bool{}
	for _, probe := range probes {
		_, known := a.answers.To(probe)
		if !known && !queued[probe.ID] && a.out[probe.ID] == nil {
			a.queue = append(a.queue, probe)
			queued[probe.ID] = true
		}
	}
	p.enlist(a)
}

// Remember sets how many questions the spec of a release can ask within one window. Their answers are needed at once, and
// as many more are kept: a window may be observed again.
func (p *Prober) Remember(key Key, questions int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.releases[key.NamespacedName]; a != nil && a.key.UID == key.UID {
		a.most = max(minAnswers, 2*p.each, 2*questions)
	}
}

// Answers are the answers that are known of this release, those that are out included: their Ended is zero. Where the
// clock was set back, what was asked tomorrow was asked now, from now on: taken for the present anew each time, it would
// never pass. The caller owns the result.
func (p *Prober) Answers(key Key) release.Answers {
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
func (p *Prober) Forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(name)
}

// Waits returns the next question of a release, if it waits for a slot.
func (p *Prober) Waits(name types.NamespacedName) (question any, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.releases[name]
	if a == nil || a.waits == nil {
		return nil, false
	}
	return a.queue[0].Question, true
}

// Keys are the releases of which something is known or asked.
func (p *Prober) Keys() []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.releases))
}

// Run asks until ctx is done. Then it cancels what is out, waits for it, and returns nil. It runs once.
func (p *Prober) Run(ctx context.Context) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		for {
			q, ok := p.Take(ctx)
			if !ok {
				break
			}
			calls.Go(func() { p.Answer(q, p.put(q)) })
		}
		select {
		case <-ctx.Done():
			p.end()
			return nil
		case <-p.wake:
		}
	}
}

// Asked is a question that is out.
type Asked struct {
	Key   Key
	Probe release.Probe

	of    *asking
	pool  *pool
	began time.Time
	ctx   context.Context //nolint:containedctx // it is the call, and ends with it
	over  context.CancelCauseFunc
}

// Take takes the next question that may go out; none while nobody has one, or as many are out as may be. Each one that
// was taken must be answered. Run does both; whoever decides himself when an answer comes does it instead of Run.
func (p *Prober) Take(ctx context.Context) (Asked, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil || p.ended {
		return Asked{}, false
	}
	for _, from := range p.pools {
		_, a, ok := from.Pop()
		if !ok {
			continue
		}
		a.waits = nil
		probe := a.queue[0]
		a.queue = a.queue[1:]
		began := p.clock.Now()
		calling, cancel := context.WithCancelCause(ctx)
		a.out[probe.ID] = cancel
		a.answers[probe.ID] = release.Answer{ID: probe.ID, Since: probe.Since, Began: began}
		p.enlist(a)
		return Asked{Key: a.key, Probe: probe, of: a, pool: from, began: began, ctx: calling, over: cancel}, true
	}
	return Asked{}, false
}

// Answer ends a question that was taken: the answer is kept and announced, unless nobody waits for it any more.
func (p *Prober) Answer(q Asked, answer release.Answer) {
	answer.ID, answer.Since, answer.Began = q.Probe.ID, q.Probe.Since, q.began
	cut := q.ctx.Err() != nil // what a shutdown cut off says nothing about the release
	q.over(errOver)
	if p.keep(q, answer) && !cut {
		p.answered(q.Key.NamespacedName)
	}
}

// put asks, and makes an answer of a panic: a fault in one question must not end the process for all.
func (p *Prober) put(q Asked) (answer release.Answer) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		// Only the runtime's own words are safe to show or to log; any other value may carry what was being sent.
		text, fault := "Serin could not ask this: a fault in Serin, its log has the details", errFault
		if own, ok := cause.(runtime.Error); ok {
			text = fmt.Sprintf("Serin could not ask this: a fault in Serin (%v), its log has the details", own)
			fault = fmt.Errorf("panic: %w", own)
		}
		log.FromContext(q.ctx).Error(fault, "Asking panicked",
			"namespace", q.Key.Namespace, "name", q.Key.Name, "probe", q.Probe.ID, "stack", string(debug.Stack()))
		answer = release.Answer{Outcome: release.Broken, Text: text}
	}()
	return p.ask(q.ctx, q.Key, q.Probe)
}

// keep records that a call is over, and says whether its answer was kept: not when the release is gone or the prober
// ended.
func (p *Prober) keep(q Asked, answer release.Answer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.signal()
	a := q.of
	q.pool.Done(a.key.Namespace)
	if p.ended || p.releases[a.key.NamespacedName] != a {
		return false
	}
	delete(a.out, answer.ID)
	answer.Ended = p.clock.Now()
	a.answers[answer.ID] = answer
	for len(a.answers) > a.most {
		delete(a.answers, oldest(a.answers))
	}
	p.enlist(a)
	return true
}

// enlist makes a release wait in the pool of its next question, where it has one and room for it.
func (p *Prober) enlist(a *asking) {
	var in *pool
	if len(a.queue) > 0 && len(a.out) < p.each {
		in = p.pool(p.poolOf(a.queue[0].Question))
	}
	if a.waits == in {
		return
	}
	if a.waits != nil {
		a.waits.Remove(a.key.Namespace, func(other *asking) bool { return other == a })
	}
	a.waits = in
	if in != nil {
		in.Push(a.key.Namespace, a)
		p.signal()
	}
}

// pool is the one of a name. There are as many as there are kinds of questions.
func (p *Prober) pool(name string) *pool {
	for _, known := range p.pools {
		if known.name == name {
			return known
		}
	}
	added := &pool{name, fairshare.NewQueue[*asking](p.limit)}
	p.pools = append(p.pools, added)
	return added
}

func (p *Prober) forget(name types.NamespacedName) {
	a := p.releases[name]
	if a == nil {
		return
	}
	a.queue = nil
	p.enlist(a)
	for _, cancel := range a.out {
		cancel(errForgotten)
	}
	delete(p.releases, name)
}

func (p *Prober) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	clear(p.releases)
}

func (p *Prober) signal() {
	select {
	case p.wake <- struct{}{}:
	default: // a token is there already, and Run looks at everything for one
	}
}

// oldest is the ID of the answer whose call began first.
func oldest(answers release.Answers) string {
	var id string
	var began time.Time
	for key, answer := range answers {
		if id == "" || answer.Began.Before(began) {
			id, began = key, answer.Began
		}
	}
	return id
}
