package release_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/release"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func passingGate(int) release.Gate { return release.NewPassingGate("passes", "seen") }

func timedGate(int) release.Gate {
	return release.NewTimedGate("waits", noon.Add(time.Minute), "until a minute past noon")
}

func queryGate(int) release.Gate {
	return release.NewQueryGate("asks", release.Query{ID: "query"}, "waiting for the answer")
}

func failedGate(int) release.Gate { return release.NewFailedGate("fails", release.ByUser, "no") }

func TestEvaluateGatesDefersQueriesUntilPrecedingGatesPass(t *testing.T) {
	for _, test := range []struct {
		name    string
		gates   []func(int) release.Gate
		verdict release.Verdict
		first   string
		asked   int
		wake    time.Time
	}{
		{"nothing", nil, release.Pass, "", 0, time.Time{}},
		{"all pass", []func(int) release.Gate{passingGate, passingGate}, release.Pass, "", 0, time.Time{}},
		{"a query alone", []func(int) release.Gate{passingGate, queryGate}, release.Ask, "asks", 1, time.Time{}},
		{"a query after a waiting gate is deferred", []func(int) release.Gate{timedGate, queryGate}, release.Wait, "waits", 0, noon.Add(time.Minute)},
		{"a query after a query is deferred", []func(int) release.Gate{queryGate, queryGate}, release.Ask, "asks", 1, time.Time{}},
		{"a query after a failed gate is deferred", []func(int) release.Gate{failedGate, queryGate}, release.Fail, "fails", 0, time.Time{}},
		{"a waiting gate after a query is evaluated", []func(int) release.Gate{queryGate, timedGate}, release.Ask, "asks", 1, noon.Add(time.Minute)},
	} {
		gates := release.EvaluateGates(0, test.gates...)
		if len(gates) != len(test.gates) || gates.Verdict() != test.verdict || len(gates.Queries()) != test.asked || !gates.Wake().Equal(test.wake) {
			t.Errorf("%s: %d gates, %s, %d queries, wake %s; want %d, %s, %d, %s", test.name,
				len(gates), gates.Verdict(), len(gates.Queries()), gates.Wake(), len(test.gates), test.verdict, test.asked, test.wake)
		}
		first := ""
		if g := gates.First(); g != nil {
			first = g.Name
		}
		if first != test.first {
			t.Errorf("%s: the first gate that does not pass is %q, want %q", test.name, first, test.first)
		}
		for _, g := range gates {
			if g.Verdict != release.Pass && g.Opener == "" {
				t.Errorf("%s: gate %s has no opener", test.name, g.Name)
			}
		}
	}
}

func TestEventsEndWithTheFirstClosedGate(t *testing.T) {
	event := func(text string) []release.Event { return []release.Event{{Message: text}} }
	gates := release.Gates{
		{Name: "a", Verdict: release.Pass, Events: event("a")},
		{Name: "b", Verdict: release.Fail, Events: event("b")},
		{Name: "c", Verdict: release.Fail, Events: event("c")},
	}
	if diff := cmp.Diff([]release.Event{{Message: "a"}, {Message: "b"}}, gates.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if g := gates.Named("c"); g == nil || g.Events[0].Message != "c" {
		t.Errorf("the gate named c is %+v", g)
	}
	if g := gates.Named("d"); g != nil {
		t.Errorf("the gate named d is %+v, want none", g)
	}
}

func TestWakeIsTheEarliestTimeOfAClosedGate(t *testing.T) {
	gates := release.Gates{
		{Verdict: release.Pass, Until: noon},
		{Verdict: release.Wait, Until: noon.Add(time.Hour)},
		{Verdict: release.Wait},
		{Verdict: release.Wait, Until: noon.Add(time.Minute)},
	}
	if got, want := gates.Wake(), noon.Add(time.Minute); !got.Equal(want) {
		t.Errorf("wakes at %s, want %s", got, want)
	}
}

func TestAnswerToIgnoresPendingAndOutdatedAnswers(t *testing.T) {
	answers := release.Answers{
		"answered": {Began: noon, Ended: noon}, "pending": {Began: noon},
	}
	for _, test := range []struct {
		name  string
		query release.Query
		want  bool
	}{
		{"unknown", release.Query{ID: "new"}, false},
		{"in progress", release.Query{ID: "pending"}, false},
		{"any", release.Query{ID: "answered"}, true},
		{"from that moment", release.Query{ID: "answered", Since: noon}, true},
		{"from later", release.Query{ID: "answered", Since: noon.Add(1)}, false},
	} {
		if _, got := answers.AnswerTo(test.query); got != test.want {
			t.Errorf("%s: answered %v, want %v", test.name, got, test.want)
		}
	}
	if _, ok := release.Answers(nil).AnswerTo(release.Query{ID: "answered"}); ok {
		t.Error("nil Answers returned an answer")
	}
}

func TestLaterOf(t *testing.T) {
	for _, test := range []struct{ a, b, want time.Time }{
		{time.Time{}, time.Time{}, time.Time{}},
		{noon, time.Time{}, noon},
		{time.Time{}, noon, noon},
		{noon, noon.Add(1), noon.Add(1)},
		{noon.Add(1), noon, noon.Add(1)},
	} {
		if got := release.LaterOf(test.a, test.b); !got.Equal(test.want) {
			t.Errorf("later of %s and %s is %s, want %s", test.a, test.b, got, test.want)
		}
	}
}

func TestRouteStableWeightAndText(t *testing.T) {
	for _, test := range []struct {
		route  release.Route
		stable int
		text   string
	}{
		{release.Route{}, 100, "canary=0 primary=100"},
		{release.Route{Canary: 100}, 0, "canary=100 primary=0"},
		{release.Route{Canary: 20, Mirror: release.Mirror{Enabled: true}}, 80, "canary=20 primary=80 mirror"},
		{release.Route{Mirror: release.Mirror{Enabled: true, Percent: 5}}, 100, "canary=0 primary=100 mirror=5"},
		{release.Route{Canary: 300, Total: 1000, Others: []release.Destination{{Service: "x", Weight: 100}}}, 600, "canary=300 primary=600"},
		{release.Route{Canary: 100, Matches: []release.Match{{}, {}}}, 0, "canary=100 primary=0 matches=2"},
	} {
		if got := test.route.Stable(); got != test.stable {
			t.Errorf("stable side of %+v has %d, want %d", test.route, got, test.stable)
		}
		if got := test.route.String(); got != test.text {
			t.Errorf("%+v reads %q, want %q", test.route, got, test.text)
		}
	}
}
