package telemetry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// TestThePaceIsNeverExceeded compares with a count of what was let through in any stretch of time.
func TestThePaceIsNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p eventBucket
		now := time.Unix(1_700_000_000, 0)
		var let []time.Time
		for _, wait := range rapid.SliceOfN(rapid.Int64Range(0, int64(3*time.Second)), 400, 1200).Draw(t, "waits") {
			now = now.Add(time.Duration(wait))
			if may, _ := p.takeToken(now); may {
				let = append(let, now)
			}
		}
		for i := range let {
			for j := i; j < len(let); j++ {
				if limit := maxEventBurst + 1 + int(let[j].Sub(let[i])/eventRefillInterval); j-i+1 > limit {
					t.Fatalf("%d events in %s, want at most %d", j-i+1, let[j].Sub(let[i]), limit)
				}
			}
		}
	})
}

func TestAPaceThatIsKeptIsNeverHeldBack(t *testing.T) {
	var p eventBucket
	now := time.Unix(1_700_000_000, 0)
	for range 10_000 {
		now = now.Add(eventRefillInterval)
		if may, _ := p.takeToken(now); !may {
			t.Fatal("held back")
		}
	}
}

func TestAClockThatGoesBackKeepsNothingAway(t *testing.T) {
	var p eventBucket
	now := time.Unix(1_700_000_000, 0)
	for range maxEventBurst {
		p.takeToken(now)
	}
	now = now.Add(-24 * time.Hour)
	if may, floods := p.takeToken(now); may || !floods {
		t.Fatal("the burst is over, whatever the clock says")
	}
	if may, _ := p.takeToken(now.Add(eventRefillInterval)); !may {
		t.Error("nothing comes back after a clock went back")
	}
}

// TestAFloodOfEventsIsHeldBackAndToldOnce: one release says something new at every pass, another one hardly anything.
func TestAFloodOfEventsIsHeldBackAndToldOnce(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	logger, logged := testLogger(t)
	o := NewOutbox(clock.RealClock{}, logger)
	server := &apiServer{events: map[string]*corev1.Event{}}
	r := NewRecorder(server, o, clk, "")
	ctx := log.IntoContext(t.Context(), logger)
	send := func() {
		for o.AttemptNext(ctx) {
		}
	}
	flood := func(from, to int) {
		for i := from; i < to; i++ {
			r.Event(ctx, about("evil"), normal(fmt.Sprint("Something new ", i)))
		}
		send()
	}
	flood(0, 1000)
	r.Event(ctx, about("good"), normal("Advance"))
	send()
	if len(server.requests) != maxEventBurst+2 || server.told()["Warning "+floodText] != 1 || server.told()["Normal Advance"] != 1 {
		t.Errorf("%d requests, the flood was told %d times", len(server.requests), server.told()["Warning "+floodText])
	}
	if text := logged.String(); strings.Count(text, "Something new") != 1000 {
		t.Error("the log does not have all of them")
	}

	// In calmer times a text is written with the number of all times that it was said.
	clk.SetTime(clk.Now().Add(10 * eventRefillInterval))
	r.Event(ctx, about("evil"), normal("Something new 999"))
	send()
	if got := server.told()["Normal Something new 999"]; got != 2 {
		t.Errorf("counted %d times, want 2", got)
	}
	// It is the same flood as long as not half of the tokens are back.
	flood(1000, 1100)
	if got := server.told()["Warning "+floodText]; got != 1 {
		t.Errorf("one flood was told %d times", got)
	}
	clk.SetTime(clk.Now().Add(time.Hour))
	flood(2000, 2500)
	if got := server.told()["Warning "+floodText]; got != 2 {
		t.Errorf("the second flood: told %d times in all, want 2", got)
	}
}
