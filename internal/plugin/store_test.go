package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/serin-dev/serin/internal/outbound"
)

const program = "#!/bin/true\n"

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// TestStoreVerifiesFiles: a file with another content is never executed, also if it changes after it was stored.
func TestStoreVerifiesFiles(t *testing.T) {
	folder := t.TempDir()
	source := filepath.Join(folder, "source")
	s := store{dir: filepath.Join(folder, "store")}
	item := Item{Name: "acme/a", Location: "file://" + source, SHA256: hashOf(program)}
	write := func(path, text string) {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(source, program)
	stored, err := s.provide(t.Context(), item)
	if err != nil || stored == source {
		t.Fatalf("got %s, %v", stored, err)
	}
	write(stored, "another program") // as a plugin with the same user could
	if again, err := s.provide(t.Context(), item); err != nil || mustRead(t, again) != program {
		t.Errorf("got %s, %v", again, err)
	}
	write(source, "another program")
	write(stored, "another program")
	if _, err := s.provide(t.Context(), item); err == nil || !strings.Contains(err.Error(), "and "+item.SHA256+" is configured: correct sha256, or restore the file") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "incomplete-*")); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
	item.SHA256 = ""
	if path, err := s.provide(t.Context(), item); err != nil || path != source {
		t.Errorf("without a hash: got %s, %v", path, err)
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestStoreDownloads: a file is downloaded once, with the configured headers, which no other host receives.
func TestStoreDownloads(t *testing.T) {
	var requests []string
	files := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, "file "+r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(program))
	}))
	defer files.Close()
	releases := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.URL.Path+" "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/plain":
			http.Redirect(w, r, strings.Replace(files.URL, "https", "http", 1), http.StatusFound)
		case "/missing":
			http.NotFound(w, r)
		case "/loop":
			http.Redirect(w, r, "/loop?again", http.StatusFound)
		default:
			http.Redirect(w, r, files.URL+"/a", http.StatusFound)
		}
	}))
	defer releases.Close()
	s := store{
		dir: t.TempDir(), client: outbound.NewThrough(releases.Client().Transport),
		readSecret: func(context.Context, string) (map[string][]byte, error) {
			return map[string][]byte{"Authorization": []byte("Bearer secret\n")}, nil
		},
	}
	item := Item{Name: "acme/a", Location: releases.URL + "/a", SHA256: hashOf(program), HeadersFrom: make([]HeadersFrom, 1)}
	for range 2 {
		if path, err := s.provide(t.Context(), item); err != nil || mustRead(t, path) != program {
			t.Fatalf("got %s, %v", path, err)
		}
	}
	if got, want := strings.Join(requests, ", "), "/a Bearer secret, file "; got != want {
		t.Errorf("requests: %s, want %s", got, want)
	}
	for path, want := range map[string]string{
		"/plain": "redirects to http://, where the file could be replaced on its way", "/missing": "answered 404", "/loop": "download the plugin: ",
	} {
		item := Item{Location: releases.URL + path, SHA256: hashOf("missing")}
		if _, err := s.provide(t.Context(), item); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}
