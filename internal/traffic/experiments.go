package traffic

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
)

// ExperimentsAnnotation lists, on an object of the user, the destinations that Serin added to it for experiments. It
// distinguishes them from the user's own, even if the status of the Rollout is lost.
const ExperimentsAnnotation = "serin.dev/experiments"

// RecordExperiments lists the destinations of experiments that are added to an object, and removes the list where there are
// none.
func RecordExperiments(obj *unstructured.Unstructured, others []release.Destination) {
	if len(others) == 0 {
		RemoveAnnotations(obj, ExperimentsAnnotation)
		return
	}
	names := make([]string, len(others))
	for i, d := range others {
		names[i] = d.Service
	}
	obj.SetAnnotations(merged(obj.GetAnnotations(), map[string]string{ExperimentsAnnotation: strings.Join(names, ",")}))
}

// ExperimentServices are the destinations of experiments in an object: those that it lists, and those that were set last
// according to the status, whichever controller set them.
func ExperimentServices(t Target, obj *unstructured.Unstructured) []string {
	var names []string
	if weights := t.Rollout.Status.Canary.Weights; weights != nil {
		for _, d := range weights.Additional {
			names = append(names, d.ServiceName)
		}
	}
	for name := range strings.SplitSeq(obj.GetAnnotations()[ExperimentsAnnotation], ",") {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" || name == t.CanaryService || name == t.StableService })
}
