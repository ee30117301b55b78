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
var canaries = subject{
	api:    "canary",
	shared: func(settings) []*unstructured.Unstructured { return nil },
	each: func(name string, s settings) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{object(deploymentResource, "Deployment", name, workload(name)), canary(name, s)}
	},
	target:   deploymentResource,
	watched:  []schema.GroupVersionResource{canaryResource, deploymentResource},
	timeline: func() timeline { return &canaryTimeline{} },
}

// canary is the plan of a release.
func canary(name string, s settings) *unstructured.Unstructured {
	check := func(name, limit string, value int64) any {
		return map[string]any{"name": name, "interval": "30s", "thresholdRange": map[string]any{limit: value}}
	}
	return object(canaryResource, "Canary", name, map[string]any{
		"provider":  "istio",
		"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
		"service":   map[string]any{"port": int64(80), "targetPort": "http"},
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

// canaryStatus is the part of a Canary's status that tells the time.
type canaryStatus struct {
	Phase        string `json:"phase"`
	FailedChecks int    `json:"failedChecks"`
	Serin        struct {
		Window *struct {
			Start metav1.MicroTime `json:"start"`
		} `json:"window"`
		DrainUntil *metav1.MicroTime `json:"drainUntil"`
	} `json:"serin"`
}

// canaryTimeline is the release of a Canary. The starts of windows and the end of the drain are what Serin writes, on the same
// machine. A moment that has not come is zero.
type canaryTimeline struct {
	// seen is the last phase.
	seen         string
	failedChecks int
	patched      time.Time
	progressing  time.Time
	// scaledUp and canaryReady enclose the time in which the cluster makes the canary's pods.
	scaledUp, canaryReady time.Time
	windows               []time.Time
	// copied and primaryReady enclose the time in which the cluster renews the primary's pods.
	copied, primaryReady time.Time
	drainUntil           time.Time
	ended                time.Time
}

func (t *canaryTimeline) ship(at time.Time) { t.patched = at }
func (t *canaryTimeline) phase() string     { return t.seen }
func (t *canaryTimeline) rests() bool       { return t.seen == initialized }
func (t *canaryTimeline) over() bool        { return t.seen == succeeded || t.seen == failed }

func (t *canaryTimeline) see(at time.Time, object *unstructured.Unstructured) error {
	if object.GetKind() == "Canary" {
		var typed struct {
			Status canaryStatus `json:"status"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
			return fmt.Errorf("read Canary %s: %w", object.GetName(), err)
		}
		t.seeCanary(at, typed.Status)
		return nil
	}
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, d); err != nil {
		return fmt.Errorf("read Deployment %s: %w", object.GetName(), err)
	}
	if strings.HasSuffix(d.Name, "-primary") {
		t.seePrimary(at, d)
	} else {
		t.seeTarget(at, d)
	}
	return nil
}

// seeCanary takes in a status of the Canary.
func (t *canaryTimeline) seeCanary(at time.Time, s canaryStatus) {
	t.seen = s.Phase
	t.failedChecks = max(t.failedChecks, s.FailedChecks)
	switch s.Phase {
	case progressing:
		first(&t.progressing, at)
		if window := s.Serin.Window; window != nil && !slices.ContainsFunc(t.windows, window.Start.Time.Equal) {
			t.windows = append(t.windows, window.Start.Time)
		}
	case finalising:
		if s.Serin.DrainUntil != nil {
			t.drainUntil = s.Serin.DrainUntil.Time
		}
	case succeeded, failed:
		first(&t.ended, at)
	}
}

// seeTarget takes in a state of the Deployment that was changed.
func (t *canaryTimeline) seeTarget(at time.Time, d *appsv1.Deployment) {
	if image(d) != newVersion || *d.Spec.Replicas == 0 {
		return
	}
	first(&t.scaledUp, at)
	if ready(d) {
		first(&t.canaryReady, at)
	}
}

// seePrimary takes in a state of the copy that serves users.
func (t *canaryTimeline) seePrimary(at time.Time, d *appsv1.Deployment) {
	if image(d) != newVersion {
		return
	}
	first(&t.copied, at)
	if ready(d) {
		first(&t.primaryReady, at)
	}
}

func image(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }

// ready says that all pods of a Deployment are of its newest template and available: from here on it is not the
// cluster that a release waits for.
func ready(d *appsv1.Deployment) bool {
	wanted, s := *d.Spec.Replicas, d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas >= wanted && s.Replicas <= s.UpdatedReplicas && s.AvailableReplicas >= s.UpdatedReplicas
}

func (t *canaryTimeline) parts(s settings) (parts, error) {
	switch {
	case t.seen != succeeded:
		return parts{}, fmt.Errorf("it ended in phase %s with %d failed checks", t.seen, t.failedChecks)
	case t.patched.IsZero() || t.progressing.IsZero() || t.scaledUp.IsZero() || t.canaryReady.IsZero() || len(t.windows) == 0 || t.copied.IsZero() || t.primaryReady.IsZero() || t.drainUntil.IsZero():
		return parts{}, fmt.Errorf("a watch missed a part of it: %+v", *t)
	}
	opened := t.windows[0]
	drainFrom := t.drainUntil.Add(-drain)
	p := parts{
		Total:     t.ended.Sub(t.patched),
		Windows:   time.Duration(len(t.windows)) * s.interval,
		Cluster:   t.canaryReady.Sub(t.scaledUp) + t.primaryReady.Sub(t.copied),
		Drain:     drain,
		Noticing:  t.progressing.Sub(t.patched),
		Starting:  t.scaledUp.Sub(t.progressing) + opened.Sub(t.canaryReady),
		Promoting: drainFrom.Sub(t.primaryReady),
		Ending:    t.ended.Sub(t.drainUntil),
	}
	p.Stepping = t.copied.Sub(opened) - p.Windows
	p.Lateness = p.Total - p.Windows - p.Cluster - p.Drain
	return p, nil
}
