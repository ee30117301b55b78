//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

var (
	analysisTemplates = argov1.SchemeGroupVersion.WithResource("analysistemplates")
	ingressRoutes     = schema.GroupVersionResource{Group: "traefik.io", Version: "v1alpha1", Resource: "ingressroutes"}
)

// swapState is a state in which Rollout cart can be when one controller replaces the other.
type swapState struct {
	manifests func(t *testing.T) string
	// reach brings the idle Rollout from v1 to the state, and waitUntilReached waits until the Rollout is in the state.
	reach, waitUntilReached func(s *environment)
	// finish lets the release succeed.
	finish func(s *environment)
	// pods contains the number of pods of each version after the release.
	pods string
	// host is the host name of the route, if there is one.
	host string
	// measurements is the number of measurements of the analysis; 0: there is no analysis with a limited number.
	measurements int32
}

// withHost returns the state with another host, because one gateway serves all tests.
func (p swapState) withHost(host string) swapState {
	if p.host == "" {
		return p
	}
	manifests, before := p.manifests, p.host
	p.host = host
	p.manifests = func(t *testing.T) string { return strings.ReplaceAll(manifests(t), before, host) }
	return p
}

const cartServices = `
apiVersion: v1
kind: Service
metadata: {name: cart-one}
spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart-two}
spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: http}]}
---
`

// traefikRoute returns a route of Traefik, whose API both controllers support.
func traefikRoute(host, services string) string {
	return fmt.Sprintf(`
apiVersion: traefik.io/v1alpha1
kind: TraefikService
metadata: {name: cart}
spec: {weighted: {services: [%s]}}
---
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: {name: cart}
spec:
  entryPoints: [web]
  routes:
  - kind: Rule
    match: Host(`+"`%s`"+`)
    services: [{kind: TraefikService, name: cart}]
---
`, services, host)
}

const (
	bothServices = `{name: cart-one, port: 80}, {name: cart-two, port: 80}`
	byTraefik    = `stableService: cart-one, canaryService: cart-two, trafficRouting: {traefik: {weightedTraefikServiceName: cart}}`
	measurements = 20
)

// alwaysSuccessful returns an AnalysisTemplate whose measurements are always successful. count is the field with their number, or
// empty for an unlimited number.
func alwaysSuccessful(name, count string) string {
	return fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: AnalysisTemplate
metadata: {name: %s}
spec:
  metrics:
  - {name: well, interval: 2s, %s successCondition: "result[0] == 1", provider: {prometheus: {address: %q, query: vector(1)}}}
---
`, name, count, shared.PrometheusURL)
}

// countField returns the field of a metric that limits its measurements.
func countField() string { return fmt.Sprintf("count: %d,", measurements) }

// routedCart returns a function that returns Rollout cart with the strategy, its Services and its route.
func routedCart(host, strategy string) func(*testing.T) string {
	return func(t *testing.T) string {
		return cartServices + traefikRoute(host, bothServices) + rolloutManifest(t, "cart", 4, strategy)
	}
}

// swapStates returns the states in which one controller may replace the other, by name.
func swapStates() map[string]swapState {
	releaseV2 := func(s *environment) { s.releaseVersion("cart", "v2") }
	waitUntilPaused := func(s *environment) { s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep") }
	endPause := func(s *environment) { s.patchRolloutStatus("cart", `{"pauseConditions":null}`) }
	waitForWeight := func(weight int) func(*environment) { return func(s *environment) { s.waitForPausedAt(weight) } }
	const twoSteps = `steps: [{setWeight: 20}, {pause: {}}, {setWeight: 60}, {pause: {}}]`
	return map[string]swapState{
		"at-rest": {
			manifests: func(t *testing.T) string { return rolloutManifest(t, "cart", 4, pausingStrategy) },
			reach: func(s *environment) {
				releaseV2(s)
				waitUntilPaused(s)
				s.patchRolloutStatus("cart", `{"promoteFull":true}`)
			},
			waitUntilReached: func(s *environment) {
				s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
				s.waitForPods("cart", "v2=4")
			},
			finish: func(s *environment) { s.releaseVersion("cart", "v3"); waitUntilPaused(s); endPause(s) },
			pods:   "v3=4",
		},
		"paused": {
			manifests: func(t *testing.T) string { return rolloutManifest(t, "cart", 4, pausingStrategy) },
			reach:     releaseV2, waitUntilReached: waitUntilPaused, finish: endPause, pods: "v2=4",
		},
		"weighted": {
			manifests: routedCart("weighted.test", `{canary: {`+byTraefik+`, `+twoSteps+`}}`), host: "weighted.test",
			reach: releaseV2, waitUntilReached: waitForWeight(20), finish: func(s *environment) { endPause(s); waitForWeight(60)(s); endPause(s) }, pods: "v2=4",
		},
		"dynamic": {
			manifests: routedCart("dynamic.test", `{canary: {`+byTraefik+`, dynamicStableScale: true, `+twoSteps+`}}`), host: "dynamic.test",
			reach:            func(s *environment) { releaseV2(s); waitForWeight(20)(s); endPause(s) },
			waitUntilReached: func(s *environment) { waitForWeight(60)(s); s.waitForPods("cart", "v1=2 v2=3") },
			finish:           endPause, pods: "v2=4",
		},
		"aborted": {
			manifests: routedCart("aborted.test", `{canary: {`+byTraefik+`, abortScaleDownDelaySeconds: 600, `+twoSteps+`}}`), host: "aborted.test",
			reach: func(s *environment) {
				releaseV2(s)
				waitForWeight(20)(s)
				s.patchRolloutStatus("cart", `{"abort":true}`)
			},
			waitUntilReached: func(s *environment) {
				s.waitForRolloutPhase("cart", argov1.RolloutPhaseDegraded, "RolloutAborted")
				s.waitForPods("cart", "v1=4 v2=1")
			},
			finish: func(s *environment) {
				s.patchRolloutStatus("cart", `{"abort":false}`)
				waitForWeight(20)(s)
				s.patchRolloutStatus("cart", `{"promoteFull":true}`)
			},
			pods: "v2=4",
		},
		"analysing": {
			manifests: func(t *testing.T) string {
				return alwaysSuccessful("beside", "") + alwaysSuccessful("between", countField()) + routedCart("analysing.test", `{canary: {`+byTraefik+`,
				  analysis: {startingStep: 1, templates: [{templateName: beside}]},
				  steps: [{setWeight: 20}, {analysis: {templates: [{templateName: between}]}}, {setWeight: 60}, {pause: {}}]}}`)(t)
			},
			host: "analysing.test", reach: releaseV2, waitUntilReached: func(s *environment) { s.waitForMeasurements(2, 2) }, measurements: measurements,
			finish: func(s *environment) { waitForWeight(60)(s); endPause(s) }, pods: "v2=4",
		},
		"blue-green": {
			manifests: func(t *testing.T) string {
				return cartServices + rolloutManifest(t, "cart", 2, `{blueGreen: {activeService: cart-one, previewService: cart-two, autoPromotionEnabled: false, scaleDownDelaySeconds: 600}}`)
			},
			reach: releaseV2, waitUntilReached: func(s *environment) {
				s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "BlueGreenPause")
				s.waitForPods("cart", "v1=2 v2=2")
			},
			finish: endPause, pods: "v1=2 v2=2",
		},
		"blue-green-delayed": { // the old ReplicaSet still has a scale-down delay
			manifests: func(t *testing.T) string {
				return cartServices + rolloutManifest(t, "cart", 2, `{blueGreen: {activeService: cart-one, previewService: cart-two, scaleDownDelaySeconds: 600}}`)
			},
			reach: releaseV2, waitUntilReached: func(s *environment) {
				s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
				s.waitForPods("cart", "v1=2 v2=2")
			},
			finish: func(s *environment) { s.releaseVersion("cart", "v3") }, pods: "v1=2 v2=2 v3=2",
		},
		"blue-green-analysing": {
			manifests: func(t *testing.T) string {
				return cartServices + alwaysSuccessful("before", countField()) + rolloutManifest(t, "cart", 2, `{blueGreen: {activeService: cart-one, previewService: cart-two,
				  scaleDownDelaySeconds: 600, prePromotionAnalysis: {templates: [{templateName: before}]}}}`)
			},
			reach: releaseV2, waitUntilReached: func(s *environment) { s.waitForMeasurements(1, 2) }, measurements: measurements,
			finish: func(*environment) {}, pods: "v1=2 v2=2",
		},
		"experimenting": {
			manifests: func(t *testing.T) string {
				return alwaysSuccessful("between", countField()) + rolloutManifest(t, "cart", 2, `{canary: {steps: [{experiment: {templates: [{name: old, specRef: stable}, {name: new, specRef: canary}],
				  analyses: [{name: well, templateName: between, requiredForCompletion: true}]}}, {pause: {}}]}}`)
			},
			reach: releaseV2, waitUntilReached: func(s *environment) { s.waitForMeasurements(1, 2) }, measurements: measurements,
			finish: func(s *environment) { waitUntilPaused(s); endPause(s) }, pods: "v2=2",
		},
		"workload": {
			manifests: func(t *testing.T) string {
				return deployment(t, "cart", 0) + `
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: cart}
spec:
  replicas: 2
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  strategy: {canary: {steps: [{setWeight: 50}, {pause: {}}]}}
`
			},
			reach: func(s *environment) { s.deployVersion("cart", "v2") }, waitUntilReached: waitUntilPaused, finish: endPause, pods: "v2=2",
		},
	}
}

// waitForMeasurements waits until the given number of AnalysisRuns are running with at least count measurements each.
func (s *environment) waitForMeasurements(runs int, count int32) {
	s.t.Helper()
	reached := map[string]bool{}
	recordHistory[argov1.AnalysisRun](s.t, analysisRuns, s.namespace).waitForState(s.t, fmt.Sprintf("%d analyses have enough measurements", runs), 0, func(run state[argov1.AnalysisRun]) error {
		status := run.object.Status
		if status.Phase == argov1.AnalysisPhaseRunning && len(status.MetricResults) > 0 && status.MetricResults[0].Count >= count {
			reached[run.name] = true
		}
		if len(reached) < runs {
			return fmt.Errorf("%d analyses have; %s: %s", len(reached), run.name, toJSON(s.t, status))
		}
		return nil
	})
}

// list returns all objects of a kind in the namespace.
func (s *environment) list(resource schema.GroupVersionResource) []unstructured.Unstructured {
	s.t.Helper()
	// Cleanup functions call list after the context of the test has ended.
	found, err := shared.Dynamic.Resource(resource).Namespace(s.namespace).List(context.WithoutCancel(s.t.Context()), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return found.Items
}

// observedState returns everything that must not change when another controller starts to reconcile a Rollout.
func (s *environment) observedState() map[string]string {
	s.t.Helper()
	status := convert[argov1.Rollout](s.t, s.get(rollouts, "cart")).Status
	all := map[string]string{
		"phase": string(status.Phase) + " " + status.Message, "revisions": status.StableRS + " " + status.CurrentPodHash,
		"abort": fmt.Sprint(status.Abort), "pauses": toJSON(s.t, status.PauseConditions), "step": toJSON(s.t, status.CurrentStepIndex),
		"weights": toJSON(s.t, status.Canary.Weights), "services": toJSON(s.t, []string{status.BlueGreen.ActiveSelector, status.BlueGreen.PreviewSelector}),
	}
	for uid := range s.podUIDs("cart") {
		all["pod "+string(uid)] = "exists"
	}
	for _, object := range s.list(replicaSets) {
		rs := convert[appsv1.ReplicaSet](s.t, &object)
		all["ReplicaSet "+rs.Name] = fmt.Sprintf("%d pods, until %q", *rs.Spec.Replicas, rs.Annotations["scale-down-deadline"])
	}
	for _, object := range s.list(services) {
		selector, _, _ := unstructured.NestedMap(object.Object, "spec", "selector")
		all["Service "+object.GetName()] = toJSON(s.t, selector)
	}
	for _, object := range s.list(traefikServices) {
		all["TraefikService"] = convert[traefikService](s.t, &object).shares()
	}
	for _, resource := range []schema.GroupVersionResource{analysisRuns, experiments} {
		for _, object := range s.list(resource) {
			phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
			all[object.GetKind()+" "+object.GetName()] = string(object.GetUID()) + " " + phase
		}
	}
	return all
}

// checkUnchanged waits until the controller has reconciled the Rollout, and checks that nothing has changed.
func (s *environment) checkUnchanged(before map[string]string) {
	s.t.Helper()
	limit := int64(10)
	if set := convert[argov1.Rollout](s.t, s.get(rollouts, "cart")).Spec.RevisionHistoryLimit; set != nil {
		limit = int64(*set) + 1
	}
	s.patch(rollouts, "cart", fmt.Sprintf(`{"spec":{"revisionHistoryLimit":%d}}`, limit)) // has no effect here except for a new generation
	s.waitForObject("the new controller has reconciled the Rollout", rollouts, "cart", func(object *unstructured.Unstructured) error {
		if ro := convert[argov1.Rollout](s.t, object); ro.Status.ObservedGeneration != fmt.Sprint(ro.Generation) {
			return fmt.Errorf("the observed generation is %s, want %d", ro.Status.ObservedGeneration, ro.Generation)
		}
		return nil
	})
	if diff := cmp.Diff(before, s.observedState()); diff != "" {
		s.t.Errorf("changes by the new controller (-before +after):\n%s", diff)
	}
}

// finishRelease finishes the release, and checks that the analysis of its step was continued and not restarted.
func (s *environment) finishRelease(p swapState) {
	s.t.Helper()
	p.finish(s)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	recordHistory[appsv1.ReplicaSet](s.t, replicaSets, s.namespace).waitForState(s.t, "the pods are "+p.pods, 0, func(state[appsv1.ReplicaSet]) error {
		if got := s.podCounts("cart"); got != p.pods {
			return errors.New(got)
		}
		return nil
	})
	for _, object := range s.list(analysisRuns) {
		run := convert[argov1.AnalysisRun](s.t, &object)
		result := run.Status.MetricResults[0]
		if run.Status.Phase != argov1.AnalysisPhaseSuccessful || run.Spec.Metrics[0].Count != nil && result.Count != p.measurements {
			s.t.Errorf("AnalysisRun %s is %s after %d measurements, want Successful after %d if their number is limited", run.Name, run.Status.Phase, result.Count, p.measurements)
		}
	}
}
