package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// textLog collects logged or sent texts in order.
type textLog struct {
	mu  sync.Mutex
	all []string
}

func (l *textLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *textLog) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.all...)
}

func (l *textLog) sendReturning(err error) func(context.Context) error {
	return func(context.Context) error {
		l.add("attempt")
		return err
	}
}

// safeBuffer is a log that is safe for concurrent reads and writes.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func testLogger(t *testing.T) (logr.Logger, *safeBuffer) {
	t.Helper()
	logged := &safeBuffer{}
	logger, err := NewLogger("info", "json", logged)
	if err != nil {
		t.Fatal(err)
	}
	return logger, logged
}

// startOutbox starts an outbox and returns a function that stops it and waits for its end.
func startOutbox(t *testing.T) (o *Outbox, stop func(), logged *safeBuffer) {
	t.Helper()
	logger, logged := testLogger(t)
	o = NewOutbox(clock.RealClock{}, logger)
	stop = runOutbox(t, o)
	t.Cleanup(stop)
	return o, stop, logged
}

func runOutbox(t *testing.T, o *Outbox) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	var once sync.Once
	return func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// advanceTime advances the fake time of a test and waits until all goroutines are idle.
func advanceTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func shopRelease(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// releaseInOwnNamespace returns a release in a namespace of its own.
func releaseInOwnNamespace(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprint("namespace-", i), Name: "cart"}
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestMessagesOfAReleaseAreSentInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, _ := startOutbox(t)
		sent := &textLog{}
		var want []string
		for i := range 300 {
			text := fmt.Sprint(i)
			want = append(want, text)
			o.Post(shopRelease("cart"), text, func(context.Context) error {
				time.Sleep(time.Duration(300-i) * time.Millisecond) // later ones are faster and must not overtake
				sent.add(text)
				return nil
			})
		}
		advanceTime(time.Hour)
		expect(t, "sent", sent.list(), want)
		if len(o.queues) != 0 || len(o.retries) != 0 || o.copies.SlotsInUse() != 0 {
			t.Errorf("remaining: %d queues, %d retries, %d used slots", len(o.queues), len(o.retries), o.copies.SlotsInUse())
		}
	})
}

func TestAHangingReceiverDelaysOnlyItsOwnRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, logged := startOutbox(t)
		sent := &textLog{}
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		began := time.Now()
		o.Post(shopRelease("slow"), "event hook audit", hang)
		for i := range 50 {
			o.Post(shopRelease(fmt.Sprint(i)), "alert", func(context.Context) error {
				if since := time.Since(began); since != 0 {
					t.Errorf("release %d waited %s for another", i, since)
				}
				sent.add("good")
				return nil
			})
		}
		synctest.Wait()
		o.Post(shopRelease("slow"), "posted while the first hangs", func(context.Context) error {
			sent.add(fmt.Sprintf("slow after %s", time.Since(began)))
			return nil
		})
		synctest.Wait()
		expect(t, "messages of the others", len(sent.list()), 50)
		time.Sleep(attemptTimeout)
		synctest.Wait()
		expect(t, "message after the hanging one", sent.list()[50:], []string{"slow after 10s"})
		for _, want := range []string{`"msg":"Dropped message"`, `"message":"event hook audit"`, `"name":"slow"`, "no answer within 10s"} {
			if !strings.Contains(logged.String(), want) {
				t.Errorf("log lacks %s:\n%s", want, logged)
			}
		}
	})
}

// The reconcilers of active releases write to the API server too and must not wait there for all the events.
func TestConcurrentEventWritesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, _ := startOutbox(t)
		sent := &textLog{}
		answer := make(chan error)
		for i := range 3 * maxConcurrentRecords {
			o.enqueue(releaseInOwnNamespace(i), message{name: "event", isRecord: true, send: func(context.Context) error {
				sent.add("event")
				return <-answer
			}})
		}
		o.Post(shopRelease("last"), "alert", sent.sendReturning(nil))
		synctest.Wait()
		expect(t, "first", slices.Sorted(slices.Values(sent.list())), append([]string{"attempt"}, slices.Repeat([]string{"event"}, maxConcurrentRecords)...))

		answer <- nil
		synctest.Wait()
		expect(t, "started or sent after one answer", len(sent.list()), maxConcurrentRecords+2)

		answer <- Transient(errors.New("busy"))
		synctest.Wait()
		expect(t, "started or sent while one waits for its next attempt", len(sent.list()), maxConcurrentRecords+3)

		close(answer)
		advanceTime(time.Minute)
		expect(t, "events in progress", o.records.SlotsInUse(), 0)
		expect(t, "attempts", len(sent.list()), 3*maxConcurrentRecords+2)
	})
}

func TestATransientFailureIsTriedAgain(t *testing.T) {
	busy := errors.New("busy")
	for name, test := range map[string]struct {
		errs    []error // of the attempts, the last repeats
		want    []time.Duration
		dropped bool
	}{
		"immediately":             {[]error{nil}, []time.Duration{0}, false},
		"final":                   {[]error{busy}, []time.Duration{0}, true},
		"transient, then success": {[]error{Transient(busy), Transient(busy), nil}, []time.Duration{0, 1, 3}, false},
		"transient, then final":   {[]error{fmt.Errorf("write: %w", Transient(busy)), busy}, []time.Duration{0, 1}, true},
		"with a requested delay":  {[]error{TransientFor(busy, 20*time.Second), TransientFor(busy, time.Hour), Transient(busy), nil}, []time.Duration{0, 20, 50, 54}, false},
		"until the last attempt":  {[]error{Transient(busy)}, []time.Duration{0, 1, 3, 7, 15, 31}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, _, logged := startOutbox(t)
				began := time.Now()
				var got []time.Duration
				o.Post(shopRelease("cart"), "alert", func(context.Context) error {
					got = append(got, time.Since(began)/time.Second)
					return test.errs[min(len(got), len(test.errs))-1]
				})
				advanceTime(time.Hour)
				expect(t, "attempts, in seconds", got, test.want)
				if got := strings.Contains(logged.String(), "Dropped message"); got != test.dropped {
					t.Errorf("dropped %v, want %v: %s", got, test.dropped, logged)
				}
			})
		})
	}
}

func TestAFullQueueDropsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, logged := testLogger(t)
		o := NewOutbox(clock.RealClock{}, logger)
		sent := &textLog{}
		post := func(record bool, text string) {
			o.enqueue(shopRelease("cart"), message{name: text, isRecord: record, send: func(context.Context) error { sent.add(text); return nil }})
		}
		for i := range maxQueuedMessages {
			post(true, fmt.Sprintf("event %d", i))
			post(false, fmt.Sprintf("hook %d", i))
		}
		expect(t, "log", logged.String(), "")
		post(false, "hook last")
		expect(t, "log lines", strings.Count(logged.String(), "\n"), 1)
		if !strings.Contains(logged.String(), `"message":"hook 1"`) { // "hook 0" is sent next
			t.Errorf("the log does not name the dropped message: %s", logged)
		}

		defer runOutbox(t, o)()
		synctest.Wait()
		all := sent.list()
		expect(t, "sent", len(all), 2*maxQueuedMessages)
		for _, want := range []string{"event 0", "event 1", "hook 0", "hook 2", "hook last"} {
			if !slices.Contains(all, want) {
				t.Errorf("%s was not sent", want)
			}
		}
	})
}

// I35: the receivers that one namespace's users chose for alerts delay no messages of other namespaces, however many there
// are, and no Kubernetes events.
func TestRetriedAlertsDelayNoOtherNamespaceAndNoEvents(t *testing.T) {
	refuses := func(context.Context) error { return TransientFor(errors.New("busy"), time.Hour) }
	hangs := func(ctx context.Context) error { <-ctx.Done(); return Transient(context.Cause(ctx)) }
	for name, send := range map[string]func(context.Context) error{"refused": refuses, "not answered": hangs} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, _, _ := startOutbox(t)
				for i := range 4 * maxConcurrentSends {
					o.Post(types.NamespacedName{Namespace: "slow", Name: fmt.Sprint(i)}, "alert", send)
				}
				for range 12 { // in the middle of attempts and of pauses
					advanceTime(5 * time.Second)
					began := time.Now()
					at := map[string]time.Duration{}
					var mu sync.Mutex
					note := func(what string) func(context.Context) error {
						return func(context.Context) error {
							mu.Lock()
							defer mu.Unlock()
							at[what] = time.Since(began)
							return nil
						}
					}
					o.Post(shopRelease("cart"), "alert", note("alert of another namespace"))
					o.enqueue(shopRelease("cart"), message{name: "event", isRecord: true, send: note("event of another namespace")})
					o.enqueue(types.NamespacedName{Namespace: "slow", Name: "0"}, message{name: "event", isRecord: true, send: note("event of its own")})
					synctest.Wait()
					mu.Lock()
					expect(t, "sent after", at, map[string]time.Duration{"alert of another namespace": 0, "event of another namespace": 0, "event of its own": 0})
					mu.Unlock()
				}
			})
		})
	}
}

func TestAMessageWaitingForARetryOccupiesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, _ := startOutbox(t)
		for i := range maxConcurrentSends {
			o.Post(releaseInOwnNamespace(i), "alert", func(context.Context) error { return TransientFor(errors.New("busy"), time.Hour) })
		}
		synctest.Wait()
		o.mu.Lock()
		expect(t, "used slots", o.copies.SlotsInUse(), 0)
		expect(t, "messages that are tried again", len(o.retries), maxConcurrentSends)
		o.mu.Unlock()
		advanceTime(5*maxRequestedWait + time.Second)
		expect(t, "remaining queues", len(o.queues), 0)
	})
}

func TestAPanicInACallbackDoesNotStopTheOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, logged := startOutbox(t)
		sent := &textLog{}
		o.PostWithCallback(shopRelease("cart"), "alert", sent.sendReturning(nil), func(error) { panic("token=hunter2") })
		o.Post(shopRelease("cart"), "alert", sent.sendReturning(nil))
		synctest.Wait()
		expect(t, "sent", len(sent.list()), 2)
		if !strings.Contains(logged.String(), "a panic whose text is not shown") || strings.Contains(logged.String(), "hunter2") {
			t.Errorf("the log lacks the panic, or contains its value: %s", logged)
		}
	})
}

// TestACallbackMayPost: the failure of an alert is a Kubernetes event of the same outbox, also if the alert is dropped because the
// queue is full or the process stops.
func TestACallbackMayPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop, logged := startOutbox(t)
		posted := &textLog{}
		post := func(cause error) {
			if cause != nil {
				o.enqueue(shopRelease("cart"), message{name: "Kubernetes event", isRecord: true, send: posted.sendReturning(nil)})
			}
		}
		o.PostWithCallback(shopRelease("cart"), "alert", func(context.Context) error { return errors.New("refused") }, post)
		synctest.Wait()
		expect(t, "events after a failure", len(posted.list()), 1)

		blocked := func(ctx context.Context) error { <-ctx.Done(); return Transient(context.Cause(ctx)) }
		for range maxQueuedMessages + 2 {
			o.PostWithCallback(shopRelease("cart"), "alert", blocked, post)
		}
		synctest.Wait()
		expect(t, "events of a full queue", len(posted.list()), 3)

		stop()
		advanceTime(shutdownDrainTimeout + time.Second)
		if !strings.Contains(logged.String(), errStopped.Error()) {
			t.Errorf("the log lacks the messages that were dropped at the end: %.2000s", logged)
		}
		expect(t, "remaining queues", len(o.queues), 0)
	})
}

func TestAPanicInAMessageDropsOnlyThatMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, logged := startOutbox(t)
		sent := &textLog{}
		o.Post(shopRelease("cart"), "alert", func(context.Context) error { panic("token=hunter2") })
		o.Post(shopRelease("cart"), "alert", sent.sendReturning(nil))
		synctest.Wait()
		expect(t, "sent", len(sent.list()), 1)
		if !strings.Contains(logged.String(), "a panic whose text is not shown") || strings.Contains(logged.String(), "hunter2") {
			t.Errorf("the log lacks the panic, or contains its value: %s", logged)
		}
	})
}

func TestQueuedMessagesAreSentAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop, logged := startOutbox(t)
		sent := &textLog{}
		for range 3 {
			o.Post(shopRelease("cart"), "alert", func(ctx context.Context) error {
				time.Sleep(time.Second)
				sent.add("sent")
				return ctx.Err()
			})
		}
		synctest.Wait()
		stop()
		expect(t, "sent", len(sent.list()), 3)
		expect(t, "logged", logged.String(), "")

		o.Post(shopRelease("cart"), "too late", sent.sendReturning(nil))
		expect(t, "sent after shutdown", len(sent.list()), 3)
		if !strings.Contains(logged.String(), `"message":"too late"`) {
			t.Errorf("the log does not name the dropped message: %s", logged)
		}
	})
}

func TestShutdownDoesNotWaitForAHangingReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop, logged := startOutbox(t)
		sent := &textLog{}
		o.Post(shopRelease("cart"), "hangs", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		o.Post(shopRelease("cart"), "behind", sent.sendReturning(nil))
		o.Post(shopRelease("till"), "retries", sent.sendReturning(Transient(errors.New("busy"))))
		synctest.Wait()
		began := time.Now()
		stop()
		expect(t, "shutdown took", time.Since(began), shutdownDrainTimeout)
		for _, name := range []string{"hangs", "behind", "retries"} {
			if !strings.Contains(logged.String(), `"message":"`+name+`"`) {
				t.Errorf("log does not name %q: %s", name, logged)
			}
		}
	})
}

func TestConcurrentSendsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, _ := startOutbox(t)
		sent := &textLog{}
		open := make(chan struct{})
		for i := range maxConcurrentSends + 10 {
			o.Post(releaseInOwnNamespace(i), "alert", func(context.Context) error { sent.add("began"); <-open; return nil })
		}
		synctest.Wait()
		expect(t, "in progress", len(sent.list()), maxConcurrentSends)
		close(open)
		synctest.Wait()
		expect(t, "sent", len(sent.list()), maxConcurrentSends+10)
	})
}
