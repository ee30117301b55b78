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
	// Root of the repository, as a whole path: an overlay names files so.
	Root string
	// Histories are how many are played at most for one tooth, from seed 1, when its own seed does not do.
	Histories int

	folder, sound string
}

// Open builds the simulator without any mistake, in a folder that Close removes.
func Open(ctx context.Context, root string, histories int) (*Jaw, error) {
	folder, err := os.MkdirTemp("", "teeth")
	if err != nil {
		return nil, err
	}
	j := &Jaw{Root: root, Histories: histories, folder: folder, sound: filepath.Join(folder, "sound")}
	if err := j.build(ctx, j.sound); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// Close removes what was built.
func (j *Jaw) Close() error { return os.RemoveAll(j.folder) }

// Bite is what became of one tooth.
type Bite struct {
	// Found is true when the invariant was reported that the tooth should break, Sentence says how.
	Found    bool
	Sentence string
	// By is the history or the story in which it was found, as the simulator names it.
	By string
	// Others were reported before it, or without the mistake.
	Others []string
}

// reported is a line of the simulator about a violation.
var reported = regexp.MustCompile(`^(seed (\d+)|story "(.*)") breaks (\S+) after \S+: (.*)$`)

// report is what such a line says.
type report struct {
	by, number, sentence string
	// seed of the history; zero: story names a story instead.
	seed  uint64
	story string
}

// Try makes the mistake of a tooth, and plays an API until it is found: first what is remembered to find it, then histories.
// Only the changed package and those that depend on it are built.
func (j *Jaw) Try(ctx context.Context, api string, t Tooth) (Bite, error) {
	folder, err := os.MkdirTemp(j.folder, "tooth")
	if err != nil {
		return Bite{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	overlay, err := j.overlay(folder, t)
	if err != nil {
		return Bite{}, err
	}
	program := filepath.Join(folder, "sim")
	if err := j.build(ctx, program, "-overlay", overlay); err != nil {
		return Bite{}, fmt.Errorf("%q: %w", t.Name, err)
	}
	first := history(t.Seed)
	if t.Seed == 0 {
		first = allStories
	}
	bite, err := j.play(ctx, program, api, t, first)
	if bite.Found || err != nil {
		return bite, err
	}
	many := strconv.Itoa(j.Histories)
	return j.play(ctx, program, api, t, []string{"-seed", "1", "-histories", many, "-most", many})
}

// build compiles the simulator.
func (j *Jaw) build(ctx context.Context, program string, flags ...string) error {
	flags = slices.Concat([]string{"build", "-ldflags=-s -w"}, flags, []string{"-o", program, "./test/sim/run"})
	build := exec.CommandContext(ctx, "go", flags...)
	build.Dir = j.Root
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, output)
	}
	return nil
}

// overlay writes the mutated file, and what tells the compiler to take it.
func (j *Jaw) overlay(folder string, t Tooth) (string, error) {
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

// allStories and history are what the simulator is asked to play.
var allStories = []string{"-stories", ""}

func history(seed uint64) []string {
	return []string{"-seed", strconv.FormatUint(seed, 10), "-histories", "1"}
}

// play runs the mutated simulator until it reports what is expected, where nothing is reported without the mistake.
func (j *Jaw) play(ctx context.Context, program, api string, t Tooth, what []string) (Bite, error) {
	var bite Bite
	err := j.run(ctx, program, api, what, func(r report) bool {
		if r.number == t.Breaks && !j.breaksAnyway(ctx, api, r) {
			bite.Found, bite.Sentence, bite.By = true, r.sentence, r.by
			return false
		}
		if !slices.Contains(bite.Others, r.number) {
			bite.Others = append(bite.Others, r.number)
		}
		return true
	})
	return bite, err
}

// breaksAnyway is true where something is broken without any mistake: that proves nothing.
func (j *Jaw) breaksAnyway(ctx context.Context, api string, r report) bool {
	what := history(r.seed)
	if r.story != "" {
		what = []string{"-stories", r.story}
	}
	breaks := false
	err := j.run(ctx, j.sound, api, what, func(report) bool {
		breaks = true
		return false
	})
	return breaks || err != nil
}

// run plays one thing after the other, and tells each violation until nobody wants to hear more.
func (j *Jaw) run(ctx context.Context, program, api string, what []string, tell func(report) bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	run := exec.CommandContext(ctx, program, slices.Concat([]string{"-quick", "-apis", api}, what)...)
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
		r := report{by: found[1], story: found[3], number: found[4], sentence: found[5]}
		if found[2] != "" {
			if r.seed, err = strconv.ParseUint(found[2], 10, 64); err != nil {
				return err
			}
		}
		if !tell(r) {
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
