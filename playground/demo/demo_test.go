//go:build linux

package demo

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/playground/load"
)

func TestProgressOfARelease(t *testing.T) {
	at := func(phase string, weight, failed int64) releaseStatus {
		return releaseStatus{phase: phase, weight: weight, failed: failed}
	}
	for _, c := range []struct {
		name           string
		seen           []releaseStatus
		want           Outcome
		steps, windows int
	}{
		{"not started", []releaseStatus{at("Succeeded", 0, 0)}, "", 0, 0},
		{"the end of the previous release is ignored", []releaseStatus{at("Failed", 0, 0), at("Failed", 0, 0)}, "", 0, 0},
		{"promoted", []releaseStatus{
			at("Initialized", 0, 0), at("Progressing", 0, 0), at("Progressing", 20, 0), at("Progressing", 20, 0), at("Progressing", 40, 0),
			at("Promoting", 40, 0), at("Promoting", 40, 0), at("Finalising", 0, 0), at("Succeeded", 0, 0),
		}, Promoted, 2, 2},
		{"rolled back after two windows at the same weight", []releaseStatus{
			at("Succeeded", 0, 0), at("Progressing", 20, 0), at("Progressing", 20, 1), at("Progressing", 20, 2), at("Failed", 0, 0),
		}, RolledBack, 1, 2},
		{"a Rollout", []releaseStatus{
			at("Healthy", 0, 0), at("Progressing", 0, 0), at("Progressing", 25, 0), at("Paused", 25, 0), at("Progressing", 25, 0), at("Progressing", 50, 0), at("Healthy", 0, 0),
		}, Promoted, 2, 2},
		{"a Rollout whose pods were not ready for a moment before its release", []releaseStatus{
			{phase: "Healthy", isPromoted: true}, {phase: "Progressing", isPromoted: true}, {phase: "Healthy", isPromoted: true},
		}, "", 0, 0},
		{"an aborted Rollout", []releaseStatus{at("Progressing", 0, 0), at("Progressing", 25, 0), at("Degraded", 0, 0)}, RolledBack, 1, 0},
		{"rolled back before any traffic", []releaseStatus{at("Progressing", 0, 0), at("Failed", 0, 0)}, RolledBack, 0, 0},
	} {
		var p releaseProgress
		var got Outcome
		for _, s := range c.seen {
			got = p.observe(s)
		}
		if got != c.want || p.steps != c.steps || p.windows != c.windows {
			t.Errorf("%s: got %q, %d steps, %d windows; want %q, %d, %d", c.name, got, p.steps, p.windows, c.want, c.steps, c.windows)
		}
	}
}

func TestStatusOfACanary(t *testing.T) {
	canary := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
		"phase": "Progressing", "canaryWeight": int64(20), "failedChecks": int64(1),
		"conditions": []any{map[string]any{"type": "Promoted", "status": "Unknown", "message": "progressing"}},
	}}}
	want := releaseStatus{phase: "Progressing", weight: 20, failed: 1, message: "progressing"}
	if got := readCanary(canary.Object); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := readCanary(map[string]any{}); got != (releaseStatus{}) {
		t.Errorf("without a status: %+v", got)
	}
}

func TestStatusOfARollout(t *testing.T) {
	rollout := func(generation int64) map[string]any {
		return map[string]any{"metadata": map[string]any{"generation": generation}, "status": map[string]any{
			"phase": "Healthy", "observedGeneration": "2", "message": "none", "canary": map[string]any{"weights": map[string]any{"canary": map[string]any{"weight": int64(25)}}},
		}}
	}
	want := releaseStatus{phase: "Healthy", weight: 25, message: "none"}
	if got := readRollout(rollout(2)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	promoted := rollout(2)
	promoted["status"].(map[string]any)["stableRS"], promoted["status"].(map[string]any)["currentPodHash"] = "a", "a"
	if got := readRollout(promoted); !got.isPromoted {
		t.Errorf("the revision of the spec is stable: %+v", got)
	}
	if got := readRollout(rollout(3)); got.phase != "Progressing" {
		t.Errorf("a status of an earlier generation: %+v", got)
	}
}

func TestDifferencesFromTheExpectedResultAreReported(t *testing.T) {
	scenario := Scenarios()[1]
	good := func() Result {
		return Result{Outcome: RolledBack, Counts: load.Counts{Requests: 100, Errors: 2, ByVersion: map[string]load.VersionCounts{
			"v2": {Requests: 80}, scenario.Version: {Requests: 20, Errors: 2},
		}}}
	}
	if err := scenario.verifyResult(good()); err != nil {
		t.Errorf("expected result: %v", err)
	}
	for _, c := range []struct {
		name, want string
		change     func(*Result)
	}{
		{"outcome", "was promoted", func(r *Result) { r.Outcome = Promoted }},
		{"lost", "1 requests were lost", func(r *Result) { r.Counts.Lost = 1 }},
		{"good version fails", "version v2 failed 3 requests", func(r *Result) { r.Counts.ByVersion["v2"] = load.VersionCounts{Requests: 80, Errors: 3} }},
		{"no traffic", "got no requests", func(r *Result) { delete(r.Counts.ByVersion, scenario.Version) }},
	} {
		r := good()
		c.change(&r)
		if err := scenario.verifyResult(r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestStreamIsCompleteBetweenSequencesAndCharacters(t *testing.T) {
	const text = "a\x1b[31;1mb\x1b]11;?\x07c\x1b]0;title\x1b\\d\x1b(Be\x1b7├é😀f"
	// One sign for each byte: + if other output may be inserted after it.
	const want = "+" + "------" + "+" + "+" + "------" + "+" + "+" + "----------" + "+" + "+" + "--" + "+" + "+" + "-" + "+" + "--+" + "-+" + "---+" + "+"
	var s terminalStream
	got := ""
	for i := range len(text) {
		s.write([]byte{text[i]})
		if s.isComplete() {
			got += "+"
		} else {
			got += "-"
		}
	}
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLineViewerPrintsEachChangeAndCountsAtIntervals(t *testing.T) {
	var out strings.Builder
	v := &LineViewer{Out: &out}
	v.ShowActivity("starting Serin")
	if err := v.StartScenario(1, 3, Scenario{Story: "v2 is good"}); err != nil {
		t.Fatal(err)
	}
	counts := load.Counts{Requests: 3, ByVersion: map[string]load.VersionCounts{"v1": {Requests: 3}}}
	v.Progress(true, "phase Progressing", counts)
	for range countsLogInterval {
		v.Progress(false, "phase Progressing", counts)
	}
	v.Result(Scenario{Version: "v2"}, Result{Outcome: Promoted, Seconds: 20.04, Steps: 3, Windows: 3, Requests: 3, Counts: counts}, nil)
	want := `starting Serin ...

Release 1 of 3: v2 is good
  phase Progressing; requests: v1 3 (0 errors), lost 0
  phase Progressing; requests: v1 3 (0 errors), lost 0
✓ v2 was promoted in 20.0 s: 3 steps, 3 windows, 3 requests, 0 failed (v1 3 (0 errors), lost 0)
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestJSONViewerPrintsTheDocumentedFields(t *testing.T) {
	var out strings.Builder
	JSONViewer{Out: &out}.Result(Scenario{}, Result{Scenario: "good", Outcome: Promoted, Steps: 3, Windows: 4, Requests: 5, FailedRequests: 6, Seconds: 7.5}, nil)
	want := `{"act":"good","outcome":"promoted","steps":3,"windows":4,"requests":5,"failedRequests":6,"seconds":7.5}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
