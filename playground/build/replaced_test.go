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
	command.Dir, command.Env = folder, buildEnvironment()
	output, err := command.Output()
	if err != nil {
		t.Fatalf("list what %v links: %v", arguments, describeError(err))
	}
	return strings.Fields(string(output))
}

// TestProgramsLinkNothingThatIsReplaced also fails when another version of Prometheus, Traefik or lego has moved the
// replaced packages, or reaches what they linked by another way.
func TestProgramsLinkNothingThatIsReplaced(t *testing.T) {
	module := filepath.Join("..", "modules", "programs")
	for _, c := range []struct {
		program program
		without []string // prefixes
		with    []string
		most    int
	}{
		{
			program: prometheus, most: 1000,
			without: []string{"github.com/Azure/", "github.com/AzureAD/", "google.golang.org/api/", "cloud.google.com/go/auth/", "github.com/pb33f/"},
			with:    []string{"github.com/prometheus/prometheus/storage/remote/azuread", "github.com/prometheus/prometheus/storage/remote/googleiam"},
		},
		{
			program: traefik, most: 1550,
			without: []string{
				"github.com/go-acme/lego/v4/providers/dns/", "github.com/aws/aws-sdk-go-v2/",
				"github.com/traefik/yaegi/", "github.com/tetratelabs/wazero/", "github.com/redis/",
			},
			with: []string{
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
			packages := listed(t, module, slices.Concat(buildFlags()[:2], arguments, []string{c.program.pkg})...)
			for _, name := range packages {
				if slices.ContainsFunc(c.without, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
					t.Errorf("%s links %s", c.program.displayName, name)
				}
			}
			for _, name := range append(c.with, c.program.pkg) {
				if !slices.Contains(packages, name) {
					t.Errorf("%s does not link %s", c.program.displayName, name)
				}
			}
			if n := len(packages); n > c.most {
				t.Errorf("%s links %d packages: find out what version %s brings along", c.program.displayName, n, c.program.pkg)
			}
		})
	}
}

func TestAPackageThatHasMovedCannotBeReplaced(t *testing.T) {
	if err := replaceFiles(t.TempDir(), "*.go", t.TempDir()); err == nil || !strings.Contains(err.Error(), "it has no file *.go") {
		t.Errorf("got %v", err)
	}
}

// TestProgramsLinkTheSameVersions: only then is what several programs link compiled once. Most of it is the client of
// Kubernetes, which is a third of Serin and of the playground, so the cluster has the version of Kubernetes whose client
// Serin uses. Change the go.mod with the older version where this fails.
func TestProgramsLinkTheSameVersions(t *testing.T) {
	versions := func(folder string, arguments ...string) map[string]string {
		all := map[string]string{}
		format := "{{with .Module}}{{.Path}}@{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}"
		for _, line := range listed(t, folder, append([]string{"-f", format}, arguments...)...) {
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
		versions("../..", "./cmd/serin"),
		versions("..", "./cmd/playground"),
		versions(module, slices.Concat(buildFlags()[:2], arguments, []string{controlPlane.pkg, prometheus.pkg, traefik.pkg})...),
	}
	for i, own := range linked {
		for j, others := range linked[:i] {
			shared := 0
			for path, version := range own {
				other, found := others[path]
				// Traefik is written for an older version of the Gateway API's client.
				if !found || strings.HasPrefix(path, "github.com/serin-dev/") || path == "sigs.k8s.io/gateway-api" {
					continue
				}
				if shared++; other != version {
					t.Errorf("%s: version %q in %s, %q in %s", path, version, names[i], other, names[j])
				}
			}
			if shared == 0 {
				t.Errorf("%s and %s share nothing: the test compares nothing", names[i], names[j])
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
	left, err := filepath.Glob(folder + "/*")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{folder + "/a.go", folder + "/ours.go"}; !slices.Equal(left, want) {
		t.Errorf("files are %v, want %v", left, want)
	}
	if err := replaceFiles(folder, "a.go,c.go", ours); err == nil || !strings.Contains(err.Error(), "c.go") {
		t.Errorf("a pattern without a file: %v", err)
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
