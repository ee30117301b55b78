package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// Story is a scripted release: its spec, and the actions of users. Its final state does not depend on the scheduling.
type Story struct {
	Name   string
	Router string
	Spec   func(*argov1.RolloutSpec)
	// Extra adds optional features; nil: none.
	Extra func(*Release)
	// Green makes the release blue-green.
	Green bool
	// Acts are the actions of users, in order.
	Acts []Act
	// End is the phase in which it ends; empty: the Rollout is deleted. Version is the version that serves users then.
	End     argov1.RolloutPhase
	Version string
}

// Act is an action of users in a story.
type Act = actors.Step[*users, *Release, argov1.RolloutStatus]

// release returns the release of a story.
func (s Story) release() *Release {
	strategy := argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{}}
	if s.Green {
		strategy = argov1.RolloutStrategy{BlueGreen: &argov1.BlueGreenStrategy{ScaleDownDelaySeconds: new(int32(10))}}
	}
	r := newRelease("cart", s.Router, strategy)
	r.objects = append(r.objects, defaultTemplates()...)
	if s.Spec != nil {
		s.Spec(&r.Spec)
	}
	if s.Extra != nil {
		s.Extra(r)
	}
	return r
}

// isHealthy reports whether a release has ended successfully.
func isHealthy(_ *Release, s argov1.RolloutStatus) bool {
	return s.Phase == argov1.RolloutPhaseHealthy
}

// isPaused reports whether a release waits for a user.
func isPaused(_ *Release, s argov1.RolloutStatus) bool { return len(s.PauseConditions) > 0 }

// hasHalfTheWeight reports whether the new revision has at least half of the weight.
func hasHalfTheWeight(_ *Release, s argov1.RolloutStatus) bool {
	return s.Canary.Weights != nil && s.Canary.Weights.Canary.Weight >= 50
}

// isAborted reports whether a release was aborted.
func isAborted(_ *Release, s argov1.RolloutStatus) bool { return s.Abort }

// shipWhenHealthy returns the act that ships a version once the release is healthy.
func shipWhenHealthy(v actors.Version) Act {
	return Act{When: isHealthy, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(v)) }}
}

func weightStep(w int32) argov1.CanaryStep { return argov1.CanaryStep{SetWeight: &w} }

// pauseStep returns a step that pauses for the given number of seconds; 0: until a user resumes it.
func pauseStep(seconds int32) argov1.CanaryStep {
	if seconds == 0 {
		return argov1.CanaryStep{Pause: &argov1.RolloutPause{}}
	}
	return argov1.CanaryStep{Pause: &argov1.RolloutPause{Duration: new(intstr.FromInt32(seconds))}}
}

func analysisStep() argov1.CanaryStep {
	return argov1.CanaryStep{Analysis: new(analysisWith(shortTemplate))}
}

// experimentStep returns an Experiment with both revisions.
func experimentStep(duration string, analysed bool) argov1.CanaryStep {
	step := &argov1.RolloutExperimentStep{
		Duration: argov1.DurationString(duration), ScaleDownDelaySeconds: new(int32(5)),
		Templates: []argov1.RolloutExperimentTemplate{
			{Name: "old", SpecRef: argov1.StableSpecRef, Metadata: experimentPods("old"), Selector: experimentSelector("old")},
			{Name: "new", SpecRef: argov1.CanarySpecRef, Metadata: experimentPods("new"), Selector: experimentSelector("new")},
		},
	}
	if analysed {
		step.Analyses = []argov1.RolloutExperimentStepAnalysisTemplateRef{{
			Name: "judge", TemplateName: shortTemplate, Args: analysisWith(shortTemplate).Args, RequiredForCompletion: true,
		}}
	}
	return argov1.CanaryStep{Experiment: step}
}

// experimentPods labels the pods of an Experiment so that the Services of the release do not select them.
func experimentPods(name string) argov1.PodTemplateMetadata {
	return argov1.PodTemplateMetadata{Labels: map[string]string{"app": "compared", "side": name}}
}

func experimentSelector(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "compared", "side": name}}
}

// withSteps sets the steps of a canary.
func withSteps(steps ...argov1.CanaryStep) func(*argov1.RolloutSpec) {
	return func(spec *argov1.RolloutSpec) { spec.Strategy.Canary.Steps = steps }
}

// Stories returns one plain release for each way in which a release can end. Each has few steps, so that faults can be injected
// at every request.
func Stories() []Story {
	stories := []Story{
		{Name: "first revision", Router: actors.NoRouter, End: argov1.RolloutPhaseHealthy, Version: "v1"},
		{Name: "rolling update", Router: actors.NoRouter, Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "steps by pods", Router: actors.NoRouter, Spec: withSteps(weightStep(50), pauseStep(10)), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "steps", Router: actors.Istio, Spec: func(spec *argov1.RolloutSpec) {
			withSteps(weightStep(20), pauseStep(10), weightStep(60), analysisStep())(spec)
			spec.MinReadySeconds = 0 // otherwise pods answer before they are available, so that the order of endpoints and weights (I37) is unknown
		}, Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "analysis with a secret", Router: actors.NoRouter, Spec: withSteps(weightStep(50), analysisStep()), Extra: (*Release).addSecret, Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by header", Router: actors.Istio, Spec: withHeaderRoute(pauseStep(10)), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "mirrored", Router: actors.GatewayAPI, Spec: withMirrorRoute(pauseStep(10)), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "template of a Deployment", Router: actors.NoRouter, Spec: withSteps(weightStep(50), pauseStep(10)), Extra: referenceDeployment(argov1.ScaleDownProgressively), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "background analysis", Router: actors.GatewayAPI, Spec: func(spec *argov1.RolloutSpec) {
			withSteps(weightStep(40), pauseStep(20))(spec)
			spec.Strategy.Canary.Analysis = &argov1.RolloutAnalysisBackground{RolloutAnalysis: analysisWith(endlessTemplate)}
		}, Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "dynamic", Router: actors.Istio, Spec: func(spec *argov1.RolloutSpec) {
			withSteps(weightStep(50), pauseStep(10))(spec)
			spec.Strategy.Canary.DynamicStableScale = true
		}, Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "experiment", Router: actors.NoRouter, Spec: withSteps(experimentStep("20s", true), weightStep(50)), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "scaled canary", Router: actors.GatewayAPI, Spec: withSteps(argov1.CanaryStep{SetCanaryScale: &argov1.SetCanaryScale{Replicas: new(int32(1))}}, weightStep(10), pauseStep(5)), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "aborted with a weight of pods", Router: actors.GatewayAPI, Spec: func(spec *argov1.RolloutSpec) {
			spec.Replicas = new(int32(10))
			withSteps(argov1.CanaryStep{SetCanaryScale: &argov1.SetCanaryScale{Weight: new(int32(10))}}, weightStep(5), argov1.CanaryStep{SetCanaryScale: &argov1.SetCanaryScale{MatchTrafficWeight: true}}, weightStep(50), analysisStep())(spec)
			spec.Strategy.Canary.DynamicStableScale, spec.Strategy.Canary.AbortScaleDownDelaySeconds = true, new(int32(0))
		}, Acts: []Act{shipWhenHealthy(actors.BadVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "blue-green", Router: actors.NoRouter, Green: true, Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "blue-green, analysed", Router: actors.NoRouter, Green: true, Spec: func(spec *argov1.RolloutSpec) {
			spec.Strategy.BlueGreen.PrePromotionAnalysis = new(analysisWith(shortTemplate))
			spec.Strategy.BlueGreen.PostPromotionAnalysis = new(analysisWith(shortTemplate))
		}, Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "blue-green, rolled back", Router: actors.NoRouter, Green: true, Spec: func(spec *argov1.RolloutSpec) {
			spec.Strategy.BlueGreen.PostPromotionAnalysis = new(analysisWith(shortTemplate))
		}, Acts: []Act{shipWhenHealthy(actors.BadVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
	}
	stories = append(stories, fiveWeights())
	return slices.Concat(stories, interruptions(), pingPongStories(), jobStories(), workloadStories(), silentGateways(), unreadableTemplates())
}

// fiveWeights is the release that make bench measures: five weights with a pause each, and a background analysis of two metrics.
func fiveWeights() Story {
	const template = "checks"
	check := func(name string) argov1.Metric {
		m := errorsMetric("10s", 0)
		m.Name, m.InitialDelay = name, m.Interval
		return m
	}
	return Story{Name: "five weights", Router: actors.Istio, Spec: func(spec *argov1.RolloutSpec) {
		spec.Replicas, spec.MinReadySeconds = new(int32(1)), 0
		var steps []argov1.CanaryStep
		for weight := int32(10); weight <= 50; weight += 10 {
			steps = append(steps, weightStep(weight), pauseStep(10))
		}
		withSteps(steps...)(spec)
		spec.Strategy.Canary.Analysis = &argov1.RolloutAnalysisBackground{RolloutAnalysis: analysisWith(template)}
	}, Extra: func(r *Release) {
		r.objects = append(r.objects, analysisTemplate(template, check("success"), check("latency")))
	}, Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"}
}

// interruptions returns stories in which users change their minds.
func interruptions() []Story {
	return []Story{
		{Name: "failed analysis", Router: actors.Istio, Spec: withSteps(weightStep(50), analysisStep()), Acts: []Act{shipWhenHealthy(actors.BadVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "never ready", Router: actors.Istio, Spec: func(spec *argov1.RolloutSpec) {
			withSteps(weightStep(50))(spec)
			spec.ProgressDeadlineAbort = true
		}, Acts: []Act{shipWhenHealthy(actors.NeverReady)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "never ready after an abort", Router: actors.Istio, Spec: func(spec *argov1.RolloutSpec) {
			withSteps(weightStep(50), pauseStep(0))(spec)
			spec.ProgressDeadlineAbort = true
		}, Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: isPaused, After: 5 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }},
			// By then, the pods of v2 have been removed, and its ReplicaSet retains their deadline.
			{When: isAborted, After: 40 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.NeverReady)) }},
		}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "promoted by a user", Router: actors.GatewayAPI, Spec: withSteps(weightStep(30), pauseStep(0)), Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: isPaused, After: 10 * time.Second, Do: func(p *users, r *Release) { p.promote(r.Key) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "blue-green, promoted by a user", Router: actors.NoRouter, Green: true, Spec: func(spec *argov1.RolloutSpec) {
			spec.Strategy.BlueGreen.AutoPromotionEnabled = new(false)
		}, Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: isPaused, After: 10 * time.Second, Do: func(p *users, r *Release) { p.promote(r.Key) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "aborted and tried again", Router: actors.Istio, Spec: withSteps(weightStep(50), pauseStep(20)), Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: hasHalfTheWeight, After: 5 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }},
			{When: isAborted, After: 15 * time.Second, Do: func(p *users, r *Release) { p.retry(r.Key) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "promoted at once", Router: actors.Istio, Spec: withSteps(weightStep(10), pauseStep(0), analysisStep()), Acts: []Act{
			shipWhenHealthy(actors.BadVersion),
			{When: isPaused, After: 5 * time.Second, Do: func(p *users, r *Release) { p.promoteFull(r.Key) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "new revision on the way", Router: actors.Istio, Spec: withSteps(weightStep(50), pauseStep(20)), Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: hasHalfTheWeight, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.GoodVersion)) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v3"},
		{Name: "back on the way", Router: actors.GatewayAPI, Spec: withSteps(weightStep(50), pauseStep(20)), Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: hasHalfTheWeight, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Known["v1"]) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v1"},
		{Name: "scaled on the way", Router: actors.Istio, Spec: withSteps(weightStep(50), pauseStep(20)), Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: hasHalfTheWeight, After: 5 * time.Second, Do: func(p *users, r *Release) {
				p.updateRollout("user", r.Key, func(o *argov1.Rollout) { o.Spec.Replicas = new(int32(4)) })
			}},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		abortedWithoutRoom(),
		analysisRunNeverObserved(),
		{Name: "restart", Router: actors.NoRouter, Acts: []Act{
			{When: isHealthy, After: 5 * time.Second, Do: func(p *users, r *Release) {
				p.updateRollout("user", r.Key, func(o *argov1.Rollout) { o.Spec.RestartAt = new(metav1.NewTime(p.World.Now().Add(-time.Second))) })
			}},
		}, End: argov1.RolloutPhaseHealthy, Version: "v1"},
		{Name: "deletion while no process is running", Router: actors.Istio, Spec: withHeaderRoute(pauseStep(0)), Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: isPaused, After: 5 * time.Second, Do: func(p *users, r *Release) {
				p.crash()
				p.UserClient.DeleteOf(r.Key, r.Key.Name, rolloutKind)
			}},
		}},
		{Name: "deletion", Router: actors.Istio, Acts: []Act{
			{When: isHealthy, After: 5 * time.Second, Do: func(p *users, r *Release) { p.UserClient.DeleteOf(r.Key, r.Key.Name, rolloutKind) }},
		}},
	}
}

// crash crashes all processes, one of which starts again after a while.
func (u *users) crash() {
	for _, process := range slices.Clone(u.World.Instances()) {
		process.CrashAndRestart("killed by the node")
	}
}

// withHeaderRoute routes a part of the traffic, and requests with a header, to the new revision before the last step.
func withHeaderRoute(last argov1.CanaryStep) func(*argov1.RolloutSpec) {
	return func(spec *argov1.RolloutSpec) {
		header := argov1.SetHeaderRoute{Name: byHeader, Match: []argov1.HeaderRoutingMatch{{HeaderName: "x-new", HeaderValue: &argov1.StringMatch{Exact: "yes"}}}}
		withSteps(weightStep(20), argov1.CanaryStep{SetHeaderRoute: &header}, last)(spec)
		spec.Strategy.Canary.TrafficRouting.ManagedRoutes = []argov1.ManagedRoute{{Name: byHeader}}
	}
}

// withMirrorRoute mirrors requests to the new revision before it receives traffic.
func withMirrorRoute(last argov1.CanaryStep) func(*argov1.RolloutSpec) {
	return func(spec *argov1.RolloutSpec) {
		mirror := argov1.SetMirrorRoute{Name: copied, Match: []argov1.RouteMatch{{Path: &argov1.StringMatch{Prefix: "/"}}}, Percentage: new(int32(20))}
		pods := argov1.SetCanaryScale{Replicas: new(int32(1))}
		withSteps(argov1.CanaryStep{SetCanaryScale: &pods}, argov1.CanaryStep{SetMirrorRoute: &mirror}, pauseStep(5), weightStep(50), last)(spec)
		spec.Strategy.Canary.TrafficRouting.ManagedRoutes = []argov1.ManagedRoute{{Name: copied}}
	}
}

// abortedWithoutRoom is a release that is aborted while twice as many pods are desired as exist, and no node has room for more.
// The pods that served all the traffic before still can.
func abortedWithoutRoom() Story {
	return Story{
		Name: "aborted without room", Router: actors.Istio, Spec: func(spec *argov1.RolloutSpec) {
			withSteps(weightStep(50), pauseStep(0))(spec)
			spec.Replicas, spec.Strategy.Canary.AbortScaleDownDelaySeconds = new(int32(4)), new(int32(60))
		}, Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: isPaused, After: 2 * time.Second, Do: func(p *users, r *Release) {
				p.Cluster.LimitRoom(0)
				p.updateRollout("user", r.Key, func(o *argov1.Rollout) { o.Spec.Replicas = new(int32(8)) })
			}},
			{After: 5 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }},
			{When: isAborted, After: 10 * time.Second, Do: func(p *users, _ *Release) { p.Cluster.LimitRoom(1) }},
			{After: 20 * time.Second, Do: func(p *users, _ *Release) { p.Cluster.RestoreRoom() }},
		}, End: argov1.RolloutPhaseDegraded, Version: "v1",
	}
}

// analysisRunNeverObserved is a release whose AnalysisRun is deleted before the process has observed its creation, while the watch
// reconnects: no event delivers the version that the process has written.
func analysisRunNeverObserved() Story {
	return Story{Name: "AnalysisRun that is never observed", Router: actors.Istio, Spec: withSteps(weightStep(50), analysisStep()), Acts: []Act{
		{When: isHealthy, After: 5 * time.Second, Do: func(p *users, r *Release) {
			p.UserClient.DuringWrite(store.Create, runKind, true, func() {
				for _, run := range p.World.Server.All(runKind) {
					p.UserClient.DeleteOf(r.Key, run.Key().Name, runKind)
				}
				p.UserClient.Reconnect(runKind)
			})
			p.ship(r, r.Add(actors.GoodVersion))
		}},
	}, End: argov1.RolloutPhaseHealthy, Version: "v2"}
}

// propagation returns the propagation policy of a deletion.
func propagation(orphans bool) client.PropagationPolicy {
	if orphans {
		return client.PropagationPolicy(metav1.DeletePropagationOrphan)
	}
	return client.PropagationPolicy(metav1.DeletePropagationBackground)
}
