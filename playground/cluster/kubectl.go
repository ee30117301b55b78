//go:build linux

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Kubectl runs kubectl with the given input and returns its standard output. An error contains its standard error.
func (c *Cluster) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, c.programs.controlPlane, append([]string{"kubectl"}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	command.Stdin = strings.NewReader(input)
	var errs bytes.Buffer
	command.Stderr = &errs
	output, err := command.Output()
	if err != nil {
		return string(output), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return string(output), nil
}

// Apply applies YAML manifests with server-side apply.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.Kubectl(ctx, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
}

// ApplyFolder applies the files of a folder, or one file, and waits until the CRDs of the cluster are established.
func (c *Cluster) ApplyFolder(ctx context.Context, folder string) error {
	if _, err := c.Kubectl(ctx, "", "apply", "--server-side", "--force-conflicts", "-f", folder); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	return err
}

// ControlPlane returns the path of the program with the subcommand kubectl, for StartProcess.
func (c *Cluster) ControlPlane() string { return c.programs.controlPlane }
