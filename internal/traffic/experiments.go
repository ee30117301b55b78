package traffic

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
)

// ExperimentsAnnotation lists, on an object of the user, the destinations that Serin added to it for experiments. It
// distinguishes them from the user's own, even if the status of the Rollout is lost. Several Rollouts may write into one object, so
// the value is a JSON object with one list for each of them, by namespace and name. Earlier versions wrote a single list, separated
// by commas.
const ExperimentsAnnotation = "serin.dev/experiments"

// RolloutKey identifies a Rollout in annotations of objects that several Rollouts may share.
func (t Target) RolloutKey() string { return t.Rollout.Namespace + "/" + t.Rollout.Name }

// RecordExperiments lists the destinations of experiments that the Rollout added to an object, and removes the list if there are
// none. The lists of other Rollouts are unchanged.
func RecordExperiments(t Target, obj *unstructured.Unstructured, others []release.Destination) {
	byRollout, _ := recordedExperiments(obj)
	delete(byRollout, t.RolloutKey())
	if len(others) > 0 {
		names := make([]string, len(others))
		for i, d := range others {
			names[i] = d.Service
		}
		byRollout[t.RolloutKey()] = names
	}
	text, err := json.Marshal(byRollout)
	if len(byRollout) == 0 || err != nil { // these types always marshal
		RemoveAnnotations(obj, ExperimentsAnnotation)
		return
	}
	obj.SetAnnotations(merged(obj.GetAnnotations(), map[string]string{ExperimentsAnnotation: string(text)}))
}

// recordedExperiments returns the lists of an object by Rollout, and the single list that an earlier version wrote.
func recordedExperiments(obj *unstructured.Unstructured) (byRollout map[string][]string, single []string) {
	text := obj.GetAnnotations()[ExperimentsAnnotation]
	if err := json.Unmarshal([]byte(text), &byRollout); err != nil {
		return map[string][]string{}, strings.Split(text, ",")
	}
	if byRollout == nil { // null
		byRollout = map[string][]string{}
	}
	return byRollout, nil
}

// ExperimentServices are the destinations of the Rollout's experiments in an object: those that it lists, and those that were set
// last according to the status, whichever controller set them.
func ExperimentServices(t Target, obj *unstructured.Unstructured) []string {
	var names []string
	if weights := t.Rollout.Status.Canary.Weights; weights != nil {
		for _, d := range weights.Additional {
			names = append(names, d.ServiceName)
		}
	}
	byRollout, single := recordedExperiments(obj)
	for _, name := range slices.Concat(byRollout[t.RolloutKey()], single) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" || name == t.CanaryService || name == t.StableService })
}
