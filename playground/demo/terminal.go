//go:build linux

package demo

import (
	"fmt"
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
	// View is the program above. Begin starts it in a terminal that is smaller by the footer, and End kills it.
	View *exec.Cmd
	// Addresses is one line with the addresses of the cluster.
	Addresses string

	mu           sync.Mutex // one writer at a time
	lines        [footerLines]string
	results      []string
	rows         int
	columns      int
	stream       terminalStream
	isDirty      bool // the footer shows an earlier state, because the view was in the middle of its output
	viewTerminal *os.File
	resized      chan os.Signal
	viewOutput   sync.WaitGroup
	isOpen       bool
}

// footerLines is the number of lines of the footer: a rule, the scenario, the release, the counts, and the addresses.
const footerLines = 5

// ShowActivity prints a line before Begin, and shows it in the footer afterwards.
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

// Begin switches the terminal to its alternate screen and starts the view.
func (v *TerminalViewer) Begin() error {
	// Terminals answer queries of programs (such as for their colour) on an input that the view does not have. For a terminal of
	// this type, programs send no queries.
	v.View.Env = append(os.Environ(), append(v.View.Env, "TERM=screen-256color")...)
	// The size is set before the view starts. Otherwise, on a busy machine, the view may read its size before this process sets
	// it, and get 0×0.
	v.rows, v.columns = v.terminalSize()
	inner, err := pty.StartWithSize(v.View, v.viewSize())
	if err != nil {
		return fmt.Errorf("start the view: %w", err)
	}
	v.viewTerminal = inner
	fmt.Fprint(v.Terminal, "\x1b[?1049h") // the alternate screen: the previous output is visible again at the end
	v.mu.Lock()
	v.isOpen = true
	v.resizeView()
	v.mu.Unlock()
	v.resized = make(chan os.Signal, 1)
	signal.Notify(v.resized, unix.SIGWINCH)
	v.viewOutput.Go(func() {
		for range v.resized {
			v.mu.Lock()
			v.resizeView()
			v.mu.Unlock()
		}
	})
	v.viewOutput.Go(v.copyView)
	return nil
}

// resizeView divides the terminal between the view and the footer.
func (v *TerminalViewer) resizeView() {
	v.rows, v.columns = v.terminalSize()
	_ = pty.Setsize(v.viewTerminal, v.viewSize())
	fmt.Fprintf(v.Terminal, "\x1b[1;%dr\x1b[2J\x1b[1;1H", v.rows-footerLines)
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

// copyView copies the output of the view to the terminal until the view ends.
func (v *TerminalViewer) copyView() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := v.viewTerminal.Read(buffer)
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

// StartScenario shows the description of a scenario.
func (v *TerminalViewer) StartScenario(number, all int, scenario Scenario) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines[1] = fmt.Sprintf("Release %d of %d: %s", number, all, scenario.Story)
	v.lines[2], v.lines[3] = "", ""
	v.drawFooter()
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
	_ = v.View.Process.Kill() // it may already have ended
	signal.Stop(v.resized)
	close(v.resized)
	_ = v.View.Wait() // it was killed
	v.viewTerminal.Close()
	v.viewOutput.Wait()
	v.isOpen = false
	// Reset colours, scrolling region, cursor, bracketed paste and screen, whatever the view has set; then continue at the
	// bottom.
	fmt.Fprintf(v.Terminal, "\x1b[0m\x1b[r\x1b[?25h\x1b[?2004l\x1b[?1049l\x1b[%d;1H\n%s\n", v.rows, strings.Join(v.results, "\n"))
}
