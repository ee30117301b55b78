package traffic

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
)

// ExperimentsAnnotation lists, on an object of the user, the destinations that are in it because of experiments. It is
// what tells them from the user's own, whatever the status of the Rollout came to say.
const ExperimentsAnnotation = "serin.dev/experiments"

// NoteAdded lists the destinations of experiments that are put into an object, and removes the list where there are none.
func NoteAdded(obj *unstructured.Unstructured, others []release.Destination) {
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

// AddedTo are the destinations of experiments in an object: those that it lists, and those that the status says were
// told to the router last, by whomever.
func AddedTo(t RolloutTarget, obj *unstructured.Unstructured) []string {
	names := t.Added()
	for name := range strings.SplitSeq(obj.GetAnnotations()[ExperimentsAnnotation], ",") {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" || name == t.CanaryService || name == t.StableService })
}
