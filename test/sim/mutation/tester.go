package mutation

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Tester applies mutants and executes the mutated simulator.
type Tester struct {
	// Root is the absolute path of the repository, as an overlay requires it.
	Root string
	// Runs is the maximum number of simulation runs for one mutant, starting with seed 1, if its own seed does not detect it.
	Runs int

	directory, unmutated string
}

// Open builds the simulator without any mutant, in a directory that Close removes.
func Open(ctx context.Context, root string, runs int) (*Tester, error) {
	directory, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return nil, err
	}
	t := &Tester{Root: root, Runs: runs, directory: directory, unmutated: filepath.Join(directory, "unmutated")}
	if err := t.build(ctx, t.unmutated); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close removes everything that was built.
func (t *Tester) Close() error { return os.RemoveAll(t.directory) }

// Result is the result of one mutant.
type Result struct {
	// Detected reports whether the invariant that the mutant violates was reported; Text is the report.
	Detected bool
	Text     string
	// By is the run or the story that detected it, as named by the simulator.
	By string
	// Others are the invariants that were reported before it, or that are also violated without the mutant.
	Others []string
}

// reported matches a line of the simulator about a violation.
var reported = regexp.MustCompile(`^(seed (\d+)|story "(.*)") violates (\S+) after \S+: (.*)$`)

// report is the content of such a line.
type report struct {
	by, number, text string
	// seed is the seed of the run; zero: story names a story instead.
	seed  uint64
	story string
}

// Test applies a mutant, and executes runs of an API until one detects it: first the recorded seed or the stories, then runs
// starting with seed 1. Only the changed package and its dependents are built.
func (t *Tester) Test(ctx context.Context, api string, m Mutant) (Result, error) {
	directory, err := os.MkdirTemp(t.directory, "mutant")
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	overlay, err := t.overlay(directory, m)
	if err != nil {
		return Result{}, err
	}
	program := filepath.Join(directory, "sim")
	if err := t.build(ctx, program, "-overlay", overlay); err != nil {
		return Result{}, fmt.Errorf("%q: %w", m.Name, err)
	}
	first := seedArguments(m.Seed)
	if m.Seed == 0 {
		first = allStories
	}
	result, err := t.execute(ctx, program, api, m, first)
	if result.Detected || err != nil {
		return result, err
	}
	many := strconv.Itoa(t.Runs)
	return t.execute(ctx, program, api, m, []string{"-seed", "1", "-runs", many, "-most", many})
}

// build compiles the simulator.
func (t *Tester) build(ctx context.Context, program string, flags ...string) error {
	flags = slices.Concat([]string{"build", "-ldflags=-s -w"}, flags, []string{"-o", program, "./test/sim/run"})
	build := exec.CommandContext(ctx, "go", flags...)
	build.Dir = t.Root
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, output)
	}
	return nil
}

// overlay writes the mutated file, and the overlay that makes the compiler use it.
func (t *Tester) overlay(directory string, m Mutant) (string, error) {
	original := filepath.Join(t.Root, filepath.FromSlash(m.File))
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	mutated, err := m.apply(string(text))
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(directory, "mutated.go"), filepath.Join(directory, "overlay.json")
	if err := os.WriteFile(changed, []byte(mutated), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, replace, 0o600)
}

// apply replaces the text of a mutant in a file.
func (m Mutant) apply(text string) (string, error) {
	if n := strings.Count(text, m.Old); n != 1 {
		return "", fmt.Errorf("%q: the text to replace occurs %d times in %s, not once:\n%s", m.Name, n, m.File, m.Old)
	}
	return strings.Replace(text, m.Old, m.New, 1), nil
}

// allStories and seedArguments are arguments of the simulator.
var allStories = []string{"-stories", ""}

func seedArguments(seed uint64) []string {
	return []string{"-seed", strconv.FormatUint(seed, 10), "-runs", "1"}
}

// execute runs the mutated simulator until it reports the expected invariant for a run that does not violate it without the
// mutant.
func (t *Tester) execute(ctx context.Context, program, api string, m Mutant, arguments []string) (Result, error) {
	var result Result
	err := t.run(ctx, program, api, arguments, func(r report) bool {
		if r.number == m.Violates && !t.violatesUnmutated(ctx, api, r) {
			result.Detected, result.Text, result.By = true, r.text, r.by
			return false
		}
		if !slices.Contains(result.Others, r.number) {
			result.Others = append(result.Others, r.number)
		}
		return true
	})
	return result, err
}

// violatesUnmutated reports whether a run violates an invariant without any mutant. Such a violation proves nothing.
func (t *Tester) violatesUnmutated(ctx context.Context, api string, r report) bool {
	arguments := seedArguments(r.seed)
	if r.story != "" {
		arguments = []string{"-stories", r.story}
	}
	violated := false
	err := t.run(ctx, t.unmutated, api, arguments, func(report) bool {
		violated = true
		return false
	})
	return violated || err != nil
}

// run executes the simulator, and passes each violation to handle until handle returns false.
func (t *Tester) run(ctx context.Context, program, api string, arguments []string, handle func(report) bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	run := exec.CommandContext(ctx, program, slices.Concat([]string{"-quick", "-apis", api}, arguments)...)
	run.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, err := run.StdoutPipe()
	if err != nil {
		return err
	}
	if err := run.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		found := reported.FindStringSubmatch(lines.Text())
		if found == nil {
			continue
		}
		r := report{by: found[1], story: found[3], number: found[4], text: found[5]}
		if found[2] != "" {
			if r.seed, err = strconv.ParseUint(found[2], 10, 64); err != nil {
				return err
			}
		}
		if !handle(r) {
			stop()
			break
		}
	}
	var exit *exec.ExitError
	if err := run.Wait(); err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		return err
	}
	return nil
}
