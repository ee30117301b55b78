package build_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/serin-dev/serin/playground/build"
)

func TestSourcesAreFoundFromAnywhereInTheRepository(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	repository := filepath.Join(here, "..", "..")
	t.Setenv(build.CacheVariable, t.TempDir())
	for _, folder := range []string{".", "..", "../..", "../modules/programs"} {
		t.Chdir(filepath.Join(here, folder))
		b, err := build.New(nil)
		if err != nil {
			t.Errorf("in %s: %v", folder, err)
			continue
		}
		if b.Repository() != repository {
			t.Errorf("in %s: repository is %s, want %s", folder, b.Repository(), repository)
		}
	}
	t.Chdir(t.TempDir())
	if _, err := build.New(nil); err == nil || !strings.Contains(err.Error(), "start it inside Serin's repository") {
		t.Errorf("elsewhere: %v", err)
	}
}

func TestProgramsAreBuiltAndReplacedInOneStep(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(build.CacheVariable, cache)
	b, err := build.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	module := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/hello\n\ngo 1.26.0\n")
	write("main.go", `package main; import "fmt"; func main() { fmt.Print("one") }`)
	for _, want := range []string{"one", "two"} {
		write("main.go", `package main; import "fmt"; func main() { fmt.Print("`+want+`") }`)
		file, err := b.BuildStatic(t.Context(), "hello", module, ".")
		if err != nil {
			t.Fatal(err)
		}
		got, err := exec.Command(file).Output()
		if err != nil || string(got) != want {
			t.Errorf("the program prints %q, %v, want %q", got, err, want)
		}
	}
	write("main.go", "package main; func main() { mistake }")
	if _, err := b.BuildStatic(t.Context(), "hello", module, "."); err == nil || !strings.Contains(err.Error(), "mistake") {
		t.Errorf("error of a failed build is %v, want the compiler's message", err)
	}
	programs, err := filepath.Glob(filepath.Join(cache, "hello-????????????"))
	if err != nil || len(programs) != 1 {
		t.Errorf("programs after a failed build are %v, %v, want the last successful one", programs, err)
	}
}

func TestGatewayCRDsAreFound(t *testing.T) {
	t.Setenv(build.CacheVariable, t.TempDir())
	b, err := build.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := b.GatewayCRDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "gateway.networking.k8s.io_httproutes.yaml")); err != nil {
		t.Error(err)
	}
}

func TestCRDsOfProvidersAreFound(t *testing.T) {
	t.Setenv(build.CacheVariable, t.TempDir())
	b, err := build.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	traefik, err := b.TraefikCRDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files, err := b.RouteCRDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := b.TCPRouteCRDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Concat(files, tcp, []string{traefik}) {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// TestEachCheckoutHasItsOwnProgram guards against a defect: of two checkouts that share a cache, the one that was built last
// replaced the program of the other.
func TestEachCheckoutHasItsOwnProgram(t *testing.T) {
	t.Setenv(build.CacheVariable, t.TempDir())
	b, err := build.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{}
	for _, name := range []string{"one", "two"} {
		checkout := t.TempDir()
		for file, text := range map[string]string{
			"go.mod":  "module example.com/hello\n\ngo 1.26.0\n",
			"main.go": `package main; import "fmt"; func main() { fmt.Print("` + name + `") }`,
		} {
			if err := os.WriteFile(filepath.Join(checkout, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if programs[name], err = b.BuildStatic(t.Context(), "hello", checkout, "."); err != nil {
			t.Fatal(err)
		}
	}
	for name, program := range programs {
		if got, err := exec.Command(program).Output(); err != nil || string(got) != name {
			t.Errorf("the program of checkout %s prints %q, %v", name, got, err)
		}
	}
}
