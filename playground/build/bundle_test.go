package build

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newBundle writes a bundle of small files and selects it, outside of the repository.
func newBundle(t *testing.T) string {
	t.Helper()
	sources, folder := t.TempDir(), filepath.Join(t.TempDir(), "bundle")
	paths := map[string]string{}
	for _, name := range []string{"playground", "controlplane", "prometheus", "traefik", "demo-app", "serin", "traefik-crds.yaml", "gateway-crds/a.yaml", "config/crd/b.yaml", "config/crd/b.go"} {
		file := filepath.Join(sources, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(name), 0o500); err != nil { // #nosec G306 -- a program
			t.Fatal(err)
		}
		if strings.Contains(name, "/") {
			name = filepath.Dir(name)
		}
		paths[name] = filepath.Join(sources, name)
	}
	if err := copyBundle(folder, paths); err != nil {
		t.Fatal(err)
	}
	t.Setenv(CacheVariable, t.TempDir())
	t.Setenv(BundleVariable, folder)
	t.Chdir(t.TempDir())
	return folder
}

func TestABundleReplacesTheSources(t *testing.T) {
	folder := newBundle(t)
	b, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Prepare(t.Context(), true, true); err != nil {
		t.Error(err)
	}
	for name, find := range map[string]func(context.Context) (string, error){
		"controlplane": b.ControlPlane, "prometheus": b.Prometheus, "traefik": b.Traefik, "demo-app": b.DemoApp, "serin": b.Serin,
		"gateway-crds": b.GatewayCRDs, "traefik-crds.yaml": b.TraefikCRDs,
	} {
		if got, err := find(t.Context()); err != nil || got != filepath.Join(folder, name) {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(b.Repository(), "config", "crd", "b.yaml")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(b.Repository(), "config", "crd", "b.go")); err == nil {
		t.Error("the bundle contains Go code")
	}
	if info, err := os.Stat(filepath.Join(folder, "serin")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("serin is not executable: %v, %v", info, err)
	}
	if _, err := b.Promtool(t.Context()); err == nil || !strings.Contains(err.Error(), "the bundle does not contain promtool: unset SERIN_BUNDLE") {
		t.Errorf("a program that is not in the bundle: %v", err)
	}
}

func TestAModifiedBundleIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		modify func(folder string) error
		want   string
	}{
		"modified program": {func(folder string) error { return os.WriteFile(filepath.Join(folder, "serin"), []byte("other"), 0o600) }, "the checksum of serin is not in checksums.txt"},
		"additional file":  {func(folder string) error { return os.WriteFile(filepath.Join(folder, "config/crd/c.yaml"), nil, 0o600) }, "the checksum of config/crd/c.yaml is not in"},
		"missing program":  {func(folder string) error { return os.Remove(filepath.Join(folder, "traefik")) }, "is incomplete"},
		"no checksums":     {func(folder string) error { return os.Remove(filepath.Join(folder, "checksums.txt")) }, "SERIN_BUNDLE names no folder of an extracted bundle"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.modify(newBundle(t)); err != nil {
				t.Fatal(err)
			}
			if _, err := New(nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
