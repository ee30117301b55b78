package workload

import (
	"maps"
	"strings"

	"github.com/serin-dev/serin/internal/toolkeys"
)

// Annotations that are read or written in this package.
const (
	// promotionIDAnnotation on the primary's pod template changes with every promotion, so that each of them creates new pods.
	promotionIDAnnotation = "flagger-id"
	// trackingAnnotation on a ConfigMap or Secret disables its tracking, if the value starts with disable.
	trackingAnnotation = "flagger.app/config-tracking"
	// originalAnnotation contains the state of a user's Service before the takeover, and the Canary that took it over.
	originalAnnotation = "serin.dev/original"
	// templateSourceAnnotation on the primary contains the source of its template. Kubernetes copies it to the object of the
	// history with that template.
	templateSourceAnnotation = "serin.dev/runs"
	// promotionAnnotation on stored previous content contains the ID of the promotion that replaced it.
	promotionAnnotation = "serin.dev/promotion"

	lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"
	revisionAnnotation    = "deployment.kubernetes.io/revision"
)

// fluxGuards stop Flux from reverting writes to a generated Service.
var fluxGuards = map[string]string{
	"kustomize.toolkit.fluxcd.io/reconcile": "disabled",
	"helm.toolkit.fluxcd.io/driftDetection": "disabled",
}

// copiedAnnotations returns the annotations that are copied from the source: all that belong to no tool. The rule is the same at
// creation and at promotion.
func copiedAnnotations(source map[string]string) map[string]string {
	return withoutKeys(source, toolkeys.IsToolKey)
}

// copiedLabels returns the labels that are copied from the source: those with a configured prefix. If all labels were copied, the
// copy would match selectors for the source.
func (o Options) copiedLabels(source map[string]string) map[string]string {
	return withoutKeys(source, func(key string) bool { return !toolkeys.MatchesPrefix(key, o.IncludePrefixes) })
}

func withoutKeys(source map[string]string, drop func(string) bool) map[string]string {
	remaining := make(map[string]string, len(source))
	for key, value := range source {
		if !drop(key) {
			remaining[key] = value
		}
	}
	return remaining
}

// mergedMetadata returns the labels or annotations of an updated copy: the desired ones, and those that Kubernetes and Serin
// set on the copy itself.
func mergedMetadata(current, wanted map[string]string) map[string]string {
	merged := withoutKeys(current, func(key string) bool {
		return !toolkeys.IsKubernetesAnnotation(key) && !strings.HasPrefix(key, "serin.dev/")
	})
	maps.Copy(merged, wanted)
	return merged
}
