package dispatch

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/notification"
)

// About is the object that a notification is about.
type About struct {
	// Object is a Rollout, an AnalysisRun or an Experiment, as last stored.
	Object client.Object
	// Spec is the spec of a Rollout with the pod template of the referenced workload; nil: the spec of Object.
	Spec *argov1.RolloutSpec
	// Runs lists the AnalysisRuns of a Rollout; it is nil if there are none.
	Runs func(ctx context.Context) ([]argov1.AnalysisRun, error)
}

// objectKey identifies an object.
type objectKey struct {
	kind string
	types.NamespacedName
}

func (k objectKey) isRollout() bool { return k.kind == argov1.RolloutKind }

// String returns the kind and the name.
func (k objectKey) String() string { return k.kind + " " + k.NamespacedName.String() }

func (a About) key() objectKey {
	return objectKey{kind: kindOf(a.Object), NamespacedName: client.ObjectKeyFromObject(a.Object)}
}

// kindOf returns the kind of an object; objects from caches do not contain it.
func kindOf(object client.Object) string {
	switch object.(type) {
	case *argov1.AnalysisRun:
		return argov1.AnalysisRunKind
	case *argov1.Experiment:
		return argov1.ExperimentKind
	default: // all others are Rollouts
		return argov1.RolloutKind
	}
}

// newObject returns an empty object of a kind.
func newObject(kind string) client.Object {
	switch kind {
	case argov1.AnalysisRunKind:
		return &argov1.AnalysisRun{}
	case argov1.ExperimentKind:
		return &argov1.Experiment{}
	default: // see kindOf
		return &argov1.Rollout{}
	}
}

func (a About) copy() About {
	object, ok := a.Object.DeepCopyObject().(client.Object)
	if !ok { // no such kind exists
		return a
	}
	return About{Object: object}
}

// subject returns the labels and annotations of the object. Only Rollouts have the subscriptions of the configuration: most
// AnalysisRuns and Experiments belong to a Rollout, which reports their results too.
func (a About) subject() notification.Subject {
	return notification.Subject{
		Labels: a.Object.GetLabels(), Annotations: a.Object.GetAnnotations(), AnnotationsOnly: !a.key().isRollout(),
	}
}
