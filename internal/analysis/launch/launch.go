// Package launch creates AnalysisRuns from templates, for Rollouts and Experiments.
//
// It knows where templates are stored, and how to choose a name if another run has it. It must not know the purpose of
// a run, or the consequence of its result.
package launch

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
)

// Launcher creates AnalysisRuns for the objects of one instance of the controller.
type Launcher struct {
	// Client creates runs and reads AnalysisTemplates.
	Client client.Client
	// ClusterTemplates reads ClusterAnalysisTemplates: from a cache, or from the API server if Serin watches only one
	// namespace.
	ClusterTemplates client.Reader
	// APIReader reads from the API server.
	APIReader client.Reader
	// InstanceID of the controller; empty: none. It ignores templates with another ID, and sets the ID on runs.
	InstanceID string
}

// StartRun creates the requested run, or returns the run that an earlier call created for the same request. The caller
// records the name of the run and may call StartRun again until that has succeeded. If another run has the name, a
// number is appended. StartRun fails with a TemplateNotFoundError if a template does not exist, with an
// analysis.ContradictionError if templates or arguments contradict each other, and if a request to the API server fails; see
// NeedsUser.
func (l *Launcher) StartRun(ctx context.Context, request analysis.RunRequest) (*argov1.AnalysisRun, error) {
	desired, err := analysis.NewRun(request, l.NewTemplateLookup(ctx, request.Namespace))
	if err != nil {
		return nil, err
	}
	if l.InstanceID != "" {
		if desired.Labels == nil {
			desired.Labels = map[string]string{}
		}
		desired.Labels[argov1.InstanceIDLabel] = l.InstanceID
	}
	for n := 1; ; n++ {
		created := desired.DeepCopy()
		err := l.Client.Create(ctx, created)
		if !apierrors.IsAlreadyExists(err) {
			if err != nil {
				return nil, fmt.Errorf("create AnalysisRun %s.%s: %w", desired.Name, desired.Namespace, err)
			}
			return created, nil
		}
		existing := &argov1.AnalysisRun{}
		if err := l.APIReader.Get(ctx, client.ObjectKeyFromObject(desired), existing); err != nil {
			return nil, fmt.Errorf("get AnalysisRun %s.%s: %w", desired.Name, desired.Namespace, err)
		}
		if analysis.IsReusable(existing, desired) {
			return existing, nil
		}
		desired.Name = fmt.Sprintf("%s.%d", request.Name, n)
	}
}

// NeedsUser reports whether an error of StartRun is the result of the request: StartRun fails with it again until the user changes
// the request or its templates. All other errors are transient, such as a lost connection to the API server.
func NeedsUser(err error) bool {
	_, missing := errors.AsType[*TemplateNotFoundError](err)
	_, contradiction := errors.AsType[*analysis.ContradictionError](err)
	return missing || contradiction || apierrors.IsInvalid(err)
}

// NewTemplateLookup returns a function that finds the templates that a namespace may use, for analysis.CollectTemplates
// and for the validation of references.
func (l *Launcher) NewTemplateLookup(ctx context.Context, namespace string) analysis.TemplateLookup {
	return func(name string, cluster bool) (argov1.AnalysisTemplateSpec, error) {
		if cluster {
			template := &argov1.ClusterAnalysisTemplate{}
			err := l.getTemplate(ctx, l.ClusterTemplates, client.ObjectKey{Name: name}, template, argov1.ClusterAnalysisTemplateKind)
			return template.Spec, err
		}
		template := &argov1.AnalysisTemplate{}
		err := l.getTemplate(ctx, l.Client, client.ObjectKey{Namespace: namespace, Name: name}, template, argov1.AnalysisTemplateKind)
		return template.Spec, err
	}
}

func (l *Launcher) getTemplate(ctx context.Context, reader client.Reader, key client.ObjectKey, into client.Object, kind string) error {
	err := reader.Get(ctx, key, into)
	switch {
	case apierrors.IsNotFound(err), err == nil && into.GetLabels()[argov1.InstanceIDLabel] != l.InstanceID:
		return &TemplateNotFoundError{Kind: kind, Name: key.Name}
	case err != nil:
		return fmt.Errorf("get %s %s: %w", kind, key, err)
	default:
		return nil
	}
}

// TemplateNotFoundError is the error for a template that does not exist. Its text is part of the API.
type TemplateNotFoundError struct{ Kind, Name string }

func (e *TemplateNotFoundError) Error() string {
	return fmt.Sprintf("%s '%s' not found", e.Kind, e.Name)
}
