//go:build linux

// Package podroot gives the program of a container a root filesystem of its
// own and then executes that program.
//
// It runs between fork and exec: the playground's own executable is started
// again for each container. It must not know pods or Kubernetes: it receives a
// list of files and folders, and a command.
package podroot

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// name is the first argument with which the executable becomes a container.
const name = "serin-playground-container"

// specVariable passes the Spec to the new process.
const specVariable = "SERIN_PLAYGROUND_CONTAINER"

// Spec describes the environment of one container.
type Spec struct {
	// Folder is an empty folder on which the new root is mounted; each container has its own.
	Folder string
	// Program is the file on the machine that the container runs; it must be static, because no other file of the machine
	// exists inside.
	Program string
	// Args are the arguments after the program's name.
	Args []string
	// Env is the whole environment, as NAME=value.
	Env []string
	// Hostname is the host name inside the container.
	Hostname string
	// WorkDir is the working directory inside, / if empty.
	WorkDir string
	// Files are written into the new root; the key is the path inside, the value the contents.
	Files map[string]string
	// Mounts are files and folders of the machine that appear inside.
	Mounts []Mount
}

// Mount shows Source, a file or folder of the machine, at Target inside.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Command returns the command that becomes the container; it is killed when ctx ends. The caller sets its output and its network
// namespace, and must start it in new mount and UTS namespaces.
func Command(ctx context.Context, spec Spec) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the executable: %w", err)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the container's specification: %w", err)
	}
	command := exec.CommandContext(ctx, self)
	command.Args = []string{name}
	command.Env = []string{specVariable + "=" + string(text)}
	return command, nil
}

// BecomePod turns this process into a container if it was started by Command; otherwise it returns at once.
func BecomePod() {
	if os.Args[0] != name {
		return
	}
	if err := setUpContainer(); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(128)
	}
}

func setUpContainer() error {
	var spec Spec
	if err := json.Unmarshal([]byte(os.Getenv(specVariable)), &spec); err != nil {
		return fmt.Errorf("decode the container's specification: %w", err)
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set the container's host name: %w", err)
	}
	if err := unix.Mount("tmpfs", spec.Folder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount the container's root: %w", err)
	}
	inside := filepath.Base(spec.Program)
	mounts := append([]Mount{
		{Source: spec.Program, Target: "/" + inside, ReadOnly: true},
		{Source: "/proc", Target: "/proc"},
		{Source: "/dev", Target: "/dev"},
	}, spec.Mounts...)
	if err := os.Mkdir(filepath.Join(spec.Folder, "tmp"), 0o1777); err != nil {
		return fmt.Errorf("create /tmp: %w", err)
	}
	for _, m := range mounts {
		if err := bindMount(m, spec.Folder); err != nil {
			return err
		}
	}
	for path, text := range spec.Files {
		target := filepath.Join(spec.Folder, path)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		if err := os.WriteFile(target, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	if err := os.Chdir(spec.Folder); err != nil {
		return fmt.Errorf("enter the container's root: %w", err)
	}
	// With two equal arguments the old root is mounted below the new one, so that it can be unmounted without a folder for it.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	workDir := spec.WorkDir
	if workDir == "" {
		workDir = "/"
	}
	if err := os.MkdirAll(workDir, 0o755); err != nil {
		return fmt.Errorf("create the working directory %s: %w", workDir, err)
	}
	if err := os.Chdir(workDir); err != nil {
		return fmt.Errorf("enter the working directory: %w", err)
	}
	err := unix.Exec("/"+inside, append([]string{inside}, spec.Args...), spec.Env)
	return fmt.Errorf("run %s: %w", inside, err)
}

// bindMount makes one file or folder of the machine visible below root.
func bindMount(m Mount, root string) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return fmt.Errorf("mount %s: %w", m.Target, err)
	}
	target := filepath.Join(root, m.Target)
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		err = os.WriteFile(target, nil, 0o644)
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w", m.Target, err)
	}
	if err := unix.Mount(m.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", m.Target, err)
	}
	if !m.ReadOnly {
		return nil
	}
	// A bind mount becomes read-only only in a second call, which must repeat every flag that a user namespace may not clear.
	var stat unix.Statfs_t
	if err := unix.Statfs(target, &stat); err != nil {
		return fmt.Errorf("mount %s: %w", m.Target, err)
	}
	locked := uintptr(stat.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|locked, ""); err != nil {
		return fmt.Errorf("mount %s read-only: %w", m.Target, err)
	}
	return nil
}
