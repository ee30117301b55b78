package build

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
	"k8s.io/utils/clock"
)

// packageCost is what a package costs besides its size, in bytes of sources that take as long: each is a start of the
// compiler.
const packageCost = 32 << 10

// plainSteps is the number of lines of progress where there is no terminal.
const plainSteps = 10

// progress reads what go build -v prints, one line for each package when its turn comes, and shows how much of the work
// is done. The work of a package is its size.
type progress struct {
	clock    clock.PassiveClock
	say      func(string)
	terminal *os.File // nil where lines are printed

	stale map[string]int64 // packages that have not begun yet, and their work
	all   int              // packages
	work  int64            // of all packages
	began time.Time        // when the first package began
	begun int              // packages
	done  int64            // work of those that have begun

	line   []byte // begun, but without its end
	others []string
	steps  int
}

func newProgress(stale map[string]int64, c clock.PassiveClock, say func(string), terminal *os.File) *progress {
	p := &progress{clock: c, say: say, terminal: terminal, stale: map[string]int64{}, all: len(stale)}
	for name, size := range stale {
		p.stale[name] = size + packageCost
		p.work += size + packageCost
	}
	return p
}

// Write takes in a part of the output.
func (p *progress) Write(text []byte) (int, error) {
	p.line = append(p.line, text...)
	for {
		line, rest, found := bytes.Cut(p.line, []byte("\n"))
		if !found {
			return len(text), nil
		}
		p.take(string(line))
		p.line = rest
	}
}

// take takes in one line. What is no package is kept: it is the reason when the build fails.
func (p *progress) take(line string) {
	work, found := p.stale[line]
	if !found {
		if !strings.HasPrefix(line, "go: downloading ") {
			p.others = append(p.others, line)
		}
		return
	}
	delete(p.stale, line)
	if p.begun == 0 {
		p.began = p.clock.Now()
	}
	p.begun++
	p.done += work
	p.show(line)
}

// show shows the progress: on a terminal each time, otherwise a line each tenth of the work.
func (p *progress) show(name string) {
	text := fmt.Sprintf("  %d of %d packages, %d %%", p.begun, p.all, 100*p.done/p.work)
	if left, known := p.left(); known {
		text += ", about " + left.String() + " left"
	}
	if p.terminal != nil {
		text += " (" + name + ")"
		if width, _, err := term.GetSize(int(p.terminal.Fd())); err == nil && len(text) >= width && width > 0 {
			text = text[:width-1]
		}
		fmt.Fprintf(p.terminal, "\r%s\x1b[K", text)
		return
	}
	if step := int(plainSteps * p.done / p.work); step > p.steps && step < plainSteps {
		p.steps = step
		p.say(text)
	}
}

// left estimates the time that the rest takes, once a hundredth is done.
func (p *progress) left() (time.Duration, bool) {
	took := p.clock.Since(p.began)
	if p.done < p.work/100 || took <= 0 {
		return 0, false
	}
	return time.Duration(float64(took) * float64(p.work-p.done) / float64(p.done)).Round(5 * time.Second), true
}

// end removes the line from the terminal.
func (p *progress) end() {
	if p.terminal != nil && p.begun > 0 {
		fmt.Fprint(p.terminal, "\r\x1b[K")
	}
}

// rest is what was printed besides packages.
func (p *progress) rest() string {
	return strings.TrimSpace(strings.Join(append(p.others, string(p.line)), "\n"))
}

// estimate is the time for an amount of work on a number of processors, for people.
func estimate(seconds, processors int) string {
	minutes := (seconds/processors + 59) / 60
	if minutes == 1 {
		return fmt.Sprintf("about a minute on %s", counted(processors, "processor"))
	}
	return fmt.Sprintf("about %d minutes on %s", minutes, counted(processors, "processor"))
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
