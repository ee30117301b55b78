package canary

import (
	"os"
	"regexp"
	"testing"
)

// TestIntentsAreDocumented: the documentation of status.serin.intent names every intent that a decision can record.
func TestIntentsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("intent.go")
	if err != nil {
		t.Fatal(err)
	}
	documented, err := os.ReadFile("../../api/flagger/v1beta1/serin_status.go")
	if err != nil {
		t.Fatal(err)
	}
	comment := regexp.MustCompile(`(?s)// Intent is .*?Intent string`).Find(documented)
	intents := regexp.MustCompile(`intent\w+\s+= "(\w+)"`).FindAllSubmatch(source, -1)
	if len(intents) == 0 || len(comment) == 0 {
		t.Fatalf("found %d intents, and the comment %q", len(intents), comment)
	}
	for _, intent := range intents {
		if !regexp.MustCompile(`\b` + string(intent[1]) + `\b`).Match(comment) {
			t.Errorf("the comment does not name the intent %q:\n%s", intent[1], comment)
		}
	}
}
