package build

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// committedProgram returns a builder for a repository with a program that prints a text, and its commit.
func committedProgram(t *testing.T, text string) (b *Builder, commit string) {
	t.Helper()
	repository := t.TempDir()
	writeProgram(t, repository, text)
	git := func(arguments ...string) string {
		t.Helper()
		command := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"}, arguments...)...)
		command.Dir = repository
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, output)
		}
		return strings.TrimSpace(string(output))
	}
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "--message", "hello")
	b = &Builder{source: filepath.Join(repository, "playground"), cache: t.TempDir(), report: func(string) {}}
	return b, git("rev-parse", "HEAD")
}

func writeProgram(t *testing.T, repository, text string) {
	t.Helper()
	folder := filepath.Join(repository, "cmd", "hello")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{
		filepath.Join(repository, "go.mod"): "module example.com/hello\n\ngo 1.26.0\n",
		filepath.Join(folder, "main.go"):    `package main; func main() { print("` + text + `") }`,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACommitIsBuiltInsteadOfTheWorkingTree(t *testing.T) {
	b, commit := committedProgram(t, "previous")
	writeProgram(t, b.Repository(), "current")
	file, err := b.buildCommit(t.Context(), "hello", commit, "./cmd/hello")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := exec.Command(file).CombinedOutput(); err != nil || string(got) != "previous" {
		t.Errorf("the program prints %q, %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(b.cache, "new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the cache contains %v, %v", left, err)
	}
}

// TestACommitIsBuiltOnce: the sandbox of the playground has no network, and needs none to find the program again.
func TestACommitIsBuiltOnce(t *testing.T) {
	b, commit := committedProgram(t, "previous")
	first, err := b.buildCommit(t.Context(), "hello", commit, "./cmd/hello")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(b.Repository()); err != nil {
		t.Fatal(err)
	}
	if again, err := b.buildCommit(t.Context(), "hello", commit, "./cmd/hello"); again != first || err != nil {
		t.Errorf("the second build returned %s, %v, want %s", again, err, first)
	}
}

func TestAMissingCommitIsReportedInOneLine(t *testing.T) {
	b, _ := committedProgram(t, "previous")
	_, err := b.buildCommit(t.Context(), "hello", strings.Repeat("1", 40), "./cmd/hello")
	if !errors.Is(err, ErrNoHistory) || !strings.Contains(err.Error(), "git fetch --unshallow") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is %v", err)
	}
}
