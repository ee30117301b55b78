package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/cluster"
)

// templateKindWords contains the words for the kinds of templates of analyses, in --from.
var templateKindWords = map[string][]string{
	argov1.AnalysisTemplateKind:        {"analysistemplate", "at", "analysistemplates", "analysistemplate.argoproj.io", "analysistemplates.argoproj.io"},
	argov1.ClusterAnalysisTemplateKind: {"clusteranalysistemplate", "cat", "clusteranalysistemplates", "clusteranalysistemplate.argoproj.io", "clusteranalysistemplates.argoproj.io"},
}

// createRunFlags are the flags of create analysisrun. Their names are those of the command of Argo Rollouts.
type createRunFlags struct {
	from, fromFile                 string
	global, dryRun                 bool
	name, generateName, instanceID string
	args                           []string
	output                         string
}

// analysisRunFormats are the output formats of create analysisrun.
var analysisRunFormats = []string{formatTable, formatJSON, formatYAML, formatName, formatJSONPath}

func newCreateAnalysisRunCommand(connect connector) *cobra.Command {
	c, f := commonFlags{connect: connect}, createRunFlags{}
	cmd := &cobra.Command{
		Use: "analysisrun --from TEMPLATE", Aliases: []string{"ar"}, Short: "Create an AnalysisRun from a template", Args: asUsageErrors(cobra.NoArgs),
		Long: `Creates an AnalysisRun with the metrics of an AnalysisTemplate or a ClusterAnalysisTemplate, and of the templates that it
references. The run is checked with the rules of the controller before it is created, and arguments that the template does not
declare are refused. Without --name, the name is that of the template with a generated suffix.

` + exitCodesHelp,
		Example: "  serin create analysisrun --from success-rate --arg service=cart -n shop\n" +
			"  serin create analysisrun --from clusteranalysistemplate/success-rate -a service=cart -o yaml --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			output, err := parseOutput(f.output, analysisRunFormats)
			if err != nil {
				return err
			}
			kind, name, args, err := f.parse()
			if err != nil {
				return withExitCode(ExitUsage, err)
			}
			request := cluster.AnalysisRunRequest{Name: f.name, GenerateName: f.generateName, InstanceID: f.instanceID, Args: args}
			if f.fromFile != "" {
				if request.Template, err = f.readTemplate(cmd); err != nil {
					return withExitCode(ExitUsage, err)
				}
			}
			session, sel, err := c.openSession(nil, nil)
			if err != nil {
				return err
			}
			if request.Template == nil {
				if request.Template, err = session.AnalysisTemplate(cmd.Context(), sel.Namespace, kind, name); err != nil {
					return err
				}
			}
			run, err := session.NewAnalysisRun(cmd.Context(), sel.Namespace, request)
			if err == nil {
				err = session.Create(cmd.Context(), run, sel.Namespace, f.dryRun)
			}
			switch {
			case apierrors.IsAlreadyExists(err):
				return withExitCode(ExitUsage, fmt.Errorf("AnalysisRun %s already exists in namespace %s: use another --name, or --generate-name", f.name, sel.Namespace))
			case err != nil:
				return err
			}
			return printCreated(cmd, output, run, f.dryRun)
		},
	}
	c.registerConnection(cmd)
	f.register(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	completeFlag(cmd, "from", c.completeTemplates)
	return cmd
}

func (f *createRunFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "template in the cluster: NAME or analysistemplate/NAME, or clusteranalysistemplate/NAME")
	flags.StringVar(&f.fromFile, "from-file", "", "file with the template, in place of --from; - reads the standard input")
	flags.BoolVar(&f.global, "global", false, "--from names a ClusterAnalysisTemplate")
	flags.StringArrayVarP(&f.args, "arg", "a", nil, "value of an argument of the template, as NAME=VALUE; can be repeated")
	flags.StringVar(&f.name, "name", "", "name of the run")
	flags.StringVar(&f.generateName, "generate-name", "", "beginning of the generated name of the run")
	flags.StringVar(&f.instanceID, "instance-id", "", "instance ID of the controller that measures; default: that of the template")
	flags.BoolVar(&f.dryRun, "dry-run", false, "let the API server validate the run, and create nothing")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "argument" { // of the command of Argo Rollouts
			name = "arg"
		}
		return pflag.NormalizedName(name)
	})
	registerOutput(cmd, &f.output, analysisRunFormats)
}

// parse returns the kind and the name of the template, and the arguments.
func (f *createRunFlags) parse() (kind, name string, args []argov1.Argument, err error) {
	if (f.from == "") == (f.fromFile == "") {
		return "", "", nil, errors.New("use either --from TEMPLATE or --from-file FILE")
	}
	if f.name != "" && f.generateName != "" {
		return "", "", nil, errors.New("--name and --generate-name exclude each other")
	}
	for _, text := range f.args {
		name, value, found := strings.Cut(text, "=")
		if !found || name == "" {
			return "", "", nil, fmt.Errorf("--arg %q is invalid: use NAME=VALUE", text)
		}
		if slices.ContainsFunc(args, func(a argov1.Argument) bool { return a.Name == name }) {
			return "", "", nil, fmt.Errorf("--arg %s occurs twice: omit one of them", name)
		}
		args = append(args, argov1.Argument{Name: name, Value: &value})
	}
	if f.from == "" {
		return "", "", args, nil
	}
	word, name, hasKind := strings.Cut(f.from, "/")
	if !hasKind {
		kind, name = argov1.AnalysisTemplateKind, f.from
		if f.global {
			kind = argov1.ClusterAnalysisTemplateKind
		}
		return kind, name, args, nil
	}
	for kind, words := range templateKindWords {
		if !slices.Contains(words, strings.ToLower(word)) || name == "" || strings.Contains(name, "/") {
			continue
		}
		if f.global && kind != argov1.ClusterAnalysisTemplateKind {
			return "", "", nil, fmt.Errorf("--global contradicts --from %s: omit one of them", f.from)
		}
		return kind, name, args, nil
	}
	return "", "", nil, fmt.Errorf("--from %q is not a template: use NAME, analysistemplate/NAME or clusteranalysistemplate/NAME", f.from)
}

// readTemplate reads the template of --from-file.
func (f *createRunFlags) readTemplate(cmd *cobra.Command) (*unstructured.Unstructured, error) {
	file := f.fromFile
	objects, err := readObjects(cmd, []string{file}, false)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		_, isTemplate := templateKindWords[o.GetKind()]
		return !isTemplate
	})
	switch {
	case len(objects) != 1:
		return nil, fmt.Errorf("read %s: it contains %d AnalysisTemplates and ClusterAnalysisTemplates: name a file with one", file, len(objects))
	case objects[0].GetName() == "":
		return nil, fmt.Errorf("read %s: set metadata.name of the %s", file, objects[0].GetKind())
	case f.global && objects[0].GetKind() != argov1.ClusterAnalysisTemplateKind:
		return nil, fmt.Errorf("--global contradicts the %s in %s: omit one of them", objects[0].GetKind(), file)
	}
	if err := cluster.CheckFields(objects[0]); err != nil { // the run would not have them
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return objects[0], nil
}

// printCreated prints a created object.
func printCreated(cmd *cobra.Command, output output, object *unstructured.Unstructured, dryRun bool) error {
	name := resourceOf(object) + "/" + object.GetName()
	switch {
	case output.isDocument():
		object.SetManagedFields(nil) // as kubectl
		return output.printDocument(cmd.OutOrStdout(), object.Object)
	case output.format == formatName:
	default:
		name += " created"
		if dryRun {
			name += dryRunMark
		}
	}
	_, err := fmt.Fprintln(plainOut(cmd), name)
	return err
}

// completeTemplates completes the names of templates, with their kind if it is required.
func (c *commonFlags) completeTemplates(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	found := askCluster(cmd.Context(), c, func(ctx context.Context, session *cluster.Session, namespace string) ([]cluster.Analysis, error) {
		return session.AnalysisTemplates(ctx, namespace)
	})
	var out []cobra.Completion
	for _, one := range found {
		text := one.Name
		if string(one.Kind) == argov1.ClusterAnalysisTemplateKind || strings.Contains(toComplete, "/") {
			text = one.Argument()
		}
		if strings.HasPrefix(text, toComplete) {
			out = append(out, cobra.CompletionWithDesc(text, string(one.Kind)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
