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
	attemptTimeout = 10 * time.Second // one attempt to send one message
	parting        = 5 * time.Second  // what is queued at the end of Run may still leave for so long
	queueLimit     = 1000             // Kubernetes events that wait for one release, and other messages
	sendingLimit   = 256              // attempts at once of messages that are no Kubernetes events
	recordLimit    = 10               // attempts at once of Kubernetes events: as many as releases that move may write
	maxAsked       = 30 * time.Second // a receiver may ask to be left alone for so long, each time
)

// The causes for which the context of an attempt ends.
var (
	errTooSlow = fmt.Errorf("no answer within %s", attemptTimeout)
	errStopped = errors.New("the controller stops")
	errFull    = fmt.Errorf("%d messages of the release wait already", queueLimit)
)

// backoff is the pause before a transient failure is tried again, by the number of attempts so far: half a minute in all,
// as long as an API server or a gateway needs to come back. ok is false when it is not tried again.
func backoff(attempts int) (pause time.Duration, ok bool) {
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
	return transientError{error: err, wait: min(wait, maxAsked)}
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
	lines   map[lineKey]*line
	records *fairshare.Queue[*line] // lines of Kubernetes events that are ready to leave
	copies  *fairshare.Queue[*line] // those of other messages
	resting resting
	closed  bool
}

type lineKey struct {
	types.NamespacedName
	record bool
}

// line is the messages of one kind of one release that have not left yet; it goes when it is empty.
type line struct {
	lineKey
	current  *message // the one whose turn it is
	attempts int      // to send it
	failed   error    // the last of them
	until    time.Time
	queue    []message // behind it
}

// resting are the lines whose messages are tried again later, the next one first.
type resting []*line

func (r *resting) Len() int           { return len(*r) }
func (r *resting) Less(i, j int) bool { return (*r)[i].until.Before((*r)[j].until) }
func (r *resting) Swap(i, j int)      { (*r)[i], (*r)[j] = (*r)[j], (*r)[i] }
func (r *resting) Push(l any)         { *r = append(*r, l.(*line)) } //nolint:forcetypeassert // the heap has nothing else
func (r *resting) Pop() any {
	all := *r
	last := all[len(all)-1]
	all[len(all)-1] = nil
	*r = all[:len(all)-1]
	return last
}

type message struct {
	name string
	send func(ctx context.Context) error
	// record messages are the history of a release, Kubernetes events; the others are copies of it for somebody.
	record bool
	// then hears what became of the message; nil: nobody does.
	then func(error)
}

// NewOutbox makes an outbox. Messages that could not be sent are logged to log, as errors.
func NewOutbox(clk clock.Clock, log logr.Logger) *Outbox {
	return &Outbox{
		clock:   clk,
		log:     log,
		wake:    make(chan struct{}, 1),
		lines:   map[lineKey]*line{},
		records: fairshare.NewQueue[*line](recordLimit),
		copies:  fairshare.NewQueue[*line](sendingLimit),
	}
}

// Post queues a message and returns at once. The name says in the log what it was ("event hook audit"). send has 10 s
// for each attempt and must return soon after its context is done; a Transient error is tried again after 1, 2, 4, 8
// and 16 s, or later where the receiver asks for that (up to 30 s each time), any other is logged and ends the message. Its
// text must not carry secrets or the query of a URL. Where 1000 messages of the release wait already, the oldest but the
// one whose turn it is is dropped. Messages that are posted before Run wait for it; those posted after its end are dropped. Whatever is dropped is
// logged.
func (o *Outbox) Post(key types.NamespacedName, name string, send func(ctx context.Context) error) {
	o.post(key, message{name: name, send: send})
}

// PostThen is Post, and calls then once with what became of the message: nil when it was sent, else the error for which it
// was dropped. then must not post to this outbox, nor wait.
func (o *Outbox) PostThen(key types.NamespacedName, name string, send func(ctx context.Context) error, then func(error)) {
	o.post(key, message{name: name, send: send, then: then})
}

func (o *Outbox) post(of types.NamespacedName, m message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.dropped(of, m, errStopped)
		return
	}
	key := lineKey{of, m.record}
	l := o.lines[key]
	if l == nil {
		l = &line{lineKey: key, current: &m}
		o.lines[key] = l
		o.ready(l)
		return
	}
	l.queue = append(l.queue, m)
	if len(l.queue) >= queueLimit {
		o.dropped(of, l.queue[0], errFull)
		l.queue[0] = message{} // the array outlives the slice
		l.queue = l.queue[1:]
	}
}

// slots are those for the messages of a line.
func (o *Outbox) slots(l *line) *fairshare.Queue[*line] {
	if l.record {
		return o.records
	}
	return o.copies
}

// ready lets a line wait for a slot.
func (o *Outbox) ready(l *line) {
	o.slots(l).Push(l.Namespace, l)
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
			start := o.next(sending)
			if start == nil {
				break
			}
			attempts.Go(start)
		}
		again, stopTimer := o.timer()
		select {
		case <-o.wake:
		case <-again:
		case <-ending:
			ending = nil
			timer := o.clock.NewTimer(parting)
			defer timer.Stop()
			over = timer.C()
			o.close()
		case <-over:
			stopTimer()
			stop(errStopped)
			attempts.Wait()
			o.dropAll()
			return nil
		}
		stopTimer()
		if o.done() {
			return nil
		}
	}
}

// timer fires when the next message is tried again.
func (o *Outbox) timer() (fires <-chan time.Time, stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.resting) == 0 {
		return nil, func() {}
	}
	timer := o.clock.NewTimer(o.resting[0].until.Sub(o.clock.Now()))
	return timer.C(), func() { timer.Stop() }
}

// Send makes one attempt for a message whose turn it is, in the caller's time, and says whether there was one. Run does that;
// whoever decides himself when a message leaves does it instead of Run.
func (o *Outbox) Send(ctx context.Context) bool {
	start := o.next(ctx)
	if start != nil {
		start()
	}
	return start != nil
}

// next takes a slot for a message whose turn it is, and is what makes the attempt; nil when there is none.
func (o *Outbox) next(ctx context.Context) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for now := o.clock.Now(); len(o.resting) > 0 && !o.resting[0].until.After(now); {
		l := heap.Pop(&o.resting).(*line) //nolint:forcetypeassert // the heap has nothing else
		o.ready(l)
	}
	for _, slots := range []*fairshare.Queue[*line]{o.records, o.copies} {
		if _, l, ok := slots.Pop(); ok {
			m := *l.current
			return func() { o.tried(l, o.attempt(ctx, m)) }
		}
	}
	return nil
}

// tried returns the slot of an attempt. The message is tried again later, or done with.
func (o *Outbox) tried(l *line, err error) {
	o.mu.Lock()
	o.slots(l).Done(l.Namespace)
	l.attempts++
	transient, may := errors.AsType[transientError](err)
	if pause, again := backoff(l.attempts); may && again {
		l.failed, l.until = err, o.clock.Now().Add(max(pause, transient.wait))
		heap.Push(&o.resting, l)
		o.signal()
		o.mu.Unlock()
		return
	}
	m := *l.current
	o.mu.Unlock()

	// What hears of it may take locks of its own, and the messages behind this one wait until it has heard.
	if err != nil {
		o.dropped(l.NamespacedName, m, err)
	} else {
		o.tell(m, nil)
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	l.attempts, l.failed = 0, nil
	if len(l.queue) == 0 {
		delete(o.lines, l.lineKey)
		o.signal()
		return
	}
	next := l.queue[0]
	l.current, l.queue[0] = &next, message{} // the array outlives the slice
	l.queue = l.queue[1:]
	o.ready(l)
}

// attempt makes an error of a panic: a fault in one message must not end the process.
func (o *Outbox) attempt(ctx context.Context, m message) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, errTooSlow)
	defer cancel()
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w\n%s", Fault(fault), debug.Stack())
		}
	}()
	return m.send(ctx)
}

func (o *Outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

func (o *Outbox) done() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed && len(o.lines) == 0
}

func (o *Outbox) dropAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lines {
		err := errStopped
		if l.failed != nil {
			err = l.failed
		}
		o.dropped(l.NamespacedName, *l.current, err)
		for _, m := range l.queue {
			o.dropped(l.NamespacedName, m, errStopped)
		}
	}
	clear(o.lines)
	o.resting = nil
}

func (o *Outbox) dropped(of types.NamespacedName, m message, err error) {
	o.log.Error(err, "Dropped message", "namespace", of.Namespace, "name", of.Name, "message", m.name)
	o.tell(m, err)
}

// tell lets a message hear what became of it. A fault in that must not end the process.
func (o *Outbox) tell(m message, err error) {
	if m.then == nil {
		return
	}
	defer func() {
		if fault := recover(); fault != nil {
			o.log.Error(Fault(fault), "Panicked over what became of a message", "message", m.name, "stack", string(debug.Stack()))
		}
	}()
	m.then(err)
}

func (o *Outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default: // a token is there already, and Run looks at everything for one
	}
}
