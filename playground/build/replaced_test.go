package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listDependencies returns the packages that a program links, one per line of the output of go list.
func listDependencies(t *testing.T, folder string, arguments ...string) []string {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-deps"}, arguments...)...)
	command.Dir, command.Env = folder, buildEnvironment()
	output, err := command.Output()
	if err != nil {
		t.Fatalf("list the dependencies of %v: %v", arguments, describeError(err))
	}
	return strings.Fields(string(output))
}

// TestProgramsLinkNothingThatIsReplaced also fails when a new version of Prometheus, Traefik or lego has moved the replaced
// packages, or links their dependencies through other packages.
func TestProgramsLinkNothingThatIsReplaced(t *testing.T) {
	module := filepath.Join("..", "modules", "programs")
	for _, c := range []struct {
		program  program
		unlinked []string // prefixes
		linked   []string
		most     int
	}{
		{
			program: prometheus, most: 1000,
			unlinked: []string{"github.com/Azure/", "github.com/AzureAD/", "google.golang.org/api/", "cloud.google.com/go/auth/", "github.com/pb33f/"},
			linked:   []string{"github.com/prometheus/prometheus/storage/remote/azuread", "github.com/prometheus/prometheus/storage/remote/googleiam"},
		},
		{
			program: traefik, most: 1550,
			unlinked: []string{
				"github.com/go-acme/lego/v4/providers/dns/", "github.com/aws/aws-sdk-go-v2/",
				"github.com/traefik/yaegi/", "github.com/tetratelabs/wazero/", "github.com/redis/",
			},
			linked: []string{
				"github.com/traefik/traefik/v3/pkg/plugins", "github.com/traefik/traefik/v3/pkg/provider/ecs",
				"github.com/traefik/traefik/v3/pkg/provider/kubernetes/gateway",
			},
		},
	} {
		t.Run(c.program.name, func(t *testing.T) {
			arguments, err := replacePackages(t.Context(), module, t.TempDir(), c.program.replacements)
			if err != nil {
				t.Fatal(err)
			}
			packages := listDependencies(t, module, slices.Concat(buildFlags()[:2], arguments, []string{c.program.pkg})...)
			for _, name := range packages {
				if slices.ContainsFunc(c.unlinked, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
					t.Errorf("%s links %s", c.program.displayName, name)
				}
			}
			for _, name := range append(c.linked, c.program.pkg) {
				if !slices.Contains(packages, name) {
					t.Errorf("%s does not link %s", c.program.displayName, name)
				}
			}
			if n := len(packages); n > c.most {
				t.Errorf("%s links %d packages: find out which dependencies %s has added", c.program.displayName, n, c.program.pkg)
			}
		})
	}
}

func TestAPackageThatHasMovedCannotBeReplaced(t *testing.T) {
	if err := replaceFiles(t.TempDir(), "*.go", t.TempDir()); err == nil || !strings.Contains(err.Error(), "it has no file *.go") {
		t.Errorf("got %v, want an error that names the pattern", err)
	}
}

// TestProgramsLinkTheSameVersions fails when two programs link different versions of a module, because only packages of the same
// version are compiled once. Most of the shared code is the Kubernetes client, a third of Serin and of the playground, so the
// cluster runs the version of Kubernetes whose client Serin uses. If the test fails, change the go.mod with the older version.
func TestProgramsLinkTheSameVersions(t *testing.T) {
	linkedVersions := func(folder string, arguments ...string) map[string]string {
		all := map[string]string{}
		format := "{{with .Module}}{{.Path}}@{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}"
		for _, line := range listDependencies(t, folder, append([]string{"-f", format}, arguments...)...) {
			path, version, _ := strings.Cut(line, "@")
			all[path] = version
		}
		return all
	}
	module := filepath.Join("..", "modules", "programs")
	arguments, err := replacePackages(t.Context(), module, t.TempDir(), slices.Concat(prometheus.replacements, traefik.replacements))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"Serin", "the playground", "the cluster's programs"}
	linked := []map[string]string{
		linkedVersions("../..", "./cmd/serin"),
		linkedVersions("..", "./cmd/playground"),
		linkedVersions(module, slices.Concat(buildFlags()[:2], arguments, []string{controlPlane.pkg, prometheus.pkg, traefik.pkg})...),
	}
	for i, versions := range linked {
		for j, otherVersions := range linked[:i] {
			shared := 0
			for path, version := range versions {
				other, found := otherVersions[path]
				// Traefik requires an older version of the Gateway API's client.
				if !found || strings.HasPrefix(path, "github.com/serin-dev/") || path == "sigs.k8s.io/gateway-api" {
					continue
				}
				if shared++; other != version {
					t.Errorf("%s: version %q in %s, %q in %s", path, version, names[i], other, names[j])
				}
			}
			if shared == 0 {
				t.Errorf("%s and %s share no module: the test compares nothing", names[i], names[j])
			}
		}
	}
}

func TestOnlyFilesThatMatchAreReplaced(t *testing.T) {
	folder, ours := t.TempDir(), t.TempDir()
	for _, file := range []string{folder + "/a.go", folder + "/b.go", folder + "/b_more.go", folder + "/c.go", ours + "/ours.go"} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := replaceFiles(folder, "b*.go,c.go", ours); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(folder + "/*")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{folder + "/a.go", folder + "/ours.go"}; !slices.Equal(files, want) {
		t.Errorf("files are %v, want %v", files, want)
	}
	if err := replaceFiles(folder, "a.go,c.go", ours); err == nil || !strings.Contains(err.Error(), "c.go") {
		t.Errorf("error of a pattern without a file is %v, want one that names the pattern", err)
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

// TestTheScriptBuildsThePlaygroundWithTheSameFlags ensures that packages which the script compiles are not compiled again.
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
