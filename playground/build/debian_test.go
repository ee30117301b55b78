package build_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/serin-dev/serin/playground/build"
)

func TestMissingAptGetIsReportedAndLeavesNoFolder(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(build.CacheVariable, cache)
	b, err := build.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := b.NGINX(t.Context()); !errors.Is(err, build.ErrNoPackages) || !strings.Contains(err.Error(), "apt-get") {
		t.Errorf("got %v, want an error that names apt-get", err)
	}
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			t.Errorf("%s was left behind", entry.Name())
		}
	}
}
