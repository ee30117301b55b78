package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNoPackages says that this machine cannot get Debian's packages.
var ErrNoPackages = errors.New("nginx needs packages of Debian, which this machine cannot get")

// nginxPackages are nginx and what ingress-nginx asks of it; apt-get knows what these need.
var nginxPackages = []string{
	"nginx", "libnginx-mod-http-lua", "libnginx-mod-http-headers-more-filter",
	"lua-cjson", "lua-nginx-cookie", "lua-nginx-dns", "lua-resty-core",
}

// NGINX returns the root of a file system that holds Debian's nginx and everything it needs, down to the C library.
// It leaves the machine's own packages alone, and needs no rights. The error is ErrNoPackages where there are none.
func (b *Builder) NGINX(ctx context.Context) (string, error) {
	sum := sha256.Sum256([]byte(strings.Join(nginxPackages, " ")))
	root := filepath.Join(b.cache, fmt.Sprintf("nginx-%x", sum[:6]))
	unlock, err := b.lockCache("nginx")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	b.report("fetching nginx from Debian ...")
	work, err := os.MkdirTemp(b.cache, "nginx-new-")
	if err != nil {
		return "", fmt.Errorf("fetch packages: %w", err)
	}
	defer os.RemoveAll(work)
	packages, err := downloadPackages(ctx, work, nginxPackages)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoPackages, err)
	}
	fresh := filepath.Join(work, "root")
	for _, file := range packages {
		if err := runCommand(exec.CommandContext(ctx, "dpkg-deb", "--extract", file, fresh)); err != nil {
			return "", fmt.Errorf("unpack %s: %w", filepath.Base(file), err)
		}
	}
	if err := os.Rename(fresh, root); err != nil {
		return "", fmt.Errorf("keep nginx: %w", err)
	}
	return root, nil
}

// downloadPackages fetches packages with all that they need into folder, as if nothing were installed, and returns their files.
func downloadPackages(ctx context.Context, folder string, packages []string) ([]string, error) {
	status, archives := filepath.Join(folder, "status"), filepath.Join(folder, "archives")
	for _, needed := range []string{filepath.Join(folder, "lists", "partial"), filepath.Join(archives, "partial")} {
		if err := os.MkdirAll(needed, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	options := []string{
		"--quiet", "--yes", "--no-install-recommends", "--download-only",
		"--option=Dir::State=" + folder, "--option=Dir::State::status=" + status,
		"--option=Dir::Cache=" + folder, "--option=Dir::Cache::archives=" + archives,
		"--option=Acquire::Languages=none", "--option=APT::Sandbox::User=", "--option=Debug::NoLocking=1",
	}
	for _, action := range [][]string{{"update"}, append([]string{"install"}, packages...)} {
		if err := runCommand(exec.CommandContext(ctx, "apt-get", append(options, action...)...)); err != nil {
			return nil, err
		}
	}
	return filepath.Glob(filepath.Join(archives, "*.deb"))
}

// runCommand runs a command and tells what it said when it fails.
func runCommand(command *exec.Cmd) error {
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(command.Path), err, bytes.TrimSpace(output))
	}
	return nil
}
