package telemetry

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/fairshare"
)

// The bounds of an Outbox.
const (
	attemptTimeout       = 10 * time.Second // one attempt to send one message
	shutdownDrainTimeout = 5 * time.Second  // what is queued at the end of Run may still leave for so long
	maxQueuedMessages    = 1000             // Kubernetes events that wait for one release, and other messages
	maxConcurrentSends   = 256              // attempts at once of messages that are no Kubernetes events
	maxConcurrentRecords = 10               // attempts at once of Kubernetes events: as many as releases that move may write
	maxRequestedWait     = 30 * time.Second // a receiver may ask to be left alone for so long, each time
)

// The causes for which the context of an attempt ends.
var (
	errTooSlow = fmt.Errorf("no answer within %s", attemptTimeout)
	errStopped = errors.New("the controller stops")
	errFull    = fmt.Errorf("%d messages of the release wait already", maxQueuedMessages)
)

// retryDelay is the pause before a transient failure is tried again, by the number of attempts so far: half a minute in all,
// as long as an API server or a gateway needs to come back. ok is false when it is not tried again.
func retryDelay(attempts int) (pause time.Duration, ok bool) {
	return time.Second << (attempts - 1), attempts <= 5
}

// transientError marks a failure that may be gone in a moment, or after the time that the receiver asked for.
type transientError struct {
	error
	wait time.Duration
}

func (e transientError) Unwrap() error { return e.error }

// Transient marks the error of a message that is worth another attempt. nil stays nil.
func Transient(err error) error { return TransientFor(err, 0) }

// TransientFor is Transient where the receiver asked to be left alone for so long; more than half a minute is not waited
// for at once.
func TransientFor(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return transientError{error: err, wait: min(wait, maxRequestedWait)}
}

// Outbox sends the messages of releases to the outside: Kubernetes events, event hooks, alerts. The Kubernetes events of
// one release leave one after the other, in the order in which they were posted, and so do all its other messages, which
// go to receivers that its users chose: neither kind waits for the other.
//
// Each kind has a number of slots, which namespaces share, and a message holds one while an attempt to send it runs. One
// that is tried again later holds none until then: receivers that do not answer, or ask to be left alone, delay the
// messages of their own release, and none of another namespace.
//
// All methods may be called at any time from anywhere; none of them waits.
type Outbox struct {
	clock clock.Clock
	log   logr.Logger
	wake  chan struct{} // holds one token: something may be ready to leave, or everything has left

	mu      sync.Mutex
	queues  map[lineKey]*messageQueue
	records *fairshare.Queue[*messageQueue] // lines of Kubernetes events that are ready to leave
	copies  *fairshare.Queue[*messageQueue] // those of other messages
	retries retryHeap
	closed  bool
}

type lineKey struct {
	types.NamespacedName
	record bool
}

// messageQueue is the messages of one kind of one release that have not left yet; it goes when it is empty.
type messageQueue struct {
	lineKey
	current  *message // the one whose turn it is
	attempts int      // to send it
	failed   error    // the last of them
	until    time.Time
	queue    []message // behind it
}

// retryHeap are the lines whose messages are tried again later, the next one first.
type retryHeap []*messageQueue

func (r *retryHeap) Len() int           { return len(*r) }
func (r *retryHeap) Less(i, j int) bool { return (*r)[i].until.Before((*r)[j].until) }
func (r *retryHeap) Swap(i, j int)      { (*r)[i], (*r)[j] = (*r)[j], (*r)[i] }
func (r *retryHeap) Push(l any)         { *r = append(*r, l.(*messageQueue)) } //nolint:forcetypeassert // the heap has nothing else
func (r *retryHeap) Pop() any {
	all := *r
	last := all[len(all)-1]
	all[len(all)-1] = nil
	*r = all[:len(all)-1]
	return last
}

type message struct {
	name string
	send func(ctx context.Context) error
	// isRecord messages are the history of a release, Kubernetes events; the others are copies of it for somebody.
	isRecord bool
	// onDone hears what became of the message; nil: nobody does.
	onDone func(error)
}

// NewOutbox makes an outbox. Messages that could not be sent are logged to log, as errors.
func NewOutbox(clk clock.Clock, log logr.Logger) *Outbox {
	return &Outbox{
		clock:   clk,
		log:     log,
		wake:    make(chan struct{}, 1),
		queues:  map[lineKey]*messageQueue{},
		records: fairshare.NewQueue[*messageQueue](maxConcurrentRecords),
		copies:  fairshare.NewQueue[*messageQueue](maxConcurrentSends),
	}
}

// Post queues a message and returns at once. The name says in the log what it was ("event hook audit"). send has 10 s
// for each attempt and must return soon after its context is done; a Transient error is tried again after 1, 2, 4, 8
// and 16 s, or later where the receiver asks for that (up to 30 s each time), any other is logged and ends the message. Its
// text must not carry secrets or the query of a URL. Where 1000 messages of the release wait already, the oldest but the
// one whose turn it is is dropped. Messages that are posted before Run wait for it; those posted after its end are dropped. Whatever is dropped is
// logged.
func (o *Outbox) Post(key types.NamespacedName, name string, send func(ctx context.Context) error) {
	o.enqueue(key, message{name: name, send: send})
}

// PostWithCallback is Post, and calls then once with what became of the message: nil when it was sent, else the error for which it
// was dropped. then must not post to this outbox, nor wait.
func (o *Outbox) PostWithCallback(key types.NamespacedName, name string, send func(ctx context.Context) error, then func(error)) {
	o.enqueue(key, message{name: name, send: send, onDone: then})
}

func (o *Outbox) enqueue(of types.NamespacedName, m message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.dropMessage(of, m, errStopped)
		return
	}
	key := lineKey{of, m.isRecord}
	l := o.queues[key]
	if l == nil {
		l = &messageQueue{lineKey: key, current: &m}
		o.queues[key] = l
		o.awaitSlot(l)
		return
	}
	l.queue = append(l.queue, m)
	if len(l.queue) >= maxQueuedMessages {
		o.dropMessage(of, l.queue[0], errFull)
		l.queue[0] = message{} // the array outlives the slice
		l.queue = l.queue[1:]
	}
}

// slotsFor are those for the messages of a line.
func (o *Outbox) slotsFor(l *messageQueue) *fairshare.Queue[*messageQueue] {
	if l.record {
		return o.records
	}
	return o.copies
}

// awaitSlot lets a line wait for a slot.
func (o *Outbox) awaitSlot(l *messageQueue) {
	o.slotsFor(l).Push(l.Namespace, l)
	o.signal()
}

// Run sends until ctx is done; what is queued then has 5 s more to leave. It returns nil when nothing of it runs any
// more. It runs once.
func (o *Outbox) Run(ctx context.Context) error {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	// The last words of a release must not be lost because the process is replaced, so ctx does not cut them off.
	sending, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopped)

	ending := ctx.Done()
	var over <-chan time.Time
	for {
		for {
			start := o.takeNext(sending)
			if start == nil {
				break
			}
			attempts.Go(start)
		}
		again, stopTimer := o.retryTimer()
		select {
		case <-o.wake:
		case <-again:
		case <-ending:
			ending = nil
			timer := o.clock.NewTimer(shutdownDrainTimeout)
			defer timer.Stop()
			over = timer.C()
			o.close()
		case <-over:
			stopTimer()
			stop(errStopped)
			attempts.Wait()
			o.dropQueued()
			return nil
		}
		stopTimer()
		if o.finishMessage() {
			return nil
		}
	}
}

// retryTimer fires when the next message is tried again.
func (o *Outbox) retryTimer() (fires <-chan time.Time, stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.retries) == 0 {
		return nil, func() {}
	}
	timer := o.clock.NewTimer(o.retries[0].until.Sub(o.clock.Now()))
	return timer.C(), func() { timer.Stop() }
}

// AttemptNext makes one attempt for a message whose turn it is, in the caller's time, and says whether there was one. Run does that;
// whoever decides himself when a message leaves does it instead of Run.
func (o *Outbox) AttemptNext(ctx context.Context) bool {
	start := o.takeNext(ctx)
	if start != nil {
		start()
	}
	return start != nil
}

// takeNext takes a slot for a message whose turn it is, and is what makes the attempt; nil when there is none.
func (o *Outbox) takeNext(ctx context.Context) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for now := o.clock.Now(); len(o.retries) > 0 && !o.retries[0].until.After(now); {
		l := heap.Pop(&o.retries).(*messageQueue) //nolint:forcetypeassert // the heap has nothing else
		o.awaitSlot(l)
	}
	for _, slots := range []*fairshare.Queue[*messageQueue]{o.records, o.copies} {
		if _, l, ok := slots.Pop(); ok {
			m := *l.current
			return func() { o.finishAttempt(l, o.attemptSend(ctx, m)) }
		}
	}
	return nil
}

// finishAttempt returns the slot of an attempt. The message is tried again later, or done with.
func (o *Outbox) finishAttempt(l *messageQueue, err error) {
	o.mu.Lock()
	o.slotsFor(l).ReleaseSlot(l.Namespace)
	l.attempts++
	transient, may := errors.AsType[transientError](err)
	if pause, again := retryDelay(l.attempts); may && again {
		l.failed, l.until = err, o.clock.Now().Add(max(pause, transient.wait))
		heap.Push(&o.retries, l)
		o.signal()
		o.mu.Unlock()
		return
	}
	m := *l.current
	o.mu.Unlock()

	// What hears of it may take locks of its own, and the messages behind this one wait until it has heard.
	if err != nil {
		o.dropMessage(l.NamespacedName, m, err)
	} else {
		o.notifySender(m, nil)
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	l.attempts, l.failed = 0, nil
	if len(l.queue) == 0 {
		delete(o.queues, l.lineKey)
		o.signal()
		return
	}
	next := l.queue[0]
	l.current, l.queue[0] = &next, message{} // the array outlives the slice
	l.queue = l.queue[1:]
	o.awaitSlot(l)
}

// attemptSend makes an error of a panic: a fault in one message must not end the process.
func (o *Outbox) attemptSend(ctx context.Context, m message) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, errTooSlow)
	defer cancel()
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w\n%s", PanicError(fault), debug.Stack())
		}
	}()
	return m.send(ctx)
}

func (o *Outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

func (o *Outbox) finishMessage() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed && len(o.queues) == 0
}

func (o *Outbox) dropQueued() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.queues {
		err := errStopped
		if l.failed != nil {
			err = l.failed
		}
		o.dropMessage(l.NamespacedName, *l.current, err)
		for _, m := range l.queue {
			o.dropMessage(l.NamespacedName, m, errStopped)
		}
	}
	clear(o.queues)
	o.retries = nil
}

func (o *Outbox) dropMessage(of types.NamespacedName, m message, err error) {
	o.log.Error(err, "Dropped message", "namespace", of.Namespace, "name", of.Name, "message", m.name)
	o.notifySender(m, err)
}

// notifySender lets a message hear what became of it. A fault in that must not end the process.
func (o *Outbox) notifySender(m message, err error) {
	if m.onDone == nil {
		return
	}
	defer func() {
		if fault := recover(); fault != nil {
			o.log.Error(PanicError(fault), "Panicked over what became of a message", "message", m.name, "stack", string(debug.Stack()))
		}
	}()
	m.onDone(err)
}

func (o *Outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default: // a token is there already, and Run looks at everything for one
	}
}
