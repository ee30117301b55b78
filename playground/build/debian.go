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

// ErrNoPackages is returned when Debian's packages cannot be downloaded on this machine.
var ErrNoPackages = errors.New("nginx requires Debian packages, which cannot be downloaded on this machine")

// nginxPackages are nginx and the modules that ingress-nginx requires; apt-get resolves their dependencies.
var nginxPackages = []string{
	"nginx", "libnginx-mod-http-lua", "libnginx-mod-http-headers-more-filter",
	"lua-cjson", "lua-nginx-cookie", "lua-nginx-dns", "lua-resty-core",
}

// NGINX returns the root of a filesystem with Debian's nginx and all its dependencies, including the C library. It does not
// install packages on the machine and does not require root. It returns ErrNoPackages if the packages cannot be downloaded.
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
	b.report("downloading nginx from Debian ...")
	work, err := os.MkdirTemp(b.cache, "nginx-new-")
	if err != nil {
		return "", fmt.Errorf("download packages: %w", err)
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
		return "", fmt.Errorf("install nginx: %w", err)
	}
	return root, nil
}

// downloadPackages downloads packages and all their dependencies into folder, as if nothing were installed, and returns their
// files.
func downloadPackages(ctx context.Context, folder string, packages []string) ([]string, error) {
	status, archives := filepath.Join(folder, "status"), filepath.Join(folder, "archives")
	for _, subfolder := range []string{filepath.Join(folder, "lists", "partial"), filepath.Join(archives, "partial")} {
		if err := os.MkdirAll(subfolder, 0o755); err != nil {
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

// runCommand runs a command; an error includes the output of the command.
func runCommand(command *exec.Cmd) error {
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(command.Path), err, bytes.TrimSpace(output))
	}
	return nil
}
