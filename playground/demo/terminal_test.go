//go:build linux

package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/serin-dev/serin/internal/waittest"
	"github.com/serin-dev/serin/playground/load"
)

// viewVariable makes this program the view of a TerminalViewer.
const viewVariable = "DEMO_TEST_VIEW"

// reportDescriptor is the file to which the view writes its size, not through its terminal: the first of exec.Cmd.ExtraFiles.
const reportDescriptor = 3

func TestMain(m *testing.M) {
	if os.Getenv(viewVariable) == "" {
		os.Exit(m.Run())
	}
	rows, columns, err := pty.Getsize(os.Stdout)
	fmt.Printf("view of %s: %d×%d %v on %s", os.Getenv(viewVariable), rows, columns, err, os.Getenv("TERM"))
	if report := os.NewFile(reportDescriptor, "report"); report != nil {
		fmt.Fprintf(report, "%d×%d", rows, columns) // fails where a test passes no such file
		report.Close()
	}
	select {} // until End kills it
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

func TestTerminalViewerSharesTheTerminalWithItsView(t *testing.T) {
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
		waittest.UntilContains(t, shown.String, text)
	}

	var views []*exec.Cmd
	viewOf := func(target *Target) *exec.Cmd {
		view := exec.Command(os.Args[0])
		view.Env = []string{viewVariable + "=" + target.Name}
		views = append(views, view)
		return view
	}
	scenario := Scenario{Target: Cart, Story: "v2 is " + strings.Repeat("very ", 20) + "good", Version: "v2"}
	v := &TerminalViewer{Terminal: terminal, View: viewOf, Addresses: "logs are there"}
	v.ShowActivity("starting Serin")
	expect("starting Serin ...")
	if err := v.StartScenario(1, 3, scenario); err != nil {
		t.Fatal(err)
	}
	expect("view of cart: 25×60 <nil> on screen-256color")
	expect("\x1b[1;25r") // the view scrolls in its own lines
	v.Progress(true, "phase Progressing", load.Counts{Lost: 2})
	expect("\x1b[27;1H\x1b[2K" + "Release 1 of 3: v2 is very very very very very very very very ve"[:60] + "\x1b")
	expect("\x1b[28;1H\x1b[2Kphase Progressing\x1b")
	expect("\x1b[29;1H\x1b[2Krequests: lost 2\x1b")
	expect("\x1b[30;1H\x1b[2Klogs are there\x1b")
	v.Result(scenario, Result{Outcome: Promoted}, nil)
	for range 2 { // the view continues in the second scenario of a release
		if err := v.StartScenario(2, 3, Scenario{Target: Web, Story: "the other one"}); err != nil {
			t.Fatal(err)
		}
	}
	expect("view of web: 25×60 <nil> on screen-256color")
	v.End()
	expect("\x1b[r")
	expect("\x1b[?1049l\x1b[30;1H\r\n✓ v2 was promoted")
	if len(views) != 2 {
		t.Errorf("%d views were started, want 2", len(views))
	}
	for _, view := range views {
		if err := view.Process.Signal(os.Interrupt); err == nil {
			t.Error("a view still runs")
		}
	}
	terminal.Close()
	outer.Close()
	waittest.Receive(t, "the terminal is closed", reading)
}

// TestTheViewStartsWithItsSize guards against a race: on a busy machine, the view may run before the viewer continues. Here it is
// blocked: its output to the terminal is not read until the view has reported its size.
func TestTheViewStartsWithItsSize(t *testing.T) {
	outer, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	defer terminal.Close()
	if err := pty.Setsize(outer, &pty.Winsize{Rows: 30, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	if err := terminal.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := terminal.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("fill the terminal's buffer: %v", err)
	}
	if err := terminal.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	size, report, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer size.Close()
	view := exec.Command(os.Args[0])
	view.Env, view.ExtraFiles = []string{viewVariable + "=yes"}, []*os.File{report}
	v := &TerminalViewer{Terminal: terminal, View: func(*Target) *exec.Cmd { return view }}
	began := make(chan error, 1)
	go func() { began <- v.StartScenario(1, 1, Scenario{Target: Cart}) }()
	reported := make(chan string, 1)
	go func() {
		text := make([]byte, 100)
		n, _ := size.Read(text)
		reported <- string(text[:n])
	}()
	if got := waittest.Receive(t, "the view reports its size", reported); got != "25×60" {
		t.Errorf("the view starts with size %s, want 25×60", got)
	}
	report.Close()
	go func() { _, _ = io.Copy(io.Discard, outer) }()
	if err := waittest.Receive(t, "StartScenario returns", began); err != nil {
		t.Fatal(err)
	}
	v.End()
}

// TestTheFooterFollowsOutputThatIsComplete checks that a footer which would interrupt a control sequence is drawn after it.
func TestTheFooterFollowsOutputThatIsComplete(t *testing.T) {
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	inner, view, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	shown := &screen{}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		_, _ = io.Copy(shown, output)
	}()
	v := &TerminalViewer{Terminal: input, rows: 24, columns: 80, isOpen: true}
	v.viewOutput.Go(func() { v.copyView(inner) })
	fmt.Fprint(view, "a\x1b[3") // half of a control sequence
	waittest.UntilContains(t, shown.String, "a\x1b[3")
	v.ShowActivity("one more release")
	fmt.Fprint(view, "1m")
	waittest.UntilContains(t, shown.String, "a\x1b[31m\x1b7")
	waittest.UntilContains(t, shown.String, "one more release")
	view.Close()
	v.viewOutput.Wait()
	input.Close()
	waittest.Receive(t, "the terminal is closed", reading)
}
