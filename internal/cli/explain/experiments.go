package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Experiments is the document of list experiments -o json and -o yaml. Fields are added to it, never renamed or removed.
type Experiments struct {
	// Experiments are sorted by namespace and name.
	Experiments []Experiment `json:"experiments"`
}

// Experiment describes one Experiment.
type Experiment struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Rollout is the name of the Rollout that it belongs to; empty: none.
	Rollout string `json:"rollout,omitempty"`
	// Phase is Pending until a controller has observed the Experiment.
	Phase   string `json:"phase"`
	Message string `json:"message,omitempty"`
	// Duration is spec.duration; empty: it ends with its analyses, or when it is terminated.
	Duration string `json:"duration,omitempty"`
	// AvailableAt is the time since which all pods have been available, at which the duration starts; zero: they are not yet.
	AvailableAt time.Time `json:"availableAt,omitzero"`
	// End is the time at which the duration elapses; zero: never, or not known yet.
	End     time.Time `json:"end,omitzero"`
	Created time.Time `json:"created"`
}

// IsRunning reports whether the Experiment has not ended.
func (e Experiment) IsRunning() bool { return !argov1.AnalysisPhase(e.Phase).Completed() }

// NewExperiments describes Experiments.
func NewExperiments(objects []argov1.Experiment) Experiments {
	out := Experiments{Experiments: make([]Experiment, 0, len(objects))}
	for i := range objects {
		object := &objects[i]
		e := Experiment{
			Name: object.Name, Namespace: object.Namespace, Rollout: RolloutOf(object), Created: toUTC(object.CreationTimestamp.Time),
			Phase: cmp.Or(string(object.Status.Phase), string(argov1.AnalysisPhasePending)), Message: object.Status.Message, Duration: string(object.Spec.Duration),
		}
		if at := object.Status.AvailableAt; at != nil {
			e.AvailableAt = toUTC(at.Time)
			if duration, err := time.ParseDuration(e.Duration); err == nil { // an invalid one is in the message of the status
				e.End = toUTC(at.Add(duration))
			}
		}
		out.Experiments = append(out.Experiments, e)
	}
	slices.SortFunc(out.Experiments, func(a, b Experiment) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// RolloutOf returns the name of the Rollout that controls an object; empty: none does.
func RolloutOf(object metav1.Object) string {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != argov1.RolloutKind {
		return ""
	}
	return owner.Name
}
