package canary

import "testing"

// TestASignatureBelongsToItsCommand: a command that was written without one must not be attributed to the user of the previous one.
func TestASignatureBelongsToItsCommand(t *testing.T) {
	for name, tc := range map[string]struct {
		command, signature string
		want               string
	}{
		"user and reason":    {"abort@r1", SignCommand("abort@r1", "vera", "checkout is slow"), "vera: checkout is slow"},
		"user":               {"abort@r1", SignCommand("abort@r1", "vera", ""), "vera"},
		"reason":             {"abort@r1", SignCommand("abort@r1", "", "checkout is slow"), "checkout is slow"},
		"neither":            {"abort@r1", SignCommand("abort@r1", "", ""), ""},
		"another run":        {"abort@r2", SignCommand("abort@r1", "vera", ""), ""},
		"the next step":      {"promote@r1/20", SignCommand("promote@r1/2", "vera", ""), ""},
		"an answer":          {"promote@r1/20:more", SignCommand("promote@r1/20:more", "vera", ""), "vera"},
		"no command":         {"", SignCommand("abort@r1", "vera", ""), ""},
		"written by someone": {"abort@r1", "vera", ""},
	} {
		if got := CommandBy(map[string]string{CommandAnnotation: tc.command, CommandByAnnotation: tc.signature}); got != tc.want {
			t.Errorf("%s: the command is attributed to %q, want %q", name, got, tc.want)
		}
	}
}
