package telemetry

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// The bounds of an Outbox.
const (
	attemptTimeout = 10 * time.Second // one attempt to send one message
	parting        = 5 * time.Second  // what is queued at the end of Run may still leave for so long
	queueLimit     = 1000             // messages that wait for one release
	sendingLimit   = 256              // messages under way in all
	recordLimit    = 10               // Kubernetes events among them: as many as releases that move may write at once
	maxAsked       = 30 * time.Second // a receiver may ask to be left alone for so long, each time
)

// The causes for which the context of an attempt ends.
var (
	errTooSlow = fmt.Errorf("no answer within %s", attemptTimeout)
	errStopped = errors.New("the controller stops")
	errFull    = fmt.Errorf("%d messages of the release wait already", queueLimit)
)

// backoffs are the pauses before a transient failure is tried again, half a minute in all: as long as an API server
// or a gateway needs to come back.
func backoffs() []time.Duration {
	return []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}
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

// Outbox sends the messages of releases to the outside: Kubernetes events, event hooks, alerts. Those of one release
// leave one after the other, in the order in which they were posted; those of another release never wait for them, but
// for Kubernetes events: few leave at once, since they go to the API server, which releases must not wait for behind them.
// All methods may be called at any time from anywhere; none of them waits.
type Outbox struct {
	clock clock.Clock
	log   logr.Logger
	wake  chan struct{} // holds one token: something may be ready to leave, or everything has left

	mu      sync.Mutex
	lines   map[types.NamespacedName]*line
	ready   []*line // those with a message waiting and none under way, longest waiting first
	sending int
	records int // Kubernetes events that are tried for the first time
	closed  bool
}

// line is the messages of one release that have not left yet; it goes when it is empty.
type line struct {
	key     types.NamespacedName
	queue   []message
	sending bool
}

type message struct {
	name string
	send func(ctx context.Context) error
	// record messages are the history of a release; the others are copies of it for somebody, and go first when a
	// queue is full.
	record bool
	// then hears what became of the message; nil: nobody does.
	then func(error)
}

// NewOutbox makes an outbox. Messages that could not be sent are logged to log, as errors.
func NewOutbox(clk clock.Clock, log logr.Logger) *Outbox {
	return &Outbox{
		clock: clk,
		log:   log,
		wake:  make(chan struct{}, 1),
		lines: map[types.NamespacedName]*line{},
	}
}

// Post queues a message and returns at once. The name says in the log what it was ("event hook audit"). send has 10 s
// for each attempt and must return soon after its context is done; a Transient error is tried again after 1, 2, 4, 8
// and 16 s, or later where the receiver asks for that, any other is logged and ends the message. Its text must not carry secrets or the query of a URL. Where 1000
// messages wait already, the oldest that is not a Kubernetes event is dropped. Messages that are posted before Run wait
// for it; those posted after its end are dropped. Whatever is dropped is logged.
func (o *Outbox) Post(key types.NamespacedName, name string, send func(ctx context.Context) error) {
	o.post(key, message{name: name, send: send})
}

// PostThen is Post, and calls then once with what became of the message: nil when it was sent, else the error for which it
// was dropped. then must not post to this outbox, nor wait.
func (o *Outbox) PostThen(key types.NamespacedName, name string, send func(ctx context.Context) error, then func(error)) {
	o.post(key, message{name: name, send: send, then: then})
}

func (o *Outbox) post(key types.NamespacedName, m message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.dropped(key, m, errStopped)
		return
	}
	l := o.lines[key]
	if l == nil {
		l = &line{key: key}
		o.lines[key] = l
	}
	l.queue = append(l.queue, m)
	if len(l.queue) > queueLimit {
		oldest := max(0, slices.IndexFunc(l.queue, func(m message) bool { return !m.record }))
		o.dropped(key, l.queue[oldest], errFull)
		l.queue = slices.Delete(l.queue, oldest, oldest+1)
		return // a full line is in its place already
	}
	if !l.sending && len(l.queue) == 1 {
		o.ready = append(o.ready, l)
		o.signal()
	}
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
		select {
		case <-o.wake:
		case <-ending:
			ending = nil
			timer := o.clock.NewTimer(parting)
			defer timer.Stop()
			over = timer.C()
			o.close()
		case <-over:
			stop(errStopped)
			attempts.Wait()
			o.dropAll()
			return nil
		}
		if o.done() {
			return nil
		}
	}
}

// Send sends the message that has waited longest for its turn, in the caller's time, and says whether there was one.
// Run does that; whoever decides himself when a message leaves does it instead of Run.
func (o *Outbox) Send(ctx context.Context) bool {
	start := o.next(ctx)
	if start != nil {
		start()
	}
	return start != nil
}

// next takes the message that has waited longest for its turn, and is what sends it; nil when there is none.
func (o *Outbox) next(ctx context.Context) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	may := slices.IndexFunc(o.ready, func(l *line) bool { return !l.queue[0].record || o.records < recordLimit })
	if o.sending >= sendingLimit || may < 0 {
		return nil
	}
	l := o.ready[may]
	o.ready = slices.Delete(o.ready, may, may+1)
	m := l.queue[0]
	l.queue[0] = message{} // the array lives on below the slice
	l.queue = l.queue[1:]
	l.sending = true
	o.sending++
	if m.record {
		o.records++
	}
	return func() {
		switch err := o.deliver(ctx, m); {
		case err != nil:
			o.dropped(l.key, m, err)
		case m.then != nil:
			m.then(nil)
		}
		o.left(l)
	}
}

// deliver sends one message, again where that may help.
func (o *Outbox) deliver(ctx context.Context, m message) error {
	err := o.attempt(ctx, m)
	o.tried(m)
	for _, pause := range backoffs() {
		transient, ok := errors.AsType[transientError](err)
		if !ok {
			return err
		}
		timer := o.clock.NewTimer(max(pause, transient.wait))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		err = o.attempt(ctx, m)
	}
	return err
}

// tried lets another Kubernetes event leave. One that is tried again later holds up none until then.
func (o *Outbox) tried(m message) {
	if !m.record {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.records--
	o.signal()
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

// left records that the message of a line that was under way is done with.
func (o *Outbox) left(l *line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sending--
	l.sending = false
	if len(l.queue) == 0 {
		delete(o.lines, l.key)
	} else {
		o.ready = append(o.ready, l)
	}
	o.signal()
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
	for key, l := range o.lines {
		for _, m := range l.queue {
			o.dropped(key, m, errStopped)
		}
	}
	clear(o.lines)
	o.ready = nil
}

func (o *Outbox) dropped(key types.NamespacedName, m message, err error) {
	o.log.Error(err, "Dropped message", "namespace", key.Namespace, "name", key.Name, "message", m.name)
	if m.then != nil {
		m.then(err)
	}
}

func (o *Outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default: // a token is there already, and Run looks at everything for one
	}
}
