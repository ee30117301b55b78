package explain

import (
	"strings"
	"testing"
	"time"

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
