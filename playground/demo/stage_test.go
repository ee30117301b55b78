//go:build linux

package demo

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"github.com/serin-dev/serin/playground/load"
)

// viewVariable makes this program the view of a stage.
const viewVariable = "DEMO_TEST_VIEW"

func TestMain(m *testing.M) {
	if os.Getenv(viewVariable) == "" {
		os.Exit(m.Run())
	}
	rows, columns, err := pty.Getsize(os.Stdout)
	fmt.Printf("view of %d×%d %v on %s", rows, columns, err, os.Getenv("TERM"))
	select {}
}

// screen collects what is written to a terminal.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestStageSharesTheTerminalWithItsView(t *testing.T) {
	outer, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(outer, &pty.Winsize{Rows: 30, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	shown := &screen{}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		buffer := make([]byte, 4096)
		for {
			n, err := outer.Read(buffer)
			_, _ = shown.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	expect := func(text string) {
		t.Helper()
		for !strings.Contains(shown.String(), text) {
			if t.Context().Err() != nil {
				t.Fatalf("%q was not shown, but %q", text, shown)
			}
		}
	}

	view := exec.Command(os.Args[0])
	view.Env = []string{viewVariable + "=yes"}
	act := Act{Story: "v2 is " + strings.Repeat("very ", 20) + "good", Version: "v2"}
	v := &Stage{Terminal: terminal, View: view, Where: "logs are there"}
	v.Say("starting Serin")
	expect("starting Serin ...")
	if err := v.Begin(); err != nil {
		t.Fatal(err)
	}
	expect("view of 25×60 <nil> on screen-256color")
	expect("\x1b[1;25r") // the view scrolls in its own lines
	v.Act(1, 3, act)
	v.Progress(true, "phase Progressing", load.Counts{Lost: 2})
	expect("\x1b[27;1H\x1b[2K" + "Act 1 of 3: v2 is very very very very very very very very ve"[:60] + "\x1b")
	expect("\x1b[28;1H\x1b[2Kphase Progressing\x1b")
	expect("\x1b[29;1H\x1b[2Krequests: lost 2\x1b")
	expect("\x1b[30;1H\x1b[2Klogs are there\x1b")
	v.Result(act, Result{Outcome: Promoted}, nil)
	v.End()
	expect("\x1b[r")
	expect("\x1b[?1049l\x1b[30;1H\r\n✓ v2 was promoted")
	if err := view.Process.Signal(os.Interrupt); err == nil {
		t.Error("the view still runs")
	}
	terminal.Close()
	outer.Close()
	<-reading
}
