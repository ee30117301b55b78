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

// reported is a report in which no peer was measured.
func reported(t *testing.T) report {
	t.Helper()
	r := report{
		Date: began, Machine: machine{Processors: 2, MemoryBytes: 24 * gibibyte, Load: 0.25},
		Plan: plan{Releases: 2, Steps: 2, WindowSeconds: 10, DrainSeconds: 5},
		APIs: []apiCosts{{API: "canary", controllerCosts: controllerCosts{Idle: idleCosts{Seconds: 60, ResidentBytes: 45e6, FileBytes: 20e6, Requests: requestCounts{Reads: map[string]int{"list pods": 3}}}, Release: releaseCosts{
			NotMeasured: []string{"app-001: it ended in phase Failed"}, RequestsPerRelease: 18.5,
			Requests:             requestCounts{Writes: map[string]int{"create events": 11, "patch canaries.flagger.app/status": 26}},
			CPUSecondsPerRelease: 0.0125, PeakResidentBytes: 52e6, AfterResidentBytes: 50e6, AfterFileBytes: 21e6,
			Processors:            processorUse{APIServerCPUSeconds: 0.2, EtcdCPUSeconds: 0.1, BenchCPUSeconds: 0.06},
			ProcessorsDuringStart: processorUse{Seconds: 1.5, BusyShare: 0.987, ControllerCPUSeconds: 0.1, APIServerCPUSeconds: 0.8, EtcdCPUSeconds: 0.3, BenchCPUSeconds: 0.2},
		}}}, {API: "rollout"}},
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
	return r
}

func TestTheTableShowsWhatWasMeasured(t *testing.T) {
	var out strings.Builder
	if err := reported(t).print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2026-11-21: 2 releases at once, 2 windows of 10 s", "2 processors, 24 GiB, load 0.25 before",
		"18.50  ", "12.5 ms", "45.0 / 52.0 / 50.0 MB", "25.0 / 29.0 MB", "20.0 / 21.0 MB", "100 / 50 / 30 ms", "1.5 s, 99 %", "0.1 / 0.8 / 0.3 / 0.2 s",
		"Serin: canary ", "Serin: rollout ",
		"Flagger 1.44 *  Argo Rollouts *\n", "≤ 20 ms      68 ms           236 ms\n", "* measured earlier on the same kind of machine, not in this run\n",
		"total                          27.50 / 27.50 / 27.50 s  21.40 / 21.40 / 21.40 s", "= lateness                     0.30 / 0.30 / 0.30 s     0.40 / 0.40 / 0.40 s",
		"  13.00  patch canaries.flagger.app/status\n  5.50   create events\n", "  3  list pods\n",
		"1 of 2 releases were not measured:\n  app-001: it ended in phase Failed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "Serin's share") {
		t.Errorf("the table compares costs of this run with remembered ones:\n%s", out.String())
	}
}

func TestTheTableShowsAMeasuredPeer(t *testing.T) {
	r := reported(t)
	r.APIs[0].Peer = &controllerCosts{
		Idle: idleCosts{Seconds: 61, RequestsPerMinutePerRelease: 70, ResidentBytes: 90e6, FileBytes: 50e6},
		Release: releaseCosts{
			RequestsPerRelease: 185, CPUSecondsPerRelease: 0.05, PeakResidentBytes: 104e6, AfterResidentBytes: 100e6, AfterFileBytes: 42e6,
			Requests: requestCounts{Reads: map[string]int{"get services": 12}},
		},
	}
	release, err := playedByFlagger().breakdown(asked)
	if err != nil {
		t.Fatal(err)
	}
	r.APIs[0].Peer.Release.setTimes([]timeBreakdown{release})
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Flagger                  Argo Rollouts *\n", "185.00                   97\n", "50.0 ms                  236 ms\n", "* measured earlier",
		"Serin's share of the costs of", "Flagger             must be\n", "0.25                ≤ 0.33\n", " 0.10\n", " 0.50 / 0.50 / 0.50\n", " 0.62 / 0.50\n",
		" canary                   Flagger                  rollout\n", "27.50 / 27.50 / 27.50 s  50.00 / 50.00 / 50.00 s  21.40 / 21.40 / 21.40 s\n",
		"canary, Flagger: requests per release", "  6.00  get services\n", "canary, Flagger: idle for 61 s",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}
	for _, remembered := range []string{"Flagger 1.44 *", "68 ms", "79 MB"} {
		if strings.Contains(out.String(), remembered) {
			t.Errorf("the table has the remembered %q in addition to the measured costs:\n%s", remembered, out.String())
		}
	}
	r.APIs[1].Peer = &controllerCosts{}
	out.Reset()
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "measured earlier") {
		t.Errorf("both peers were measured, and the table refers to earlier measurements:\n%s", out.String())
	}
}

func TestAShareOfNothingIsNotANumber(t *testing.T) {
	if got := formatShare(1, 3); got != "0.33" {
		t.Errorf("a third is %q", got)
	}
	if got := formatShare(1, 0); got != "–" {
		t.Errorf("a share of zero is %q", got)
	}
}
