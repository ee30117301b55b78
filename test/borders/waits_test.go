package borders

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// waitsWithoutDeadline match waits of tests whose only end, apart from their condition, is the end of the test's context: it ends
// after the test, not before.
var waitsWithoutDeadline = []*regexp.Regexp{
	regexp.MustCompile(`\bt\.Context\(\)\.Err\(\)|runtime\.Gosched\(\)`),                             // loops that evaluate a condition without a pause
	regexp.MustCompile(`<-(\w+\.)*tb?\.Context\(\)\.Done\(\):\s*(\w+\.)*tb?\.(Fatal|Error|FailNow)`), // a failure that is never reported
	regexp.MustCompile(`WaitForCacheSync\((\w+\.)*tb?\.Context\(\)`),
}

// TestTestsWaitWithADeadline: a loop without a deadline once used one and a half processors for eleven minutes.
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
		for _, wait := range waitsWithoutDeadline {
			for _, found := range wait.FindAllString(string(text), -1) {
				t.Errorf("%s has %q: wait with package waittest", path, strings.Join(strings.Fields(found), " "))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
