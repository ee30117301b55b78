package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/cli/cluster"
)

func newCreateCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	var files []string
	recursive, dryRun := false, false
	cmd := &cobra.Command{
		Use: "create -f FILE...", Short: "Create releases, templates, AnalysisRuns and Experiments", Args: asUsageErrors(cobra.NoArgs),
		Long: `Creates Canaries, Rollouts, AnalysisRuns, Experiments and their templates from manifests, with metadata.name or
metadata.generateName. All manifests are read before the first object is created; the API server refuses fields that the
definition does not have. Objects of other API groups are refused: use kubectl create.

` + exitCodesHelp,
		Example: "  serin create -f smoke-test.yaml -n shop\n  helm template . -s templates/rollout.yaml | serin create -f - --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			objects, err := readObjects(cmd, files, recursive)
			if err != nil {
				return withExitCode(ExitUsage, err)
			}
			session, sel, err := c.openSession(nil, nil)
			if err != nil {
				return err
			}
			for _, object := range objects {
				if own := object.GetNamespace(); own != "" && own != sel.Namespace && cmd.Flags().Changed("namespace") {
					return withExitCode(ExitUsage, fmt.Errorf("%s %s is in namespace %s, but -n is %s: omit -n, or correct metadata.namespace",
						object.GetKind(), cmp.Or(object.GetName(), object.GetGenerateName()), own, sel.Namespace))
				}
			}
			return createObjects(cmd, session, objects, sel.Namespace, dryRun)
		},
	}
	c.registerConnection(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "files or directories with manifests; - reads the standard input")
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "read directories recursively")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "let the API server validate the objects, and create nothing")
	cmd.AddCommand(newCreateAnalysisRunCommand(connect))
	return cmd
}

// readObjects reads the objects of all files.
func readObjects(cmd *cobra.Command, files []string, recursive bool) ([]*unstructured.Unstructured, error) {
	if len(files) == 0 {
		return nil, errors.New("no manifests: name files or directories with -f, or use -f - for the standard input")
	}
	var out []*unstructured.Unstructured
	for _, name := range files {
		inputs, err := readManifests(name, recursive, cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		for _, input := range inputs {
			objects, err := cluster.ReadObjects(input.Text)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", input.Name, err)
			}
			out = append(out, objects...)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the manifests contain no objects")
	}
	return out, nil
}

// createObjects creates objects in their order, up to the first that fails.
func createObjects(cmd *cobra.Command, session *cluster.Session, objects []*unstructured.Unstructured, namespace string, dryRun bool) error {
	for _, object := range objects {
		if err := session.Create(cmd.Context(), object, namespace, dryRun); err != nil {
			return err
		}
		if err := printCreated(cmd, output{}, object, dryRun); err != nil {
			return err
		}
	}
	return nil
}

// resourceOf returns the singular resource of an object with its group, as kubectl prints it.
func resourceOf(object *unstructured.Unstructured) string {
	return strings.ToLower(object.GetKind()) + "." + object.GroupVersionKind().Group
}
