package canary

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// newCanary returns the Canary as it is created.
func (r *Release) newCanary() *flaggerv1.Canary {
	c := &flaggerv1.Canary{Spec: *r.Spec.DeepCopy()}
	c.Name, c.Namespace = r.Key.Name, r.Key.Namespace
	c.Annotations = map[string]string{"example.com/team": "checkout"}
	return c
}

// newRelease returns a release whose first version is good, with the objects that all releases have.
func newRelease(name, provider string, spec flaggerv1.CanarySpec) *Release {
	r := &Release{
		Release: actors.NewRelease(name, provider), Target: name, Kind: actors.DeploymentKind, Apex: name, Spec: spec,
	}
	r.Spec.Provider = provider
	r.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
	r.Spec.Service.Port = 80
	if provider == actors.GatewayAPI {
		r.Spec.Service.GatewayRefs = []flaggerv1.GatewayReference{{Name: "public", Namespace: new("gateways")}}
	}
	r.Strategy = strategyOf(r.Spec)
	r.replicas = 2
	return r
}

// strategyOf returns the strategy of an analysis.
func strategyOf(spec flaggerv1.CanarySpec) canary.Strategy {
	a := spec.Analysis
	switch {
	case a == nil:
		return canary.Weighted
	case spec.Provider == actors.NoRouter, a.Iterations > 0 && len(a.Match) == 0:
		return canary.BlueGreen
	case a.Iterations > 0:
		return canary.ABTesting
	default:
		return canary.Weighted
	}
}

// addConfig adds a ConfigMap and a Secret that the workload references.
func (r *Release) addConfig() {
	r.config = r.Target + "-settings"
	r.objects = append(r.objects,
		actors.NewObject("v1", "ConfigMap", r.config, map[string]any{"data": map[string]any{"level": "1"}}),
		actors.NewObject("v1", "Secret", r.config, map[string]any{"type": "Opaque", "stringData": map[string]any{"token": actors.PlantedSecret}}))
}

// addWorkload adds the Deployment or DaemonSet. It is called once its content is drawn.
func (r *Release) addWorkload() *Release {
	r.objects = append(r.objects, r.newTarget())
	return r
}

// newTarget returns the Deployment or DaemonSet as its user writes it.
func (r *Release) newTarget() *unstructured.Unstructured {
	o := r.newDeployment()
	if r.Kind == actors.DaemonSetKind {
		o.SetKind(actors.DaemonSetKind.Kind)
		spec := nested(o.Object, "spec")
		for _, field := range []string{"replicas", "strategy", "minReadySeconds", "progressDeadlineSeconds"} {
			delete(spec, field)
		}
	}
	return o
}

// newDeployment returns a Deployment as the target, with fields and annotations that do not concern the release.
func (r *Release) newDeployment() *unstructured.Unstructured {
	return actors.NewObject("apps/v1", "Deployment", r.Target, map[string]any{
		"metadata": map[string]any{
			"labels":      map[string]any{"app": r.Target, "example.com/tier": "front"},
			"annotations": map[string]any{"example.com/owner": "checkout"},
		},
		"spec": map[string]any{
			"replicas": int64(r.replicas), "revisionHistoryLimit": int64(4), "minReadySeconds": int64(1),
			"progressDeadlineSeconds": int64(60),
			"selector":                map[string]any{"matchLabels": map[string]any{"app": r.Target}},
			"strategy": map[string]any{
				"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(0)},
			},
			"template": r.podTemplate(r.Current()),
		},
	})
}

// useDaemonSet makes the workload a DaemonSet.
func (r *Release) useDaemonSet() {
	r.Kind, r.Spec.TargetRef.Kind = actors.DaemonSetKind, actors.DaemonSetKind.Kind
}

// podTemplate returns the pod template of a version.
func (r *Release) podTemplate(v *actors.Version) map[string]any {
	container := map[string]any{
		"name": "app", "image": r.Image(v.Name),
		"ports":     []any{map[string]any{"name": "http", "containerPort": int64(8080), "protocol": "TCP"}},
		"resources": map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "16Mi"}},
	}
	if r.config != "" {
		container["envFrom"] = []any{
			map[string]any{"configMapRef": map[string]any{"name": r.config}},
			map[string]any{"secretRef": map[string]any{"name": r.config}},
		}
	}
	return map[string]any{
		"metadata": map[string]any{
			"labels":      map[string]any{"app": r.Target, "version": v.Name},
			"annotations": map[string]any{"example.com/scrape": "true"},
		},
		"spec": map[string]any{
			"containers": []any{container}, "terminationGracePeriodSeconds": int64(10),
			"topologySpreadConstraints": []any{map[string]any{
				"maxSkew": int64(1), "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
				"labelSelector": map[string]any{"matchLabels": map[string]any{"app": r.Target}},
			}},
		},
	}
}

// newService returns a Service that a user created before the release took over its name.
func (r *Release) newService() *unstructured.Unstructured {
	return actors.NewObject("v1", "Service", r.Apex, map[string]any{
		"metadata": map[string]any{
			"labels": map[string]any{"example.com/tier": "front"}, "annotations": map[string]any{"example.com/dns": "cart.example"},
		},
		"spec": map[string]any{
			"selector": map[string]any{"app": r.Target}, "sessionAffinity": "ClientIP", "publishNotReadyAddresses": false,
			"ports": []any{map[string]any{"name": "http", "port": int64(80), "targetPort": int64(80), "protocol": "TCP"}},
		},
	})
}

// addAutoscaler adds an autoscaler of the target.
func (r *Release) addAutoscaler() {
	r.Spec.AutoscalerRef = &flaggerv1.AutoscalerReference{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler", Name: r.Target}
	r.objects = append(r.objects, newAutoscaler(r.Target))
}

// newAutoscaler returns the autoscaler of a target.
func newAutoscaler(target string) *unstructured.Unstructured {
	return actors.NewAutoscaler(target, "apps/v1", "Deployment", "checkout", 4)
}

// addRoute adds a VirtualService that a user created before the release.
func (r *Release) addRoute() {
	r.objects = append(r.objects, actors.NewObject("networking.istio.io/v1beta1", "VirtualService", r.Apex, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"example.com/owner": "network"}},
		"spec": map[string]any{
			"hosts": []any{r.Apex}, "gateways": []any{"mesh"}, "exportTo": []any{"."},
			"http": []any{map[string]any{
				"name":  "all",
				"route": []any{map[string]any{"destination": map[string]any{"host": r.Apex}}},
			}},
		},
	}))
}

// addMetricTemplate adds the metric template that checks reference.
func (r *Release) addMetricTemplate() {
	r.objects = append(r.objects, actors.NewObject("flagger.app/v1beta1", "MetricTemplate", r.Target+"-errors", map[string]any{
		"spec": map[string]any{
			"provider": map[string]any{"type": "prometheus", "address": "http://reader:" + actors.PlantedSecret + "@prometheus.example"},
			"query":    "errors{app=\"{{ target }}\"}",
		},
	}))
}

// drawRelease draws a release with all its objects.
func drawRelease(s *sim.Stream, name string) *Release {
	provider := sim.Pick(s, actors.NoRouter, actors.Istio, actors.Istio, actors.GatewayAPI, actors.GatewayAPI)
	r := newRelease(name, provider, drawSpec(s, name, provider))
	r.replicas = s.Int(1, 3)
	if s.Chance(0.3) {
		r.addConfig()
	}
	if s.Chance(0.3) {
		r.objects = append(r.objects, r.newService())
	}
	if s.Chance(0.2) {
		r.addAutoscaler()
	}
	if route := s.Chance(0.2); route && provider == actors.Istio {
		r.addRoute()
	}
	for _, metric := range r.Spec.Analysis.Metrics {
		if metric.TemplateRef != nil {
			r.addMetricTemplate()
			break
		}
	}
	if bad := s.Chance(0.05); bad {
		r.Known[r.Shipped[0]].Pods = actors.Stuck
	}
	if bad := s.Chance(0.05); bad {
		r.validSpec = *r.Spec.DeepCopy()
		invalidate(s, &r.Spec)
		r.invalid, r.createdInvalid = true, true
	}
	return r.addWorkload()
}

// drawSpec draws a spec.
func drawSpec(s *sim.Stream, name, provider string) flaggerv1.CanarySpec {
	spec := flaggerv1.CanarySpec{Provider: provider, Analysis: &flaggerv1.CanaryAnalysis{}}
	a := spec.Analysis
	a.Interval = sim.Pick(s, "5s", "10s", "20s", "30s", "60s")
	a.Threshold = s.Int(1, 4)
	drawStrategy(s, provider, a)
	if s.Chance(0.15) {
		spec.SkipAnalysis = true
	}
	spec.RevertOnDeletion = s.Chance(0.3)
	spec.ProgressDeadlineSeconds = new(sim.Pick[int32](s, 30, 60, 120))
	if s.Chance(0.15) {
		a.CanaryReadyThreshold = new(sim.Pick(s, 50, 75, 100))
	}
	if s.Chance(0.15) {
		a.PrimaryReadyThreshold = new(sim.Pick(s, 50, 75, 100))
	}
	for range sim.Pick(s, 0, 1, 1, 1, 2, 3) {
		a.Metrics = append(a.Metrics, drawMetric(s, name))
	}
	for i := range sim.Pick(s, 0, 0, 1, 1, 2, 3) {
		a.Webhooks = append(a.Webhooks, drawHook(s, i))
	}
	return spec
}

// drawStrategy draws how traffic is shifted.
func drawStrategy(s *sim.Stream, provider string, a *flaggerv1.CanaryAnalysis) {
	kind := s.Int(0, 9)
	switch {
	case provider == actors.NoRouter:
		a.Iterations = s.Int(1, 4)
	case kind < 2:
		a.Iterations = s.Int(1, 4)
		a.Match = []flaggerv1.AnalysisMatch{{Headers: map[string]flaggerv1.HeaderMatch{"x-canary": {Exact: "always"}}}}
	case kind < 4:
		a.Iterations = s.Int(1, 4)
		a.Mirror = s.Chance(0.4)
	default:
		drawWeights(s, provider, a)
	}
}

func drawWeights(s *sim.Stream, provider string, a *flaggerv1.CanaryAnalysis) {
	if s.Chance(0.5) {
		a.StepWeight, a.MaxWeight = sim.Pick(s, 15, 20, 30, 50, 100), sim.Pick(s, 0, 45, 60, 100)
	} else {
		a.StepWeights = sim.Pick(s, []int{1, 10, 50}, []int{20, 50, 100}, []int{30}, []int{5, 15, 40, 80}, []int{100})
	}
	if s.Chance(0.3) {
		a.StepWeightPromotion = sim.Pick(s, 20, 50, 100)
	}
	if mirror := s.Chance(0.25); mirror && provider == actors.Istio {
		a.Mirror = true
		a.MirrorWeight = sim.Pick(s, 0, 20)
	}
	if s.Chance(0.2) {
		a.SessionAffinity = &flaggerv1.SessionAffinity{CookieName: "side", MaxAge: 3600}
		if s.Chance(0.5) {
			a.SessionAffinity.PrimaryCookieName = "stable-side"
		}
	}
}

// drawMetric draws one check.
func drawMetric(s *sim.Stream, name string) flaggerv1.CanaryMetric {
	m := flaggerv1.CanaryMetric{Interval: sim.Pick(s, "", "10s", "30s")}
	switch s.Int(0, 3) {
	case 0:
		m.Name, m.Threshold = canary.SuccessRate, 99
	case 1:
		m.Name, m.ThresholdRange = canary.Duration, &flaggerv1.CanaryThresholdRange{Max: new(500.0)}
	case 2:
		m.Name, m.Query = "open-requests", "open{app=\"{{ target }}\"}"
		m.ThresholdRange = &flaggerv1.CanaryThresholdRange{Min: new(1.0), Max: new(10.0)}
	default:
		m.Name, m.TemplateRef = "errors", &flaggerv1.CrossNamespaceObjectReference{Name: name + "-errors"}
		m.Threshold = 5
	}
	return m
}

// drawHook draws one hook. Names are not always unique: two hooks with the same name and type have different addresses or metadata.
func drawHook(s *sim.Stream, i int) flaggerv1.CanaryWebhook {
	of := sim.Pick(s, flaggerv1.ConfirmRolloutHook, flaggerv1.PreRolloutHook, flaggerv1.RolloutHook, flaggerv1.HookType(""),
		flaggerv1.ConfirmTrafficIncreaseHook, flaggerv1.ConfirmPromotionHook, flaggerv1.RollbackHook, flaggerv1.PostRolloutHook)
	return newHook(of, sim.Pick(s, "gate", fmt.Sprintf("hook-%d", i)), i, sim.Pick(s, "", "3s", "30s"), sim.Pick(s, 0, 0, 0, 2))
}

func newHook(of flaggerv1.HookType, name string, i int, timeout string, retries int) flaggerv1.CanaryWebhook {
	return flaggerv1.CanaryWebhook{
		Type: of, Name: name, URL: fmt.Sprintf("http://caller:%s@hooks.example/%s/%d?token=%s", actors.PlantedSecret, name, i/2, actors.PlantedSecret),
		Timeout: timeout, Retries: retries, Metadata: map[string]string{"suite": fmt.Sprintf("smoke-%d", i)},
	}
}

// invalidate makes a spec invalid in a way that its schema accepts.
func invalidate(s *sim.Stream, spec *flaggerv1.CanarySpec) {
	a := spec.Analysis
	switch s.Int(0, 4) {
	case 0:
		a.Iterations, a.Match, a.StepWeight, a.StepWeights = 0, nil, 0, nil
		if spec.Provider == actors.NoRouter {
			a.CanaryReadyThreshold = new(120)
		}
	case 1:
		a.CanaryReadyThreshold = new(-5)
	case 2:
		a.Metrics = append(a.Metrics, flaggerv1.CanaryMetric{Name: "unheard-of"})
	case 3:
		spec.Provider = "unheard-of" // a provider without a router
	default:
		spec.TargetRef.Kind = "DaemonSet"
	}
}

// drawExtensions draws what only some releases have. Each can be omitted when a run is shrunk, and draws from its own stream.
func (k *Canaries) drawExtensions(r *Release, i int) {
	k.drawOtherProvider(r)
	k.drawManyPods(r, i)
	k.drawPrimaryLimits(r, i)
}

// drawManyPods gives some releases so many pods that replacing them one at a time takes longer than the deadline.
func (k *Canaries) drawManyPods(r *Release, i int) {
	if !k.World.Faults.Has(ManyPods) || r.Kind != actors.DeploymentKind {
		return
	}
	s := k.World.Draws.Stream("pods/" + r.Key.Name)
	replicas := s.Int(6, 14)
	if !s.Chance(0.4) || !k.World.Faults.Admit(fmt.Sprintf("%s#%d", ManyPods, i+1)) {
		return
	}
	r.replicas = replicas
	for _, o := range r.objects {
		if o.GetKind() == actors.DeploymentKind.Kind && o.GetName() == r.Target {
			nested(o.Object, "spec")["replicas"] = int64(replicas)
		}
	}
	k.World.Trace("%s has %d pods", r.Key.Name, replicas)
}

// drawPrimaryLimits gives some primaries more pods than the autoscaler of the target permits.
func (k *Canaries) drawPrimaryLimits(r *Release, i int) {
	s := k.World.Draws.Stream("primary-limits/" + r.Key.Name)
	if r.Spec.AutoscalerRef == nil || !s.Chance(0.3) || !k.World.Faults.Admit(fmt.Sprintf("primary-limits#%d", i+1)) {
		return
	}
	r.Spec.AutoscalerRef.PrimaryScalerReplicas = &flaggerv1.ScalerReplicas{MinReplicas: new(int32(s.Int(3, 8))), MaxReplicas: new(int32(8))}
	k.World.Trace("%s has a primary with at least %d pods", r.Key.Name, *r.Spec.AutoscalerRef.PrimaryScalerReplicas.MinReplicas)
}

// createConflictingObjects creates objects with another owner under names that a release needs.
func (k *Canaries) createConflictingObjects() {
	if !k.World.Faults.Has(Strangers) {
		return
	}
	for i, r := range k.Releases {
		s := k.World.Draws.Stream("strangers/" + r.Key.Name)
		which := s.Int(0, 5)
		if !s.Chance(0.3) || !k.World.Faults.Admit(fmt.Sprintf("%s#%d", Strangers, i+1)) {
			continue
		}
		o := r.conflictingObject(which)
		k.World.Trace("another owner has %s %s", o.GetKind(), o.GetName())
		k.UserClient.Create(o)
	}
}

// conflictingObject returns an object with another owner and a name that the release needs.
func (r *Release) conflictingObject(which int) *unstructured.Unstructured {
	owned := map[string]any{"ownerReferences": []any{map[string]any{
		"apiVersion": "example.com/v1", "kind": "Shop", "name": "other", "uid": "00000000-0000-0000-0000-00000000feed", "controller": true,
	}}}
	switch which {
	case 0:
		other := &Release{Release: r.Release, Target: r.Target + "-primary", replicas: 1}
		return other.newDeployment()
	case 1:
		return actors.NewObject("v1", "Service", r.Apex+"-canary", map[string]any{
			"metadata": owned,
			"spec":     map[string]any{"selector": map[string]any{"app": "other"}, "ports": []any{map[string]any{"port": int64(80)}}},
		})
	case 2:
		return actors.NewObject("v1", "Service", r.Apex+"-primary", map[string]any{
			"metadata": owned,
			"spec":     map[string]any{"selector": map[string]any{"app": "other"}, "ports": []any{map[string]any{"port": int64(80)}}},
		})
	case 3:
		return actors.NewObject("autoscaling/v2", "HorizontalPodAutoscaler", r.Target+"-primary", map[string]any{
			"metadata": owned,
			"spec": map[string]any{
				"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}, "maxReplicas": int64(3),
			},
		})
	case 4:
		switch r.Provider {
		case actors.Istio:
			return actors.NewObject("networking.istio.io/v1beta1", "DestinationRule", r.Apex+"-canary", map[string]any{
				"metadata": owned, "spec": map[string]any{"host": "other"},
			})
		case actors.Contour:
			return actors.NewObject("projectcontour.io/v1", "HTTPProxy", r.Apex, map[string]any{
				"metadata": owned, "spec": map[string]any{"virtualhost": map[string]any{"fqdn": "other.example"}},
			})
		case actors.Gloo:
			return actors.NewObject("gloo.solo.io/v1", "Upstream", upstreamOf(r.Apex, "canary"), map[string]any{
				"metadata": owned, "spec": map[string]any{"kube": map[string]any{"serviceName": "other", "serviceNamespace": "other"}},
			})
		}
		fallthrough
	default:
		return actors.NewObject("v1", "ConfigMap", r.Target+"-settings-primary", map[string]any{
			"metadata": owned, "data": map[string]any{"level": "9"},
		})
	}
}

// Story is a scripted release: its spec, and the actions of users. Its final state does not depend on the scheduling.
type Story struct {
	Name     string
	Provider string
	Spec     func(*flaggerv1.CanarySpec)
	// Around adds further objects to the release.
	Around func(*Release)
	// Acts are the actions of users, in order.
	Acts []Act
	// End is the phase in which it ends; empty: the Canary is deleted.
	End flaggerv1.CanaryPhase
}

// Act is an action of users in a story.
type Act = actors.Step[*users, *Release, flaggerv1.CanaryStatus]

// release returns the release of a story.
func (s Story) release() *Release {
	spec := flaggerv1.CanarySpec{Analysis: &flaggerv1.CanaryAnalysis{Interval: "20s", Threshold: 1}}
	spec.Analysis.Metrics = []flaggerv1.CanaryMetric{{Name: canary.SuccessRate, Interval: "10s", ThresholdRange: &flaggerv1.CanaryThresholdRange{Min: new(99.0)}}}
	spec.ProgressDeadlineSeconds = new(int32(60))
	spec.Provider = s.Provider
	if s.Spec != nil {
		s.Spec(&spec)
	}
	r := newRelease("cart", s.Provider, spec)
	if s.Around != nil {
		s.Around(r)
	}
	return r.addWorkload()
}
