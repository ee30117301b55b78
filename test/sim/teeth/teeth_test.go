package teeth

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim/canary"
	"github.com/serin-dev/serin/test/sim/play"
	"github.com/serin-dev/serin/test/sim/rollout"
)

const root = "../../.."

// sentence is what a page says of an invariant.
type sentence struct{ number, text string }

// sentences are those of an API, in the order of its invariants.
func sentences(api string) []sentence {
	var all []sentence
	if api == play.Canary {
		for _, i := range canary.Invariants() {
			all = append(all, sentence{i.Number, i.Text})
		}
		return all
	}
	for _, i := range rollout.Invariants() {
		all = append(all, sentence{i.Number, i.Text})
	}
	return all
}

// TestAllAPIsHaveTeeth: none is forgotten.
func TestAllAPIsHaveTeeth(t *testing.T) {
	t.Parallel()
	var names []string
	for _, api := range APIs {
		names = append(names, api.Name)
	}
	if !slices.Equal(names, play.APIs) {
		t.Errorf("there are teeth for %q, and histories of %q", names, play.APIs)
	}
}

// TestTeethHaveAHold: each text that is to be replaced is in its file, once, so that no tooth bites into nothing.
func TestTeethHaveAHold(t *testing.T) {
	t.Parallel()
	for _, api := range APIs {
		for _, tooth := range api.Teeth {
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
}

// TestEveryInvariantHasATooth: what nothing has ever broken may well be what nothing can break.
func TestEveryInvariantHasATooth(t *testing.T) {
	t.Parallel()
	for _, api := range APIs {
		known := []string{"I9", "I9q"} // the engine's
		for _, invariant := range sentences(api.Name) {
			known = append(known, invariant.number)
		}
		for _, number := range known {
			if !slices.ContainsFunc(api.Teeth, func(t Tooth) bool { return t.Breaks == number }) {
				t.Errorf("%s: no tooth is for %s", api.Name, number)
			}
		}
		for i, tooth := range api.Teeth {
			if slices.ContainsFunc(api.Teeth[:i], func(t Tooth) bool {
				return t.Name == tooth.Name || t.File == tooth.File && t.Old == tooth.Old && t.New == tooth.New
			}) {
				t.Errorf("%s: two teeth are called %q, or do the same", api.Name, tooth.Name)
			}
			if !slices.Contains(known, tooth.Breaks) {
				t.Errorf("%s: %q breaks %s, which is no invariant", api.Name, tooth.Name, tooth.Breaks)
			}
		}
	}
}

// row of a table in docs/simulator.md: number, sentence, where it is checked, teeth.
var row = regexp.MustCompile(`(?m)^\| (I\w+) \| (.*?) \| (.*?) \| (.*?) \|$`)

// headings of the tables in docs/simulator.md, by the API that they are about.
var headings = map[string]string{play.Canary: "### Canaries\n", play.Rollout: "### Rollouts\n"}

// TestThePageSaysWhatIsChecked: numbers, sentences and teeth in docs/simulator.md are those of the code.
func TestThePageSaysWhatIsChecked(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/simulator.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, api := range APIs {
		_, section, found := strings.Cut(string(page), headings[api.Name])
		if !found {
			t.Errorf("docs/simulator.md has no heading %q", headings[api.Name])
			continue
		}
		section, _, _ = strings.Cut(section, "\n### ")
		checkTable(t, api, section)
	}
}

// checkTable holds one table against the code.
func checkTable(t *testing.T, api API, section string) {
	t.Helper()
	documented := map[string][]string{}
	for _, columns := range row.FindAllStringSubmatch(section, -1) {
		documented[columns[1]] = columns[2:]
	}
	for _, invariant := range sentences(api.Name) {
		if columns := documented[invariant.number]; columns == nil || columns[0] != invariant.text {
			t.Errorf("docs/simulator.md says of %s of %s: %q, the code says: %q", invariant.number, api.Name, columns, invariant.text)
		}
	}
	for number, columns := range documented {
		var names []string
		for _, tooth := range api.Teeth {
			if tooth.Breaks == number {
				names = append(names, tooth.Name)
			}
		}
		want := strings.Join(names, "; ")
		if elsewhere, ok := api.Elsewhere[number]; ok {
			want = elsewhere
		}
		if columns[2] != want {
			t.Errorf("docs/simulator.md names as what proves %s of %s: %q, the code: %q", number, api.Name, columns[2], want)
		}
	}
	for number := range api.Elsewhere {
		if documented[number] == nil {
			t.Errorf("docs/simulator.md has no row for %s of %s", number, api.Name)
		}
	}
}
