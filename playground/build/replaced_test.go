package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed are the packages that a command links.
func listed(t *testing.T, folder string, arguments ...string) []string {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-deps"}, arguments...)...)
	command.Dir, command.Env = folder, environment()
	output, err := command.Output()
	if err != nil {
		t.Fatalf("list what %v links: %v", arguments, explain(err))
	}
	return strings.Fields(string(output))
}

// TestTraefikLinksNoCloudClients also fails when another version of Traefik, or of lego, has moved the replaced packages, or
// reaches what they linked by another way.
func TestTraefikLinksNoCloudClients(t *testing.T) {
	module := filepath.Join("..", "modules", "programs")
	arguments, err := replace(t.Context(), module, t.TempDir(), traefik.without)
	if err != nil {
		t.Fatal(err)
	}
	packages := listed(t, module, append(arguments, traefik.pkg)...)
	for _, name := range packages {
		if strings.HasPrefix(name, "github.com/go-acme/lego/v4/providers/dns/") || strings.HasPrefix(name, "github.com/aws/aws-sdk-go-v2/") {
			t.Errorf("Traefik links %s", name)
		}
	}
	for _, name := range []string{traefik.pkg, "github.com/traefik/traefik/v3/pkg/provider/ecs", "github.com/traefik/traefik/v3/pkg/provider/kubernetes/gateway"} {
		if !slices.Contains(packages, name) {
			t.Errorf("Traefik does not link %s", name)
		}
	}
	if n := len(packages); n > 1800 {
		t.Errorf("Traefik links %d packages: find out what version %s brings along", n, traefik.pkg)
	}
}

func TestAPackageThatHasMovedCannotBeReplaced(t *testing.T) {
	if err := replacePackage(t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "there is no such package") {
		t.Errorf("got %v", err)
	}
}

// TestSerinAndThePlaygroundLinkTheSameVersions: what both link is compiled once then, which is a third of either. Change
// both go.mod where this fails.
func TestSerinAndThePlaygroundLinkTheSameVersions(t *testing.T) {
	versions := func(folder, pkg string) map[string]string {
		all := map[string]string{}
		for _, line := range listed(t, folder, "-f", "{{with .Module}}{{.Path}}@{{.Version}}{{end}}", pkg) {
			path, version, _ := strings.Cut(line, "@")
			all[path] = version
		}
		return all
	}
	serin, own := versions("../..", "./cmd/serin"), versions("..", "./cmd/playground")
	shared := 0
	for path, version := range own {
		other, found := serin[path]
		if !found || strings.HasPrefix(path, "github.com/serin-dev/") {
			continue
		}
		if shared++; other != version {
			t.Errorf("the playground links %s %s, Serin links %s", path, version, other)
		}
	}
	if shared == 0 {
		t.Error("they share nothing: the test compares nothing")
	}
}

func TestTestsAreNotCopied(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, name := range []string{"a.go", "a_test.go", "testdata/b.go", "docs/c.go", "d/docs/e.go"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), nil, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyModule(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a.go": true, "a_test.go": false, "testdata": false, "docs": false, "d/docs/e.go": true} {
		if _, err := os.Stat(filepath.Join(to, name)); (err == nil) != want {
			t.Errorf("%s was copied: %t, want %t", name, err == nil, want)
		}
	}
}

// TestTheScriptBuildsThePlaygroundWithTheSameFlags: what it compiles is not compiled again only then.
func TestTheScriptBuildsThePlaygroundWithTheSameFlags(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "hack", "playground.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"CGO_ENABLED=0", "-gcflags=" + compilerFlags, `-ldflags="` + linkerFlags + `"`} {
		if !strings.Contains(string(text), flag) {
			t.Errorf("hack/playground.sh does not build with %s", flag)
		}
	}
}
