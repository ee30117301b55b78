//go:build linux

package demo

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/serin-dev/serin/playground/load"
)

// TerminalViewer shows the demo in a terminal: the output of another program above, and a footer with the state of the demo
// below.
type TerminalViewer struct {
	// Terminal is the terminal that the demo writes to and whose size it uses.
	Terminal *os.File
	// View returns the program above for a release. It runs in a terminal that is smaller by the footer, until a scenario of another
	// release starts.
	View func(*Target) *exec.Cmd
	// Addresses is one line with the addresses of the cluster.
	Addresses string

	mu           sync.Mutex // one writer at a time
	lines        [footerLines]string
	results      []string
	rows         int
	columns      int
	stream       terminalStream
	isDirty      bool // the footer shows an earlier state, because the view was in the middle of its output
	target       *Target
	view         *exec.Cmd
	viewTerminal *os.File
	viewOutput   sync.WaitGroup
	resized      chan os.Signal
	resizing     sync.WaitGroup
	isOpen       bool
}

// footerLines is the number of lines of the footer: a rule, the scenario, the release, the counts, and the addresses.
const footerLines = 5

// ShowActivity prints a line before the first scenario, and shows it in the footer afterwards.
func (v *TerminalViewer) ShowActivity(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.isOpen {
		fmt.Fprintf(v.Terminal, "%s ...\n", text)
		return
	}
	v.lines[1] = text
	v.drawFooter()
}

// show starts the view of a release, in place of the view of another one.
func (v *TerminalViewer) show(target *Target) error {
	if v.target == target {
		return nil
	}
	v.stopView()
	view := v.View(target)
	// Terminals answer queries of programs (such as for their colour) on an input that the view does not have. For a terminal of
	// this type, programs send no queries.
	view.Env = append(os.Environ(), append(view.Env, "TERM=screen-256color")...)
	// The size is set before the view starts. Otherwise, on a busy machine, the view may read its size before this process sets
	// it, and get 0×0.
	v.mu.Lock()
	v.rows, v.columns = v.terminalSize()
	size := v.viewSize()
	v.mu.Unlock()
	inner, err := pty.StartWithSize(view, size)
	if err != nil {
		return fmt.Errorf("start the view of %s: %w", target.Name, err)
	}
	v.mu.Lock()
	v.target, v.view, v.viewTerminal, v.stream = target, view, inner, terminalStream{}
	v.open()
	v.resizeView()
	v.mu.Unlock()
	v.viewOutput.Go(func() { v.copyView(inner) })
	return nil
}

// open switches the terminal to its alternate screen, so that the previous output is visible again at the end.
func (v *TerminalViewer) open() {
	if v.isOpen {
		return
	}
	v.isOpen = true
	fmt.Fprint(v.Terminal, "\x1b[?1049h")
	v.resized = make(chan os.Signal, 1)
	signal.Notify(v.resized, unix.SIGWINCH)
	v.resizing.Go(func() {
		for range v.resized {
			v.mu.Lock()
			v.resizeView()
			v.mu.Unlock()
		}
	})
}

// stopView ends the view, if there is one.
func (v *TerminalViewer) stopView() {
	if v.view == nil {
		return
	}
	_ = v.view.Process.Kill() // it may already have ended
	_ = v.view.Wait()         // it was killed
	v.viewOutput.Wait()       // reads until the view's end of the terminal is closed
	v.viewTerminal.Close()
}

// resizeView divides the terminal between the view and the footer.
func (v *TerminalViewer) resizeView() {
	v.rows, v.columns = v.terminalSize()
	_ = pty.Setsize(v.viewTerminal, v.viewSize())
	fmt.Fprintf(v.Terminal, "\x1b[0m\x1b[1;%dr\x1b[2J\x1b[1;1H", v.rows-footerLines)
	v.drawFooter()
}

// terminalSize returns the terminal's size, or a common size if the terminal reports none or is too small for the footer.
func (v *TerminalViewer) terminalSize() (rows, columns int) {
	rows, columns, err := pty.Getsize(v.Terminal)
	if err != nil || rows <= footerLines+1 {
		return 24, 80
	}
	return rows, columns
}

// viewSize returns the size of the view's terminal: the view scrolls within the lines above the footer.
func (v *TerminalViewer) viewSize() *pty.Winsize {
	return &pty.Winsize{Rows: uint16(v.rows - footerLines), Cols: uint16(v.columns)}
}

// copyView copies the output of a view to the terminal until the view ends.
func (v *TerminalViewer) copyView(from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			v.mu.Lock()
			_, _ = v.Terminal.Write(buffer[:n]) // the terminal may be closed
			v.stream.write(buffer[:n])
			if v.isDirty {
				v.drawFooter()
			}
			v.mu.Unlock()
		}
		if err != nil {
			return // EIO when the view has ended
		}
	}
}

// drawFooter writes the footer and restores the cursor and the colours of the view.
func (v *TerminalViewer) drawFooter() {
	// The footer must not interrupt a control sequence or a character of the view; copyView draws it after that.
	if v.isDirty = !v.stream.isComplete(); v.isDirty {
		return
	}
	var out strings.Builder
	out.WriteString("\x1b7\x1b[0m")
	v.lines[0], v.lines[footerLines-1] = strings.Repeat("─", v.columns), v.Addresses
	for i, text := range v.lines {
		characters := []rune(text)
		if len(characters) > v.columns {
			characters = characters[:v.columns]
		}
		fmt.Fprintf(&out, "\x1b[%d;1H\x1b[2K%s", v.rows-footerLines+1+i, string(characters))
	}
	out.WriteString("\x1b8")
	fmt.Fprint(v.Terminal, out.String())
}

// StartScenario shows the release of a scenario, and its description.
func (v *TerminalViewer) StartScenario(number, all int, scenario Scenario) error {
	if err := v.show(scenario.Target); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines[1] = fmt.Sprintf("Release %d of %d: %s", number, all, scenario.Story)
	v.lines[2], v.lines[3] = "", ""
	v.drawFooter()
	return nil
}

// Progress shows the release and the counts.
func (v *TerminalViewer) Progress(_ bool, release string, counts load.Counts) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines[2], v.lines[3] = release, "requests: "+counts.String()
	v.drawFooter()
}

// Result shows the result of a scenario, and stores it for End.
func (v *TerminalViewer) Result(scenario Scenario, r Result, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := formatResult(scenario, r, err)
	v.results = append(v.results, text)
	v.lines[2], _, _ = strings.Cut(text, "\n")
	v.drawFooter()
}

// End restores the terminal and prints the results of all scenarios.
func (v *TerminalViewer) End() {
	v.stopView()
	if !v.isOpen {
		return
	}
	signal.Stop(v.resized)
	close(v.resized)
	v.resizing.Wait()
	v.isOpen = false
	// Reset colours, scrolling region, cursor, bracketed paste and screen, whatever the view has set; then continue at the
	// bottom.
	fmt.Fprintf(v.Terminal, "\x1b[0m\x1b[r\x1b[?25h\x1b[?2004l\x1b[?1049l\x1b[%d;1H\n%s\n", v.rows, strings.Join(v.results, "\n"))
}
