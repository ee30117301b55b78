package build

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/serin-dev/serin/internal/waittest"
)

func TestProgressInLines(t *testing.T) {
	// The sizes make each package 1 % of the work.
	stale := map[string]int64{}
	for i := range 100 {
		stale[fmt.Sprintf("example.com/p%d", i)] = 1 << 20
	}
	var reported []string
	c := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	p := newProgress(stale, c, func(text string) { reported = append(reported, text) }, nil)
	for i := range 100 {
		c.SetTime(time.Unix(int64(i), 0))
		fmt.Fprintf(p, "go: downloading example.com/p%d v1.0.0\nexample.com/", i)
		fmt.Fprintf(p, "p%d\nexample.com/cached\n", i) // lines are written in parts
	}
	p.clearLine()
	var want []string
	for i := 10; i < 100; i += 10 {
		remaining := (time.Duration(i-1) * time.Second * time.Duration(100-i) / time.Duration(i)).Round(5 * time.Second)
		want = append(want, fmt.Sprintf("  %d of 100 packages, %d %%, about %s left", i, i, remaining))
	}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestProgressCountsWorkNotPackages(t *testing.T) {
	var reported []string
	p := newProgress(map[string]int64{"small": 0, "large": 9 * packageCost}, clocktesting.NewFakePassiveClock(time.Unix(0, 0)),
		func(text string) { reported = append(reported, text) }, nil)
	fmt.Fprintln(p, "small")
	fmt.Fprintln(p, "small") // a package counts once
	fmt.Fprintln(p, "large")
	if len(reported) != 0 {
		t.Errorf("reported %q, want nothing: the first package is 9 %% of the work, and the second completes it", reported)
	}
	if p.startedPackages != 2 || p.done != p.work {
		t.Errorf("%d packages have started, with %d of %d work", p.startedPackages, p.done, p.work)
	}
}

func TestOutputOtherThanPackagesIsTheReasonOfAFailure(t *testing.T) {
	p := newProgress(map[string]int64{"example.com/p": 1}, clocktesting.NewFakePassiveClock(time.Unix(0, 0)), func(string) {}, nil)
	fmt.Fprint(p, "go: downloading example.com/q v1.0.0\nexample.com/p\n# example.com/p\np.go:1:1: syntax error")
	if got, want := p.remainingOutput(), "# example.com/p\np.go:1:1: syntax error"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgressOnATerminalIsOneLine(t *testing.T) {
	outer, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	if err := pty.Setsize(outer, &pty.Winsize{Rows: 10, Cols: 30}); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 1)
	go func() {
		text, err := io.ReadAll(outer)
		if err != nil && !errors.Is(err, os.ErrClosed) && !strings.Contains(err.Error(), "input/output error") {
			t.Error(err)
		}
		shown <- string(text)
	}()
	p := newProgress(map[string]int64{"example.com/one": 0, "example.com/two": 0}, clocktesting.NewFakePassiveClock(time.Unix(0, 0)),
		func(text string) { t.Errorf("reported %q in addition to the terminal", text) }, terminal)
	fmt.Fprint(p, "example.com/one\nexample.com/two\n")
	p.clearLine()
	terminal.Close()
	const want = "\r  1 of 2 packages, 50 % (exam\x1b[K" + "\r  2 of 2 packages, 100 % (exa\x1b[K" + "\r\x1b[K"
	if got := waittest.Receive(t, "the terminal is closed", shown); got != want {
		t.Errorf("shown %q, want %q", got, want)
	}
}

func TestEstimate(t *testing.T) {
	for _, c := range []struct {
		seconds, processors int
		want                string
	}{
		{550, 2, "about 5 minutes on 2 processors"},
		{60, 1, "about a minute on 1 processor"},
		{550, 32, "about a minute on 32 processors"},
	} {
		if got := formatEstimate(c.seconds, c.processors); got != c.want {
			t.Errorf("%d s of work: got %q, want %q", c.seconds, got, c.want)
		}
	}
}
