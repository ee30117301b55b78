// Package plugintest builds the plugins of test/plugins, which use the published interfaces of Argo Rollouts, for tests that start
// real processes.
//
// It must not know what the plugins are used for.
package plugintest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

var build = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	folder := filepath.Join(filepath.Dir(file), "..", "..", "..", "test", "plugins")
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(folder)) // two checkouts may have different plugins
	path := filepath.Join(cache, "serin-test", "testplugin-"+hex.EncodeToString(sum[:4]))
	cmd := exec.Command("go", "build", "-o", path, "./testplugin") //nolint:gosec // a constant program
	cmd.Dir, cmd.Stderr, cmd.Env = folder, os.Stderr, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	return path, cmd.Run()
})

// Build returns the path of the test plugin. It is built once per process, from Go's build cache where possible.
func Build(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatalf("build the plugin of test/plugins: %v", err)
	}
	return path
}
