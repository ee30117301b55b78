package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var (
	version = flag.String("version", "v0.0.0-test", "version of the tested release")
	given   = flag.String("dist", "", "absolute path of a release to test instead of a new one")
)

// dist is the tested release, and rebuilt the same release, built again in another folder.
var dist, rebuilt string

// platforms are those of the archives.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(work)
	dist, rebuilt = filepath.Join(work, "first"), filepath.Join(work, "second")
	build := []string{dist, rebuilt}
	if *given != "" {
		dist, build = *given, build[1:]
	}
	for _, folder := range build {
		if out, err := script(context.Background(), "../release.sh", []string{"DIST=" + folder}, *version); err != nil {
			fmt.Fprintf(os.Stderr, "build the release: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

// script runs a script and returns its output.
func script(ctx context.Context, file string, env []string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, file, args...)
	command.Env = append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	return string(out), err
}

// tool runs a tool in the version that the scripts use.
func tool(ctx context.Context, args ...string) (string, error) {
	return script(ctx, "bash", []string{"COSIGN_PASSWORD="}, append([]string{"-c", `. ./tools.sh; "$@"`, "tools.sh"}, args...)...)
}

// mustRun fails the test if a tool fails.
func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tool(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

func number() string { return strings.TrimPrefix(*version, "v") }

func archiveName(platform string) string {
	return "serin_" + number() + "_" + strings.ReplaceAll(platform, "/", "_") + ".tar.gz"
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func readYAML[T any](t *testing.T, text []byte) T {
	t.Helper()
	var out T
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// readTar returns the files of a tar file by name.
func readTar(t *testing.T, in io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			files[header.Name] = content
		}
	}
}

// readArchive returns the files of the archive of a platform.
func readArchive(t *testing.T, platform string) map[string][]byte {
	t.Helper()
	return readGzip(t, filepath.Join(dist, archiveName(platform)))
}

func readGzip(t *testing.T, file string) map[string][]byte {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	uncompressed, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	return readTar(t, uncompressed)
}

func readBuildInfo(t *testing.T, binary []byte) *buildinfo.BuildInfo {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	for _, name := range files(t, rebuilt) {
		if !bytes.Equal(read(t, dist, name), read(t, rebuilt, name)) {
			t.Errorf("%s differs between two builds", name)
		}
	}
	if diff := cmp.Diff(files(t, dist), files(t, rebuilt)); diff != "" {
		t.Errorf("files of two builds (-first +second):\n%s", diff)
	}
}

func files(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestChecksumsCoverEveryFile(t *testing.T) {
	var want strings.Builder
	for _, name := range files(t, dist) {
		if name != "checksums.txt" {
			fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256(read(t, dist, name)), name)
		}
	}
	if diff := cmp.Diff(want.String(), string(read(t, dist, "checksums.txt"))); diff != "" {
		t.Errorf("checksums.txt (-want +got):\n%s", diff)
	}
}

func TestArchivesContainStaticBinariesOfTheVersion(t *testing.T) {
	revision, err := script(t.Context(), "git", nil, "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range platforms {
		content := readArchive(t, platform)
		if diff := cmp.Diff([]string{"LICENSE", "README.md", "serin"}, slices.Sorted(maps.Keys(content))); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", platform, diff)
			continue
		}
		info := readBuildInfo(t, content["serin"])
		got := map[string]string{"version": info.Main.Version}
		for _, setting := range info.Settings {
			got[setting.Key] = setting.Value
		}
		for key, want := range map[string]string{
			"version": *version, "vcs.revision": strings.TrimSpace(revision), "vcs.modified": "false",
			"CGO_ENABLED": "0", "-trimpath": "true", "GOOS": strings.Split(platform, "/")[0], "GOARCH": strings.Split(platform, "/")[1],
		} {
			if got[key] != want {
				t.Errorf("%s: %s is %q, want %q", platform, key, got[key], want)
			}
		}
		if strings.HasPrefix(platform, "linux/") && !isStatic(t, content["serin"]) {
			t.Errorf("%s: the binary needs a dynamic linker", platform)
		}
	}
}

func isStatic(t *testing.T, binary []byte) bool {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	return !slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

func TestTheBinaryPrintsItsVersion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "serin")
	if err := os.WriteFile(file, readArchive(t, runtime.GOOS+"/"+runtime.GOARCH)["serin"], 0o700); err != nil { // #nosec G306 -- a program
		t.Fatal(err)
	}
	out, err := script(t.Context(), file, nil, "--version")
	if want := "Serin version " + *version + " revision "; err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// TestSBOMsListTheModulesOfTheBinaries compares them with what the toolchain recorded, and with go.mod, whose other modules
// are linked into tests only.
func TestSBOMsListTheModulesOfTheBinaries(t *testing.T) {
	required := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`).FindAllStringSubmatch(string(read(t, "../../go.mod")), -1) {
		required[match[1]] = match[2]
	}
	for _, platform := range platforms {
		var sbom struct {
			BOMFormat string `json:"bomFormat"`
			Metadata  struct {
				Component struct{ Name, Version string }
			}
			Components []struct{ Name, Version string }
		}
		if err := json.Unmarshal(read(t, dist, strings.Replace(archiveName(platform), ".tar.gz", ".cdx.json", 1)), &sbom); err != nil {
			t.Fatal(err)
		}
		info := readBuildInfo(t, readArchive(t, platform)["serin"])
		if sbom.BOMFormat != "CycloneDX" || sbom.Metadata.Component.Name != info.Main.Path || sbom.Metadata.Component.Version != *version {
			t.Errorf("%s: an SBOM of %+v in format %q", platform, sbom.Metadata.Component, sbom.BOMFormat)
		}
		want, got := map[string]string{"std": strings.Fields(info.GoVersion)[0]}, map[string]string{}
		for _, module := range info.Deps {
			want[module.Path] = module.Version
			if required[module.Path] != module.Version {
				t.Errorf("%s: %s is linked in version %s, but go.mod requires %q", platform, module.Path, module.Version, required[module.Path])
			}
		}
		for _, component := range sbom.Components {
			got[component.Name] = component.Version
		}
		if len(info.Deps) < 50 {
			t.Errorf("%s: the binary has %d modules, which cannot be all", platform, len(info.Deps))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: modules (-binary +SBOM):\n%s", platform, diff)
		}
	}
}

func TestTheKrewManifestIsValid(t *testing.T) {
	file := filepath.Join(dist, "serin.yaml")
	mustRun(t, "validate_krew", "-manifest", file, "-skip-install")
	manifest := readYAML[struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct {
				URI, SHA256, Bin string
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
			}
		}
	}](t, read(t, file))
	if manifest.Metadata.Name != "serin" || manifest.Spec.Version != *version || len(manifest.Spec.Platforms) != len(platforms) {
		t.Errorf("got %+v", manifest)
	}
	for i, p := range manifest.Spec.Platforms {
		platform := p.Selector.MatchLabels.OS + "/" + p.Selector.MatchLabels.Arch
		uri := "https://github.com/serin-dev/serin/releases/download/" + *version + "/" + archiveName(platform)
		sum := fmt.Sprintf("%x", sha256.Sum256(read(t, dist, archiveName(platform))))
		if platform != platforms[i] || p.URI != uri || p.SHA256 != sum || readArchive(t, platform)[p.Bin] == nil {
			t.Errorf("got %+v, want %s with checksum %s", p, uri, sum)
		}
	}
}

func TestOtherVersionsAreRejected(t *testing.T) {
	for _, invalid := range []string{"", "0.1.0", "v1", "latest"} {
		folder := filepath.Join(t.TempDir(), "dist")
		out, err := script(t.Context(), "../release.sh", []string{"DIST=" + folder}, invalid)
		if _, missing := os.Stat(folder); err == nil || missing == nil || !strings.Contains(out, "make release needs a version such as VERSION=v0.1.0") {
			t.Errorf("version %q: %v, %s", invalid, err, out)
		}
	}
}

// TestTheWorkflowIsValid also checks that the workflow runs no code that its author can replace.
func TestTheWorkflowIsValid(t *testing.T) {
	const file = "../../.github/workflows/release.yaml"
	mustRun(t, "actionlint", file)
	uses := regexp.MustCompile(`uses: (\S+)`).FindAllStringSubmatch(string(read(t, file)), -1)
	for _, match := range uses {
		if !regexp.MustCompile(`@[0-9a-f]{40}$`).MatchString(match[1]) {
			t.Errorf("%s is not pinned to a commit", match[1])
		}
	}
	if len(uses) == 0 {
		t.Error("the workflow uses no action: the test does not find them")
	}
}
