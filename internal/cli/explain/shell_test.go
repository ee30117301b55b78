package explain

import (
	"os/exec"
	"testing"

	"github.com/serin-dev/serin/internal/release"
)

// TestTheCommandThatApprovesAGateIsOneCommand passes the printed commands to a shell, which shows the words that it reads.
func TestTheCommandThatApprovesAGateIsOneCommand(t *testing.T) {
	for _, name := range []string{"sign-off", "promotion gate", "x; echo run | sh #", "it's $(echo run) `echo run` \"$HOME\" \\", "a*b", "größe"} {
		r := Release{Kind: KindCanary, Namespace: "shop", Name: "cart", Gates: []Gate{{
			Name: "confirm-promotion/" + name, Verdict: string(release.Wait), Opener: string(release.ByUser), command: "promote",
		}}}
		r.nameApprovals()
		got, err := exec.CommandContext(t.Context(), "sh", "-c", `serin() { printf '[%s]' "$@"; }; `+r.Gates[0].UserAction).Output()
		if want := "[approve][canary/cart][confirm-promotion/" + name + "][-n][shop]"; err != nil || string(got) != want {
			t.Errorf("%s: a shell reads %s, want %s (%v)", r.Gates[0].UserAction, got, want, err)
		}
	}
}
