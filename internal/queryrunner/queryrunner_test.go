package queryrunner

import (
	"context"
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

// outside answers the probes of a test: each stays out until the test lets it go, or its context is done.
type outside struct {
	mu        sync.Mutex
	asked     []string // "release/probe", in the order in which the calls began
	cancelled []string
	answered  []string
	gates     map[string]chan release.Answer
}

func newOutside() *outside { return &outside{gates: map[string]chan release.Answer{}} }

func (o *outside) gate(question string) chan release.Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gates[question] == nil {
		o.gates[question] = make(chan release.Answer)
	}
	return o.gates[question]
}

func (o *outside) ask(ctx context.Context, key Key, probe release.Query) release.Answer {
	question := key.Name + "/" + probe.ID
	o.mu.Lock()
	o.asked = append(o.asked, question)
	o.mu.Unlock()
	select {
	case answer := <-o.gate(question):
		return answer
	case <-ctx.Done():
		o.mu.Lock()
		defer o.mu.Unlock()
		o.cancelled = append(o.cancelled, question)
		return release.Answer{Outcome: release.Unreachable, Text: context.Cause(ctx).Error()}
	}
}

// say lets the question go that is out, and waits until everything that follows from it has happened.
func (o *outside) say(question string, outcome release.Outcome) {
	o.gate(question) <- release.Answer{Outcome: outcome}
	synctest.Wait()
}

func (o *outside) heard(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered = append(o.answered, name.Name)
}

func (o *outside) list(which *[]string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string{}, *which...)
}

// running starts a prober and gives a function that stops it and waits for its end.
func running(t *testing.T, limit int, o *outside) (*Runner, func()) {
	t.Helper()
	p := New(clock.RealClock{}, limit, o.ask, o.heard)
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

func probes(ids ...string) []release.Query {
	out := make([]release.Query, 0, len(ids))
	for _, id := range ids {
		out = append(out, release.Query{ID: id})
	}
	return out
}

// taken is how many slots are taken, and whether somebody waits for one.
func taken(p *Runner) (taken int, name string, waiting bool) {
	for _, pool := range p.pools {
		taken += pool.SlotsInUse()
		if name, _, waiting = pool.Pop(); waiting {
			return taken, name, true
		}
	}
	return taken, "", false
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAskingTwiceAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		cart := key("cart")

		p.Submit(cart, probes("a"))
		p.Submit(cart, probes("a"))
		synctest.Wait()
		if answer := p.Answers(cart)["a"]; answer.Began.IsZero() || !answer.Ended.IsZero() {
			t.Errorf("answer while the call is out: %+v, want Began set and Ended zero", answer)
		}
		time.Sleep(time.Second)
		o.say("cart/a", release.Yes)
		p.Submit(cart, probes("a", "a"))
		synctest.Wait()

		expect(t, "asked", o.list(&o.asked), []string{"cart/a"})
		expect(t, "announced", o.list(&o.answered), []string{"cart"})
		got := p.Answers(cart)["a"]
		want := release.Answer{ID: "a", Outcome: release.Yes, Began: time.Now().Add(-time.Second), Ended: time.Now()}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
	})
}

func TestOneQuestionOfAReleaseIsOutAtATimeInTheOrderGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		cart := key("cart")

		p.Submit(cart, probes("a", "b", "c"))
		synctest.Wait()
		expect(t, "asked", o.list(&o.asked), []string{"cart/a"})
		o.say("cart/a", release.Yes)
		expect(t, "asked", o.list(&o.asked), []string{"cart/a", "cart/b"})
		o.say("cart/b", release.No)
		expect(t, "asked", o.list(&o.asked), []string{"cart/a", "cart/b", "cart/c"})
	})
}

func TestSomeQuestionsOfAReleaseAreOutAbreast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p := NewConcurrent(clock.RealClock{}, 10, 2, o.ask, o.heard)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		key := Key{NamespacedName: types.NamespacedName{Name: "cart"}, UID: "1"}
		p.Submit(key, []release.Query{{ID: "a"}, {ID: "b"}, {ID: "c"}})
		synctest.Wait()
		if diff := cmp.Diff([]string{"cart/a", "cart/b"}, sorted(o.list(&o.asked))); diff != "" {
			t.Error(diff)
		}
		o.say("cart/b", release.Yes)
		if diff := cmp.Diff([]string{"cart/a", "cart/b", "cart/c"}, sorted(o.list(&o.asked))); diff != "" {
			t.Error(diff)
		}
		if a := p.Answers(key); a["b"].Outcome != release.Yes || !a["a"].Ended.IsZero() || !a["c"].Ended.IsZero() {
			t.Errorf("got %v", a)
		}
		p.Forget(key.NamespacedName)
		synctest.Wait()
		if diff := cmp.Diff([]string{"cart/a", "cart/c"}, sorted(o.list(&o.cancelled))); diff != "" {
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

func TestTheNewestAskReplacesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		cart := key("cart")

		p.Submit(cart, probes("a", "b"))
		synctest.Wait()
		p.Submit(cart, probes("c"))
		synctest.Wait()
		expect(t, "asked while a is out", o.list(&o.asked), []string{"cart/a"})
		o.say("cart/a", release.Yes)
		o.say("cart/c", release.Yes)

		expect(t, "asked", o.list(&o.asked), []string{"cart/a", "cart/c"})
		if got := p.Answers(cart)["a"].Outcome; got != release.Yes {
			t.Errorf("answer of the question that was out: %q, want it kept", got)
		}

		p.Submit(cart, nil)
		synctest.Wait()
		if got := len(p.Answers(cart)); got != 2 {
			t.Errorf("answers after asking nothing: %d, want 2", got)
		}
	})
}

func TestSinceAsksTheSameQuestionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		cart := key("cart")
		poll := release.Query{ID: "gate", Since: time.Now()}

		p.Submit(cart, []release.Query{poll})
		synctest.Wait()
		time.Sleep(time.Minute)
		poll.Since = time.Now() // moves on while the first call is out: never two at once
		p.Submit(cart, []release.Query{poll})
		synctest.Wait()
		expect(t, "asked while out", o.list(&o.asked), []string{"cart/gate"})

		o.say("cart/gate", release.No)
		if _, ok := p.Answers(cart).AnswerTo(poll); ok {
			t.Error("an answer that began before Since counts")
		}
		p.Submit(cart, []release.Query{poll})
		synctest.Wait()
		o.say("cart/gate", release.Yes)
		expect(t, "asked", o.list(&o.asked), []string{"cart/gate", "cart/gate"})
		if answer, ok := p.Answers(cart).AnswerTo(poll); !ok || answer.Outcome != release.Yes {
			t.Errorf("answer %+v, %v; want yes", answer, ok)
		}
	})
}

// The wall clock may be set back between the write of a Since and its use.
func TestASinceInTheFutureIsAnsweredByTheCallItCaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		cart := key("cart")
		ahead := []release.Query{{ID: "a", Since: time.Now().Add(time.Hour)}}

		p.Submit(cart, ahead)
		synctest.Wait()
		o.say("cart/a", release.Yes)
		p.Submit(cart, ahead)
		synctest.Wait()

		expect(t, "asked", o.list(&o.asked), []string{"cart/a"})
	})
}

// A gate counts from when it was asked until it is asked again. What was asked by a clock that was a day ahead was asked
// now, once: as long as it lies ahead, that moment would move on with each look.
func TestWhatWasAskedTomorrowWasAskedNow(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
	p := New(clk, 1, nil, func(types.NamespacedName) {})
	cart := key("cart")
	p.Submit(cart, []release.Query{{ID: "a"}})
	asked, ok := p.TakeNext(t.Context())
	if !ok {
		t.Fatal("nothing is asked")
	}
	now := clk.Now().Add(-24 * time.Hour)
	clk.SetTime(now)
	p.RunQuery(asked, release.Answer{Outcome: release.No})
	for _, later := range []time.Duration{0, time.Minute} {
		clk.SetTime(now.Add(later))
		if began := p.Answers(cart)["a"].Began; !began.Equal(now) {
			t.Errorf("%s later: got a call of %s, want %s", later, began, now)
		}
	}
}

func TestAHangingReleaseDoesNotDelayFiftyOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		began := time.Now()

		p.Submit(key("evil"), probes("a", "b", "c"))
		for i := range 50 {
			p.Submit(key(fmt.Sprintf("good-%d", i)), probes("a"))
		}
		synctest.Wait()
		for i := range 50 {
			name := fmt.Sprintf("good-%d", i)
			o.say(name+"/a", release.Yes)
			if answer, ok := p.Answers(key(name)).AnswerTo(release.Query{ID: "a"}); !ok || !answer.Ended.Equal(began) {
				t.Errorf("%s: answer %+v, %v; want it at once", name, answer, ok)
			}
		}
		if got := len(o.list(&o.asked)); got != 51 {
			t.Errorf("calls %d, want 51: one for each release", got)
		}
	})
}

func TestNoMoreThanTheLimitAreOutAndTheLongestWaitingGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 3, o) // of which one namespace gets two
		for _, name := range []string{"one", "two", "three", "four"} {
			p.Submit(key(name), probes("a", "b"))
		}
		synctest.Wait()
		if got := len(o.list(&o.asked)); got != 2 {
			t.Fatalf("calls out %d, want 2", got)
		}
		p.Forget(key("three").NamespacedName) // waits in line, and must not take a place
		o.say("one/a", release.Yes)
		expect(t, "asked", o.list(&o.asked)[2:], []string{"four/a"})
		o.say("two/a", release.Yes)
		expect(t, "asked", o.list(&o.asked)[3:], []string{"one/b"})
	})
}

func TestForgetCancelsAndDropsTheLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		cart := key("cart")

		p.Submit(cart, probes("a", "b"))
		synctest.Wait()
		p.Forget(cart.NamespacedName)
		synctest.Wait()

		expect(t, "asked", o.list(&o.asked), []string{"cart/a"})
		expect(t, "cancelled", o.list(&o.cancelled), []string{"cart/a"})
		expect(t, "announced", o.list(&o.answered), []string{})
		if got := p.Answers(cart); len(got) != 0 {
			t.Errorf("answers of a release that is gone: %v", got)
		}
		if taken, _, waiting := taken(p); len(p.releases) != 0 || waiting || taken != 0 {
			t.Errorf("left behind: %d releases, some waiting: %v, %d out", len(p.releases), waiting, taken)
		}
	})
}

func TestAReleaseMadeAgainUnderTheSameNameSeesNoOldAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		old, young := key("cart"), key("cart")
		young.UID = "another"

		p.Submit(old, probes("a", "b"))
		synctest.Wait()
		o.say("cart/a", release.Yes) // b goes out
		if got := p.Answers(young); len(got) != 0 {
			t.Errorf("answers of the young release: %v", got)
		}
		p.Submit(young, probes("a"))
		synctest.Wait()

		expect(t, "cancelled", o.list(&o.cancelled), []string{"cart/b"})
		expect(t, "asked", o.list(&o.asked), []string{"cart/a", "cart/b", "cart/a"})
		if got := p.Answers(old); len(got) != 0 {
			t.Errorf("answers of the old release: %v", got)
		}
		o.say("cart/a", release.No)
		if got := p.Answers(young)["a"].Outcome; got != release.No {
			t.Errorf("answer of the young release: %q, want its own", got)
		}
	})
}

func TestAPanicIsAnAnswerOfItsReleaseOnly(t *testing.T) {
	for name, fault := range map[string]struct {
		panics func()
		want   string
	}{
		"of the runtime": {
			func() { var none []int; _ = none[len(none)] },
			"Serin could not ask this: a fault in Serin (runtime error: index out of range [0] with length 0), its log has the details",
		},
		"with a value that may be secret": {
			func() { panic("token=hunter2") },
			"Serin could not ask this: a fault in Serin, its log has the details",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(clock.RealClock{}, 1, func(_ context.Context, key Key, _ release.Query) release.Answer {
					if key.Name == "evil" {
						fault.panics()
					}
					return release.Answer{Outcome: release.Yes}
				}, func(types.NamespacedName) {})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- p.Run(ctx) }()

				p.Submit(key("evil"), probes("a"))
				p.Submit(key("good"), probes("a"))
				synctest.Wait()
				got := p.Answers(key("evil"))["a"]
				if got.Outcome != release.Broken || got.Text != fault.want || got.Ended.IsZero() {
					t.Errorf("answer of the release that panicked: %+v, want broken with %q", got, fault.want)
				}
				if got := p.Answers(key("good"))["a"].Outcome; got != release.Yes {
					t.Errorf("answer of the other release: %q, want yes", got)
				}
				cancel()
				if err := <-done; err != nil {
					t.Errorf("end of the prober: %v", err)
				}
			})
		})
	}
}

func TestTheEndCancelsWhatIsOutAndAsksNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, stop := running(t, 256, o)

		p.Submit(key("cart"), probes("a", "b"))
		p.Submit(key("till"), probes("a"))
		synctest.Wait()
		stop() // returns when Run has returned, so nothing of it may be left
		if got := len(o.list(&o.cancelled)); got != 2 {
			t.Errorf("cancelled %d calls, want 2", got)
		}
		p.Submit(key("cart"), probes("c"))
		synctest.Wait()
		if got := len(o.list(&o.asked)); got != 2 {
			t.Errorf("calls %d, want the 2 before the end", got)
		}
		expect(t, "announced", o.list(&o.answered), []string{})
	})
}

func TestWhatIsAskedBeforeRunGoesOutWhenRunBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p := New(clock.RealClock{}, 256, o.ask, o.heard)
		p.Submit(key("cart"), probes("a"))
		synctest.Wait()
		expect(t, "asked before Run", o.list(&o.asked), []string{})

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		expect(t, "asked", o.list(&o.asked), []string{"cart/a"})
		cancel()
		if err := <-done; err != nil {
			t.Errorf("end of the prober: %v", err)
		}
	})
}

func TestOnlyTheNewestAnswersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		cart := key("cart")
		for i := range minAnswers + 10 {
			p.Submit(cart, probes(fmt.Sprint(i)))
			synctest.Wait()
			o.say(fmt.Sprintf("cart/%d", i), release.Yes)
			time.Sleep(time.Second)
		}

		answers := p.Answers(cart)
		if len(answers) != minAnswers {
			t.Fatalf("answers kept: %d, want %d", len(answers), minAnswers)
		}
		for i := range 10 {
			if _, ok := answers[fmt.Sprint(i)]; ok {
				t.Errorf("answer %d is kept, want the newest %d only", i, minAnswers)
			}
		}
	})
}

// A window may hold any number of questions, and its verdict needs all answers at once.
func TestAReleaseThatAsksMuchKeepsAllAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		cart := key("cart")
		const questions = 1000
		var all []string
		for i := range questions {
			all = append(all, fmt.Sprint(i))
		}
		unanswered := func() []release.Query {
			answers := p.Answers(cart)
			return slices.DeleteFunc(probes(all...), func(q release.Query) bool { _, known := answers.AnswerTo(q); return known })
		}
		for i := range questions {
			p.Submit(cart, unanswered())
			p.SetAnswerLimit(cart, questions)
			synctest.Wait()
			o.say(o.list(&o.asked)[i], release.Yes)
			time.Sleep(time.Second)
		}
		if open := len(unanswered()); open > 0 {
			t.Errorf("%d of %d questions would be asked again", open, questions)
		}
	})
}

// hang has more releases of a namespace ask than there are slots, of receivers that never answer.
func hang(p *Runner, namespace string, releases int, question any) {
	for i := range releases {
		evil := Key{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(namespace, i)}, UID: "evil"}
		p.Submit(evil, []release.Query{{ID: "hangs", Request: question}})
	}
	synctest.Wait()
}

// I35: receivers that hang cost their own namespace, however many they are.
func TestNamespacesShareTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		for _, namespace := range []string{"evil", "worse"} {
			hang(p, namespace, 1000, nil)
		}
		if out := len(o.list(&o.asked)); out >= 256 {
			t.Fatalf("%d questions of two namespaces are out, and nobody else's can be", out)
		}
		p.Submit(key("cart"), probes("a"))
		synctest.Wait()
		o.say("cart/a", release.Yes)
		expect(t, "announced", o.list(&o.answered), []string{"cart"})
	})
}

func TestPoolsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p := NewPooled(clock.RealClock{}, 256, func(question any) string { return fmt.Sprintf("%T", question) }, o.ask, o.heard)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		for _, namespace := range []string{"shop", "evil"} {
			hang(p, namespace, 1000, "hook")
		}
		before := len(o.list(&o.asked))

		// One that waits for a slot of the one pool is asked at once when its next question is of the other.
		last := Key{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "shop999"}, UID: "evil"}
		p.Submit(last, []release.Query{{ID: "metric", Request: 1}})
		synctest.Wait()
		expect(t, "asked", o.list(&o.asked)[before:], []string{"shop999/metric"})
		o.say("shop999/metric", release.Measured)
		expect(t, "announced", o.list(&o.answered), []string{"shop999"})
	})
}

func TestAnswersBelongToTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		p, _ := running(t, 256, o)
		p.Submit(key("cart"), probes("a"))
		synctest.Wait()
		o.say("cart/a", release.Yes)
		clear(p.Answers(key("cart")))
		if got := len(p.Answers(key("cart"))); got != 1 {
			t.Errorf("answers after the caller changed his: %d, want 1", got)
		}
	})
}
