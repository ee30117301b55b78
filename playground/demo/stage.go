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

// Stage shows the demo in a terminal: above, a program with a view of its own, below, what the demo says.
type Stage struct {
	// Terminal is both written to and asked for its size.
	Terminal *os.File
	// View is started when the stage opens and ends with it; it gets a terminal that is some lines smaller.
	View *exec.Cmd
	// Where says in one line where there is more to see.
	Where string

	mu      sync.Mutex // one writer at a time
	lines   [footer]string
	results []string
	rows    int
	columns int
	stream  stream
	undrawn bool // the footer shows an earlier state, because the view was in the middle of its output
	inner   *os.File
	resized chan os.Signal
	copying sync.WaitGroup
	open    bool
}

// footer is the number of lines that the demo keeps for itself: a rule, the act, the release, the counts, and where to
// look.
const footer = 5

// Say prints a line before the stage opens, and shows it in the footer after.
func (v *Stage) Say(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.open {
		fmt.Fprintf(v.Terminal, "%s ...\n", text)
		return
	}
	v.lines[1] = text
	v.draw()
}

// Begin takes the terminal over and starts the view.
func (v *Stage) Begin() error {
	// Terminals answer questions of programs (for their colour, say) on an input that the view does not have; for this
	// kind of terminal programs ask nothing.
	v.View.Env = append(os.Environ(), append(v.View.Env, "TERM=screen-256color")...)
	// The size is set before the view starts: a view that asks for it first thing, on a busy machine before this process
	// runs again, would otherwise read 0×0.
	v.rows, v.columns = v.size()
	inner, err := pty.StartWithSize(v.View, v.viewSize())
	if err != nil {
		return fmt.Errorf("start the view: %w", err)
	}
	v.inner = inner
	fmt.Fprint(v.Terminal, "\x1b[?1049h") // a screen of its own; what was said before is there again at the end
	v.mu.Lock()
	v.open = true
	v.resize()
	v.mu.Unlock()
	v.resized = make(chan os.Signal, 1)
	signal.Notify(v.resized, unix.SIGWINCH)
	v.copying.Go(func() {
		for range v.resized {
			v.mu.Lock()
			v.resize()
			v.mu.Unlock()
		}
	})
	v.copying.Go(v.copy)
	return nil
}

// resize divides the terminal anew.
func (v *Stage) resize() {
	v.rows, v.columns = v.size()
	_ = pty.Setsize(v.inner, v.viewSize())
	fmt.Fprintf(v.Terminal, "\x1b[1;%dr\x1b[2J\x1b[1;1H", v.rows-footer)
	v.draw()
}

// size returns the terminal's size, or a common one where the terminal reports none or is too small for the footer.
func (v *Stage) size() (rows, columns int) {
	rows, columns, err := pty.Getsize(v.Terminal)
	if err != nil || rows <= footer+1 {
		return 24, 80
	}
	return rows, columns
}

// viewSize is the size of the view's terminal: the view scrolls within the lines above the footer.
func (v *Stage) viewSize() *pty.Winsize {
	return &pty.Winsize{Rows: uint16(v.rows - footer), Cols: uint16(v.columns)}
}

// copy shows what the view prints, until it ends.
func (v *Stage) copy() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := v.inner.Read(buffer)
		if n > 0 {
			v.mu.Lock()
			_, _ = v.Terminal.Write(buffer[:n]) // a terminal that has gone shows nothing
			v.stream.feed(buffer[:n])
			if v.undrawn {
				v.draw()
			}
			v.mu.Unlock()
		}
		if err != nil {
			return // EIO when the view has ended
		}
	}
}

// draw writes the footer and leaves the cursor and colours as the view has them.
func (v *Stage) draw() {
	// In the middle of the view's output nothing can be inserted; copy draws as soon as that output is complete.
	if v.undrawn = !v.stream.whole(); v.undrawn {
		return
	}
	var out strings.Builder
	out.WriteString("\x1b7\x1b[0m")
	v.lines[0], v.lines[footer-1] = strings.Repeat("─", v.columns), v.Where
	for i, text := range v.lines {
		letters := []rune(text)
		if len(letters) > v.columns {
			letters = letters[:v.columns]
		}
		fmt.Fprintf(&out, "\x1b[%d;1H\x1b[2K%s", v.rows-footer+1+i, string(letters))
	}
	out.WriteString("\x1b8")
	fmt.Fprint(v.Terminal, out.String())
}

// Act announces an act.
func (v *Stage) Act(number, all int, act Act) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines[1] = fmt.Sprintf("Act %d of %d: %s", number, all, act.Story)
	v.lines[2], v.lines[3] = "", ""
	v.draw()
}

// Progress shows the release and the counts.
func (v *Stage) Progress(_ bool, release string, counts load.Counts) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines[2], v.lines[3] = release, "requests: "+counts.String()
	v.draw()
}

// Result shows the end of an act, and remembers it for the end.
func (v *Stage) Result(act Act, r Result, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := line(act, r, err)
	v.results = append(v.results, text)
	v.lines[2], _, _ = strings.Cut(text, "\n")
	v.draw()
}

// End gives the terminal back and leaves the results on it.
func (v *Stage) End() {
	_ = v.View.Process.Kill() // it may have ended by itself
	signal.Stop(v.resized)
	close(v.resized)
	_ = v.View.Wait() // how it ended is not of interest
	v.inner.Close()
	v.copying.Wait()
	v.open = false
	// Colours, scrolling, cursor, pasting and screen as they were, whatever the view left; then go on at the bottom.
	fmt.Fprintf(v.Terminal, "\x1b[0m\x1b[r\x1b[?25h\x1b[?2004l\x1b[?1049l\x1b[%d;1H\n%s\n", v.rows, strings.Join(v.results, "\n"))
}
