package borders

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// busyLoop matches loops of tests that evaluate a condition repeatedly without a pause or a deadline: a test's context ends
// after the test, not before.
var busyLoop = regexp.MustCompile(`\bt\.Context\(\)\.Err\(\)|runtime\.Gosched\(\)`)

// TestTestsWaitWithADeadline: such a loop once used one and a half processors for eleven minutes.
func TestTestsWaitWithADeadline(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") || entry.Name() == "waits_test.go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range busyLoop.FindAllString(string(text), -1) {
			t.Errorf("%s has %q: wait with package waittest", path, strings.TrimSpace(found))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
