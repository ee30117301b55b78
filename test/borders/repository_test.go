package borders

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/serin-dev/serin"

// root is the root folder of the repository, relative to this package.
const root = "../.."

// listed is the output of go list for a package.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

// ours returns the path of the package in the repository, as design documents write it: internal/canary, cmd/serin.
func (p listed) ours() (string, bool) {
	return strings.CutPrefix(p.ImportPath, module+"/")
}

// packages are those of the root module and all their dependencies, by import path, without test files.
var packages = sync.OnceValues(func() (map[string]listed, error) {
	// With -e, so that a package that does not build, which its own tests report, does not hide others.
	command := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Standard,Imports,Deps", "./...")
	command.Dir = root
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	all := map[string]listed{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode the output of go list: %w", err)
		}
		all[p.ImportPath] = p
	}
})

func listPackages(t *testing.T) map[string]listed {
	t.Helper()
	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// files are all files of the repository that are written by hand or committed, by their path from the root.
func files(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir() && (name == ".git" || name == "bin"):
			return filepath.SkipDir
		case name == ".git": // a file in a second working tree
		case path.Ext(name) == ".test", path.Ext(name) == ".out": // output of go test; see .gitignore
		case entry.Type().IsRegular():
			all = append(all, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// upwards matches paths that begin with their parent folder: ../../docs, ${name:-../elsewhere}. After a slash or a word, they
// are part of another path, such as $(dirname "$0")/.. or a/../b.
var upwards = regexp.MustCompile(`(?:^|[^\w./)}])((?:\.\./)+[\w.*-]*)`)

// TestNoFileReadsOutsideTheRepository: all tests must run in a clone without other directories next to it. Paths in Go files
// are relative to their package, those in scripts to the root, which every script enters first.
func TestNoFileReadsOutsideTheRepository(t *testing.T) {
	for _, name := range files(t) {
		folder := path.Dir(name)
		if folder == "hack" || folder == ".ci" {
			folder = "."
		}
		for number, line := range strings.Split(read(t, name), "\n") {
			for _, found := range upwards.FindAllStringSubmatch(line, -1) {
				if name == "Makefile" && strings.Contains(line, "go build -C playground -o "+found[1]) {
					continue // relative to playground
				}
				if reached := path.Join(folder, found[1]); reached == ".." || strings.HasPrefix(reached, "../") {
					t.Errorf("%s:%d reads %s, which is outside the repository", name, number+1, found[1])
				}
			}
		}
	}
}
