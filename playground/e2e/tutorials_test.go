//go:build linux

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/serin-dev/serin/internal/waittest"
	"github.com/serin-dev/serin/playground/tutorial"
)

// The directives of tutorials; see package tutorial.
const (
	// directiveBackground: the reader runs the block in another terminal, where it runs until the end.
	directiveBackground = "background"
	// directiveExample: the output depends on the time, so it is not compared. The commands must succeed.
	directiveExample = "example output"
	// directiveNGINX: the block installs ingress-nginx. That of the playground is used instead.
	directiveNGINX = "ingress-nginx"
	// directiveSkipper: the block installs Skipper. That of the playground is used instead.
	directiveSkipper = "skipper"
	// directiveCluster: the block prepares a cluster, which runs already. On the page with the preparations only.
	directiveCluster = "cluster"
)

// preparations is the page of the tutorials that describes what all of them require.
const preparations = "README.md"

// commandTimeout limits one command of a tutorial. The tutorials have shorter timeouts of their own.
const commandTimeout = 5 * time.Minute

// TestTutorials runs the commands of each tutorial as they are on the page, and compares their output with the page.
func TestTutorials(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(repository, "docs", "tutorials", "*.md"))
	if err != nil || len(files) < 3 {
		t.Fatalf("the tutorials are %q, %v, want some and %s", files, err, preparations)
	}
	programs := linkPrograms(t)
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := tutorial.Parse(string(text))
		if err != nil || len(blocks) == 0 {
			t.Errorf("%s has %d blocks of commands: %v", name, len(blocks), err)
			continue
		}
		if name == preparations {
			checkOnlyPrepares(t, blocks)
			continue
		}
		t.Run(strings.TrimSuffix(name, ".md"), func(t *testing.T) {
			t.Parallel()
			newReader(t, name, programs).follow(blocks)
		})
	}
}

// checkOnlyPrepares fails the test if the page with the preparations has a block without the directive that no test runs it.
func checkOnlyPrepares(t *testing.T, blocks []tutorial.Block) {
	for _, block := range blocks {
		if block.Directive != directiveCluster {
			t.Errorf("%s:%d: the block has the directive %q, want %q: no test runs this page", preparations, block.Line, block.Directive, directiveCluster)
		}
	}
}

// linkPrograms returns a folder with kubectl and serin, for PATH.
func linkPrograms(t *testing.T) string {
	folder := t.TempDir()
	if err := os.Symlink(serin, filepath.Join(folder, "serin")); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %q kubectl \"$@\"\n", shared.ControlPlane())
	if err := os.WriteFile(filepath.Join(folder, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// reader follows one tutorial: with a kubeconfig of their own, in the folder of the repository.
type reader struct {
	t    *testing.T
	page string
	env  []string
	// terminals are the outputs of the commands in the background.
	terminals []*terminal
}

// terminal records the output of a command in the background.
type terminal struct {
	script string

	mu   sync.Mutex
	text bytes.Buffer
}

func (o *terminal) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *terminal) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprintf("$ %s\n%s", o.script, o.text.String())
}

func newReader(t *testing.T, page, programs string) *reader {
	config, err := clientcmd.LoadFromFile(shared.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, page: page, env: []string{
		"PATH=" + programs + ":" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig, "GATEWAY=" + shared.GatewayURL, "PROMETHEUS=" + shared.PrometheusURL,
	}}
	t.Cleanup(func() { r.deleteNamespace(kubeconfig) })
	return r
}

// deleteNamespace deletes the namespace that the reader works in, unless the last commands of the tutorial did.
func (r *reader) deleteNamespace(kubeconfig string) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		r.t.Error(err)
		return
	}
	namespace := config.Contexts[config.CurrentContext].Namespace
	if namespace == metav1.NamespaceDefault || namespace == "" {
		return // the reader has not chosen one yet
	}
	err = shared.Client.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.t.Error(err)
	}
}

// follow runs the blocks in order.
func (r *reader) follow(blocks []tutorial.Block) {
	r.t.Helper()
	for _, block := range blocks {
		switch block.Directive {
		case "", directiveExample:
			for _, command := range block.Commands {
				if block.Directive == directiveExample {
					command.Output = nil
				}
				r.run(command)
			}
		case directiveBackground:
			for _, command := range block.Commands {
				r.start(command)
			}
		case directiveNGINX:
			r.env = append(r.env, "INGRESS="+requireNGINX(r.t))
		case directiveSkipper:
			r.env = append(r.env, "INGRESS="+startSkipper(r.t))
		default:
			r.t.Fatalf("%s:%d: the directive %q is not known here", r.page, block.Line, block.Directive)
		}
	}
}

// command returns a command of the page that runs in a process group of its own, because it may start others.
func (r *reader) command(ctx context.Context, bash ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "bash", bash...)
	command.Dir, command.Env = repository, append(os.Environ(), r.env...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	return command
}

// run runs a command to its end and compares its output with the page. A request through a router is repeated until the output
// is that of the page: a router serves a route a moment after its status reports it.
func (r *reader) run(c tutorial.Command) {
	r.t.Helper()
	var output []byte
	var err error
	start := time.Now()
	defer func() {
		r.t.Logf("%s:%d, %s\n$ %s\n%s", r.page, c.Line, time.Since(start).Round(time.Millisecond), c.Script, output)
		for _, terminal := range r.terminals {
			if r.t.Failed() {
				r.t.Log(terminal)
			}
		}
	}()
	once := func() error {
		if output, err = r.output(c); err != nil {
			return err
		}
		return c.CheckOutput(string(output))
	}
	if strings.HasPrefix(c.Script, "curl ") {
		waittest.Until(r.t, fmt.Sprintf("%s:%d shows the output of the page", r.page, c.Line), once)
	} else if err := once(); err != nil {
		r.t.Fatalf("%s:%d: %v", r.page, c.Line, err)
	}
}

// output runs a command once.
func (r *reader) output(c tutorial.Command) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), commandTimeout)
	defer cancel()
	return r.command(ctx, "-euo", "pipefail", "-c", c.Script).CombinedOutput()
}

// start starts a command that runs until the end of the test.
func (r *reader) start(c tutorial.Command) {
	r.t.Helper()
	output := &terminal{script: c.Script}
	ctx, stop := context.WithCancel(context.Background()) // not the test's, which ends before the cleanup
	command := r.command(ctx, "-c", c.Script)             // as in a terminal, an error does not end a loop
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		stop()
		r.t.Fatalf("%s:%d: %v", r.page, c.Line, err)
	}
	r.terminals = append(r.terminals, output)
	ended := make(chan struct{})
	var result error // valid once ended is closed
	go func() {
		defer close(ended)
		result = command.Wait()
	}()
	r.t.Cleanup(func() {
		defer func() { <-ended }()
		defer stop()
		select {
		case <-ended:
			r.t.Errorf("%s:%d: it ended before the tutorial: %v\n%s", r.page, c.Line, result, output)
		default:
		}
	})
}
