package teeth

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim/canary"
)

const root = "../../.."

// TestTeethHaveAHold: each text that is to be replaced is in its file, once, so that no tooth bites into nothing.
func TestTeethHaveAHold(t *testing.T) {
	t.Parallel()
	for _, tooth := range Teeth {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(tooth.File)))
		if err != nil {
			t.Error(err)
			continue
		}
		if mutated, err := tooth.mutate(string(text)); err != nil {
			t.Error(err)
		} else if mutated == string(text) {
			t.Errorf("%q changes nothing", tooth.Name)
		}
	}
}

// TestEveryInvariantHasATooth: what nothing has ever broken may well be what nothing can break.
func TestEveryInvariantHasATooth(t *testing.T) {
	t.Parallel()
	known := []string{"I9", "I9q"} // the engine's
	for _, invariant := range canary.Invariants() {
		known = append(known, invariant.Number)
	}
	for _, number := range known {
		if !slices.ContainsFunc(Teeth, func(t Tooth) bool { return t.Breaks == number }) {
			t.Errorf("no tooth is for %s", number)
		}
	}
	for _, tooth := range Teeth {
		if i := slices.IndexFunc(Teeth, func(t Tooth) bool { return t.Name == tooth.Name }); &Teeth[i].Name != &Teeth[slices.IndexFunc(Teeth, func(t Tooth) bool { return t.Old == tooth.Old && t.New == tooth.New })].Name {
			t.Errorf("two teeth are called %q, or do the same", tooth.Name)
		}
		if !slices.Contains(known, tooth.Breaks) {
			t.Errorf("%q breaks %s, which is no invariant", tooth.Name, tooth.Breaks)
		}
	}
}

// row of the table in docs/simulator.md: number, sentence, where it is checked, teeth.
var row = regexp.MustCompile(`(?m)^\| (I\w+) \| (.*?) \| (.*?) \| (.*?) \|$`)

// TestThePageSaysWhatIsChecked: numbers, sentences and teeth in docs/simulator.md are those of the code.
func TestThePageSaysWhatIsChecked(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/simulator.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for _, columns := range row.FindAllStringSubmatch(string(page), -1) {
		documented[columns[1]] = columns[2:]
	}
	for _, invariant := range canary.Invariants() {
		if columns := documented[invariant.Number]; columns == nil || columns[0] != invariant.Sentence {
			t.Errorf("docs/simulator.md says of %s: %q, the code says: %q", invariant.Number, columns, invariant.Sentence)
		}
	}
	for number, columns := range documented {
		var names []string
		for _, tooth := range Teeth {
			if tooth.Breaks == number {
				names = append(names, tooth.Name)
			}
		}
		want := strings.Join(names, "; ")
		if elsewhere, ok := Elsewhere[number]; ok {
			want = elsewhere
		}
		if columns[2] != want {
			t.Errorf("docs/simulator.md names as what proves %s: %q, the code: %q", number, columns[2], want)
		}
	}
	for number := range Elsewhere {
		if documented[number] == nil {
			t.Errorf("docs/simulator.md has no row for %s", number)
		}
	}
}
