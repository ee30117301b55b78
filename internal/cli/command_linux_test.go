package cli

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
)

// openTerminal returns both ends of a terminal.
func openTerminal(t *testing.T) (user, terminal *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return user, terminal
}

func TestPromoteInFullAsksOnATerminal(t *testing.T) {
	const question = "cart is under analysis (weight 20%, 0 of 2 failed checks): promote --full skips the remaining analysis and routes all traffic to the new revision. Continue? [y/N] "
	for _, c := range []struct {
		answer, flags string
		asks, sent    bool
	}{
		{"y\n", "", true, true},
		{"Yes\n", "", true, true},
		{"n\n", "", true, false},
		{"\n", "", true, false},
		{"", "--yes", false, true},
	} {
		w := clitest.NewFakeCluster(t, clitest.Cart)
		root := &cobra.Command{Use: "serin", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(newCommands(func(*connection, controllerFlags) (*cluster.Session, string, error) { return w.Session, "shop", nil })...)
		user, terminal := openTerminal(t)
		if _, err := user.WriteString(c.answer); err != nil {
			t.Fatal(err)
		}
		var out, notes bytes.Buffer
		root.SetIn(terminal)
		root.SetOut(&out)
		root.SetErr(&notes)
		code := Run(t.Context(), root, strings.Fields("promote cart --full "+c.flags), &notes)
		sent := w.Canary("cart").Annotations[canary.CommandAnnotation] != ""
		if asks := strings.Contains(notes.String(), question); asks != c.asks || sent != c.sent || (code == ExitDone) != c.sent {
			t.Errorf("answer %q, flags %q: asked %v, sent %v, exit code %d, want %v, %v: %s%s", c.answer, c.flags, asks, sent, code, c.asks, c.sent, out.String(), notes.String())
		}
	}
}
