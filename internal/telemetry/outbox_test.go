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

// lines collects what was logged or sent, in order.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.all...)
}

func (l *lines) says(err error) func(context.Context) error {
	return func(context.Context) error {
		l.add("attempt")
		return err
	}
}

// safeBuffer is a log that may be written and read at once.
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

// posting starts an outbox and gives a function that stops it and waits for its end.
func posting(t *testing.T) (o *Outbox, stop func(), logged *safeBuffer) {
	t.Helper()
	logger, logged := testLogger(t)
	o = NewOutbox(clock.RealClock{}, logger)
	stop = start(t, o)
	t.Cleanup(stop)
	return o, stop, logged
}

func start(t *testing.T, o *Outbox) func() {
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

// pass lets time go by in the bubble of a test, and waits for what comes of it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// elsewhere is a release of a namespace of its own.
func elsewhere(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprint("namespace-", i), Name: "cart"}
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestMessagesOfAReleaseLeaveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, _ := posting(t)
		sent := &lines{}
		var want []string
		for i := range 300 {
			text := fmt.Sprint(i)
			want = append(want, text)
			o.Post(named("cart"), text, func(context.Context) error {
				time.Sleep(time.Duration(300-i) * time.Millisecond) // later ones are faster and must not overtake
				sent.add(text)
				return nil
			})
		}
		pass(time.Hour)
		expect(t, "sent", sent.list(), want)
		if len(o.queues) != 0 || len(o.retries) != 0 || o.copies.SlotsInUse() != 0 {
			t.Errorf("left behind: %d lines, %d that rest, %d under way", len(o.queues), len(o.retries), o.copies.SlotsInUse())
		}
	})
}

func TestAHangingReceiverDelaysOnlyItsOwnRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, logged := posting(t)
		sent := &lines{}
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		began := time.Now()
		o.Post(named("evil"), "event hook audit", hang)
		for i := range 50 {
			o.Post(named(fmt.Sprint(i)), "alert", func(context.Context) error {
				if since := time.Since(began); since != 0 {
					t.Errorf("release %d waited %s for another", i, since)
				}
				sent.add("good")
				return nil
			})
		}
		synctest.Wait()
		o.Post(named("evil"), "posted while the first hangs", func(context.Context) error {
			sent.add(fmt.Sprintf("evil after %s", time.Since(began)))
			return nil
		})
		synctest.Wait()
		expect(t, "messages of the others", len(sent.list()), 50)
		time.Sleep(attemptTimeout)
		synctest.Wait()
		expect(t, "message behind the hanging one", sent.list()[50:], []string{"evil after 10s"})
		for _, want := range []string{`"msg":"Dropped message"`, `"message":"event hook audit"`, `"name":"evil"`, "no answer within 10s"} {
			if !strings.Contains(logged.String(), want) {
				t.Errorf("log lacks %s:\n%s", want, logged)
			}
		}
	})
}

// Releases that move write to the API server too, and shall not wait there behind all that is told of them.
func TestFewEventsLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, _ := posting(t)
		sent := &lines{}
		answer := make(chan error)
		for i := range 3 * maxConcurrentRecords {
			o.enqueue(elsewhere(i), message{name: "event", isRecord: true, send: func(context.Context) error {
				sent.add("event")
				return <-answer
			}})
		}
		o.Post(named("last"), "alert", sent.says(nil))
		synctest.Wait()
		expect(t, "first", slices.Sorted(slices.Values(sent.list())), append([]string{"attempt"}, slices.Repeat([]string{"event"}, maxConcurrentRecords)...))

		answer <- nil
		synctest.Wait()
		expect(t, "under way or sent after one answer", len(sent.list()), maxConcurrentRecords+2)

		answer <- Transient(errors.New("busy"))
		synctest.Wait()
		expect(t, "under way or sent while one waits for its next attempt", len(sent.list()), maxConcurrentRecords+3)

		close(answer)
		pass(time.Minute)
		expect(t, "events under way", o.records.SlotsInUse(), 0)
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
		"at once":              {[]error{nil}, []time.Duration{0}, false},
		"final":                {[]error{busy}, []time.Duration{0}, true},
		"then well":            {[]error{Transient(busy), Transient(busy), nil}, []time.Duration{0, 1, 3}, false},
		"then final":           {[]error{fmt.Errorf("write: %w", Transient(busy)), busy}, []time.Duration{0, 1}, true},
		"when it is asked for": {[]error{TransientFor(busy, 20*time.Second), TransientFor(busy, time.Hour), Transient(busy), nil}, []time.Duration{0, 20, 50, 54}, false},
		"until patience ends":  {[]error{Transient(busy)}, []time.Duration{0, 1, 3, 7, 15, 31}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, _, logged := posting(t)
				began := time.Now()
				var got []time.Duration
				o.Post(named("cart"), "alert", func(context.Context) error {
					got = append(got, time.Since(began)/time.Second)
					return test.errs[min(len(got), len(test.errs))-1]
				})
				pass(time.Hour)
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
		sent := &lines{}
		post := func(record bool, text string) {
			o.enqueue(named("cart"), message{name: text, isRecord: record, send: func(context.Context) error { sent.add(text); return nil }})
		}
		for i := range maxQueuedMessages {
			post(true, fmt.Sprintf("event %d", i))
			post(false, fmt.Sprintf("hook %d", i))
		}
		expect(t, "log", logged.String(), "")
		post(false, "hook last")
		expect(t, "log lines", strings.Count(logged.String(), "\n"), 1)
		if !strings.Contains(logged.String(), `"message":"hook 1"`) { // it is the turn of the one before
			t.Errorf("log does not name what was dropped: %s", logged)
		}

		defer start(t, o)()
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

// I35: what the users of one namespace have alerts sent to delays nobody else's, however many there are, and no Kubernetes
// events.
func TestAlertsThatAreTriedAgainHoldUpNobody(t *testing.T) {
	refuses := func(context.Context) error { return TransientFor(errors.New("busy"), time.Hour) }
	hangs := func(ctx context.Context) error { <-ctx.Done(); return Transient(context.Cause(ctx)) }
	for name, send := range map[string]func(context.Context) error{"refused": refuses, "not answered": hangs} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, _, _ := posting(t)
				for i := range 4 * maxConcurrentSends {
					o.Post(types.NamespacedName{Namespace: "evil", Name: fmt.Sprint(i)}, "alert", send)
				}
				for range 12 { // in the middle of attempts and of pauses
					pass(5 * time.Second)
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
					o.Post(named("cart"), "alert", note("alert of another namespace"))
					o.enqueue(named("cart"), message{name: "event", isRecord: true, send: note("event of another namespace")})
					o.enqueue(types.NamespacedName{Namespace: "evil", Name: "0"}, message{name: "event", isRecord: true, send: note("event of its own")})
					synctest.Wait()
					mu.Lock()
					expect(t, "sent after", at, map[string]time.Duration{"alert of another namespace": 0, "event of another namespace": 0, "event of its own": 0})
					mu.Unlock()
				}
			})
		})
	}
}

func TestAPauseHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, _ := posting(t)
		for i := range maxConcurrentSends {
			o.Post(elsewhere(i), "alert", func(context.Context) error { return TransientFor(errors.New("busy"), time.Hour) })
		}
		synctest.Wait()
		o.mu.Lock()
		expect(t, "slots that are taken", o.copies.SlotsInUse(), 0)
		expect(t, "messages that are tried again", len(o.retries), maxConcurrentSends)
		o.mu.Unlock()
		pass(5*maxRequestedWait + time.Second)
		expect(t, "lines that remain", len(o.queues), 0)
	})
}

func TestAPanicOverWhatBecameOfAMessageEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, logged := posting(t)
		sent := &lines{}
		o.PostWithCallback(named("cart"), "alert", sent.says(nil), func(error) { panic("token=hunter2") })
		o.Post(named("cart"), "alert", sent.says(nil))
		synctest.Wait()
		expect(t, "sent", len(sent.list()), 2)
		if !strings.Contains(logged.String(), "a panic whose text is not shown") || strings.Contains(logged.String(), "hunter2") {
			t.Errorf("log does not tell the panic, or more than that: %s", logged)
		}
	})
}

func TestAPanicInAMessageCostsOnlyThatMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, logged := posting(t)
		sent := &lines{}
		o.Post(named("cart"), "alert", func(context.Context) error { panic("token=hunter2") })
		o.Post(named("cart"), "alert", sent.says(nil))
		synctest.Wait()
		expect(t, "sent", len(sent.list()), 1)
		if !strings.Contains(logged.String(), "a panic whose text is not shown") || strings.Contains(logged.String(), "hunter2") {
			t.Errorf("log does not tell the panic, or more than that: %s", logged)
		}
	})
}

func TestTheEndLetsLastWordsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop, logged := posting(t)
		sent := &lines{}
		for range 3 {
			o.Post(named("cart"), "alert", func(ctx context.Context) error {
				time.Sleep(time.Second)
				sent.add("sent")
				return ctx.Err()
			})
		}
		synctest.Wait()
		stop()
		expect(t, "sent", len(sent.list()), 3)
		expect(t, "logged", logged.String(), "")

		o.Post(named("cart"), "too late", sent.says(nil))
		expect(t, "sent after the end", len(sent.list()), 3)
		if !strings.Contains(logged.String(), `"message":"too late"`) {
			t.Errorf("log does not name what was dropped: %s", logged)
		}
	})
}

func TestTheEndDoesNotWaitForAHangingReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop, logged := posting(t)
		sent := &lines{}
		o.Post(named("cart"), "hangs", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		o.Post(named("cart"), "behind", sent.says(nil))
		o.Post(named("till"), "retries", sent.says(Transient(errors.New("busy"))))
		synctest.Wait()
		began := time.Now()
		stop()
		expect(t, "the end took", time.Since(began), shutdownDrainTimeout)
		for _, name := range []string{"hangs", "behind", "retries"} {
			if !strings.Contains(logged.String(), `"message":"`+name+`"`) {
				t.Errorf("log does not name %q: %s", name, logged)
			}
		}
	})
}

func TestNoMoreThanTheLimitAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, _ := posting(t)
		sent := &lines{}
		open := make(chan struct{})
		for i := range maxConcurrentSends + 10 {
			o.Post(elsewhere(i), "alert", func(context.Context) error { sent.add("began"); <-open; return nil })
		}
		synctest.Wait()
		expect(t, "under way", len(sent.list()), maxConcurrentSends)
		close(open)
		synctest.Wait()
		expect(t, "sent", len(sent.list()), maxConcurrentSends+10)
	})
}
