package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
)

// workloadCommandHelp is the end of the help of all commands for workloads.
const workloadCommandHelp = "\n\nRequires permission to get and patch the object that has the template. The command and --reason are recorded in an Event of\n" +
	"the release.\n\n" + exitCodesHelp

// planner plans a command for the workload of one release.
type planner func(ctx context.Context, session *cluster.Session, namespace string, name cluster.Name) (*cluster.PlannedCommand, error)

// runWorkloadCommand plans and sends a command for the workload of a release.
func runWorkloadCommand(cmd *cobra.Command, c *commonFlags, flags commandFlags, name string, plan planner) error {
	session, sel, err := c.openSession(nil, []string{name})
	if err != nil {
		return err
	}
	planned, err := plan(cmd.Context(), session, sel.Namespace, sel.Names[0])
	if err != nil {
		return err
	}
	return sendCommand(cmd, session, planned, flags)
}

func newRestartCommand(connect connector) *cobra.Command {
	c, flags := commonFlags{connect: connect}, commandFlags{}
	var delay time.Duration
	cmd := &cobra.Command{
		Use: "restart NAME", Short: "Replace the pods of a release", Args: oneRelease,
		Long: "Sets spec.restartAt of a Rollout: its pods are replaced without a release. For a Canary, changes the template of its target as\n" +
			"kubectl rollout restart does: the same version is released with new pods." + workloadCommandHelp,
		Example: "  serin restart rollout/web -n shop\n  serin restart rollout/web -n shop --in 30m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if delay < 0 {
				return withExitCode(ExitUsage, fmt.Errorf("--in %s is negative: use a duration such as 30m", delay))
			}
			return runWorkloadCommand(cmd, &c, flags, args[0], func(ctx context.Context, session *cluster.Session, namespace string, name cluster.Name) (*cluster.PlannedCommand, error) {
				return session.PlanRestart(ctx, namespace, name, delay)
			})
		},
	}
	c.register(cmd, false)
	flags.register(cmd)
	cmd.Flags().DurationVarP(&delay, "in", "i", 0, "delay of the restart of a Rollout, such as 30m")
	return acceptKind(cmd)
}

func newUndoCommand(connect connector) *cobra.Command {
	c, flags, revision := commonFlags{connect: connect}, commandFlags{}, int64(0)
	cmd := &cobra.Command{
		Use: "undo NAME", Short: "Return a Rollout to an earlier revision", Args: oneRelease,
		Long: "Copies the pod template of an earlier ReplicaSet of a Rollout into its template, or into that of its workload. The release of\n" +
			"the earlier revision has the usual steps, unless that revision is still stable." + workloadCommandHelp,
		Example: "  serin undo web -n shop\n  serin undo web --to-revision 3",
		RunE: func(cmd *cobra.Command, args []string) error {
			if revision < 0 {
				return withExitCode(ExitUsage, fmt.Errorf("--to-revision %d is negative: use a revision such as 3, or 0 for the previous one", revision))
			}
			return runWorkloadCommand(cmd, &c, flags, args[0], func(ctx context.Context, session *cluster.Session, namespace string, name cluster.Name) (*cluster.PlannedCommand, error) {
				return session.PlanUndo(ctx, namespace, name, revision)
			})
		},
	}
	c.register(cmd, false)
	flags.register(cmd)
	cmd.Flags().Int64Var(&revision, "to-revision", 0, "the revision, as in the annotation rollout.argoproj.io/revision of its ReplicaSet; 0: the previous one")
	return acceptKind(cmd)
}

func newSetCommand(connect connector) *cobra.Command {
	set := &cobra.Command{
		Use: "set", Short: "Change the images of a release", Args: asUsageErrors(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withExitCode(ExitUsage, fmt.Errorf("%s changes nothing by itself: use %s image NAME CONTAINER=IMAGE", cmd.CommandPath(), cmd.CommandPath()))
		},
	}
	c, flags := commonFlags{connect: connect}, commandFlags{}
	image := &cobra.Command{
		Use: "image NAME CONTAINER=IMAGE...", Short: "Release other images",
		Long: "Changes images in the pod template of a Rollout, of its workload, or of the target of a Canary, which starts a release. The\n" +
			"container * stands for all containers except init containers." + workloadCommandHelp,
		Example: "  serin set image cart cart=serin.dev/demo:v2 -n shop && serin watch cart -n shop --until done",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return withExitCode(ExitUsage, fmt.Errorf("the name or an image is missing: %s NAME CONTAINER=IMAGE", cmd.CommandPath()))
			}
			_, err := parseImages(args[1:])
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			images, err := parseImages(args[1:])
			if err != nil {
				return err
			}
			return runWorkloadCommand(cmd, &c, flags, args[0], func(ctx context.Context, session *cluster.Session, namespace string, name cluster.Name) (*cluster.PlannedCommand, error) {
				return session.PlanSetImage(ctx, namespace, name, images)
			})
		},
	}
	c.register(image, false)
	flags.register(image)
	set.AddCommand(acceptKind(image))
	return set
}

// parseImages parses the arguments CONTAINER=IMAGE.
func parseImages(args []string) (map[string]string, error) {
	images := map[string]string{}
	for _, arg := range args {
		container, image, ok := strings.Cut(arg, "=")
		if !ok || container == "" || image == "" {
			return nil, withExitCode(ExitUsage, fmt.Errorf("%q is no image: use CONTAINER=IMAGE, such as cart=serin.dev/demo:v2", arg))
		}
		if other, twice := images[container]; twice && other != image {
			return nil, withExitCode(ExitUsage, fmt.Errorf("container %s has two images, %s and %s: use one", container, other, image))
		}
		images[container] = image
	}
	return images, nil
}
