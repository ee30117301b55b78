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

// TestTheEventRateLimitIsNeverExceeded counts the allowed events of every interval.
func TestTheEventRateLimitIsNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b eventBucket
		now := time.Unix(1_700_000_000, 0)
		var allowed []time.Time
		for _, wait := range rapid.SliceOfN(rapid.Int64Range(0, int64(3*time.Second)), 400, 1200).Draw(t, "waits") {
			now = now.Add(time.Duration(wait))
			if ok, _ := b.takeToken(now); ok {
				allowed = append(allowed, now)
			}
		}
		for i := range allowed {
			for j := i; j < len(allowed); j++ {
				if limit := maxEventBurst + 1 + int(allowed[j].Sub(allowed[i])/eventRefillInterval); j-i+1 > limit {
					t.Fatalf("%d events in %s, want at most %d", j-i+1, allowed[j].Sub(allowed[i]), limit)
				}
			}
		}
	})
}

func TestEventsAtTheRefillRateAreNeverDropped(t *testing.T) {
	var b eventBucket
	now := time.Unix(1_700_000_000, 0)
	for range 10_000 {
		now = now.Add(eventRefillInterval)
		if ok, _ := b.takeToken(now); !ok {
			t.Fatal("dropped")
		}
	}
}

func TestAClockThatIsSetBackDoesNotStopTheRefill(t *testing.T) {
	var b eventBucket
	now := time.Unix(1_700_000_000, 0)
	for range maxEventBurst {
		b.takeToken(now)
	}
	now = now.Add(-24 * time.Hour)
	if allowed, floodStarts := b.takeToken(now); allowed || !floodStarts {
		t.Fatal("the burst is used up, whatever the clock shows")
	}
	if ok, _ := b.takeToken(now.Add(eventRefillInterval)); !ok {
		t.Error("no token is refilled after the clock was set back")
	}
}

// TestAFloodOfEventsIsDroppedAndReportedOnce: one release has a new event in every reconciliation, another one few.
func TestAFloodOfEventsIsDroppedAndReportedOnce(t *testing.T) {
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
			r.Event(ctx, objectRef("noisy"), normal(fmt.Sprint("Something new ", i)))
		}
		send()
	}
	flood(0, 1000)
	r.Event(ctx, objectRef("quiet"), normal("Advance"))
	send()
	if len(server.requests) != maxEventBurst+2 || server.eventCounts()["Warning "+floodText] != 1 || server.eventCounts()["Normal Advance"] != 1 {
		t.Errorf("%d requests, the flood was reported %d times", len(server.requests), server.eventCounts()["Warning "+floodText])
	}
	if text := logged.String(); strings.Count(text, "Something new") != 1000 {
		t.Error("the log does not have all of them")
	}

	// After the flood a repeated text is written with its total count.
	clk.SetTime(clk.Now().Add(10 * eventRefillInterval))
	r.Event(ctx, objectRef("noisy"), normal("Something new 999"))
	send()
	if got := server.eventCounts()["Normal Something new 999"]; got != 2 {
		t.Errorf("counted %d times, want 2", got)
	}
	// It is the same flood until half of the tokens are refilled.
	flood(1000, 1100)
	if got := server.eventCounts()["Warning "+floodText]; got != 1 {
		t.Errorf("one flood was reported %d times", got)
	}
	clk.SetTime(clk.Now().Add(time.Hour))
	flood(2000, 2500)
	if got := server.eventCounts()["Warning "+floodText]; got != 2 {
		t.Errorf("the second flood: reported %d times in all, want 2", got)
	}
}
