package build

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// previousCommit is the commit of the previous release of Serin. Change it at each release. Until the first release it is a commit
// of the development.
const previousCommit = "5ac79a1ce4d052868beba64c04db046132f5c849"

// ErrNoHistory reports that the repository does not contain the commit of the previous release.
var ErrNoHistory = errors.New("the history is incomplete")

// PreviousSerin returns the previous version of the program under test, built from its commit in the repository. Errors:
// ErrNoHistory, and those of the compiler.
func (b *Builder) PreviousSerin(ctx context.Context) (string, error) {
	return b.buildCommit(ctx, "serin", previousCommit, "./cmd/serin")
}

// buildCommit builds a package of the repository at a commit as a static program, once for each commit.
func (b *Builder) buildCommit(ctx context.Context, name, commit, pkg string) (string, error) {
	name = fmt.Sprintf("%s-at-%.12s", name, commit)
	file := filepath.Join(b.cache, name)
	unlock, err := b.lockCache(name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	b.report("building " + name + " from the history of the repository")
	folder, err := os.MkdirTemp(b.cache, "new-")
	if err != nil {
		return "", fmt.Errorf("create a folder for %s: %w", name, err)
	}
	defer os.RemoveAll(folder)
	sources, fresh := filepath.Join(folder, "sources"), filepath.Join(folder, name)
	if err := b.extractCommit(ctx, commit, sources); err != nil {
		return "", err
	}
	command := b.goBuild(ctx, sources, "-gcflags="+compilerFlags, "-ldflags", linkerFlags, "-o", fresh, pkg)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, describeError(err), bytes.TrimSpace(output))
	}
	return file, installProgram(file, fresh)
}

// extractCommit writes the files of the repository at a commit into a new folder.
func (b *Builder) extractCommit(ctx context.Context, commit, folder string) error {
	file := folder + ".zip"
	command := exec.CommandContext(ctx, "git", "archive", "--format=zip", "--output="+file, commit)
	command.Dir = b.Repository()
	if output, err := command.CombinedOutput(); err != nil {
		// Git's own message may be a page of advice; its first line is the reason.
		reason, _, _ := bytes.Cut(output, []byte("\n"))
		return fmt.Errorf("%w: read commit %s: %w: %s: if this is a shallow clone, run git fetch --unshallow", ErrNoHistory, commit, err, reason)
	}
	archive, err := zip.OpenReader(file)
	if err != nil {
		return fmt.Errorf("read commit %s: %w", commit, err)
	}
	defer archive.Close()
	if err := os.CopyFS(folder, archive); err != nil {
		return fmt.Errorf("extract commit %s: %w", commit, err)
	}
	return nil
}
