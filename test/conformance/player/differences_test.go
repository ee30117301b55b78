package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestDifferencesHideNoDefect changes recordings in ways that would be defects of a controller. No entry of differences.yaml
// may hide one of them.
func TestDifferencesHideNoDefect(t *testing.T) {
	cases := casesOf(t)
	rules, err := loadDifferences(differencesFile)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("events", func(t *testing.T) {
		const rolledBack = "Warning\tSynced\tRolling back cart.istio-weighted progress deadline exceeded canary deployment cart.istio-weighted not ready: " +
			"waiting for rollout to finish: 1 of 2 (readyThreshold 100%) updated replicas are available\n"
		for _, defect := range []struct{ name, replace, with string }{
			// A release that passed its checks is rolled back.
			{"istio-weighted", "$", rolledBack + "Warning\tSynced\tCanary failed! Scaling down cart.istio-weighted\n"},
			{"istio-weighted", "Normal\tSynced\tPromotion completed!", rolledBack + "Warning\tSynced\tCanary failed!"},
			// Nothing reports why the promotion failed, or which workload is not ready.
			{"promotion-failed", "(?m)^.*exceeded its progress deadline\n", ""},
			{"promotion-failed", "(?m)^(.*)cart-primary.promotion-failed not ready: deployment.*\n", ""},
			{"promotion-failed", "failed, primary not ready:.*", "failed, progress deadline exceeded"},
			{"progress-deadline", "(?m)^.*Canary failed!.*\n", ""},
		} {
			c := cases[defect.name]
			actual := t.TempDir()
			if err := os.CopyFS(actual, os.DirFS(filepath.Join(c.dir, "expected"))); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(actual, "events.txt")
			recorded, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			changed := regexp.MustCompile(defect.replace).ReplaceAllString(string(recorded), defect.with)
			if changed == string(recorded) {
				t.Fatalf("%s: %q matches nothing", defect.name, defect.replace)
			}
			if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			if len(compareCase(c, filepath.Join(c.dir, "expected"), actual, &ruleSet{rules: rules}, 3)) == 0 {
				t.Errorf("%s: hidden: %q replaced with %q", defect.name, defect.replace, defect.with)
			}
		}
	})

	// In every recorded phase, webhook and query, one value is another one; or all lines with the same value are missing.
	t.Run("lines", func(t *testing.T) {
		for _, c := range cases {
			for file, defects := range lineDefects {
				recorded := readLines(filepath.Join(c.dir, "expected", file))
				hidden := func(changed []string) bool {
					return len(compareLines(file, recorded, changed, toleranceOf(c), &ruleSet{rules: rules}, 3)) == 0
				}
				for _, defect := range defects {
					for i, line := range recorded {
						changed := slices.Clone(recorded)
						changed[i] = defect.value.ReplaceAllString(line, defect.with)
						compared := !waitingHook.MatchString(line) && (defect.except == nil || !defect.except.MatchString(line))
						if changed[i] != line && compared && hidden(changed) {
							t.Errorf("%s: %s: hidden: %q with %q instead of %s", c.name, file, line, defect.with, defect.value)
						}
					}
				}
				for value := range valuesOf(recorded, defects[0].value) {
					same := func(line string) bool { return defects[0].value.FindString(line) == value }
					if missing := slices.DeleteFunc(slices.Clone(recorded), same); hidden(missing) {
						t.Errorf("%s: %s: hidden: no line with %s", c.name, file, value)
					}
				}
			}
		}
	})

	// The last version of every recorded object gets unexpected metadata and an unexpected field, or loses some of its own.
	t.Run("objects", func(t *testing.T) {
		for _, c := range cases {
			for key, object := range objectsOf(t, c) {
				// The first version and the last one: entries of the first one may have to be retained.
				object.Versions = slices.Delete(object.Versions, 1, max(1, len(object.Versions)-1))
				recorded := map[string]objectFile{key: object}
				last := object.Versions[len(object.Versions)-1]
				if last["deleted"] == true || slices.Contains(toleranceOf(c).Skip, object.Object) {
					continue
				}
				changes := []change{
					{[]string{"metadata", "labels", "stray"}, "value"},
					{[]string{"metadata", "annotations", "stray"}, "value"},
					{[]string{"stray"}, "value"},
				}
				metadata, _ := last["metadata"].(map[string]any)
				for _, field := range []string{"labels", "annotations"} {
					values, _ := metadata[field].(map[string]any)
					for name := range values {
						changes = append(changes, change{[]string{"metadata", field, name}, ""})
					}
				}
				for _, change := range changes {
					actual := objectFile{Object: object.Object, API: object.API, Versions: slices.Clone(object.Versions)}
					actual.Versions[len(object.Versions)-1] = change.applied(last)
					differs := compareObjects(recorded, map[string]objectFile{key: actual}, toleranceOf(c), &ruleSet{rules: rules}, 3)
					if len(differs) == 0 && !slices.Contains(intended, change.field()) {
						t.Errorf("%s: hidden: %s with %s", c.name, object.Object, change)
					}
				}
			}
		}
	})
}

// A lineDefect is another value in a line of a recording.
type lineDefect struct {
	value *regexp.Regexp
	with  string
	// except are the lines in which an entry hides the value on purpose; nil: none.
	except *regexp.Regexp
}

// lineDefects are those of each file. The first value of a file identifies lines that belong together.
var lineDefects = map[string][]lineDefect{
	"phases.txt": {
		{value: regexp.MustCompile(`phase=\w+`), with: "phase=Other"},
		{value: regexp.MustCompile(`weight=-?\d+`), with: "weight=17", except: awaitsPromotion},
		{value: regexp.MustCompile(`iterations=-?\d+`), with: "iterations=17", except: awaitsPromotion},
		{value: regexp.MustCompile(`failedChecks=-?\d+`), with: "failedChecks=17"},
		{value: regexp.MustCompile(`Promoted:\w+:`), with: "Promoted:Other:"},
		{value: regexp.MustCompile(`Promoted:(\w+):\w+`), with: "Promoted:$1:Other"},
		{value: regexp.MustCompile(`applied=\S+`), with: "applied=rev1"},
		{value: regexp.MustCompile(`promoted=\S+`), with: "promoted=rev9"},
	},
	"webhooks.jsonl": {
		{value: regexp.MustCompile(`"path":"[^"]*"`), with: `"path":"stray"`},
		{value: regexp.MustCompile(`"name":"cart"`), with: `"name":"other"`},
		{value: regexp.MustCompile(`"namespace":"[^"]*"`), with: `"namespace":"other"`},
		{value: regexp.MustCompile(`"phase":"[^"]*"`), with: `"phase":"Other"`},
		{value: regexp.MustCompile(`"(cmd|eventMessage|eventType|text|color|themeColor)":"[^"]*"`), with: `"$1":"other"`},
	},
	"queries.txt": {
		{value: regexp.MustCompile(`^.*$`), with: "other"},
		{value: regexp.MustCompile(`namespace="[^"]*"`), with: `namespace="other"`},
		{value: regexp.MustCompile(`="cart|~"cart`), with: `${0}-primary`},
		{value: regexp.MustCompile(`\[\d+[a-z]+\]`), with: "[7m]"},
		{value: regexp.MustCompile(`!~"5\.\*"`), with: `!~"4.*"`},
		{value: regexp.MustCompile(`100$`), with: "10"},
		{value: regexp.MustCompile(`0\.99`), with: "0.5"},
	},
}

var awaitsPromotion = regexp.MustCompile("phase=WaitingPromotion")

// valuesOf returns the values that a pattern matches in lines that are compared.
func valuesOf(lines []string, pattern *regexp.Regexp) map[string]bool {
	out := map[string]bool{}
	for _, line := range lines {
		if value := pattern.FindString(line); value != "" && !waitingHook.MatchString(line) {
			out[value] = true
		}
	}
	return out
}

// intended are the fields whose absence an entry hides on purpose, because Serin does not write them.
var intended = []string{"metadata annotations flagger.kubernetes.io/original-configuration"}

// A change sets a field of an object, or removes it if the value is empty.
type change struct {
	path  []string
	value string
}

func (c change) field() string { return strings.Join(c.path, " ") }

func (c change) String() string {
	if c.value == "" {
		return "no " + c.field()
	}
	return c.field() + " " + c.value
}

func (c change) applied(object map[string]any) map[string]any {
	changed := runtime.DeepCopyJSON(object)
	if c.value == "" {
		unstructured.RemoveNestedField(changed, c.path...)
	} else if err := unstructured.SetNestedField(changed, c.value, c.path...); err != nil {
		panic(err)
	}
	return changed
}

func toleranceOf(c *caseFile) *tolerance {
	if c.Compare == nil {
		return &tolerance{}
	}
	return c.Compare
}

func objectsOf(t *testing.T, c *caseFile) map[string]objectFile {
	t.Helper()
	objects, err := readObjects(filepath.Join(c.dir, "expected", "objects.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
