package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// BundleVariable is the environment variable that names the folder of an extracted bundle. It contains what the demo needs, so
// that neither Go nor the sources are required.
const BundleVariable = "SERIN_BUNDLE"

// The files of a bundle besides programs, which have their own names, LICENSE and config/crd.
const (
	checksumsFile = "checksums.txt"
	gatewayCRDs   = "gateway-crds"
	traefikCRDs   = "traefik-crds.yaml"
)

// WriteBundle builds what the demo needs and copies it into a new folder, together with the running program.
func (b *Builder) WriteBundle(ctx context.Context, folder string) error {
	if err := b.Prepare(ctx, true, true); err != nil {
		return err
	}
	running, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the running program: %w", err)
	}
	sources := map[string]string{
		"playground": running, "LICENSE": filepath.Join(b.Repository(), "LICENSE"), "config/crd": filepath.Join(b.Repository(), "config", "crd"),
	}
	for name, find := range map[string]func(context.Context) (string, error){
		controlPlane.name: b.ControlPlane, prometheus.name: b.Prometheus, traefik.name: b.Traefik, "demo-app": b.DemoApp, "serin": b.Serin,
		gatewayCRDs: b.GatewayCRDs, traefikCRDs: b.TraefikCRDs,
	} {
		if sources[name], err = find(ctx); err != nil {
			return err
		}
	}
	return copyBundle(folder, sources)
}

// copyBundle copies programs, files, and the YAML files of folders, by their names in the bundle, and writes their checksums.
func copyBundle(folder string, sources map[string]string) error {
	for name, source := range sources {
		err := filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || file != source && filepath.Ext(file) != ".yaml" {
				return err
			}
			inside, err := filepath.Rel(source, file)
			if err != nil {
				return err
			}
			return copyFile(filepath.Join(folder, name, inside), file)
		})
		if err != nil {
			return fmt.Errorf("copy %s into the bundle: %w", name, err)
		}
	}
	sums, err := checksums(folder)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, checksumsFile), sums, 0o644)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm()|0o600) // those of the module cache are read-only
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// checksums returns the SHA-256 checksums of all files of a bundle, in the format of sha256sum.
func checksums(folder string) ([]byte, error) {
	sums := map[string][]byte{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(folder, path)
		if err != nil || entry.IsDir() || name == checksumsFile {
			return err
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		hash := sha256.New()
		if _, err := io.Copy(hash, in); err != nil {
			return err
		}
		sums[filepath.ToSlash(name)] = hash.Sum(nil)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compute the checksums of the bundle in %s: %w", folder, err)
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&out, "%x  %s\n", sums[name], name)
	}
	return out.Bytes(), nil
}

// verifyBundle compares all files of a bundle with its checksums, so that no program of an incomplete or modified bundle is
// executed. Whether the checksums themselves are authentic is verified with those of the release, before the extraction.
func verifyBundle(folder string) error {
	want, err := os.ReadFile(filepath.Join(folder, checksumsFile))
	if err != nil {
		return fmt.Errorf("%s names no folder of an extracted bundle: %w", BundleVariable, err)
	}
	got, err := checksums(folder)
	if err != nil {
		return err
	}
	if bytes.Equal(want, got) {
		return nil
	}
	listed := map[string]bool{}
	for line := range bytes.Lines(want) {
		listed[string(line)] = true
	}
	for line := range bytes.Lines(got) {
		if !listed[string(line)] {
			return fmt.Errorf("the bundle in %s was modified: extract it again: the checksum of %s is not in %s", folder, bytes.TrimSpace(line[sha256.Size*2:]), checksumsFile)
		}
	}
	return fmt.Errorf("the bundle in %s is incomplete: extract it again: %s lists more files than there are", folder, checksumsFile)
}

// bundled returns the path of a program, file or folder in the bundle.
func (b *Builder) bundled(name string) (string, error) {
	file := filepath.Join(b.bundle, name)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("the bundle does not contain %s: unset %s to build it from source", name, BundleVariable)
	}
	return file, nil
}
