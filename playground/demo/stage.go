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

// TerminalViewer shows the demo in a terminal: above, a program with a view of its own, below, what the demo says.
type TerminalViewer struct {
	// Terminal is both written to and asked for its size.
	Terminal *os.File
	// View is started when the stage opens and ends with it; it gets a terminal that is some lines smaller.
	View *exec.Cmd
	// Addresses says in one line where there is more to see.
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

// footerLines is the number of lines that the demo keeps for itself: a rule, the act, the release, the counts, and where to
// look.
const footerLines = 5

// Say prints a line before the stage opens, and shows it in the footer after.
func (v *TerminalViewer) Say(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.isOpen {
		fmt.Fprintf(v.Terminal, "%s ...\n", text)
		return
	}
	v.lines[1] = text
	v.drawFooter()
}

// Begin takes the terminal over and starts the view.
func (v *TerminalViewer) Begin() error {
	// Terminals answer questions of programs (for their colour, say) on an input that the view does not have; for this
	// kind of terminal programs ask nothing.
	v.View.Env = append(os.Environ(), append(v.View.Env, "TERM=screen-256color")...)
	// The size is set before the view starts: a view that asks for it first thing, on a busy machine before this process
	// runs again, would otherwise read 0×0.
	v.rows, v.columns = v.terminalSize()
	inner, err := pty.StartWithSize(v.View, v.viewSize())
	if err != nil {
		return fmt.Errorf("start the view: %w", err)
	}
	v.viewTerminal = inner
	fmt.Fprint(v.Terminal, "\x1b[?1049h") // a screen of its own; what was said before is there again at the end
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

// resizeView divides the terminal anew.
func (v *TerminalViewer) resizeView() {
	v.rows, v.columns = v.terminalSize()
	_ = pty.Setsize(v.viewTerminal, v.viewSize())
	fmt.Fprintf(v.Terminal, "\x1b[1;%dr\x1b[2J\x1b[1;1H", v.rows-footerLines)
	v.drawFooter()
}

// terminalSize returns the terminal's size, or a common one where the terminal reports none or is too small for the footer.
func (v *TerminalViewer) terminalSize() (rows, columns int) {
	rows, columns, err := pty.Getsize(v.Terminal)
	if err != nil || rows <= footerLines+1 {
		return 24, 80
	}
	return rows, columns
}

// viewSize is the size of the view's terminal: the view scrolls within the lines above the footer.
func (v *TerminalViewer) viewSize() *pty.Winsize {
	return &pty.Winsize{Rows: uint16(v.rows - footerLines), Cols: uint16(v.columns)}
}

// copyView shows what the view prints, until it ends.
func (v *TerminalViewer) copyView() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := v.viewTerminal.Read(buffer)
		if n > 0 {
			v.mu.Lock()
			_, _ = v.Terminal.Write(buffer[:n]) // a terminal that has gone shows nothing
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

// drawFooter writes the footer and leaves the cursor and colours as the view has them.
func (v *TerminalViewer) drawFooter() {
	// In the middle of the view's output nothing can be inserted; copy draws as soon as that output is complete.
	if v.isDirty = !v.stream.isComplete(); v.isDirty {
		return
	}
	var out strings.Builder
	out.WriteString("\x1b7\x1b[0m")
	v.lines[0], v.lines[footerLines-1] = strings.Repeat("─", v.columns), v.Addresses
	for i, text := range v.lines {
		letters := []rune(text)
		if len(letters) > v.columns {
			letters = letters[:v.columns]
		}
		fmt.Fprintf(&out, "\x1b[%d;1H\x1b[2K%s", v.rows-footerLines+1+i, string(letters))
	}
	out.WriteString("\x1b8")
	fmt.Fprint(v.Terminal, out.String())
}

// StartScenario announces an act.
func (v *TerminalViewer) StartScenario(number, all int, act Scenario) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines[1] = fmt.Sprintf("Act %d of %d: %s", number, all, act.Story)
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

// Result shows the end of an act, and remembers it for the end.
func (v *TerminalViewer) Result(act Scenario, r Result, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := formatResult(act, r, err)
	v.results = append(v.results, text)
	v.lines[2], _, _ = strings.Cut(text, "\n")
	v.drawFooter()
}

// End gives the terminal back and leaves the results on it.
func (v *TerminalViewer) End() {
	_ = v.View.Process.Kill() // it may have ended by itself
	signal.Stop(v.resized)
	close(v.resized)
	_ = v.View.Wait() // how it ended is not of interest
	v.viewTerminal.Close()
	v.viewOutput.Wait()
	v.isOpen = false
	// Colours, scrolling, cursor, pasting and screen as they were, whatever the view left; then go on at the bottom.
	fmt.Fprintf(v.Terminal, "\x1b[0m\x1b[r\x1b[?25h\x1b[?2004l\x1b[?1049l\x1b[%d;1H\n%s\n", v.rows, strings.Join(v.results, "\n"))
}
