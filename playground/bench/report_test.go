package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/playground/apiproxy"
)

func TestQuantilesAreTimesThatWereMeasured(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100-i) * time.Second
	}
	for _, test := range []struct {
		name string
		in   []time.Duration
		want distribution
	}{
		{"none", nil, distribution{}},
		{"one", []time.Duration{time.Second}, distribution{1, 1, 1}},
		{"two", []time.Duration{2 * time.Second, time.Second}, distribution{1, 2, 2}},
		{"a hundred", hundred, distribution{50, 99, 100}},
	} {
		if got := newDistribution(test.in); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
	if hundred[0] != 100*time.Second {
		t.Error("the times that were given are in another order now")
	}
}

func TestRequestsAreSortedByWhatTheyAreFor(t *testing.T) {
	got := sortRequests(apiproxy.Counts{
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases"}:                 30,
		{Verb: "get", Group: "coordination.k8s.io", Resource: "leases"}:                    1,
		{Verb: "watch", Group: "flagger.app", Resource: "canaries"}:                        2,
		{Verb: "get", Resource: "/apis"}:                                                   3,
		{Verb: "list", Resource: "pods"}:                                                   4,
		{Verb: "create", Resource: "events"}:                                               10,
		{Verb: "patch", Group: "flagger.app", Resource: "canaries", Subresource: "status"}: 9,
	})
	want := requestCounts{
		Writes: map[string]int{"create events": 10, "patch canaries.flagger.app/status": 9},
		Reads:  map[string]int{"get /apis": 3, "list pods": 4},
		Leases: 31, Watches: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestTheTableShowsWhatWasMeasured(t *testing.T) {
	r := report{
		Date: began, Machine: machine{Processors: 2, MemoryBytes: 24 * gibibyte, Load: 0.25},
		Plan: plan{Releases: 2, Steps: 2, WindowSeconds: 10, DrainSeconds: 5},
		APIs: []apiCosts{{API: "canary", Idle: idleCosts{Seconds: 60, ResidentBytes: 45e6, FileBytes: 20e6, Requests: requestCounts{Reads: map[string]int{"list pods": 3}}}, Release: releaseCosts{
			NotMeasured: []string{"app-001: it ended in phase Failed"}, RequestsPerRelease: 18.5,
			Requests:             requestCounts{Writes: map[string]int{"create events": 11, "patch canaries.flagger.app/status": 26}},
			CPUSecondsPerRelease: 0.0125, PeakResidentBytes: 52e6, AfterResidentBytes: 50e6, AfterFileBytes: 21e6,
		}}, {API: "rollout"}},
	}
	release, err := played().breakdown(asked)
	if err != nil {
		t.Fatal(err)
	}
	r.APIs[0].Release.setTimes([]timeBreakdown{release})
	if release, err = rolled().breakdown(asked); err != nil {
		t.Fatal(err)
	}
	r.APIs[1].Release.setTimes([]timeBreakdown{release})
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2026-11-21: 2 releases at once, 2 windows of 10 s", "2 processors, 24 GiB, load 0.25 before",
		"18.50  ", "12.5 ms", "45.0 / 52.0 / 50.0 MB", "20.0 / 21.0 MB", "not in this run",
		"Serin: canary ", "Serin: rollout ",
		"total                          27.50 / 27.50 / 27.50 s  21.40 / 21.40 / 21.40 s", "= lateness                     0.30 / 0.30 / 0.30 s     0.40 / 0.40 / 0.40 s",
		"  13.00  patch canaries.flagger.app/status\n  5.50   create events\n", "  3  list pods\n",
		"1 of 2 releases were not measured:\n  app-001: it ended in phase Failed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}
}
