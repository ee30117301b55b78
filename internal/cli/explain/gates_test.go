package explain

import (
	"strings"
	"testing"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// TestEveryGateIsExplained checks that for each gate and each of its openers, `serin why` names the gate and the opener, and shows
// the command with which the user opens the gate.
func TestEveryGateIsExplained(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	words := map[release.Opener]string{
		release.ByTime: "Continues automatically", release.ByCluster: "Waiting on Kubernetes", release.ByAnswer: "Waiting for a reply", release.ByUser: "Action required",
	}
	for kind, gates := range map[Kind]release.GateKinds{KindCanary: canary.GateKinds(), KindRollout: rollout.GateKinds()} {
		r := Release{Kind: kind, Name: "cart", Namespace: "shop"}
		for _, gateKind := range gates {
			for _, opener := range gateKind.Openers {
				view := release.GateView{Gate: release.NewWaitingGate(gateKind.Name, opener, "observed state"), Kind: gateKind}
				view.Until = now.Add(time.Minute)
				sentences := gateSentences(newGate(view, &r, OtherController{StopCommand: "stop it"}), now, true)
				explained := strings.Join(sentences, "\n")
				if gateKind.Name == deadlineGate && opener == release.ByTime { // the deadline delays nothing, so no release waits for it
					continue
				}
				if !strings.Contains(explained, gateKind.Name) || !strings.Contains(explained, words[opener]) {
					t.Errorf("%s %s, opened by %s, is explained as:\n%s", kind, gateKind.Name, opener, explained)
				}
				if command := "serin " + gateKind.Command + " "; opener == release.ByUser && gateKind.Command != "" && !strings.Contains(explained, command) {
					t.Errorf("%s %s is explained without %s:\n%s", kind, gateKind.Name, command, explained)
				}
			}
		}
	}
}

// TestMeasurementsWithoutRequestsAreExplained: a rate without requests is NaN, which a condition does not accept.
func TestMeasurementsWithoutRequestsAreExplained(t *testing.T) {
	const hint = "NaN means that the query divided by zero, such as without requests"
	for _, tt := range []struct {
		value string
		phase argov1.AnalysisPhase
		want  bool
	}{
		{"[NaN]", argov1.AnalysisPhaseFailed, true},
		{"[0.5,NaN]", argov1.AnalysisPhaseRunning, true},
		{"[NaN]", argov1.AnalysisPhaseSuccessful, false},
		{"[0.5]", argov1.AnalysisPhaseFailed, false},
		{`["NaNcy"]`, argov1.AnalysisPhaseFailed, false},
	} {
		last := argov1.AnalysisPhaseFailed
		if tt.phase == argov1.AnalysisPhaseSuccessful {
			last = tt.phase
		}
		result := argov1.MetricResult{Name: "success-rate", Phase: tt.phase, Failed: 1, Measurements: []argov1.Measurement{{Phase: last, Value: tt.value}}}
		gate := newMetricGate(&argov1.Metric{Name: "success-rate"}, result, "")
		if got := strings.Contains(gate.Message, hint); got != tt.want {
			t.Errorf("%s of a metric that is %s: the message is %q", tt.value, tt.phase, gate.Message)
		}
	}
}
