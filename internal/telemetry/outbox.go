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
	attemptTimeout       = 10 * time.Second // for one attempt to send one message
	shutdownDrainTimeout = 5 * time.Second  // for sending the messages that are queued when Run ends
	maxQueuedMessages    = 1000             // Kubernetes events queued per release, and as many other messages
	maxConcurrentSends   = 256              // concurrent attempts for messages other than Kubernetes events
	maxConcurrentRecords = 10               // concurrent attempts for Kubernetes events: as many writes as active releases may have
	maxRequestedWait     = 30 * time.Second // the longest delay that a receiver may request with each refusal
)

// The causes of dropped messages; the first two also end the context of an attempt.
var (
	errTooSlow = fmt.Errorf("no answer within %s", attemptTimeout)
	errStopped = errors.New("the controller stops")
	errFull    = fmt.Errorf("%d messages of the release are queued already", maxQueuedMessages)
)

// retryDelay returns the delay before the next attempt after a transient failure, by the number of attempts so far. All delays
// add up to half a minute, the time that an API server or a gateway needs to recover. ok is false after the last attempt.
func retryDelay(attempts int) (delay time.Duration, ok bool) {
	return time.Second << (attempts - 1), attempts <= 5
}

// transientError marks a failure that may end soon, or after the delay that the receiver requested.
type transientError struct {
	error
	wait time.Duration
}

func (e transientError) Unwrap() error { return e.error }

// Transient marks an error after which another attempt may succeed. nil remains nil.
func Transient(err error) error { return TransientFor(err, 0) }

// TransientFor is like Transient, with the delay that the receiver requested; a longer one is cut to half a minute.
func TransientFor(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return transientError{error: err, wait: min(wait, maxRequestedWait)}
}

// Outbox sends the messages of releases: Kubernetes events, event webhooks, alerts. It sends the Kubernetes events of a
// release one after the other, in the order in which they were posted. The same is true of the other messages of the
// release, whose receivers its users chose. Neither kind waits for the other. Combined events wait for their own time.
//
// Each kind has a limited number of slots, which namespaces share. A message occupies a slot only during an attempt to
// send it, not while it waits for its next attempt. A receiver that does not answer, or that requests a delay, therefore
// delays the messages of its own release, but none of another namespace.
//
// All methods are safe for concurrent use; none of them blocks except Run and AttemptNext.
type Outbox struct {
	clock clock.Clock
	log   logr.Logger
	wake  chan struct{} // has room for one token: a message may be ready, or all are sent

	mu      sync.Mutex
	queues  map[queueKey]*messageQueue
	records *fairshare.Queue[*messageQueue] // queues of Kubernetes events with a message to send now
	copies  *fairshare.Queue[*messageQueue] // queues of other messages with one to send now
	retries retryHeap
	closed  bool
}

type queueKey struct {
	types.NamespacedName
	isRecord bool
	// series identifies the combined event of a series; 0: the messages are sent as soon as possible.
	series int64
}

// messageQueue contains the unsent messages of one kind of one release; it is deleted when it is empty.
type messageQueue struct {
	queueKey
	current   *message  // the message to send next
	attempts  int       // the number of attempts to send current
	lastErr   error     // the error of the last of them
	nextRetry time.Time // the time of the next attempt after a transient failure
	queue     []message // the messages after current
}

// retryHeap contains the queues whose current message waits for its next attempt, the earliest first.
type retryHeap []*messageQueue

func (r *retryHeap) Len() int           { return len(*r) }
func (r *retryHeap) Less(i, j int) bool { return (*r)[i].nextRetry.Before((*r)[j].nextRetry) }
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
	// isRecord marks Kubernetes events, the history of a release; other messages are copies of it for a receiver.
	isRecord bool
	// onDone receives the result of the message; may be nil.
	onDone func(error)
}

// NewOutbox returns an outbox that logs dropped messages to log, as errors.
func NewOutbox(clk clock.Clock, log logr.Logger) *Outbox {
	return &Outbox{
		clock:   clk,
		log:     log,
		wake:    make(chan struct{}, 1),
		queues:  map[queueKey]*messageQueue{},
		records: fairshare.NewQueue[*messageQueue](maxConcurrentRecords),
		copies:  fairshare.NewQueue[*messageQueue](maxConcurrentSends),
	}
}

// Post queues a message and returns at once. The name describes the message in the log ("event hook audit").
//
// send has 10 s for each attempt and must return soon after its context is done. After a Transient error it is called again
// after 1, 2, 4, 8 and 16 s, or later if the receiver requests a delay (up to 30 s each time). Any other error is logged and
// drops the message; its text must not contain secrets or the query of a URL.
//
// If 1000 messages of the release are queued already, the oldest one is dropped, except for the message that is sent next.
// Messages that are posted before Run wait for it; messages that are posted after its end are dropped. Every dropped
// message is logged.
func (o *Outbox) Post(key types.NamespacedName, name string, send func(ctx context.Context) error) {
	o.enqueue(key, message{name: name, send: send})
}

// PostWithCallback is like Post and calls onDone once with the result of the message: nil when it was sent, else the error
// for which it was dropped. onDone must not block. It may post to this outbox, unless it does so for every failure of its own
// messages, which would never end.
func (o *Outbox) PostWithCallback(key types.NamespacedName, name string, send func(ctx context.Context) error, onDone func(error)) {
	o.enqueue(key, message{name: name, send: send, onDone: onDone})
}

func (o *Outbox) enqueue(releaseKey types.NamespacedName, m message) {
	if dropped, err := o.addToQueue(releaseKey, m); err != nil {
		o.dropMessage(releaseKey, dropped, err)
	}
}

// addToQueue adds a message to the queue of its release. With an error, it returns the message that must be dropped, without the
// lock because its callback may post another one.
func (o *Outbox) addToQueue(releaseKey types.NamespacedName, m message) (dropped message, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return m, errStopped
	}
	key := queueKey{releaseKey, m.isRecord, 0}
	q := o.queues[key]
	if q == nil {
		q = &messageQueue{queueKey: key, current: &m}
		o.queues[key] = q
		o.awaitSlot(q)
		return message{}, nil
	}
	q.queue = append(q.queue, m)
	if len(q.queue) < maxQueuedMessages {
		return message{}, nil
	}
	dropped = q.queue[0]
	q.queue[0] = message{} // the array outlives the slice
	q.queue = q.queue[1:]
	return dropped, errFull
}

// enqueueLater queues a Kubernetes event that is sent at the given time, or when Run ends if that is earlier. It does not delay
// the other events of its release. The text of an event of the same series that is queued already must include it.
func (o *Outbox) enqueueLater(releaseKey types.NamespacedName, series int64, m message, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.dropMessage(releaseKey, m, errStopped)
		return
	}
	key := queueKey{releaseKey, m.isRecord, series}
	if q := o.queues[key]; q != nil { // it is being sent
		q.queue = []message{m}
		return
	}
	q := &messageQueue{queueKey: key, current: &m, nextRetry: at}
	o.queues[key] = q
	heap.Push(&o.retries, q)
	o.signal()
}

// slotsFor returns the slots for the messages of a queue.
func (o *Outbox) slotsFor(q *messageQueue) *fairshare.Queue[*messageQueue] {
	if q.isRecord {
		return o.records
	}
	return o.copies
}

// awaitSlot lets a queue wait for a slot.
func (o *Outbox) awaitSlot(q *messageQueue) {
	o.slotsFor(q).Push(q.Namespace, q)
	o.signal()
}

// Run sends messages until ctx is done, and then the queued ones for up to 5 s. It returns nil after all its goroutines have
// ended. It must be called at most once.
func (o *Outbox) Run(ctx context.Context) error {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	// The last messages of a release must not be lost because the process is replaced, so ctx does not cancel their attempts.
	sending, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopped)

	stopping := ctx.Done()
	var drainTimeout <-chan time.Time
	for {
		for {
			start := o.takeNext(sending)
			if start == nil {
				break
			}
			attempts.Go(start)
		}
		retry, stopTimer := o.retryTimer()
		select {
		case <-o.wake:
		case <-retry:
		case <-stopping:
			stopping = nil
			timer := o.clock.NewTimer(shutdownDrainTimeout)
			defer timer.Stop()
			drainTimeout = timer.C()
			o.close()
		case <-drainTimeout:
			stopTimer()
			stop(errStopped)
			attempts.Wait()
			o.dropQueued()
			return nil
		}
		stopTimer()
		if o.isDrained() {
			return nil
		}
	}
}

// retryTimer returns a channel that fires at the next retry of a message.
func (o *Outbox) retryTimer() (fires <-chan time.Time, stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.retries) == 0 {
		return nil, func() {}
	}
	timer := o.clock.NewTimer(o.retries[0].nextRetry.Sub(o.clock.Now()))
	return timer.C(), func() { timer.Stop() }
}

// AttemptNext makes one attempt to send the next message, synchronously, and reports whether there was one. It is an
// alternative to Run for callers that control when a message is sent.
func (o *Outbox) AttemptNext(ctx context.Context) bool {
	start := o.takeNext(ctx)
	if start != nil {
		start()
	}
	return start != nil
}

// takeNext takes a slot for the next message and returns the function that makes the attempt; nil when no message is ready.
func (o *Outbox) takeNext(ctx context.Context) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for now := o.clock.Now(); len(o.retries) > 0 && !o.retries[0].nextRetry.After(now); {
		q := heap.Pop(&o.retries).(*messageQueue) //nolint:forcetypeassert // the heap has nothing else
		o.awaitSlot(q)
	}
	for _, slots := range []*fairshare.Queue[*messageQueue]{o.records, o.copies} {
		if _, q, ok := slots.Pop(); ok {
			m := *q.current
			return func() { o.finishAttempt(q, o.attemptSend(ctx, m)) }
		}
	}
	return nil
}

// finishAttempt releases the slot of an attempt, then schedules a retry or continues with the next message of the queue.
func (o *Outbox) finishAttempt(q *messageQueue, err error) {
	o.mu.Lock()
	o.slotsFor(q).ReleaseSlot(q.Namespace)
	q.attempts++
	transient, isTransient := errors.AsType[transientError](err)
	if delay, ok := retryDelay(q.attempts); isTransient && ok {
		q.lastErr, q.nextRetry = err, o.clock.Now().Add(max(delay, transient.wait))
		heap.Push(&o.retries, q)
		o.signal()
		o.mu.Unlock()
		return
	}
	m := *q.current
	o.mu.Unlock()

	// The callback may take locks of its own, so it runs without the lock; the next message waits until it has returned.
	if err != nil {
		o.dropMessage(q.NamespacedName, m, err)
	} else {
		o.notifySender(m, nil)
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	q.attempts, q.lastErr = 0, nil
	if len(q.queue) == 0 {
		delete(o.queues, q.queueKey)
		o.signal()
		return
	}
	next := q.queue[0]
	q.current, q.queue[0] = &next, message{} // the array outlives the slice
	q.queue = q.queue[1:]
	o.awaitSlot(q)
}

// attemptSend converts a panic into an error: a defect in one message must not end the process.
func (o *Outbox) attemptSend(ctx context.Context, m message) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, errTooSlow)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w\n%s", PanicError(cause), debug.Stack())
		}
	}()
	return m.send(ctx)
}

// close refuses further messages. The events that wait for their time are sent now; retries keep theirs.
func (o *Outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, q := range o.retries {
		if q.attempts == 0 {
			q.nextRetry = o.clock.Now()
		}
	}
	heap.Init(&o.retries)
}

func (o *Outbox) isDrained() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed && len(o.queues) == 0
}

func (o *Outbox) dropQueued() {
	o.mu.Lock()
	queues := o.queues
	o.queues, o.retries = map[queueKey]*messageQueue{}, nil
	o.mu.Unlock()
	for _, q := range queues {
		err := errStopped
		if q.lastErr != nil {
			err = q.lastErr
		}
		o.dropMessage(q.NamespacedName, *q.current, err)
		for _, m := range q.queue {
			o.dropMessage(q.NamespacedName, m, errStopped)
		}
	}
}

// dropMessage must be called without the lock if the message has a callback.
func (o *Outbox) dropMessage(key types.NamespacedName, m message, err error) {
	o.log.Error(err, "Dropped message", "namespace", key.Namespace, "name", key.Name, "message", m.name)
	o.notifySender(m, err)
}

// notifySender calls the callback of a message with its result. A panic in the callback must not end the process.
func (o *Outbox) notifySender(m message, err error) {
	if m.onDone == nil {
		return
	}
	defer func() {
		if cause := recover(); cause != nil {
			o.log.Error(PanicError(cause), "Panicked in the callback of a message", "message", m.name, "stack", string(debug.Stack()))
		}
	}()
	m.onDone(err)
}

func (o *Outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default: // there is a token already, and Run examines all queues for each token
	}
}
