//go:build linux

package ingress_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/serin-dev/serin/playground/ingress"
)

// writeFiles writes files below a new folder and returns the folder.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestOnlyTheStreamBlockIsRemovedFromTheTemplate(t *testing.T) {
	debian := writeFiles(t, map[string]string{"etc/nginx/mime.types": "types {}"})
	for _, tt := range []struct{ template, want, wantError string }{
		{template: "http {\n}\n\nstream {\n  server {\n  }\n}\n\n{{ end }}\n", want: "http {\n}\n\n\n\n{{ end }}\n"},
		{template: "http {\n}\n", wantError: "has 0 blocks for streams"},
		{template: "stream {\n}\nstream {\n}\n", wantError: "has 2 blocks for streams"},
	} {
		source := writeFiles(t, map[string]string{"template/nginx.tmpl": tt.template, "lua/balancer.lua": "original"})
		files := ingress.Files{Debian: debian, Etc: filepath.Join(t.TempDir(), "etc")}
		err := files.Write(source)
		if tt.wantError != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wantError) {
				t.Errorf("%q: got %v, want an error with %q", tt.template, err, tt.wantError)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"nginx/template/nginx.tmpl": tt.want, "nginx/lua/balancer.lua": "original", "nginx/mime.types": "types {}",
			"nginx/lua/resty/chash.lua": `return require("absent")`,
		} {
			if got, err := os.ReadFile(filepath.Join(files.Etc, name)); err != nil || string(got) != want {
				t.Errorf("%s is %q (%v), want %q", name, got, err, want)
			}
		}
	}
}
