package rollout

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// drawRelease draws a release with all its objects.
func drawRelease(s *sim.Stream, name string) *Release {
	router := sim.Pick(s, actors.NoRouter, actors.NoRouter, actors.Istio, actors.Istio, actors.GatewayAPI)
	strategy := argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{}}
	if s.Chance(0.3) {
		router, strategy = actors.NoRouter, argov1.RolloutStrategy{BlueGreen: &argov1.BlueGreenStrategy{}}
	}
	r := newRelease(name, router, strategy)
	r.objects = append(r.objects, drawTemplates(s)...)
	r.Spec.Replicas = new(int32(s.Int(1, 4)))
	r.Spec.MinReadySeconds = sim.Pick(s, int32(0), 1, 10)
	r.Spec.ProgressDeadlineSeconds = new(sim.Pick(s, int32(30), 60, 120))
	r.Spec.ProgressDeadlineAbort = s.Chance(0.3)
	r.Spec.RevisionHistoryLimit = sim.Pick(s, nil, new(int32(1)), new(int32(3)))
	if s.Chance(0.2) {
		r.Spec.RollbackWindow = &argov1.RollbackWindowSpec{Revisions: int32(s.Int(1, 2))}
	}
	if c := r.Spec.Strategy.Canary; c != nil {
		drawCanary(s, c, router)
	} else {
		drawBlueGreen(s, r.Spec.Strategy.BlueGreen)
	}
	if bad := s.Chance(0.05); bad {
		r.Known[r.Shipped[0]].Pods = actors.Stuck
	}
	return r
}

// addOptionalFeatures draws the features that only some releases have. Each can be omitted when a run is shrunk, and draws from
// its own stream.
func (k *Rollouts) addOptionalFeatures(r *Release) {
	always := func(*Release) bool { return true }
	istio := func(r *Release) bool { return r.Provider == actors.Istio }
	for _, extra := range []struct {
		class   sim.FaultClass
		chance  float64
		applies func(*Release) bool
		add     func(*Release, *sim.Stream)
	}{
		{Routers, 0.35, func(r *Release) bool { return r.Provider != actors.NoRouter }, (*Release).useOtherRouter},
		{Secrets, 0.25, always, func(r *Release, _ *sim.Stream) { r.addSecret() }},
		{ManagedRoutes, 0.3, istio, (*Release).addManagedRoutes},
		{Workloads, 0.2, always, func(r *Release, s *sim.Stream) {
			referenceDeployment(sim.Pick(s, argov1.ScaleDownNever, argov1.ScaleDownOnSuccess, argov1.ScaleDownProgressively))(r)
		}},
		{PingPong, 0.35, func(r *Release) bool { return r.Provider != actors.NoRouter && r.Provider != actors.Consul }, func(r *Release, _ *sim.Stream) { r.usePingPong() }},
		{Subsets, 0.4, func(r *Release) bool { return istio(r) && r.pingPong() == nil }, func(r *Release, s *sim.Stream) { r.useSubsets(s.Chance(0.5)) }},
		{LongDelays, 0.12, func(r *Release) bool { return scaleDownDelay(r.Spec.Strategy) > 0 }, func(r *Release, s *sim.Stream) {
			r.useLongDelay(sim.Pick(s, int32(45), 150))
		}},
		{WeightScales, 0.25, func(r *Release) bool { return r.Provider != actors.NoRouter }, func(r *Release, s *sim.Stream) {
			r.addWeightScale(sim.Pick(s, int32(0), 10, 50, 100), s.Chance(0.5))
		}},
		{StepPlugins, 0.2, func(r *Release) bool { return r.Spec.Strategy.Canary != nil }, (*Release).addPluginSteps},
		{RouterPlugins, 0.25, func(r *Release) bool {
			return r.Spec.Strategy.Canary != nil && r.Spec.Strategy.Canary.TrafficRouting != nil
		}, (*Release).addRouterPlugin},
		{Jobs, 0.3, func(r *Release) bool { return !r.secret }, (*Release).drawJobMetrics},
		{MetricPlugins, 0.5, func(r *Release) bool { return !r.secret && !r.jobs }, (*Release).useMetricPlugin},
	} {
		s := k.World.Draws.Stream(string(extra.class) + "/" + r.Key.Name)
		if s.Chance(extra.chance) && extra.applies(r) && k.World.Faults.Admit(fmt.Sprintf("%s#%s", extra.class, r.Key.Name)) {
			extra.add(r, s)
		}
	}
}

// LongDelays is the class of releases whose unused pods are retained for longer than the progress deadline.
const LongDelays sim.FaultClass = "long-delays"

func (r *Release) useLongDelay(seconds int32) {
	r.Spec.ProgressDeadlineSeconds = new(int32(30))
	if b := r.Spec.Strategy.BlueGreen; b != nil {
		b.ScaleDownDelaySeconds = new(seconds)
		return
	}
	r.Spec.Strategy.Canary.ScaleDownDelaySeconds = new(seconds)
}

// WeightScales is the class of releases whose first step sets the number of pods by a weight.
const WeightScales sim.FaultClass = "weight-scales"

// addWeightScale adds the step. retained means that the pods of an aborted revision remain.
func (r *Release) addWeightScale(weight int32, retained bool) {
	c := r.Spec.Strategy.Canary
	c.Steps = slices.Insert(c.Steps, 0, argov1.CanaryStep{SetCanaryScale: &argov1.SetCanaryScale{Weight: &weight}})
	if retained {
		c.AbortScaleDownDelaySeconds = new(int32(0))
	}
}

// drawTemplates draws the analysis templates of a run: analyses may tolerate failures, and may be inconclusive.
func drawTemplates(s *sim.Stream) []client.Object {
	short, endless := errorsMetric(sim.Pick(s, "5s", "10s", "30s"), s.Int(1, 3)), errorsMetric(sim.Pick(s, "10s", "20s", "60s"), 0)
	if s.Chance(0.3) {
		short.FailureLimit, endless.FailureLimit = new(intstr.FromInt32(1)), new(intstr.FromInt32(2))
	}
	if s.Chance(0.2) {
		short.FailureCondition = "result[0] > 8" // values in between, no data and NaN are inconclusive
	}
	if s.Chance(0.3) {
		endless.InitialDelay = "15s"
	}
	return []client.Object{analysisTemplate(shortTemplate, short), analysisTemplate(endlessTemplate, endless)}
}

// drawStrategy draws another strategy for the same release, with the existing Services.
func drawStrategy(s *sim.Stream, r *Release) argov1.RolloutStrategy {
	if s.Chance(0.5) {
		c := &argov1.CanaryStrategy{}
		drawCanary(s, c, actors.NoRouter)
		return argov1.RolloutStrategy{Canary: c}
	}
	b := &argov1.BlueGreenStrategy{ActiveService: r.apex()}
	drawBlueGreen(s, b)
	return argov1.RolloutStrategy{BlueGreen: b}
}

func drawCanary(s *sim.Stream, c *argov1.CanaryStrategy, router string) {
	c.Steps = drawSteps(s, router)
	if s.Chance(0.3) {
		c.Analysis = &argov1.RolloutAnalysisBackground{RolloutAnalysis: analysisWith(endlessTemplate)}
		if s.Chance(0.3) && len(c.Steps) > 0 {
			c.Analysis.StartingStep = new(int32(s.Int(0, len(c.Steps)-1)))
		}
	}
	if s.Chance(0.2) {
		c.CanaryMetadata = &argov1.PodTemplateMetadata{Labels: map[string]string{"role": "new"}}
		c.StableMetadata = &argov1.PodTemplateMetadata{Labels: map[string]string{"role": "old"}}
	}
	if router == actors.NoRouter {
		c.MaxSurge, c.MaxUnavailable = sim.Pick(s, nil, new(intstr.FromInt32(1)), new(intstr.FromString("50%"))), sim.Pick(s, nil, new(intstr.FromInt32(0)), new(intstr.FromInt32(1)))
		if c.MaxUnavailable != nil && c.MaxUnavailable.IntVal == 0 && c.MaxSurge == nil {
			c.MaxUnavailable = nil
		}
		return
	}
	c.ScaleDownDelaySeconds = sim.Pick(s, nil, new(int32(0)), new(int32(20)))
	c.AbortScaleDownDelaySeconds = sim.Pick(s, nil, nil, new(int32(0)), new(int32(20)))
	if c.DynamicStableScale = s.Chance(0.3); c.DynamicStableScale {
		c.ScaleDownDelaySeconds = nil // otherwise the spec would be invalid
	}
	if s.Chance(0.15) {
		c.MinPodsPerReplicaSet = new(int32(2))
	}
}

// drawSteps draws the steps of a canary.
func drawSteps(s *sim.Stream, router string) []argov1.CanaryStep {
	var steps []argov1.CanaryStep
	for range s.Int(0, 5) {
		seconds, percent := sim.Pick(s, int32(5), 20, 60), sim.Pick(s, int32(0), 5, 20, 50, 100)
		duration, judged, pods := sim.Pick(s, "20s", "60s"), s.Chance(0.5), int32(s.Int(1, 3))
		switch kind := s.Int(0, 11); {
		case kind < 5:
			steps = append(steps, weightStep(percent))
		case kind < 7:
			steps = append(steps, pauseStep(seconds))
		case kind == 7:
			steps = append(steps, pauseStep(0))
		case kind < 10:
			steps = append(steps, analysisStep())
		case kind == 10:
			steps = append(steps, experimentStep(duration, judged))
		case router != actors.NoRouter:
			steps = append(steps, argov1.CanaryStep{SetCanaryScale: &argov1.SetCanaryScale{Replicas: &pods}})
		}
	}
	return steps
}

func drawBlueGreen(s *sim.Stream, b *argov1.BlueGreenStrategy) {
	b.ScaleDownDelaySeconds = sim.Pick(s, nil, new(int32(0)), new(int32(20)))
	b.AbortScaleDownDelaySeconds = sim.Pick(s, nil, nil, new(int32(0)), new(int32(20)))
	if s.Chance(0.4) {
		b.PrePromotionAnalysis = new(analysisWith(shortTemplate))
	}
	if s.Chance(0.4) {
		b.PostPromotionAnalysis = new(analysisWith(shortTemplate))
	}
	switch s.Int(0, 3) {
	case 0:
		b.AutoPromotionEnabled = new(false)
	case 1:
		b.AutoPromotionSeconds = int32(s.Int(5, 60))
	}
	if s.Chance(0.3) {
		b.PreviewReplicaCount = new(int32(1))
	}
	if s.Chance(0.2) {
		b.PreviewMetadata = &argov1.PodTemplateMetadata{Labels: map[string]string{"role": "new"}}
		b.ActiveMetadata = &argov1.PodTemplateMetadata{Labels: map[string]string{"role": "old"}}
	}
}

// drawAutoscaler creates an autoscaler of some Rollouts.
func (k *Rollouts) drawAutoscaler(r *Release) {
	scaled := k.World.Draws.Stream("scaler/" + r.Key.Name).Chance(0.7)
	if scaled && k.World.Faults.Has(Scaler) && k.World.Faults.Admit(fmt.Sprintf("%s#%s", Scaler, r.Key.Name)) {
		k.UserClient.Create(actors.NewAutoscaler(r.Key.Name, "argoproj.io/v1alpha1", argov1.RolloutKind, "network", 5))
	}
}
