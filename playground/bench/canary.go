package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	canaryResource     = schema.GroupVersionResource{Group: "flagger.app", Version: "v1beta1", Resource: "canaries"}
	deploymentResource = appsv1.SchemeGroupVersion.WithResource("deployments")
)

// canaries are Deployments, each with a Canary.
var canaries = benchmarkedAPI{
	api:           "canary",
	sharedObjects: func(settings) []*unstructured.Unstructured { return nil },
	releaseObjects: func(name string, s settings) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{newObject(deploymentResource, "Deployment", name, workloadSpec(name)), newCanary(name, s)}
	},
	targetResource:   deploymentResource,
	watchedResources: []schema.GroupVersionResource{canaryResource, deploymentResource},
	timeline:         func(c controller) timeline { return &canaryTimeline{ofFlagger: c.isPeer} },
	peer: peer{name: "Flagger", rememberedVersion: "1.44", remembered: map[string]string{
		rowIdleRequests: "72", rowRequests: "179", rowLateness: "≈ 50 s", rowCPU: "68 ms", rowMemory: "79 MB", rowNoticing: "≤ an interval",
	}},
}

// newCanary returns a Canary with the plan of a release. Its Services have no addresses, like all Services of the benchmark: for each new
// address, the API server reads all existing ones, which would occupy it with thousands of Services.
func newCanary(name string, s settings) *unstructured.Unstructured {
	check := func(name, limit string, value int64) any {
		return map[string]any{"name": name, "interval": "30s", "thresholdRange": map[string]any{limit: value}}
	}
	return newObject(canaryResource, "Canary", name, map[string]any{
		"provider":  "istio",
		"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
		"service":   map[string]any{"port": int64(80), "targetPort": "http", "headless": true},
		"analysis": map[string]any{
			"interval": s.interval.String(), "threshold": int64(5), "stepWeight": int64(stepWeight), "maxWeight": int64(s.steps * stepWeight),
			"metrics": []any{check("request-success-rate", "min", 99), check("request-duration", "max", 500)},
		},
	})
}

// The phases of a Canary that are measured.
const (
	initialized = "Initialized"
	progressing = "Progressing"
	finalising  = "Finalising"
	succeeded   = "Succeeded"
	failed      = "Failed"
)

// canaryStatus is the part of a Canary's status that timelines use.
type canaryStatus struct {
	Phase        string `json:"phase"`
	FailedChecks int    `json:"failedChecks"`
	CanaryWeight int    `json:"canaryWeight"`
	Serin        struct {
		Window *struct {
			Start metav1.MicroTime `json:"start"`
		} `json:"window"`
		DrainUntil *metav1.MicroTime `json:"drainUntil"`
	} `json:"serin"`
}

// canaryTimeline is the release of a Canary. The starts of windows and the end of the drain are from its status: Serin runs on the
// same machine. Flagger has neither in the status: a window starts when a weight is observed, and there is no drain. Times that were
// not observed yet are zero.
type canaryTimeline struct {
	ofFlagger bool
	// lastPhase is the last phase.
	lastPhase    string
	failedChecks int
	patched      time.Time
	progressing  time.Time
	// Between scaledUp and canaryReady, the cluster creates the pods of the canary.
	scaledUp, canaryReady time.Time
	windows               []time.Time
	weight                int // of the last window, if Flagger runs the release
	// Between copied and primaryReady, the cluster replaces the pods of the primary.
	copied, primaryReady time.Time
	drainUntil           time.Time
	ended                time.Time
}

func (t *canaryTimeline) changeTemplate(at time.Time) { t.patched = at }
func (t *canaryTimeline) isShipped() bool             { return !t.patched.IsZero() }
func (t *canaryTimeline) isStarted() bool             { return !t.progressing.IsZero() }
func (t *canaryTimeline) phase() string               { return t.lastPhase }
func (t *canaryTimeline) isIdle() bool                { return t.lastPhase == initialized }
func (t *canaryTimeline) isFinished() bool            { return t.lastPhase == succeeded || t.lastPhase == failed }

func (t *canaryTimeline) observe(at time.Time, object *unstructured.Unstructured) error {
	if object.GetKind() == "Canary" {
		var typed struct {
			Status canaryStatus `json:"status"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
			return fmt.Errorf("read Canary %s: %w", object.GetName(), err)
		}
		t.observeCanary(at, typed.Status)
		return nil
	}
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, d); err != nil {
		return fmt.Errorf("read Deployment %s: %w", object.GetName(), err)
	}
	if strings.HasSuffix(d.Name, "-primary") {
		t.observePrimary(at, d)
	} else {
		t.observeTarget(at, d)
	}
	return nil
}

// observeCanary records a status of the Canary.
func (t *canaryTimeline) observeCanary(at time.Time, s canaryStatus) {
	t.lastPhase = s.Phase
	t.failedChecks = max(t.failedChecks, s.FailedChecks)
	switch s.Phase {
	case progressing:
		setIfZero(&t.progressing, at)
		switch window := s.Serin.Window; {
		case t.ofFlagger && s.CanaryWeight > t.weight:
			t.weight, t.windows = s.CanaryWeight, append(t.windows, at)
		case window != nil && !slices.ContainsFunc(t.windows, window.Start.Time.Equal):
			t.windows = append(t.windows, window.Start.Time)
		}
	case finalising:
		if s.Serin.DrainUntil != nil {
			t.drainUntil = s.Serin.DrainUntil.Time
		}
	case succeeded, failed:
		setIfZero(&t.ended, at)
	}
}

// observeTarget records a state of the target.
func (t *canaryTimeline) observeTarget(at time.Time, d *appsv1.Deployment) {
	if image(d) != newVersion || *d.Spec.Replicas == 0 {
		return
	}
	setIfZero(&t.scaledUp, at)
	if isDeploymentReady(d) {
		setIfZero(&t.canaryReady, at)
	}
}

// observePrimary records a state of the primary.
func (t *canaryTimeline) observePrimary(at time.Time, d *appsv1.Deployment) {
	if image(d) != newVersion {
		return
	}
	setIfZero(&t.copied, at)
	if isDeploymentReady(d) {
		setIfZero(&t.primaryReady, at)
	}
}

func image(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }

// isDeploymentReady reports whether all pods of a Deployment have its newest template and are available, so that a release no longer
// waits for the cluster.
func isDeploymentReady(d *appsv1.Deployment) bool {
	wanted, s := *d.Spec.Replicas, d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas >= wanted && s.Replicas <= s.UpdatedReplicas && s.AvailableReplicas >= s.UpdatedReplicas
}

func (t *canaryTimeline) breakdown(s settings) (timeBreakdown, error) {
	switch {
	case t.lastPhase != succeeded:
		return timeBreakdown{}, fmt.Errorf("it ended in phase %s with %d failed checks", t.lastPhase, t.failedChecks)
	case t.patched.IsZero() || t.progressing.IsZero() || t.scaledUp.IsZero() || t.canaryReady.IsZero() || len(t.windows) == 0 || t.copied.IsZero() || t.primaryReady.IsZero() || t.drainUntil.IsZero() && !t.ofFlagger:
		return timeBreakdown{}, fmt.Errorf("a watch missed a part of it: %+v", *t)
	}
	opened := t.windows[0]
	drain, drainUntil := drainDelay, t.drainUntil
	if t.ofFlagger {
		drain, drainUntil = 0, t.ended
	}
	p := timeBreakdown{
		Total:     t.ended.Sub(t.patched),
		Windows:   time.Duration(len(t.windows)) * s.interval,
		Cluster:   t.canaryReady.Sub(t.scaledUp) + t.primaryReady.Sub(t.copied),
		Drain:     drain,
		Noticing:  t.progressing.Sub(t.patched),
		Starting:  t.scaledUp.Sub(t.progressing) + opened.Sub(t.canaryReady),
		Promoting: drainUntil.Add(-drain).Sub(t.primaryReady),
		Ending:    t.ended.Sub(drainUntil),
	}
	p.Stepping = t.copied.Sub(opened) - p.Windows
	p.Lateness = p.Total - p.Windows - p.Cluster - p.Drain
	return p, nil
}
