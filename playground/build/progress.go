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

// plainProgressSteps is the number of lines of progress where there is no terminal.
const plainProgressSteps = 10

// buildProgress reads what go build -v prints, one line for each package when its turn comes, and shows how much of the work
// is done. The work of a package is its size.
type buildProgress struct {
	clock    clock.PassiveClock
	report   func(string)
	terminal *os.File // nil where lines are printed

	stale           map[string]int64 // packages that have not begun yet, and their work
	all             int              // packages
	work            int64            // of all packages
	startedAt       time.Time        // when the first package began
	startedPackages int              // packages
	done            int64            // work of those that have begun

	line        []byte // begun, but without its end
	otherOutput []string
	steps       int
}

func newProgress(stale map[string]int64, c clock.PassiveClock, say func(string), terminal *os.File) *buildProgress {
	p := &buildProgress{clock: c, report: say, terminal: terminal, stale: map[string]int64{}, all: len(stale)}
	for name, size := range stale {
		p.stale[name] = size + packageCost
		p.work += size + packageCost
	}
	return p
}

// Write takes in a part of the output.
func (p *buildProgress) Write(text []byte) (int, error) {
	p.line = append(p.line, text...)
	for {
		line, rest, found := bytes.Cut(p.line, []byte("\n"))
		if !found {
			return len(text), nil
		}
		p.readLine(string(line))
		p.line = rest
	}
}

// readLine takes in one line. What is no package is kept: it is the reason when the build fails.
func (p *buildProgress) readLine(line string) {
	work, found := p.stale[line]
	if !found {
		if !strings.HasPrefix(line, "go: downloading ") {
			p.otherOutput = append(p.otherOutput, line)
		}
		return
	}
	delete(p.stale, line)
	if p.startedPackages == 0 {
		p.startedAt = p.clock.Now()
	}
	p.startedPackages++
	p.done += work
	p.showProgress(line)
}

// showProgress shows the progress: on a terminal each time, otherwise a line each tenth of the work.
func (p *buildProgress) showProgress(name string) {
	text := fmt.Sprintf("  %d of %d packages, %d %%", p.startedPackages, p.all, 100*p.done/p.work)
	if left, known := p.remainingTime(); known {
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
	if step := int(plainProgressSteps * p.done / p.work); step > p.steps && step < plainProgressSteps {
		p.steps = step
		p.report(text)
	}
}

// remainingTime estimates the time that the rest takes, once a hundredth is done.
func (p *buildProgress) remainingTime() (time.Duration, bool) {
	took := p.clock.Since(p.startedAt)
	if p.done < p.work/100 || took <= 0 {
		return 0, false
	}
	return time.Duration(float64(took) * float64(p.work-p.done) / float64(p.done)).Round(5 * time.Second), true
}

// clearLine removes the line from the terminal.
func (p *buildProgress) clearLine() {
	if p.terminal != nil && p.startedPackages > 0 {
		fmt.Fprint(p.terminal, "\r\x1b[K")
	}
}

// remainingOutput is what was printed besides packages.
func (p *buildProgress) remainingOutput() string {
	return strings.TrimSpace(strings.Join(append(p.otherOutput, string(p.line)), "\n"))
}

// formatEstimate is the time for an amount of work on a number of processors, for people.
func formatEstimate(seconds, processors int) string {
	minutes := (seconds/processors + 59) / 60
	if minutes == 1 {
		return fmt.Sprintf("about a minute on %s", pluralize(processors, "processor"))
	}
	return fmt.Sprintf("about %d minutes on %s", minutes, pluralize(processors, "processor"))
}

func pluralize(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
