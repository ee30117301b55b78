package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplayFailsWhenItPlaysNothing: a replay that finds no cases must not look like one that passed.
func TestReplayFailsWhenItPlaysNothing(t *testing.T) {
	script, err := os.ReadFile("../../hack/conformance.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{{}, {"--sample"}, {"--only", "istio"}} {
		clone := t.TempDir()
		if err := os.Mkdir(filepath.Join(clone, "hack"), 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(clone, "hack", "conformance.sh")
		if err := os.WriteFile(file, script, 0o700); err != nil {
			t.Fatal(err)
		}
		output, err := exec.CommandContext(t.Context(), file, arguments...).CombinedOutput()
		if err == nil || !strings.Contains(string(output), "contains no recorded case to replay") {
			t.Errorf("without recordings, arguments %q: error %v, output:\n%s", arguments, err, output)
		}
	}
}

// TestPlayerFailsWhenNoCaseIsSelected: nor must one whose expression selects none.
func TestPlayerFailsWhenNoCaseIsSelected(t *testing.T) {
	command := exec.CommandContext(t.Context(), "player/play.sh", "--controller", "true", "--crds", "../../config/crd",
		"--only", "^no-such-case$", "--work", t.TempDir(), "flagger")
	output, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "nothing is played") {
		t.Errorf("error %v, output:\n%s", err, output)
	}
}

// TestSampleNamesCases: the cases that make test replays exist.
func TestSampleNamesCases(t *testing.T) {
	script, err := os.ReadFile("../../hack/conformance.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(script), "few=(")
	sample, _, _ := strings.Cut(rest, ")")
	names := strings.Fields(sample)
	if len(names) < 20 {
		t.Fatalf("found the sample %q only", names)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join("flagger", name, "case.yaml")); err != nil {
			t.Errorf("the sample names %s: %v", name, err)
		}
	}
}
