package mutation

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim/canary"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/rollout"
	"github.com/serin-dev/serin/test/sim/runner"
)

const root = "../../.."

// tables are the invariants of the APIs.
var tables = map[string][]oracle.Invariant{runner.Canary: canary.Invariants, runner.Rollout: rollout.Invariants}

// TestEveryAPIHasMutants verifies that the mutants cover every simulated API.
func TestEveryAPIHasMutants(t *testing.T) {
	t.Parallel()
	var names []string
	for _, api := range APIs {
		names = append(names, api.Name)
	}
	if !slices.Equal(names, runner.APIs) {
		t.Errorf("there are mutants for %q, and simulation runs of %q", names, runner.APIs)
	}
}

// TestMutantsApply verifies that each text to replace occurs in its file exactly once, so that no mutant is without effect.
func TestMutantsApply(t *testing.T) {
	t.Parallel()
	for _, api := range APIs {
		for _, mutant := range api.Mutants {
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(mutant.File)))
			if err != nil {
				t.Error(err)
				continue
			}
			if mutated, err := mutant.apply(string(text)); err != nil {
				t.Error(err)
			} else if mutated == string(text) {
				t.Errorf("%q changes nothing", mutant.Name)
			}
		}
	}
}

// TestEveryInvariantHasAMutant verifies that each invariant can detect a defect.
func TestEveryInvariantHasAMutant(t *testing.T) {
	t.Parallel()
	for _, api := range APIs {
		known := []string{"I9", "I9q", "I39", "I40"} // checked by the engine
		for _, invariant := range tables[api.Name] {
			known = append(known, invariant.Number)
		}
		for _, number := range known {
			if !slices.ContainsFunc(api.Mutants, func(m Mutant) bool { return m.Violates == number }) {
				t.Errorf("%s: no mutant violates %s", api.Name, number)
			}
		}
		for i, mutant := range api.Mutants {
			if slices.ContainsFunc(api.Mutants[:i], func(m Mutant) bool {
				return m.Name == mutant.Name || m.File == mutant.File && m.Old == mutant.Old && m.New == mutant.New
			}) {
				t.Errorf("%s: two mutants are called %q, or are the same", api.Name, mutant.Name)
			}
			if !slices.Contains(known, mutant.Violates) {
				t.Errorf("%s: %q violates %s, which is no invariant", api.Name, mutant.Name, mutant.Violates)
			}
		}
	}
}

// row matches a row of a table in docs/simulator.md: number, text, files of the check, mutants.
var row = regexp.MustCompile(`(?m)^\| (I\w+) \| (.*?) \| (.*?) \| (.*?) \|$`)

// quoted matches a file name in such a row.
var quoted = regexp.MustCompile("`([^`]+)`")

// headings are the headings of the tables in docs/simulator.md, by API.
var headings = map[string]string{runner.Canary: "### Canaries\n", runner.Rollout: "### Rollouts\n"}

// TestDocumentedInvariantsMatchTheCode verifies numbers, texts, files and mutants in docs/simulator.md.
func TestDocumentedInvariantsMatchTheCode(t *testing.T) {
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

// checkTable compares one table with the code.
func checkTable(t *testing.T, api API, section string) {
	t.Helper()
	documented := map[string][]string{}
	for _, columns := range row.FindAllStringSubmatch(section, -1) {
		documented[columns[1]] = columns[2:]
	}
	for _, invariant := range tables[api.Name] {
		if columns := documented[invariant.Number]; columns == nil || columns[0] != invariant.Text {
			t.Errorf("docs/simulator.md describes %s of %s as %q, the code as %q", invariant.Number, api.Name, columns, invariant.Text)
		}
	}
	for number, columns := range documented {
		for _, file := range quoted.FindAllStringSubmatch(columns[1], -1) {
			_, inAPI := os.Stat(filepath.Join(root, "test/sim", api.Name, file[1]))
			if _, shared := os.Stat(filepath.Join(root, "test/sim", file[1])); inAPI != nil && shared != nil {
				t.Errorf("docs/simulator.md names %[3]s as a file that checks %[1]s of %[2]s, but the file does not exist", number, api.Name, file[1])
			}
		}
		var names []string
		for _, mutant := range api.Mutants {
			if mutant.Violates == number {
				names = append(names, mutant.Name)
			}
		}
		want := strings.Join(names, "; ")
		if elsewhere, ok := api.Elsewhere[number]; ok {
			want = elsewhere
		}
		if columns[2] != want {
			t.Errorf("docs/simulator.md names the mutants of %s of %s as %q, the code as %q", number, api.Name, columns[2], want)
		}
	}
	for number := range api.Elsewhere {
		if documented[number] == nil {
			t.Errorf("docs/simulator.md has no row for %s of %s", number, api.Name)
		}
	}
}
