package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestProgramIsBuiltOncePerContentOfItsModule(t *testing.T) {
	source := t.TempDir()
	module := filepath.Join(source, "modules", "hello")
	if err := os.MkdirAll(module, 0o750); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	b := &Builder{source: source, cache: t.TempDir(), say: func(text string) { said = append(said, text) }}
	made := func() string {
		t.Helper()
		file, err := b.kept(t.Context(), program{name: "hello", title: "Hello", duration: "a second", args: []string{"."}})
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("go.mod", "module example.com/hello\n\ngo 1.26.0\n")
	write("main.go", `package main; func main() { print("one") }`)
	first := made()
	if again := made(); again != first || len(said) != 1 {
		t.Errorf("the same content was built again: %s, then %s; said %q", first, again, said)
	}
	write("main.go", `package main; func main() { print("two") }`)
	second := made()
	if second == first || len(said) != 2 {
		t.Errorf("other content was not built: %s, then %s; said %q", first, second, said)
	}
	for file, want := range map[string]string{first: "one", second: "two"} {
		if got, err := exec.Command(file).CombinedOutput(); err != nil || string(got) != want {
			t.Errorf("%s says %q, %v, want %q", filepath.Base(file), got, err, want)
		}
	}
}
