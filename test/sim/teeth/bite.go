package teeth

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

// Jaw tries teeth.
type Jaw struct {
	// Root of the repository.
	Root string
	// Seed is that of the first history, Histories how many are played at most.
	Seed      uint64
	Histories int
}

// Bite is what became of one tooth.
type Bite struct {
	// Broken is the invariant that was reported, and how; empty: none of those that it should break was.
	Broken, Sentence string
	// Others were reported before it.
	Others []string
}

// reported is a line of the simulator about a violation.
var reported = regexp.MustCompile(`^seed \d+ breaks (\S+) after \S+: (.*)$`)

// Try makes the mistake of a tooth, and plays histories until it is found. Only the changed package and those that
// depend on it are built.
func (j Jaw) Try(ctx context.Context, t Tooth) (Bite, error) {
	folder, err := os.MkdirTemp("", "teeth")
	if err != nil {
		return Bite{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	overlay, err := j.overlay(folder, t)
	if err != nil {
		return Bite{}, err
	}
	program := filepath.Join(folder, "sim")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "./test/sim/run")
	build.Dir = j.Root
	if output, err := build.CombinedOutput(); err != nil {
		return Bite{}, fmt.Errorf("build with %q: %w\n%s", t.Name, err, output)
	}
	return j.play(ctx, program, t)
}

// overlay writes the mutated file, and what tells the compiler to take it.
func (j Jaw) overlay(folder string, t Tooth) (string, error) {
	original := filepath.Join(j.Root, filepath.FromSlash(t.File))
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	mutated, err := t.mutate(string(text))
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(folder, "mutated.go"), filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(changed, []byte(mutated), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, replace, 0o600)
}

// mutate makes the mistake in a text.
func (t Tooth) mutate(text string) (string, error) {
	if n := strings.Count(text, t.Old); n != 1 {
		return "", fmt.Errorf("%q: what is to be replaced occurs %d times in %s, not once:\n%s", t.Name, n, t.File, t.Old)
	}
	return strings.Replace(text, t.Old, t.New, 1), nil
}

// play runs the mutated simulator until it reports what is expected.
func (j Jaw) play(ctx context.Context, program string, t Tooth) (Bite, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	histories := strconv.Itoa(j.Histories)
	run := exec.CommandContext(ctx, program, "-histories", histories, "-most", histories, "-seed", strconv.FormatUint(j.Seed, 10), "-quick")
	out, err := run.StdoutPipe()
	if err != nil {
		return Bite{}, err
	}
	if err := run.Start(); err != nil {
		return Bite{}, err
	}
	var bite Bite
	for lines := bufio.NewScanner(out); lines.Scan(); {
		found := reported.FindStringSubmatch(lines.Text())
		switch {
		case found == nil:
		case slices.Contains(t.Breaks, found[1]):
			bite.Broken, bite.Sentence = found[1], found[2]
			stop()
			_ = run.Wait() // it was ended on purpose
			return bite, nil
		case !slices.Contains(bite.Others, found[1]):
			bite.Others = append(bite.Others, found[1])
		}
	}
	var exit *exec.ExitError
	if err := run.Wait(); err != nil && !errors.As(err, &exit) {
		return bite, err
	}
	return bite, nil
}
