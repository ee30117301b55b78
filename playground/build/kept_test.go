package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestProgramIsBuiltOncePerContentOfItsModule(t *testing.T) {
	source := t.TempDir()
	module := filepath.Join(source, "modules", "hello")
	if err := os.MkdirAll(filepath.Join(module, "cmd"), 0o750); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	built := 0
	b := &Builder{source: source, cache: t.TempDir(), report: func(text string) {
		if strings.HasPrefix(text, "building Hello from source") {
			built++
		}
	}}
	buildHello := func() string {
		t.Helper()
		file, err := b.buildCached(t.Context(), program{name: "hello", displayName: "Hello", module: "hello", pkg: "./cmd"})
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("go.mod", "module example.com/hello\n\ngo 1.26.0\n")
	write("cmd/main.go", `package main; func main() { print("one") }`)
	first := buildHello()
	if again := buildHello(); again != first || built != 1 {
		t.Errorf("the same content was built %d times: %s, then %s", built, first, again)
	}
	write("cmd/main.go", `package main; func main() { print("two") }`)
	second := buildHello()
	if second == first || built != 2 {
		t.Errorf("two contents were built %d times: %s, then %s", built, first, second)
	}
	for file, want := range map[string]string{first: "one", second: "two"} {
		if got, err := exec.Command(file).CombinedOutput(); err != nil || string(got) != want {
			t.Errorf("%s prints %q, %v, want %q", filepath.Base(file), got, err, want)
		}
	}
}
