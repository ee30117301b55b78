package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/charmbracelet/lipgloss"
	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/check"
	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
	"github.com/serin-dev/serin/internal/release"
)

// TestGolden renders releases. The command release adds a release; the commands tree and top render the document in their input, and
// the other commands all releases that were added before.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var observations []explain.Observation
		now := clitest.At(t, "12:00:00")
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.HasArg("now") {
				var clock string
				d.ScanArgs(t, "now", &clock)
				now = clitest.At(t, clock)
			}
			var releases []explain.Release
			for _, one := range observations {
				releases = append(releases, one.Describe(now))
			}
			paint := view.Paint{Colours: d.HasArg("colours")}
			switch d.Cmd {
			case "release":
				one, err := clitest.ParseObservation(d.Input, now)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				observations = append(observations, one)
				return ""
			case "table":
				return view.Table(releases, now, view.TableOptions{Namespaces: d.HasArg("namespaces"), Wide: d.HasArg("wide"), Paint: paint})
			case "tree":
				var document explain.Release
				if err := yaml.UnmarshalStrict([]byte(d.Input), &document); err != nil {
					d.Fatalf(t, "%v", err)
				}
				options := view.TreeOptions{Paint: paint}
				d.MaybeScanArgs(t, "columns", &options.Columns)
				return markLineEnds(strings.TrimSuffix(view.Tree(&document, now, options), "\n"))
			case "top":
				var document explain.Top
				if err := yaml.UnmarshalStrict([]byte(d.Input), &document); err != nil {
					d.Fatalf(t, "%v", err)
				}
				return markLineEnds(strings.TrimSuffix(view.Top(document, now, view.TopOptions{Namespaces: d.HasArg("namespaces"), Paint: paint}), "\n"))
			case "sentences":
				columns := 80
				d.MaybeScanArgs(t, "columns", &columns)
				return view.WrapParagraphs(explain.Why(releases[0], now), columns, paint)
			case "lines":
				var lines []string
				for i := range releases {
					lines = append(lines, view.WithTime(now, view.ReleaseLine(&releases[i])))
					for _, event := range releases[i].Events {
						lines = append(lines, view.WithTime(event.At, view.EventLine(&releases[i], event)))
					}
				}
				return strings.Join(lines, "\n") + "\n"
			case "screen":
				screen := view.Screen{Releases: releases, Now: now, Width: 80, Height: 24, Open: d.HasArg("open"), Single: d.HasArg("single"), Paint: paint}
				d.MaybeScanArgs(t, "width", &screen.Width)
				d.MaybeScanArgs(t, "height", &screen.Height)
				d.MaybeScanArgs(t, "selected", &screen.Selected)
				if d.Input != "" {
					screen.Notes = strings.Split(d.Input, "\n")
				}
				return markLineEnds(screen.String())
			default:
				d.Fatalf(t, "unknown command")
				return ""
			}
		})
	})
}

// markLineEnds marks the ends of lines, so that trailing blanks are visible, and replaces escape characters with readable symbols.
func markLineEnds(text string) string {
	text = strings.ReplaceAll(text, "\x1b", "␛")
	return strings.ReplaceAll(text, "\n", "|\n") + "|\n"
}

func TestScreenNeverExceedsTheTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-zé█✓ /.-]{0,200}`)
		seconds := rapid.Int64Range(-1e6, 1e6)
		now := time.Unix(1_800_000_000, 0).UTC()
		at := func(label string) time.Time { return now.Add(time.Duration(seconds.Draw(t, label)) * time.Second) }
		var releases []explain.Release
		for range rapid.IntRange(0, 30).Draw(t, "releases") {
			r := explain.Release{
				Name: text.Draw(t, "name"), Namespace: text.Draw(t, "namespace"), Phase: text.Draw(t, "phase"), Since: at("since"),
				State:  rapid.SampledFrom([]release.State{release.Idle, release.InProgress, release.RollingBack, release.WaitsForUser}).Draw(t, "state"),
				Weight: rapid.IntRange(-5, 150).Draw(t, "weight"), Iterations: rapid.IntRange(-1, 20).Draw(t, "iterations"),
				TotalIterations: rapid.IntRange(0, 10).Draw(t, "total"), Message: text.Draw(t, "message"),
			}
			if rapid.Bool().Draw(t, "open") {
				r.Window = &explain.Window{Start: at("start"), End: at("end")}
			}
			for range rapid.IntRange(0, 12).Draw(t, "gates") {
				r.Gates = append(r.Gates, explain.Gate{
					Name: text.Draw(t, "gate"), Verdict: rapid.SampledFrom([]string{"pass", "ask", "wait", "fail"}).Draw(t, "verdict"),
					Message: text.Draw(t, "gate message"), Check: rapid.Bool().Draw(t, "check"), Until: at("until"),
					Opener: rapid.SampledFrom([]string{"", "time", "cluster", "answer", "person"}).Draw(t, "opener"),
				})
			}
			for range rapid.IntRange(0, 40).Draw(t, "events") {
				r.Events = append(r.Events, explain.Event{At: at("at"), Message: text.Draw(t, "event")})
			}
			releases = append(releases, r)
		}
		s := view.Screen{
			Releases: releases, Selected: rapid.IntRange(-2, 40).Draw(t, "selected"), Open: rapid.Bool().Draw(t, "detail"), Now: now,
			Notes: rapid.SliceOfN(text, 0, 4).Draw(t, "notes"), Summary: rapid.SampledFrom([]string{"", strings.Repeat("1 in the queue, ", 20)}).Draw(t, "summary"),
			Width: rapid.IntRange(20, 200).Draw(t, "width"), Height: rapid.IntRange(5, 60).Draw(t, "height"),
			Paint: view.Paint{Colours: rapid.Bool().Draw(t, "colours")},
		}
		lines := strings.Split(s.String(), "\n")
		if len(lines) != s.Height {
			t.Fatalf("drew %d lines on a screen of %d", len(lines), s.Height)
		}
		for _, line := range lines {
			if got := lipgloss.Width(line); got > s.Width {
				t.Fatalf("drew %d columns on a screen of %d: %s", got, s.Width, fmt.Sprintf("%q", line))
			}
		}
	})
}

// TestTextOfTheClusterCannotControlTheTerminal: names and messages may contain what someone else wrote.
func TestTextOfTheClusterCannotControlTheTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hostile := rapid.StringMatching(`([a-z "\x1b\x07\r\n\t\x{9b}\x{202e}\x{200b}\x00]|\x1b\[2J)*`)
		texts := func(label string) []string { return rapid.SliceOfN(hostile, 0, 3).Draw(t, label) }
		now := time.Unix(1_800_000_000, 0).UTC()
		pod := explain.TreePod{Name: hostile.Draw(t, "pod"), Phase: hostile.Draw(t, "pod phase"), Reason: hostile.Draw(t, "reason"), Message: hostile.Draw(t, "pod message"), Container: hostile.Draw(t, "container"), Image: hostile.Draw(t, "image")}
		run := explain.TreeRun{Name: hostile.Draw(t, "run"), Type: hostile.Draw(t, "type"), Phase: hostile.Draw(t, "run phase"), Message: hostile.Draw(t, "run message")}
		workload := explain.TreeWorkload{Kind: hostile.Draw(t, "kind"), Name: hostile.Draw(t, "workload"), Failure: hostile.Draw(t, "failure"), Pods: []explain.TreePod{pod}}
		r := explain.Release{
			Kind: explain.KindRollout, Name: hostile.Draw(t, "name"), Namespace: hostile.Draw(t, "namespace"), Target: hostile.Draw(t, "target"), Phase: hostile.Draw(t, "phase"),
			State: release.InProgress, NextStep: hostile.Draw(t, "next"), Message: hostile.Draw(t, "message"),
			Gates: []explain.Gate{{Name: hostile.Draw(t, "gate"), Verdict: "wait", Message: hostile.Draw(t, "gate message"), UserAction: hostile.Draw(t, "action"), Opener: "person"}},
			Tree: &explain.Tree{
				Revisions:    []explain.TreeRevision{{Roles: []string{"canary"}, Revision: hostile.Draw(t, "revision"), Images: texts("images"), Confirmed: new(false), ServedWeight: new(1), Reason: hostile.Draw(t, "route"), Workloads: []explain.TreeWorkload{workload}}},
				AnalysisRuns: []explain.TreeRun{run}, Experiments: []explain.TreeRun{run}, Unread: texts("unread"),
			},
		}
		top := explain.Top{Releases: []explain.TopRelease{{Release: r, Group: explain.NeedsUser, Images: explain.Images{Old: texts("old"), New: texts("new")}}}}
		r.Steps = []explain.Step{{Text: r.NextStep, At: now.Add(time.Minute)}}
		r.Unread, r.Events = texts("release unread"), []explain.Event{{Type: "Warning", Message: hostile.Draw(t, "event")}}
		r.PodProblems = []explain.PodProblem{{Revision: "canary", Pod: pod.Name, Container: pod.Container, Image: pod.Image, Reason: pod.Reason, Message: pod.Message}}
		r.Gates = append(r.Gates, explain.Gate{Name: hostile.Draw(t, "check"), Verdict: "fail", Check: true, Message: hostile.Draw(t, "check message"), Value: hostile.Draw(t, "value"), Limit: hostile.Draw(t, "limit"), Query: hostile.Draw(t, "query")})
		screen := view.Screen{Releases: []explain.Release{r}, Notes: texts("notes"), Now: now, Width: 100, Height: 40}
		open := screen
		open.Open = true
		past := explain.History{Kind: explain.KindCanary, Releases: []explain.PastRelease{{Images: texts("past images"), Result: hostile.Draw(t, "result"), Revision: hostile.Draw(t, "past revision"), Cause: &flaggerv1.ReleaseCause{Gate: hostile.Draw(t, "cause"), Message: hostile.Draw(t, "cause message")}}}}
		results := check.Report{Sections: []check.Section{{Name: hostile.Draw(t, "section"), Results: []check.Result{{Check: "x", Status: check.Failed, Message: hostile.Draw(t, "found"), Fix: hostile.Draw(t, "fix"), Query: hostile.Draw(t, "sent")}}}}}
		experiments := explain.Experiments{Experiments: []explain.Experiment{{Name: hostile.Draw(t, "experiment"), Phase: hostile.Draw(t, "experiment phase"), Duration: hostile.Draw(t, "duration")}}}
		for _, text := range []string{
			screen.String(), open.String(), view.WithTime(now, view.ReleaseLine(&r)), view.WithTime(now, view.EventLine(&r, r.Events[0])),
			view.WrapParagraphs(explain.Why(r, now), 80, view.Paint{}), view.HistoryTable(past, view.Paint{}), view.Check(results, 80, view.Paint{}),
			view.ExperimentTable(experiments, now, true, view.Paint{}), view.PlainText("serin: " + hostile.Draw(t, "error")),
			view.Tree(&r, now, view.TreeOptions{}), view.Top(top, now, view.TopOptions{Namespaces: true}),
			view.Table([]explain.Release{r}, now, view.TableOptions{Namespaces: true, Wide: true}),
		} {
			for _, c := range text {
				if c != '\n' && !unicode.IsPrint(c) {
					t.Fatalf("printed %q: %q", c, text)
				}
			}
		}
		if lines := strings.Split(screen.String(), "\n"); len(lines) != 40 {
			t.Fatalf("a screen of 40 lines has %d", len(lines))
		}
		if text := view.WithTime(now, view.EventLine(&r, r.Events[0])); strings.Contains(text, "\n") {
			t.Fatalf("an event has two lines: %q", text)
		}
		if lines := strings.Count(view.Top(top, now, view.TopOptions{}), "\n"); lines != 4 {
			t.Fatalf("a table of one release has %d lines", lines)
		}
	})
}
