package analysis

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// RunRequest describes the AnalysisRun that a Rollout or an Experiment needs.
type RunRequest struct {
	// Namespace of the run, and of its AnalysisTemplates.
	Namespace string
	// Name of the run. If another run has it, a number is appended; see launch.Launcher.
	Name string
	// Templates whose metrics the run combines.
	Templates []argov1.AnalysisTemplateRef
	// RunOptions contains the values of the arguments. For a Rollout, ResolveRolloutArguments returns them.
	RunOptions
	// Labels and Annotations of the run.
	Labels, Annotations map[string]string
	// Owner of the run: a controller reference.
	Owner metav1.OwnerReference
}

// TemplateLookup returns the content of a template. Users see its errors unchanged.
type TemplateLookup func(name string, cluster bool) (argov1.AnalysisTemplateSpec, error)

// ContradictionError is the error for templates or arguments that contradict each other. Users see its text unchanged.
type ContradictionError struct{ cause error }

func (e *ContradictionError) Error() string { return e.cause.Error() }

// Unwrap returns the contradiction.
func (e *ContradictionError) Unwrap() error { return e.cause }

// NewRun returns the requested AnalysisRun. It fails with the error of lookup, and with a ContradictionError if templates or
// arguments contradict each other.
func NewRun(request RunRequest, lookup TemplateLookup) (*argov1.AnalysisRun, error) {
	templates, err := CollectTemplates(request.Templates, lookup)
	if err != nil {
		return nil, err
	}
	spec, err := MergeTemplates(templates, request.RunOptions)
	if err != nil {
		return nil, &ContradictionError{cause: err}
	}
	return &argov1.AnalysisRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: request.Namespace, Name: request.Name, Labels: maps.Clone(request.Labels), Annotations: maps.Clone(request.Annotations),
			OwnerReferences: []metav1.OwnerReference{request.Owner},
		},
		Spec: spec,
	}, nil
}

// IsReusable reports whether an existing run can be used instead of a new one: it has the same owner and the same
// metrics, and is not complete. Such a run exists if an earlier reconciliation created it, but could not record its
// name in the status.
func IsReusable(existing, desired *argov1.AnalysisRun) bool {
	owner, wantedOwner := metav1.GetControllerOf(existing), metav1.GetControllerOf(desired)
	if existing.Status.Phase.Completed() || existing.DeletionTimestamp != nil || owner == nil || wantedOwner == nil || owner.UID != wantedOwner.UID {
		return false
	}
	a, b := existing.Spec, desired.Spec
	return equality.Semantic.DeepEqual(a.Metrics, b.Metrics) && equality.Semantic.DeepEqual(a.Args, b.Args) &&
		equality.Semantic.DeepEqual(a.DryRun, b.DryRun) && equality.Semantic.DeepEqual(a.MeasurementRetention, b.MeasurementRetention)
}

// ResolveRolloutArguments returns the values of the arguments that a Rollout passes to its analyses. rollout is its
// decoded JSON, stable and latest are the hashes of its two ReplicaSets. It fails if a field does not exist.
func ResolveRolloutArguments(args []argov1.AnalysisRunArgument, rollout map[string]any, stable, latest string) ([]argov1.Argument, error) {
	out := make([]argov1.Argument, 0, len(args))
	for _, arg := range args {
		value := arg.Value
		switch from := arg.ValueFrom; {
		case from == nil:
		case from.PodTemplateHashValue != nil && *from.PodTemplateHashValue == argov1.HashOfStable:
			value = stable
		case from.PodTemplateHashValue != nil && *from.PodTemplateHashValue == argov1.HashOfLatest:
			value = latest
		case from.FieldRef != nil:
			var err error
			if value, err = FieldValue(rollout, from.FieldRef.FieldPath); err != nil {
				return nil, err
			}
		}
		out = append(out, argov1.Argument{Name: arg.Name, Value: new(value)})
	}
	return out, nil
}
