package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/explain"
)

func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var last explain.Release
		var now time.Time
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "why":
				observed, at := clitest.ScanObservation(t, d)
				last, now = observed.Describe(at), at
				out := "state: " + string(last.State)
				if last.Result != "" {
					out += ", last result: " + string(last.Result)
				}
				return out + "\n" + strings.Join(explain.Why(last, now), "\n") + "\n"
			case "document":
				text, err := yaml.Marshal(last)
				if err != nil {
					d.Fatalf(t, "print: %v", err)
				}
				return string(text)
			default:
				d.Fatalf(t, "unknown command")
				return ""
			}
		})
	})
}

func TestFormatDurationRoundsUp(t *testing.T) {
	for _, tc := range []struct {
		in   time.Duration
		want string
	}{
		{-time.Second, "0s"},
		{0, "0s"},
		{time.Nanosecond, "1s"},
		{59*time.Second + 1, "1m"},
		{90 * time.Second, "1m30s"},
		{time.Hour, "1h"},
		{3*time.Hour + 5*time.Minute + 59*time.Second, "3h5m"},
		{24 * time.Hour, "1d"},
		{98 * time.Hour, "4d2h"},
	} {
		if got := explain.FormatDuration(tc.in); got != tc.want {
			t.Errorf("FormatDuration(%v) = %q, want %q", tc.in, got, tc.want)
		}
	}
}

// BenchmarkDescribe describes a release with five remaining weights, as the full-screen view does every second.
func BenchmarkDescribe(b *testing.B) {
	now := clitest.At(b, "12:00:10")
	observed, err := clitest.ParseObservation(`
metadata: {name: cart}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  analysis: {interval: 30s, threshold: 2, stepWeight: 20, metrics: [{name: request-success-rate, thresholdRange: {min: 99}}]}
status:
  phase: Progressing
  lastTransitionTime: "2026-01-02T12:00:00Z"
  serin: {run: 1f2e, revision: s1-new, promoted: s1-old}
observed: {target: {desired: 1, available: 1}, primary: {desired: 2, available: 2}}
`, now)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		observed.Describe(now)
	}
}
