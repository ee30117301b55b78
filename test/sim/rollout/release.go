package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
)

// Release is one Rollout of a run with its true properties, which no component of the run knows.
type Release struct {
	actors.Release

	// Spec is the spec with which the Rollout is created. Users may change the stored one.
	Spec argov1.RolloutSpec

	// network contains the Services and the route, objects the other objects that users create before the Rollout.
	network, objects []client.Object
	// secret means that the measurements need a Secret, jobs that the release is analysed by Jobs, and jobsHang that these Jobs
	// never end (in a story). metricPlugin means that a plugin measures.
	secret, jobs, jobsHang, metricPlugin bool
}

// newRelease returns a release whose first version is good, with the objects that all releases have.
func newRelease(name, router string, strategy argov1.RolloutStrategy) *Release {
	r := &Release{Release: actors.NewRelease(name, router)}
	r.Spec = argov1.RolloutSpec{
		Replicas: new(int32(2)), MinReadySeconds: 1, RevisionHistoryLimit: new(int32(2)), ProgressDeadlineSeconds: new(int32(60)),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Strategy: strategy,
	}
	r.addNetwork()
	return r
}

// apex returns the name of the Service that clients call, and of the route.
func (r *Release) apex() string { return r.Key.Name }

// userObjects returns the objects that users create before the Rollout.
func (r *Release) userObjects() []client.Object { return slices.Concat(r.network, r.objects) }

// addNetwork sets the Services and routes of the strategy, and adds them.
func (r *Release) addNetwork() {
	apex := r.apex()
	r.network = []client.Object{r.newService(apex)}
	if b := r.Spec.Strategy.BlueGreen; b != nil {
		b.ActiveService, b.PreviewService = apex, apex+"-preview"
		r.network = append(r.network, r.newService(b.PreviewService))
		return
	}
	c := r.Spec.Strategy.Canary
	if r.Provider == actors.NoRouter {
		return
	}
	c.StableService, c.CanaryService = apex+"-stable", apex+"-canary"
	r.network = append(r.network, r.newService(c.StableService), r.newService(c.CanaryService), r.newRoute(destination{Service: c.StableService}, destination{Service: c.CanaryService}))
	if c.TrafficRouting == nil {
		c.TrafficRouting = &argov1.RolloutTrafficRouting{}
	}
	if r.Provider == actors.Istio {
		c.TrafficRouting.Istio = &argov1.IstioTrafficRouting{VirtualService: &argov1.IstioVirtualService{Name: apex, Routes: []string{"main"}}}
		return
	}
	name, configuration := r.routerPlugin()
	layout, err := json.Marshal(configuration)
	if err != nil {
		panic(err) // a programming error
	}
	c.TrafficRouting.Plugins = map[string]json.RawMessage{name: layout}
}

// newService returns a Service as its user creates it: it selects the pods of all versions.
func (r *Release) newService(name string) client.Object {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: actors.Namespace, Name: name,
			Labels: map[string]string{"example.com/tier": "front"}, Annotations: map[string]string{"example.com/owner": "checkout"},
		},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": r.Key.Name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// newRoute returns the route as its user creates it, with the destinations of both revisions.
func (r *Release) newRoute(stable, canary destination) client.Object {
	apex := r.apex()
	if r.Provider == actors.Istio {
		return userObject("networking.istio.io/v1beta1", "VirtualService", apex, map[string]any{
			"hosts": []any{apex}, "gateways": []any{"mesh"},
			"http": []any{map[string]any{"name": "main", "timeout": "3s", "route": []any{
				map[string]any{"destination": stable.istioDestination(), "weight": int64(100)},
				map[string]any{"destination": canary.istioDestination(), "weight": int64(0)},
			}}},
		})
	}
	if route := r.newOtherRoute(stable, canary); route != nil {
		return route
	}
	return userObject("gateway.networking.k8s.io/v1", "HTTPRoute", apex, map[string]any{
		"parentRefs": []any{map[string]any{"name": "public", "namespace": "gateways"}}, "hostnames": []any{apex + ".example"},
		"rules": []any{map[string]any{"backendRefs": []any{
			map[string]any{"name": stable.Service, "port": int64(80), "weight": int64(100)},
			map[string]any{"name": canary.Service, "port": int64(80), "weight": int64(0)},
		}}},
	})
}

// userObject returns an object with an annotation of its user.
func userObject(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := actors.NewObject(apiVersion, kind, name, map[string]any{"spec": spec})
	o.SetAnnotations(map[string]string{"example.com/owner": "network"})
	return o
}

// newRollout returns the Rollout as it is created.
func (r *Release) newRollout() *argov1.Rollout {
	object := &argov1.Rollout{Spec: *r.Spec.DeepCopy()}
	object.Name, object.Namespace = r.Key.Name, r.Key.Namespace
	object.Annotations = map[string]string{"example.com/team": "checkout"}
	if r.workload() == "" {
		object.Spec.Template = r.podTemplate(r.Current())
	}
	return object
}

// podTemplate returns the pod template of a version.
func (r *Release) podTemplate(v *actors.Version) corev1.PodTemplateSpec {
	annotations := map[string]string{"example.com/scrape": "true"}
	if r.Provider == actors.Consul {
		annotations[consulAnnotation] = v.Name
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": r.Key.Name, "version": v.Name}, Annotations: annotations},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "app", Image: r.Image(v.Name),
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			}},
			TerminationGracePeriodSeconds: new(int64(10)),
		},
	}
}

// describePlan describes the release for the trace.
func (r *Release) describePlan() string {
	if b := r.Spec.Strategy.BlueGreen; b != nil {
		text := "blue-green"
		if b.PrePromotionAnalysis != nil {
			text += ", analysed before the switch"
		}
		if b.PostPromotionAnalysis != nil {
			text += ", analysed after the switch"
		}
		return text
	}
	c := r.Spec.Strategy.Canary
	var steps []string
	for _, step := range c.Steps {
		steps = append(steps, stepText(step))
	}
	text := fmt.Sprintf("canary with %s, steps [%s]", r.Provider, strings.Join(steps, ", "))
	if c.Analysis != nil {
		text += ", with a background analysis"
	}
	if c.DynamicStableScale {
		text += ", dynamic"
	}
	text += r.splitText()
	if r.secret {
		text += ", with a secret"
	}
	if r.jobs {
		text += ", by Jobs"
	}
	if r.metricPlugin {
		text += ", by a metric plugin"
	}
	if r.workload() != "" {
		text += ", of a Deployment (" + string(r.Spec.WorkloadRef.ScaleDown) + ")"
	}
	return text
}

func stepText(step argov1.CanaryStep) string {
	switch {
	case step.SetWeight != nil:
		return fmt.Sprintf("weight %d", *step.SetWeight)
	case step.Pause != nil && step.Pause.Duration == nil:
		return "pause"
	case step.Pause != nil:
		return "pause " + step.Pause.Duration.String()
	case step.Analysis != nil:
		return "analysis"
	case step.Experiment != nil:
		return "experiment"
	case step.SetCanaryScale != nil:
		return "scale"
	default:
		return "route"
	}
}
