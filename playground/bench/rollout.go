package main

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	rolloutResource        = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}
	analysisRunResource    = rolloutResource.GroupVersion().WithResource("analysisruns")
	templateResource       = rolloutResource.GroupVersion().WithResource("analysistemplates")
	replicaSetResource     = appsv1.SchemeGroupVersion.WithResource("replicasets")
	serviceResource        = corev1.SchemeGroupVersion.WithResource("services")
	virtualServiceResource = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
)

// rollouts each have a background analysis of two checks, and steps of a weight and a pause.
var rollouts = benchmarkedAPI{
	api: "rollout",
	sharedObjects: func(s settings) []*unstructured.Unstructured {
		check := func(name, condition string) any {
			return map[string]any{
				"name": name, "interval": s.interval.String(), "initialDelay": s.interval.String(), "successCondition": condition, "failureLimit": int64(5),
				"provider": map[string]any{"prometheus": map[string]any{"address": s.prometheus, "query": name}},
			}
		}
		return []*unstructured.Unstructured{newObject(templateResource, "AnalysisTemplate", "checks", map[string]any{
			"metrics": []any{check("success", "result[0] >= 99"), check("latency", "result[0] <= 500")},
		})}
	},
	releaseObjects: func(name string, s settings) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{newService(name, name), newService(name+"-canary", name), newVirtualService(name), newRollout(name, s)}
	},
	targetResource:   rolloutResource,
	watchedResources: []schema.GroupVersionResource{rolloutResource, replicaSetResource},
	timeline:         func(controller) timeline { return &rolloutTimeline{} },
	peer: peer{name: "Argo Rollouts", remembered: map[string]string{
		rowIdleRequests: "0", rowRequests: "97", rowLateness: "≈ 3 s a step", rowCPU: "236 ms", rowMemory: "131 MB", rowNoticing: "< 1 s",
	}},
}

func newService(name, app string) *unstructured.Unstructured {
	return newObject(serviceResource, "Service", name, map[string]any{
		"clusterIP": corev1.ClusterIPNone, "selector": map[string]any{"app": app}, "ports": []any{map[string]any{"port": int64(80), "targetPort": "http"}},
	})
}

// newVirtualService returns the user's VirtualService, whose weights the release changes.
func newVirtualService(name string) *unstructured.Unstructured {
	destination := func(host string, weight int64) any {
		return map[string]any{"destination": map[string]any{"host": host}, "weight": weight}
	}
	return newObject(virtualServiceResource, "VirtualService", name, map[string]any{
		"hosts": []any{name},
		"http":  []any{map[string]any{"name": "main", "route": []any{destination(name, 100), destination(name+"-canary", 0)}}},
	})
}

// newRollout returns a Rollout with the plan of a release.
func newRollout(name string, s settings) *unstructured.Unstructured {
	var steps []any
	for i := range s.steps {
		steps = append(steps, map[string]any{"setWeight": int64((i + 1) * stepWeight)}, map[string]any{"pause": map[string]any{"duration": s.interval.String()}})
	}
	spec := workloadSpec(name)
	spec["strategy"] = map[string]any{"canary": map[string]any{
		"stableService": name, "canaryService": name + "-canary",
		"trafficRouting": map[string]any{"istio": map[string]any{"virtualService": map[string]any{"name": name}}},
		"analysis":       map[string]any{"templates": []any{map[string]any{"templateName": "checks"}}},
		"steps":          steps,
	}}
	return newObject(rolloutResource, "Rollout", name, spec)
}

// The phases of a Rollout that are measured.
const (
	healthy  = "Healthy"
	degraded = "Degraded"
)

// rolloutStatus is the part of a Rollout's status that timelines use.
type rolloutStatus struct {
	Phase            string `json:"phase"`
	Message          string `json:"message"`
	CurrentPodHash   string `json:"currentPodHash"`
	StableRS         string `json:"stableRS"`
	CurrentStepIndex int    `json:"currentStepIndex"`
}

// rolloutTimeline is the release of a Rollout. Times that were not observed yet are zero.
type rolloutTimeline struct {
	// status is the last observed one.
	status  rolloutStatus
	patched time.Time
	// progressing is when the status first contained the new version.
	progressing time.Time
	// Between scaledUp and ready, the cluster creates the pods of the new version.
	scaledUp, ready time.Time
	// firstPause is when the first pause was observed; pauses is their number.
	firstPause time.Time
	pauses     map[int]bool
	// promotedAt is when the new version became stable, cleared when no pod of the old one was desired any longer.
	promotedAt, oldPodsRemoved time.Time
}

func (t *rolloutTimeline) changeTemplate(at time.Time) { t.patched = at }
func (t *rolloutTimeline) isShipped() bool             { return !t.patched.IsZero() }
func (t *rolloutTimeline) isStarted() bool             { return !t.progressing.IsZero() }
func (t *rolloutTimeline) phase() string               { return t.status.Phase }
func (t *rolloutTimeline) isIdle() bool                { return t.status.Phase == healthy }

func (t *rolloutTimeline) isFinished() bool {
	return t.status.Phase == degraded || !t.promotedAt.IsZero() && !t.oldPodsRemoved.IsZero()
}

func (t *rolloutTimeline) observe(at time.Time, object *unstructured.Unstructured) error {
	switch object.GetKind() {
	case "Rollout":
		var typed struct {
			Status rolloutStatus `json:"status"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
			return fmt.Errorf("read Rollout %s: %w", object.GetName(), err)
		}
		t.observeRollout(at, typed.Status)
	case "ReplicaSet":
		set := &appsv1.ReplicaSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, set); err != nil {
			return fmt.Errorf("read ReplicaSet %s: %w", object.GetName(), err)
		}
		t.observeReplicaSet(at, set)
	}
	return nil
}

// observeRollout records a status of the Rollout.
func (t *rolloutTimeline) observeRollout(at time.Time, s rolloutStatus) {
	t.status = s
	switch {
	case s.StableRS == "": // the first version is being deployed
	case s.CurrentPodHash != s.StableRS:
		setIfZero(&t.progressing, at)
		if s.Phase == "Paused" {
			setIfZero(&t.firstPause, at)
			if t.pauses == nil {
				t.pauses = map[int]bool{}
			}
			t.pauses[s.CurrentStepIndex] = true
		}
	case !t.progressing.IsZero() && s.Phase == healthy:
		setIfZero(&t.promotedAt, at)
	}
}

// observeReplicaSet records a state of a ReplicaSet.
func (t *rolloutTimeline) observeReplicaSet(at time.Time, set *appsv1.ReplicaSet) {
	wanted := *set.Spec.Replicas
	switch set.Spec.Template.Spec.Containers[0].Image {
	case newVersion:
		if wanted == 0 {
			return
		}
		setIfZero(&t.scaledUp, at)
		if set.Status.AvailableReplicas >= wanted {
			setIfZero(&t.ready, at)
		}
	case oldVersion:
		if wanted == 0 && !t.progressing.IsZero() {
			setIfZero(&t.oldPodsRemoved, at)
		}
	}
}

func (t *rolloutTimeline) breakdown(s settings) (timeBreakdown, error) {
	switch {
	case t.status.Phase != healthy:
		return timeBreakdown{}, fmt.Errorf("it ended in phase %s: %s", t.status.Phase, t.status.Message)
	case t.progressing.IsZero() || t.scaledUp.IsZero() || t.ready.IsZero() || t.firstPause.IsZero() || t.promotedAt.IsZero():
		return timeBreakdown{}, fmt.Errorf("a watch missed a part of it: %+v", *t)
	case len(t.pauses) != s.steps:
		return timeBreakdown{}, fmt.Errorf("it paused %d times, and should have %d times", len(t.pauses), s.steps)
	}
	p := timeBreakdown{
		Total:    t.promotedAt.Sub(t.patched),
		Windows:  time.Duration(s.steps) * s.interval,
		Cluster:  t.ready.Sub(t.scaledUp),
		Noticing: t.progressing.Sub(t.patched),
		Starting: t.scaledUp.Sub(t.progressing) + t.firstPause.Sub(t.ready),
	}
	p.Stepping = t.promotedAt.Sub(t.firstPause) - p.Windows
	p.Lateness = p.Total - p.Windows - p.Cluster
	return p, nil
}
