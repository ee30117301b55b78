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

// packageCost is the work of a package in addition to its size, in bytes of source that take as long: the compiler is started for
// each package.
const packageCost = 32 << 10

// plainProgressSteps is the number of progress lines without a terminal, plus one.
const plainProgressSteps = 10

// buildProgress parses the output of go build -v, which is one line for each package when its compilation starts, and shows the
// progress. The work of a package is its size plus packageCost.
type buildProgress struct {
	clock    clock.PassiveClock
	report   func(string)
	terminal *os.File // nil if progress is reported in lines

	stale           map[string]int64 // packages that have not started yet, and their work
	packages        int              // number of packages
	work            int64            // of all packages
	startedAt       time.Time        // when the first package started
	startedPackages int              // number of packages that have started
	done            int64            // work of the packages that have started

	line        []byte // incomplete line
	otherOutput []string
	steps       int // progress lines that were reported
}

func newProgress(stale map[string]int64, c clock.PassiveClock, report func(string), terminal *os.File) *buildProgress {
	p := &buildProgress{clock: c, report: report, terminal: terminal, stale: map[string]int64{}, packages: len(stale)}
	for name, size := range stale {
		p.stale[name] = size + packageCost
		p.work += size + packageCost
	}
	return p
}

// Write parses a part of the output.
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

// readLine parses one line. Lines other than package names are stored, because they contain the reason when the build fails.
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

// showProgress shows the progress: on a terminal always, otherwise in a line for each tenth of the work.
func (p *buildProgress) showProgress(name string) {
	text := fmt.Sprintf("  %d of %d packages, %d %%", p.startedPackages, p.packages, 100*p.done/p.work)
	if remaining, known := p.remainingTime(); known {
		text += ", about " + remaining.String() + " left"
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

// remainingTime estimates the remaining time, once a hundredth of the work is done.
func (p *buildProgress) remainingTime() (time.Duration, bool) {
	elapsed := p.clock.Since(p.startedAt)
	if p.done < p.work/100 || elapsed <= 0 {
		return 0, false
	}
	return time.Duration(float64(elapsed) * float64(p.work-p.done) / float64(p.done)).Round(5 * time.Second), true
}

// clearLine erases the progress line from the terminal.
func (p *buildProgress) clearLine() {
	if p.terminal != nil && p.startedPackages > 0 {
		fmt.Fprint(p.terminal, "\r\x1b[K")
	}
}

// remainingOutput returns the output except for package names.
func (p *buildProgress) remainingOutput() string {
	return strings.TrimSpace(strings.Join(append(p.otherOutput, string(p.line)), "\n"))
}

// formatEstimate formats the expected time of an amount of work on a number of processors.
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
