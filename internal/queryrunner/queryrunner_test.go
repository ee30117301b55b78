package queryrunner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/serin-dev/serin/internal/release"
)

var errDenied = errors.New("denied")

// fakeReceiver answers the queries of a test. Each query is in flight until the test answers it or its context is done.
type fakeReceiver struct {
	mu        sync.Mutex
	sent      []string // "release/query", in the order in which the calls began
	cancelled []string
	answered  []string
	last      bool // of the latest answer
	answers   map[string]chan release.Answer
}

func newFakeReceiver() *fakeReceiver { return &fakeReceiver{answers: map[string]chan release.Answer{}} }

func (o *fakeReceiver) answerChannel(query string) chan release.Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answers[query] == nil {
		o.answers[query] = make(chan release.Answer)
	}
	return o.answers[query]
}

func (o *fakeReceiver) send(ctx context.Context, key Key, query release.Query) release.Answer {
	id := key.Name + "/" + query.ID
	o.mu.Lock()
	o.sent = append(o.sent, id)
	o.mu.Unlock()
	select {
	case answer := <-o.answerChannel(id):
		return answer
	case <-ctx.Done():
		o.mu.Lock()
		defer o.mu.Unlock()
		o.cancelled = append(o.cancelled, id)
		return release.Answer{Outcome: release.Unreachable, Text: context.Cause(ctx).Error()}
	}
}

// answer answers a query in flight and waits until all goroutines are idle.
func (o *fakeReceiver) answer(query string, outcome release.Outcome) {
	o.answerChannel(query) <- release.Answer{Outcome: outcome}
	synctest.Wait()
}

func (o *fakeReceiver) onAnswer(name types.NamespacedName, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered = append(o.answered, name.Name)
	o.last = last
}

func (o *fakeReceiver) list(which *[]string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string{}, *which...)
}

func submit(t *testing.T, p *Runner, key Key, queries []release.Query) {
	t.Helper()
	if err := p.Submit(key, queries); err != nil {
		t.Error(err)
	}
}

// startRunner starts a Runner and returns a function that stops it and waits for its end.
func startRunner(t *testing.T, limit int, o *fakeReceiver) (*Runner, func()) {
	t.Helper()
	p := New(clock.RealClock{}, limit, o.send, o.onAnswer)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return p, stop
}

func key(name string) Key {
	return Key{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}, UID: types.UID("uid-of-" + name)}
}

func queries(ids ...string) []release.Query {
	out := make([]release.Query, 0, len(ids))
	for _, id := range ids {
		out = append(out, release.Query{ID: id})
	}
	return out
}

// slotUsage returns the number of slots in use, and whether a release waits for one.
func slotUsage(p *Runner) (used int, waiting bool) {
	for _, pool := range p.pools {
		used += pool.SlotsInUse()
		if _, _, waiting = pool.Pop(); waiting {
			return used, true
		}
	}
	return used, false
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAQueryIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		cart := key("cart")

		submit(t, p, cart, queries("a"))
		submit(t, p, cart, queries("a"))
		synctest.Wait()
		if answer := p.Answers(cart)["a"]; answer.Began.IsZero() || !answer.Ended.IsZero() {
			t.Errorf("answer while the query is in flight: %+v, want Began set and Ended zero", answer)
		}
		time.Sleep(time.Second)
		o.answer("cart/a", release.Yes)
		submit(t, p, cart, queries("a", "a"))
		synctest.Wait()

		expect(t, "sent", o.list(&o.sent), []string{"cart/a"})
		expect(t, "answered", o.list(&o.answered), []string{"cart"})
		got := p.Answers(cart)["a"]
		want := release.Answer{ID: "a", Outcome: release.Yes, Began: time.Now().Add(-time.Second), Ended: time.Now()}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
	})
}

func TestTheQueriesOfAReleaseAreSentOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		cart := key("cart")

		submit(t, p, cart, queries("a", "b", "c"))
		synctest.Wait()
		expect(t, "sent", o.list(&o.sent), []string{"cart/a"})
		o.answer("cart/a", release.Yes)
		expect(t, "sent", o.list(&o.sent), []string{"cart/a", "cart/b"})
		o.answer("cart/b", release.No)
		expect(t, "sent", o.list(&o.sent), []string{"cart/a", "cart/b", "cart/c"})
		if o.last {
			t.Error("an answer was the last one although a query is in flight")
		}
		o.answer("cart/c", release.Yes)
		if !o.last {
			t.Error("the last answer was not")
		}
	})
}

func TestQueriesOfAReleaseMayBeConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p := NewConcurrent(clock.RealClock{}, 10, 2, o.send, o.onAnswer)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		key := Key{NamespacedName: types.NamespacedName{Name: "cart"}, UID: "1"}
		submit(t, p, key, []release.Query{{ID: "a"}, {ID: "b"}, {ID: "c"}})
		synctest.Wait()
		if diff := cmp.Diff([]string{"cart/a", "cart/b"}, sorted(o.list(&o.sent))); diff != "" {
			t.Error(diff)
		}
		o.answer("cart/b", release.Yes)
		if diff := cmp.Diff([]string{"cart/a", "cart/b", "cart/c"}, sorted(o.list(&o.sent))); diff != "" {
			t.Error(diff)
		}
		if a := p.Answers(key); a["b"].Outcome != release.Yes || !a["a"].Ended.IsZero() || !a["c"].Ended.IsZero() {
			t.Errorf("got %v", a)
		}
		if o.answer("cart/c", release.Yes); o.last {
			t.Error("an answer was the last one although a query is in flight")
		}
		p.Forget(key.NamespacedName)
		synctest.Wait()
		if diff := cmp.Diff([]string{"cart/a"}, sorted(o.list(&o.cancelled))); diff != "" {
			t.Error(diff)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

func TestSubmitReplacesTheWaitingQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		cart := key("cart")

		submit(t, p, cart, queries("a", "b"))
		synctest.Wait()
		submit(t, p, cart, queries("c"))
		synctest.Wait()
		expect(t, "sent while a is in flight", o.list(&o.sent), []string{"cart/a"})
		o.answer("cart/a", release.Yes)
		o.answer("cart/c", release.Yes)

		expect(t, "sent", o.list(&o.sent), []string{"cart/a", "cart/c"})
		if got := p.Answers(cart)["a"].Outcome; got != release.Yes {
			t.Errorf("answer of the query that was in flight: %q, want it stored", got)
		}

		submit(t, p, cart, nil)
		synctest.Wait()
		if got := len(p.Answers(cart)); got != 2 {
			t.Errorf("answers after submitting nothing: %d, want 2", got)
		}
	})
}

func TestALaterSinceSendsTheQueryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		cart := key("cart")
		poll := release.Query{ID: "gate", Since: time.Now()}

		submit(t, p, cart, []release.Query{poll})
		synctest.Wait()
		time.Sleep(time.Minute)
		poll.Since = time.Now() // changes while the first call is in flight: the query must not be sent twice
		submit(t, p, cart, []release.Query{poll})
		synctest.Wait()
		expect(t, "sent while in flight", o.list(&o.sent), []string{"cart/gate"})

		o.answer("cart/gate", release.No)
		if _, ok := p.Answers(cart).AnswerTo(poll); ok {
			t.Error("an answer that began before Since counts")
		}
		submit(t, p, cart, []release.Query{poll})
		synctest.Wait()
		o.answer("cart/gate", release.Yes)
		expect(t, "sent", o.list(&o.sent), []string{"cart/gate", "cart/gate"})
		if answer, ok := p.Answers(cart).AnswerTo(poll); !ok || answer.Outcome != release.Yes {
			t.Errorf("answer %+v, %v; want yes", answer, ok)
		}
	})
}

// The wall clock may be set back between the write of a Since and its use.
func TestASinceInTheFutureIsAnsweredByTheCallItCaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		cart := key("cart")
		ahead := []release.Query{{ID: "a", Since: time.Now().Add(time.Hour)}}

		submit(t, p, cart, ahead)
		synctest.Wait()
		o.answer("cart/a", release.Yes)
		submit(t, p, cart, ahead)
		synctest.Wait()

		expect(t, "sent", o.list(&o.sent), []string{"cart/a"})
	})
}

// The times of a query that was sent or answered while the clock was a day ahead are set to the current time once. Computed in each
// call, they would always be the current time, and the query would never be sent again. Left in the future, it would be repeated a
// day late.
func TestTimesInTheFutureAreSetToTheCurrentTimeOnce(t *testing.T) {
	for name, answeredAhead := range map[string]bool{"the clock is set back during the call": false, "the clock is set back after the answer": true} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
			p := New(clk, 1, nil, func(types.NamespacedName, bool) {})
			cart := key("cart")
			submit(t, p, cart, []release.Query{{ID: "a"}})
			query, ok := p.TakeNext(t.Context())
			if !ok {
				t.Fatal("no query is sent")
			}
			now := clk.Now().Add(-24 * time.Hour)
			if answeredAhead {
				p.FinishQuery(query, release.Answer{Outcome: release.No})
			}
			clk.SetTime(now)
			if !answeredAhead {
				p.FinishQuery(query, release.Answer{Outcome: release.No})
			}
			for _, later := range []time.Duration{0, time.Minute} {
				clk.SetTime(now.Add(later))
				if answer := p.Answers(cart)["a"]; !answer.Began.Equal(now) || !answer.Ended.Equal(now) {
					t.Errorf("%s later: got a call from %s to %s, want both at %s", later, answer.Began, answer.Ended, now)
				}
			}
		})
	}
}

func TestAHangingReleaseDoesNotDelayFiftyOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		began := time.Now()

		submit(t, p, key("broken"), queries("a", "b", "c"))
		for i := range 50 {
			submit(t, p, key(fmt.Sprintf("fast-%d", i)), queries("a"))
		}
		synctest.Wait()
		for i := range 50 {
			name := fmt.Sprintf("fast-%d", i)
			o.answer(name+"/a", release.Yes)
			if answer, ok := p.Answers(key(name)).AnswerTo(release.Query{ID: "a"}); !ok || !answer.Ended.Equal(began) {
				t.Errorf("%s: answer %+v, %v; want it at once", name, answer, ok)
			}
		}
		if got := len(o.list(&o.sent)); got != 51 {
			t.Errorf("calls %d, want 51: one for each release", got)
		}
	})
}

func TestQueriesInFlightAreLimitedAndSentInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 3, o) // of which one namespace gets two
		for _, name := range []string{"one", "two", "three", "four"} {
			submit(t, p, key(name), queries("a", "b"))
		}
		synctest.Wait()
		if got := len(o.list(&o.sent)); got != 2 {
			t.Fatalf("calls in flight: %d, want 2", got)
		}
		p.Forget(key("three").NamespacedName) // waits and must not take a slot
		o.answer("one/a", release.Yes)
		expect(t, "sent", o.list(&o.sent)[2:], []string{"four/a"})
		o.answer("two/a", release.Yes)
		expect(t, "sent", o.list(&o.sent)[3:], []string{"one/b"})
	})
}

func TestForgetCancelsAndDropsTheLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		cart := key("cart")

		submit(t, p, cart, queries("a", "b"))
		synctest.Wait()
		p.Forget(cart.NamespacedName)
		synctest.Wait()

		expect(t, "sent", o.list(&o.sent), []string{"cart/a"})
		expect(t, "cancelled", o.list(&o.cancelled), []string{"cart/a"})
		expect(t, "answered", o.list(&o.answered), []string{})
		if got := p.Answers(cart); len(got) != 0 {
			t.Errorf("answers of a deleted release: %v", got)
		}
		if used, waiting := slotUsage(p); len(p.releases) != 0 || waiting || used != 0 {
			t.Errorf("remaining: %d releases, some waiting: %v, %d slots", len(p.releases), waiting, used)
		}
	})
}

func TestARecreatedReleaseHasNoOldAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		old, recreated := key("cart"), key("cart")
		recreated.UID = "another"

		submit(t, p, old, queries("a", "b"))
		synctest.Wait()
		o.answer("cart/a", release.Yes) // b is sent
		if got := p.Answers(recreated); len(got) != 0 {
			t.Errorf("answers of the recreated release: %v", got)
		}
		submit(t, p, recreated, queries("a"))
		synctest.Wait()

		expect(t, "cancelled", o.list(&o.cancelled), []string{"cart/b"})
		expect(t, "sent", o.list(&o.sent), []string{"cart/a", "cart/b", "cart/a"})
		if got := p.Answers(old); len(got) != 0 {
			t.Errorf("answers of the old release: %v", got)
		}
		o.answer("cart/a", release.No)
		if got := p.Answers(recreated)["a"].Outcome; got != release.No {
			t.Errorf("answer of the recreated release: %q, want its own", got)
		}
	})
}

func TestAPanicIsAnAnswerOfItsOwnReleaseOnly(t *testing.T) {
	for name, test := range map[string]struct {
		panics func()
		want   string
	}{
		"of the runtime": {
			func() { var none []int; _ = none[len(none)] },
			"Serin could not send this query because of a defect in Serin (runtime error: index out of range [0] with length 0): its log has the details",
		},
		"with a value that may be secret": {
			func() { panic("token=hunter2") },
			"Serin could not send this query because of a defect in Serin: its log has the details",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(clock.RealClock{}, 1, func(_ context.Context, key Key, _ release.Query) release.Answer {
					if key.Name == "broken" {
						test.panics()
					}
					return release.Answer{Outcome: release.Yes}
				}, func(types.NamespacedName, bool) {})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- p.Run(ctx) }()

				submit(t, p, key("broken"), queries("a"))
				submit(t, p, key("healthy"), queries("a"))
				synctest.Wait()
				got := p.Answers(key("broken"))["a"]
				if got.Outcome != release.Broken || got.Text != test.want || got.Ended.IsZero() {
					t.Errorf("answer of the release that panicked: %+v, want broken with %q", got, test.want)
				}
				if got := p.Answers(key("healthy"))["a"].Outcome; got != release.Yes {
					t.Errorf("answer of the other release: %q, want yes", got)
				}
				cancel()
				if err := <-done; err != nil {
					t.Errorf("end of the Runner: %v", err)
				}
			})
		})
	}
}

func TestShutdownCancelsQueriesAndSendsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, stop := startRunner(t, 256, o)

		submit(t, p, key("cart"), queries("a", "b"))
		submit(t, p, key("till"), queries("a"))
		synctest.Wait()
		stop() // returns after Run, so that no goroutine of it may remain
		if got := len(o.list(&o.cancelled)); got != 2 {
			t.Errorf("cancelled %d calls, want 2", got)
		}
		submit(t, p, key("cart"), queries("c"))
		synctest.Wait()
		if got := len(o.list(&o.sent)); got != 2 {
			t.Errorf("calls %d, want the 2 before the end", got)
		}
		expect(t, "answered", o.list(&o.answered), []string{})
	})
}

func TestQueriesSubmittedBeforeRunAreSentWhenRunBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p := New(clock.RealClock{}, 256, o.send, o.onAnswer)
		submit(t, p, key("cart"), queries("a"))
		synctest.Wait()
		expect(t, "sent before Run", o.list(&o.sent), []string{})

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		expect(t, "sent", o.list(&o.sent), []string{"cart/a"})
		cancel()
		if err := <-done; err != nil {
			t.Errorf("end of the Runner: %v", err)
		}
	})
}

func TestOnlyTheNewestAnswersAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		cart := key("cart")
		for i := range minAnswers + 10 {
			submit(t, p, cart, queries(fmt.Sprint(i)))
			synctest.Wait()
			o.answer(fmt.Sprintf("cart/%d", i), release.Yes)
			time.Sleep(time.Second)
		}

		answers := p.Answers(cart)
		if len(answers) != minAnswers {
			t.Fatalf("answers stored: %d, want %d", len(answers), minAnswers)
		}
		for i := range 10 {
			if _, ok := answers[fmt.Sprint(i)]; ok {
				t.Errorf("answer %d is stored, want the newest %d only", i, minAnswers)
			}
		}
	})
}

// A window may have any number of queries, and its verdict needs all answers together.
func TestARaisedAnswerLimitStoresAllAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		cart := key("cart")
		const count = 1000
		var all []string
		for i := range count {
			all = append(all, fmt.Sprint(i))
		}
		unanswered := func() []release.Query {
			answers := p.Answers(cart)
			return slices.DeleteFunc(queries(all...), func(q release.Query) bool { _, known := answers.AnswerTo(q); return known })
		}
		for i := range count {
			submit(t, p, cart, unanswered())
			p.SetAnswerLimit(cart, count)
			synctest.Wait()
			o.answer(o.list(&o.sent)[i], release.Yes)
			time.Sleep(time.Second)
		}
		if open := len(unanswered()); open > 0 {
			t.Errorf("%d of %d queries would be sent again", open, count)
		}
	})
}

// submitHanging submits a query of each of many releases to a receiver that never answers.
func submitHanging(t *testing.T, p *Runner, namespace string, releases int, request any) {
	t.Helper()
	for i := range releases {
		key := Key{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(namespace, i)}, UID: "hanging"}
		submit(t, p, key, []release.Query{{ID: "hangs", Request: request}})
	}
	synctest.Wait()
}

// I35: receivers that do not answer delay only their own namespace, however many they are.
func TestNamespacesShareTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		for _, namespace := range []string{"broken", "worse"} {
			submitHanging(t, p, namespace, 1000, nil)
		}
		if out := len(o.list(&o.sent)); out >= 256 {
			t.Fatalf("%d queries of two namespaces occupy all slots", out)
		}
		submit(t, p, key("cart"), queries("a"))
		synctest.Wait()
		o.answer("cart/a", release.Yes)
		expect(t, "answered", o.list(&o.answered), []string{"cart"})
	})
}

// TestFirstQueryOfANamespaceStarts: the receivers of many namespaces do not answer, and all slots of the limit are in use.
func TestFirstQueryOfANamespaceStarts(t *testing.T) {
	for _, hanging := range []int{4, 5, 63, 400} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newFakeReceiver()
				p := New(clock.RealClock{}, 256, o.send, o.onAnswer)
				p.ReserveFirstQueries(512)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- p.Run(ctx) }()
				for i := range hanging {
					submitHanging(t, p, fmt.Sprint("team-", i, "-"), 2000/hanging, nil)
				}
				submit(t, p, key("cart"), queries("a"))
				synctest.Wait()
				if sent := o.list(&o.sent); !slices.Contains(sent, "cart/a") {
					t.Errorf("the query of another namespace waits for %d queries that hang in %d namespaces", len(sent), hanging)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestPoolsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p := NewPooled(clock.RealClock{}, 256, func(request any) string { return fmt.Sprintf("%T", request) }, o.send, o.onAnswer)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		for _, namespace := range []string{"shop", "broken"} {
			submitHanging(t, p, namespace, 1000, "hook")
		}
		before := len(o.list(&o.sent))

		// A release that waits for a slot of one pool sends at once when its next query belongs to the other pool.
		last := Key{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "shop999"}, UID: "hanging"}
		submit(t, p, last, []release.Query{{ID: "metric", Request: 1}})
		synctest.Wait()
		expect(t, "sent", o.list(&o.sent)[before:], []string{"shop999/metric"})
		o.answer("shop999/metric", release.Measured)
		expect(t, "answered", o.list(&o.answered), []string{"shop999"})
	})
}

// A process without its Lease sends nothing: another process may have sent the same query.
func TestNothingIsSentWithoutPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p := New(clock.RealClock{}, 256, o.send, o.onAnswer)
		denied := map[string]bool{}
		p.RequirePermission(func(namespace string) error {
			if denied[namespace] {
				return errDenied
			}
			return nil
		})
		go func() { _ = p.Run(t.Context()) }()
		submit(t, p, key("cart"), queries("a", "b"))
		synctest.Wait()

		// The first query was sent before. The second one is dropped, and its release decides again.
		denied["shop"] = true
		o.answer("cart/a", release.Yes)
		expect(t, "sent", o.list(&o.sent), []string{"cart/a"})
		expect(t, "requeued", o.list(&o.answered), []string{"cart", "cart"})
		if err := p.Submit(key("cart"), queries("b")); !errors.Is(err, errDenied) {
			t.Errorf("submitted with %v, want %v", err, errDenied)
		}
		submit(t, p, key("cart"), nil) // withdrawing needs no permission
		other := Key{NamespacedName: types.NamespacedName{Namespace: "edge", Name: "till"}}
		submit(t, p, other, queries("c"))
		synctest.Wait()
		expect(t, "sent", o.list(&o.sent), []string{"cart/a", "till/c"})

		denied["shop"] = false
		submit(t, p, key("cart"), queries("b"))
		synctest.Wait()
		expect(t, "sent", o.list(&o.sent), []string{"cart/a", "till/c", "cart/b"})
	})
}

func TestAnswersBelongToTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeReceiver()
		p, _ := startRunner(t, 256, o)
		submit(t, p, key("cart"), queries("a"))
		synctest.Wait()
		o.answer("cart/a", release.Yes)
		clear(p.Answers(key("cart")))
		if got := len(p.Answers(key("cart"))); got != 1 {
			t.Errorf("answers after the caller changed its copy: %d, want 1", got)
		}
	})
}
