package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/similar"
)

// This file creates AnalysisRuns from templates.

// AnalysisRunRequest describes the AnalysisRun that a user creates from a template.
type AnalysisRunRequest struct {
	// Template is an AnalysisTemplate or a ClusterAnalysisTemplate, of the cluster or of a file.
	Template *unstructured.Unstructured
	// Name of the run, or else GenerateName, or else the name of the template with a generated suffix.
	Name, GenerateName string
	// InstanceID is the ID of the controller that measures; empty: that of the template.
	InstanceID string
	// Args are the values of arguments.
	Args []argov1.Argument
}

// AnalysisTemplate reads a template. Errors: ErrNotFound, ErrUnreachable.
func (s *Session) AnalysisTemplate(ctx context.Context, namespace, kind, name string) (*unstructured.Unstructured, error) {
	template := &unstructured.Unstructured{}
	template.SetGroupVersionKind(argov1.SchemeGroupVersion.WithKind(kind))
	key, where := types.NamespacedName{Namespace: namespace, Name: name}, inNamespace(namespace)
	if kind == argov1.ClusterAnalysisTemplateKind {
		key.Namespace, where = "", ""
	}
	err := s.Client.Get(ctx, key, template)
	if !apierrors.IsNotFound(err) {
		return template, describeError("get "+kind+" "+name+where, err, explain.Kind(kind))
	}
	text := "there is no " + kind + " " + name + where
	all, _ := s.AnalysisTemplates(ctx, namespace) // without permission to list there is no suggestion
	var names []string
	for _, one := range all {
		switch {
		case one.Name == name: // of the other kind
			return nil, failure{ErrNotFound, err, text + ": use --from " + one.Argument()}
		case string(one.Kind) == kind:
			names = append(names, one.Name)
		}
	}
	if nearest := similar.To(name, names); nearest != "" {
		return nil, failure{ErrNotFound, err, text + ": did you mean " + nearest + "?"}
	}
	return nil, failure{ErrNotFound, err, text + ": list all with: kubectl get analysistemplates,clusteranalysistemplates" + strings.Replace(where, " in namespace", " -n", 1)}
}

// AnalysisTemplates returns the templates that a namespace may use and the user has permission to list. It is an error if none can
// be listed.
func (s *Session) AnalysisTemplates(ctx context.Context, namespace string) ([]Analysis, error) {
	var out []Analysis
	var failures []error
	for _, kind := range []string{argov1.AnalysisTemplateKind, argov1.ClusterAnalysisTemplateKind} {
		var options []client.ListOption
		if kind == argov1.AnalysisTemplateKind {
			options = append(options, client.InNamespace(namespace))
		}
		list := metadataList(argov1.SchemeGroupVersion.Group, argov1.SchemeGroupVersion.Version, kind)
		if err := s.Client.List(ctx, list, options...); err != nil {
			failures = append(failures, describeError("list "+plural(kind), err, explain.Kind(kind)))
			continue
		}
		if found, ok := list.(*metav1.PartialObjectMetadataList); ok {
			for i := range found.Items {
				out = append(out, Analysis{Kind: explain.Kind(kind), Name: found.Items[i].Name})
			}
		}
	}
	if len(failures) == 2 {
		return nil, mostSevere(failures)
	}
	return out, nil
}

// NewAnalysisRun returns the requested AnalysisRun of a namespace, with the metrics of the template and of those that it references.
// It creates nothing. The rules of the controller apply, because the API server accepts runs that it rejects. Errors: ErrRefused if
// an argument or the resulting run is invalid, ErrNotFound, ErrUnreachable.
func (s *Session) NewAnalysisRun(ctx context.Context, namespace string, request AnalysisRunRequest) (*unstructured.Unstructured, error) {
	of := request.Template.GetKind() + " " + request.Template.GetName()
	var template argov1.AnalysisTemplate // the spec of both kinds is the same
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(request.Template.Object, &template); err != nil {
		return nil, failure{ErrRefused, err, "read " + of + ": " + err.Error()}
	}
	instance := cmp.Or(request.InstanceID, request.Template.GetLabels()[argov1.InstanceIDLabel])
	launcher := launch.Launcher{Client: s.Client, ClusterTemplates: s.Client, APIReader: s.Client, InstanceID: instance}
	isCluster := request.Template.GetKind() == argov1.ClusterAnalysisTemplateKind
	lookup := launcher.NewTemplateLookup(ctx, namespace)
	root := argov1.AnalysisTemplateRef{TemplateName: request.Template.GetName(), ClusterScope: &isCluster}
	templates, err := analysis.CollectTemplates([]argov1.AnalysisTemplateRef{root}, func(name string, cluster bool) (argov1.AnalysisTemplateSpec, error) {
		if name == root.TemplateName && cluster == isCluster {
			return template.Spec, nil
		}
		return lookup(name, cluster)
	})
	if err != nil {
		return nil, describeReferenceError(of, instance, err)
	}
	if err := checkArguments(of, templates, request.Args); err != nil {
		return nil, err
	}
	spec, err := analysis.MergeTemplates(templates, analysis.RunOptions{Args: request.Args})
	if err == nil {
		_, err = analysis.ValidateRun(spec)
	}
	if err != nil {
		return nil, failure{ErrRefused, err, "create an AnalysisRun from " + of + ": " + err.Error()}
	}
	return newRunObject(namespace, instance, request, spec)
}

// describeReferenceError describes why a template that another one references could not be read.
func describeReferenceError(of, instance string, err error) error {
	missing, ok := errors.AsType[*launch.TemplateNotFoundError](err)
	if !ok {
		return describeError("read the templates that "+of+" references", err, argov1.AnalysisTemplateKind)
	}
	text := fmt.Sprintf("%s references %s %s, which does not exist", of, missing.Kind, missing.Name)
	if instance != "" { // the controller ignores templates of other instances
		text += " with the instance ID " + instance
	}
	return failure{ErrRefused, err, text + ": create it, or correct spec.templates"}
}

// newRunObject returns an AnalysisRun as it is sent to the API server.
func newRunObject(namespace, instance string, request AnalysisRunRequest, spec argov1.AnalysisRunSpec) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	if err != nil {
		return nil, fmt.Errorf("write the AnalysisRun: %w", err)
	}
	run := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	run.SetGroupVersionKind(argov1.SchemeGroupVersion.WithKind(argov1.AnalysisRunKind))
	run.SetNamespace(namespace)
	switch {
	case request.Name != "":
		run.SetName(request.Name)
	default:
		run.SetGenerateName(cmp.Or(request.GenerateName, request.Template.GetName()+"-"))
	}
	if instance != "" {
		run.SetLabels(map[string]string{argov1.InstanceIDLabel: instance})
	}
	return run, nil
}

// checkArguments checks that templates declare the arguments that the user passes, and that all others have values. The controller
// ignores arguments that no template declares; a user who passes one has mistyped it.
func checkArguments(of string, templates []analysis.Template, passed []argov1.Argument) error {
	var declared []string
	hasValue := map[string]bool{}
	for _, template := range templates {
		for _, arg := range template.Spec.Args {
			if !slices.Contains(declared, arg.Name) {
				declared = append(declared, arg.Name)
			}
			hasValue[arg.Name] = hasValue[arg.Name] || arg.Value != nil || arg.ValueFrom != nil
		}
	}
	for _, arg := range passed {
		hasValue[arg.Name] = true
		if slices.Contains(declared, arg.Name) {
			continue
		}
		text := fmt.Sprintf("%s has no argument %s", of, arg.Name)
		if nearest := similar.To(arg.Name, declared); nearest != "" {
			return failure{ErrRefused, nil, text + ": did you mean " + nearest + "?"}
		}
		if len(declared) == 0 {
			return failure{ErrRefused, nil, text + ": it has no arguments: omit --arg"}
		}
		return failure{ErrRefused, nil, text + ": its arguments are " + strings.Join(declared, ", ")}
	}
	var missing []string
	for _, name := range declared {
		if !hasValue[name] {
			missing = append(missing, "--arg "+name+"=VALUE")
		}
	}
	if len(missing) > 0 {
		return failure{ErrRefused, nil, of + " has arguments without a value: add " + strings.Join(missing, " ")}
	}
	return nil
}
