package build

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// replacement is a package of another module, or some of its files, that is replaced by a small package of our own, because it
// links many packages that the playground never uses. Our package is in the folder replaced of the module that is built, and is
// compiled there too, so that the compiler reports incompatible changes.
type replacement struct {
	module            string
	pkg               string // relative to the module
	files             string // comma-separated patterns of the replaced files; the whole package if empty
	replacementFolder string // relative to the folder replaced
}

// The packages that are replaced in Prometheus and Traefik.
var (
	prometheusReplacements = []replacement{
		{module: "github.com/prometheus/prometheus", pkg: "storage/remote/azuread", replacementFolder: "azuread"},
		{module: "github.com/prometheus/prometheus", pkg: "storage/remote/googleiam", replacementFolder: "googleiam"},
		{module: "github.com/prometheus/prometheus", pkg: "web/api/v1", files: "openapi*.go", replacementFolder: "openapi"},
	}
	traefikReplacements = []replacement{
		{module: "github.com/go-acme/lego/v4", pkg: "providers/dns", replacementFolder: "dns"},
		{module: "github.com/traefik/traefik/v3", pkg: "pkg/middlewares/ratelimiter", files: "redis_limiter.go,lua.go", replacementFolder: "ratelimiter"},
		{module: "github.com/traefik/traefik/v3", pkg: "pkg/plugins", replacementFolder: "plugins"},
		{module: "github.com/traefik/traefik/v3", pkg: "pkg/provider/ecs", replacementFolder: "ecs"},
		{module: "github.com/traefik/traefik/v3", pkg: "pkg/provider/kv/redis", replacementFolder: "redis"},
	}
)

// replacePackages copies the modules of all replacements into a folder, replaces the packages in the copies, and returns the
// arguments with which the go command uses the copies. Go's -overlay would need no copies, but it rejects files in the module
// cache.
func replacePackages(ctx context.Context, module, into string, all []replacement) (arguments []string, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("read go.mod: %w", err)
	}
	requirements := strings.Builder{}
	requirements.Write(text)
	copies := map[string]string{} // the folder of each copied module
	for _, r := range all {
		if copies[r.module] == "" {
			from, err := moduleFolder(ctx, module, r.module)
			if err != nil {
				return nil, err
			}
			to := filepath.Join(into, filepath.FromSlash(r.module))
			if err := copyModule(from, to); err != nil {
				return nil, fmt.Errorf("copy module %s: %w", r.module, err)
			}
			copies[r.module] = to
			fmt.Fprintf(&requirements, "\nreplace %s => %q\n", r.module, to)
		}
		folder := filepath.Join(copies[r.module], filepath.FromSlash(r.pkg))
		if err := replaceFiles(folder, cmp.Or(r.files, "*.go"), filepath.Join(module, "replaced", r.replacementFolder)); err != nil {
			return nil, fmt.Errorf("replace package %s of %s: %w", r.pkg, r.module, err)
		}
	}
	file := filepath.Join(into, "go.mod")
	if err := os.WriteFile(file, []byte(requirements.String()), 0o644); err != nil {
		return nil, fmt.Errorf("write go.mod: %w", err)
	}
	sums, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return nil, fmt.Errorf("read go.sum: %w", err)
	}
	if err := os.WriteFile(filepath.Join(into, "go.sum"), sums, 0o644); err != nil {
		return nil, fmt.Errorf("write go.sum: %w", err)
	}
	return []string{"-modfile=" + file}, nil
}

// copyModule copies the files of a module that go build needs, without tests and documentation. The copies are writable.
func copyModule(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == "testdata" || below == "docs" || below == "integration" {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, below), 0o755)
		}
		if strings.HasSuffix(below, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, below), text, 0o644)
	})
}

// replaceFiles replaces the files of a folder that match patterns by those of another folder. A pattern that matches no file
// is an error, because it means that a new version of the module has moved the package.
func replaceFiles(folder, patterns, ours string) error {
	for pattern := range strings.SplitSeq(patterns, ",") {
		old, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return err
		}
		if len(old) == 0 {
			return fmt.Errorf("it has no file %s: find out where it has moved, and change package build", pattern)
		}
		for _, file := range old {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return os.CopyFS(folder, os.DirFS(ours))
}
