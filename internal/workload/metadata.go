package workload

import (
	"maps"
	"strings"

	"github.com/serin-dev/serin/internal/toolkeys"
)

// Annotations that are read or written here.
const (
	// idAnnotation on the primary's pod template changes with every promotion, so that every promotion is a rollout.
	idAnnotation = "flagger-id"
	// trackingAnnotation on a ConfigMap or Secret, with a value that starts with disable, keeps it from being tracked.
	trackingAnnotation = "flagger.app/config-tracking"
	// originalAnnotation keeps what a Service of the user was when it was taken over.
	originalAnnotation = "serin.dev/original"
	// runsAnnotation on the primary says what its template was made of. Kubernetes hands it on to the object that remembers
	// that template.
	runsAnnotation = "serin.dev/runs"
	// promotionAnnotation names the promotion before which the content of a configuration was kept.
	promotionAnnotation = "serin.dev/promotion"

	lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"
	revisionAnnotation    = "deployment.kubernetes.io/revision"
)

// guards keep Flux from undoing what is written to a generated Service.
var guards = map[string]string{
	"kustomize.toolkit.fluxcd.io/reconcile": "disabled",
	"helm.toolkit.fluxcd.io/driftDetection": "disabled",
}

// copiedAnnotations are the annotations that a copy takes from its source: all that belong to no tool. The rule is the
// same at creation and at promotion.
func copiedAnnotations(source map[string]string) map[string]string {
	return without(source, toolkeys.Is)
}

// copiedLabels are the labels that a copy takes from its source: those with a prefix that was asked for. Labels select;
// carried over unasked they would make the copy a member of sets it does not belong to.
func (o Options) copiedLabels(source map[string]string) map[string]string {
	return without(source, func(key string) bool { return !toolkeys.Asked(key, o.IncludePrefixes) })
}

func without(source map[string]string, drop func(string) bool) map[string]string {
	kept := make(map[string]string, len(source))
	for key, value := range source {
		if !drop(key) {
			kept[key] = value
		}
	}
	return kept
}

// replaced are the labels or annotations of a copy after it was brought up to date: those that are wanted, and what
// Kubernetes and Serin keep on the copy itself.
func replaced(current, wanted map[string]string) map[string]string {
	merged := without(current, func(key string) bool {
		return !toolkeys.Kubernetes(key) && !strings.HasPrefix(key, "serin.dev/")
	})
	maps.Copy(merged, wanted)
	return merged
}
