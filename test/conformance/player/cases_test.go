package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	recordedCases   = "../flagger"
	differencesFile = "../differences.yaml"
	knownFile       = "../known.txt"
)

// recordedCount is the number of cases in ../flagger, so that a missing one is noticed.
const recordedCount = 111

// casesOf returns all recorded cases by name.
func casesOf(t *testing.T) map[string]*caseFile {
	t.Helper()
	dirs, err := findCases([]string{recordedCases})
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) != recordedCount {
		t.Fatalf("found %d cases in %s, expected %d", len(dirs), recordedCases, recordedCount)
	}
	cases := map[string]*caseFile{}
	for _, dir := range dirs {
		c, err := loadCase(dir)
		if err != nil {
			t.Fatal(err)
		}
		cases[c.name] = c
	}
	return cases
}

func TestCasesAreComplete(t *testing.T) {
	for name, c := range casesOf(t) {
		if c.Title == "" || c.Provider == "" || c.Shows == "" || len(c.Steps) == 0 {
			t.Errorf("%s: case.yaml lacks a title, a provider, what it shows, or steps", name)
		}
		inputs, err := filepath.Glob(filepath.Join(c.dir, "input", "*.yaml"))
		if err != nil || len(inputs) == 0 {
			t.Errorf("%s has no input: %v", name, err)
		}
		for _, file := range []string{"phases.txt", "events.txt", "objects.yaml", "queries.txt", "webhooks.jsonl", "timeline.txt"} {
			if _, err := os.Stat(filepath.Join(c.dir, "expected", file)); err != nil {
				t.Errorf("%s is not fully recorded: %v", name, err)
			}
		}
		if phases, err := os.ReadFile(filepath.Join(c.dir, "expected", "phases.txt")); err != nil || !strings.Contains(string(phases), "phase=") {
			t.Errorf("%s records no phase", name)
		}
		if _, err := os.Stat(filepath.Join(c.dir, "expected", "INCOMPLETE")); err == nil {
			t.Errorf("%s was not recorded to its end", name)
		}
	}
}

func TestKnownDifferencesNameCases(t *testing.T) {
	cases := casesOf(t)
	known, err := loadKnown(knownFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(known) == 0 {
		t.Fatalf("%s describes no difference", knownFile)
	}
	for name := range known {
		if cases[name] == nil {
			t.Errorf("%s describes %s, which is not a case", knownFile, name)
		}
	}
}

// TestDifferencesNameNoCase: differences of a single case belong in known.txt, which describes them exactly.
func TestDifferencesNameNoCase(t *testing.T) {
	rules, err := loadDifferences(differencesFile)
	if err != nil {
		t.Fatal(err)
	}
	for name := range casesOf(t) {
		word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
		for _, rule := range rules {
			if strings.Contains(name, "-") && word.MatchString(rule.Where+" "+rule.Replace+" "+rule.Object) {
				t.Errorf("%s names the case %s: %s", differencesFile, name, rule.Why)
			}
		}
	}
}
