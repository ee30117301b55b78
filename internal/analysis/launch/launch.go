// Package launch makes AnalysisRuns of templates, for whoever needs a run: a Rollout or an Experiment.
//
// It knows where templates are and what becomes of a name that is taken. It must not know what a run is for, or what its
// outcome leads to.
package launch

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
)

// Launcher makes runs for the objects of one instance of the controller.
type Launcher struct {
	// Client makes the runs and reads the templates of namespaces.
	Client client.Client
	// Cluster reads the templates of the cluster: a client with caches, or, where only one namespace is watched, one without.
	Cluster client.Reader
	// Live reads from the API server.
	Live client.Reader
	// InstanceID of the controller; templates of others are not seen, and the runs carry it. Empty: it has none.
	InstanceID string
}

// Start makes the run that is ordered, or gives the one that an earlier pass made of the same order: the caller writes
// its name down, and may call again until it has. A name that another run has gets a number behind it. Errors: a template
// that is not there, as the sentence that users are told (MissingError), templates and arguments that do not go together, and
// those of the API server.
func (l *Launcher) Start(ctx context.Context, o analysis.Order) (*argov1.AnalysisRun, error) {
	wanted, err := analysis.NewRun(o, l.Lookup(ctx, o.Namespace))
	if err != nil {
		return nil, err
	}
	if l.InstanceID != "" {
		if wanted.Labels == nil {
			wanted.Labels = map[string]string{}
		}
		wanted.Labels[argov1.InstanceIDLabel] = l.InstanceID
	}
	for n := 1; ; n++ {
		made := wanted.DeepCopy()
		err := l.Client.Create(ctx, made)
		if !apierrors.IsAlreadyExists(err) {
			if err != nil {
				return nil, fmt.Errorf("create AnalysisRun %s.%s: %w", wanted.Name, wanted.Namespace, err)
			}
			return made, nil
		}
		existing := &argov1.AnalysisRun{}
		if err := l.Live.Get(ctx, client.ObjectKeyFromObject(wanted), existing); err != nil {
			return nil, fmt.Errorf("get AnalysisRun %s.%s: %w", wanted.Name, wanted.Namespace, err)
		}
		if analysis.Serves(existing, wanted) {
			return existing, nil
		}
		wanted.Name = fmt.Sprintf("%s.%d", o.Name, n)
	}
}

// Lookup finds the templates that a namespace may use, for analysis.Collect and whoever validates references.
func (l *Launcher) Lookup(ctx context.Context, namespace string) analysis.Lookup {
	return func(name string, cluster bool) (argov1.AnalysisTemplateSpec, error) {
		if cluster {
			template := &argov1.ClusterAnalysisTemplate{}
			err := l.find(ctx, l.Cluster, client.ObjectKey{Name: name}, template, argov1.ClusterAnalysisTemplateKind)
			return template.Spec, err
		}
		template := &argov1.AnalysisTemplate{}
		err := l.find(ctx, l.Client, client.ObjectKey{Namespace: namespace, Name: name}, template, argov1.AnalysisTemplateKind)
		return template.Spec, err
	}
}

func (l *Launcher) find(ctx context.Context, reader client.Reader, key client.ObjectKey, into client.Object, kind string) error {
	err := reader.Get(ctx, key, into)
	switch {
	case apierrors.IsNotFound(err), err == nil && into.GetLabels()[argov1.InstanceIDLabel] != l.InstanceID:
		return &MissingError{Kind: kind, Name: key.Name}
	case err != nil:
		return fmt.Errorf("get %s %s: %w", kind, key, err)
	default:
		return nil
	}
}

// MissingError says that a template is not there. Its text is part of the API.
type MissingError struct{ Kind, Name string }

func (e *MissingError) Error() string { return fmt.Sprintf("%s '%s' not found", e.Kind, e.Name) }
