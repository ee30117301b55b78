package analysis

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Order is what whoever needs a run says of it.
type Order struct {
	// Namespace of the run, and of its templates that are not the cluster's.
	Namespace string
	// Name that the run gets, unless an earlier run has it; see launch.Launcher.
	Name string
	// Templates whose metrics are run together.
	Templates []argov1.AnalysisTemplateRef
	// Caller has the values of the arguments; those of a Rollout come from RolloutArguments.
	Caller
	// Labels and Annotations of the run.
	Labels, Annotations map[string]string
	// Owner of the run, a controller reference.
	Owner metav1.OwnerReference
}

// Lookup gives the content of a template; its errors are shown as they are.
type Lookup func(name string, cluster bool) (argov1.AnalysisTemplateSpec, error)

// NewRun is the run that an order asks for. Errors: those of get, and of templates or arguments that do not go together.
func NewRun(o Order, get Lookup) (*argov1.AnalysisRun, error) {
	templates, err := Collect(o.Templates, get)
	if err != nil {
		return nil, err
	}
	spec, err := Merge(templates, o.Caller)
	if err != nil {
		return nil, err
	}
	return &argov1.AnalysisRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, Labels: maps.Clone(o.Labels), Annotations: maps.Clone(o.Annotations),
			OwnerReferences: []metav1.OwnerReference{o.Owner},
		},
		Spec: spec,
	}, nil
}

// Serves is true of an existing run that does what a new one would: of the same owner, with the same metrics, and not
// over. It is what remains of a pass that made the run and could not write down that it did.
func Serves(existing, wanted *argov1.AnalysisRun) bool {
	of, by := metav1.GetControllerOf(existing), metav1.GetControllerOf(wanted)
	if existing.Status.Phase.Completed() || existing.DeletionTimestamp != nil || of == nil || by == nil || of.UID != by.UID {
		return false
	}
	a, b := existing.Spec, wanted.Spec
	return equality.Semantic.DeepEqual(a.Metrics, b.Metrics) && equality.Semantic.DeepEqual(a.Args, b.Args) &&
		equality.Semantic.DeepEqual(a.DryRun, b.DryRun) && equality.Semantic.DeepEqual(a.MeasurementRetention, b.MeasurementRetention)
}

// RolloutArguments are the values that a Rollout gives to the arguments of its analyses. Rollout is the tree that its
// JSON has, stable and latest are the hashes of its two ReplicaSets. Errors: a field that is not there.
func RolloutArguments(args []argov1.AnalysisRunArgument, rollout map[string]any, stable, latest string) ([]argov1.Argument, error) {
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
			if value, err = Field(rollout, from.FieldRef.FieldPath); err != nil {
				return nil, err
			}
		}
		out = append(out, argov1.Argument{Name: arg.Name, Value: new(value)})
	}
	return out, nil
}
