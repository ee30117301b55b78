package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
)

// Story is a scripted release: its spec, and the actions of users. It has one final state, whatever the scheduling.
type Story struct {
	Name   string
	Router string
	Spec   func(*argov1.RolloutSpec)
	// Extra is what not every release has; nil: nothing.
	Extra func(*Release)
	// Green is true of one that is released blue-green.
	Green bool
	// Acts are what users do, one after the other.
	Acts []Act
	// End is the phase in which it ends; empty: the Rollout is gone. Version is what serves then.
	End     argov1.RolloutPhase
	Version string
}

// Act is one thing that users do in a story.
type Act = actors.Step[*users, *Release, argov1.RolloutStatus]

// release is the release of a story.
func (s Story) release() *Release {
	strategy := argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{}}
	if s.Green {
		strategy = argov1.RolloutStrategy{BlueGreen: &argov1.BlueGreenStrategy{ScaleDownDelaySeconds: new(int32(10))}}
	}
	r := newRelease("cart", s.Router, strategy)
	r.objects = append(r.objects, templates()...)
	if s.Spec != nil {
		s.Spec(&r.Spec)
	}
	if s.Extra != nil {
		s.Extra(r)
	}
	return r
}

// healthyNow is true of a release that is at its end.
func healthyNow(_ *Release, s argov1.RolloutStatus) bool {
	return s.Phase == argov1.RolloutPhaseHealthy
}

// pausedNow is true of a release that a user has to go on with.
func pausedNow(_ *Release, s argov1.RolloutStatus) bool { return len(s.PauseConditions) > 0 }

// halfway is true once the new revision has at least half of the weight.
func halfway(_ *Release, s argov1.RolloutStatus) bool {
	return s.Canary.Weights != nil && s.Canary.Weights.Canary.Weight >= 50
}

// aborted is true of a release that was rolled back.
func aborted(_ *Release, s argov1.RolloutStatus) bool { return s.Abort }

// shipping is the act in which a version is shipped, once the first one serves.
func shipping(v actors.Version) Act {
	return Act{When: healthyNow, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(v)) }}
}

// The versions of stories.
var ()

func weight(w int32) argov1.CanaryStep { return argov1.CanaryStep{SetWeight: &w} }

// pause is a step that ends after so many seconds; 0: when a user says so.
func pause(seconds int32) argov1.CanaryStep {
	if seconds == 0 {
		return argov1.CanaryStep{Pause: &argov1.RolloutPause{}}
	}
	return argov1.CanaryStep{Pause: &argov1.RolloutPause{Duration: new(intstr.FromInt32(seconds))}}
}

func analysed() argov1.CanaryStep { return argov1.CanaryStep{Analysis: new(judgedBy(shortTemplate))} }

// compared is an Experiment with both revisions, for so long.
func compared(duration string, judged bool) argov1.CanaryStep {
	step := &argov1.RolloutExperimentStep{
		Duration: argov1.DurationString(duration), ScaleDownDelaySeconds: new(int32(5)),
		Templates: []argov1.RolloutExperimentTemplate{
			{Name: "old", SpecRef: argov1.StableSpecRef, Metadata: side("old"), Selector: selects("old")},
			{Name: "new", SpecRef: argov1.CanarySpecRef, Metadata: side("new"), Selector: selects("new")},
		},
	}
	if judged {
		step.Analyses = []argov1.RolloutExperimentStepAnalysisTemplateRef{{
			Name: "judge", TemplateName: shortTemplate, Args: judgedBy(shortTemplate).Args, RequiredForCompletion: true,
		}}
	}
	return argov1.CanaryStep{Experiment: step}
}

// side keeps the pods of an Experiment out of the Services of the release.
func side(name string) argov1.PodTemplateMetadata {
	return argov1.PodTemplateMetadata{Labels: map[string]string{"app": "compared", "side": name}}
}

func selects(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "compared", "side": name}}
}

// stepping lets a canary go through steps.
func stepping(steps ...argov1.CanaryStep) func(*argov1.RolloutSpec) {
	return func(spec *argov1.RolloutSpec) { spec.Strategy.Canary.Steps = steps }
}

// Stories are plain releases, one for each way that a release can go. Each has few steps, so that all moments of it can be
// tried.
func Stories() []Story {
	stories := []Story{
		{Name: "first revision", Router: actors.NoRouter, End: argov1.RolloutPhaseHealthy, Version: "v1"},
		{Name: "rolling update", Router: actors.NoRouter, Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "steps by pods", Router: actors.NoRouter, Spec: stepping(weight(50), pause(10)), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "steps", Router: actors.Istio, Spec: stepping(weight(20), pause(10), weight(60), analysed()), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "analysis with a secret", Router: actors.NoRouter, Spec: stepping(weight(50), analysed()), Extra: (*Release).withSecret, Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by header", Router: actors.Istio, Spec: headed(pause(10)), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "template of a Deployment", Router: actors.NoRouter, Spec: stepping(weight(50), pause(10)), Extra: referring(argov1.ScaleDownProgressively), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "background analysis", Router: actors.GatewayAPI, Spec: func(spec *argov1.RolloutSpec) {
			stepping(weight(40), pause(20))(spec)
			spec.Strategy.Canary.Analysis = &argov1.RolloutAnalysisBackground{RolloutAnalysis: judgedBy(endlessTemplate)}
		}, Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "dynamic", Router: actors.Istio, Spec: func(spec *argov1.RolloutSpec) {
			stepping(weight(50), pause(10))(spec)
			spec.Strategy.Canary.DynamicStableScale = true
		}, Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "experiment", Router: actors.NoRouter, Spec: stepping(compared("20s", true), weight(50)), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "scaled canary", Router: actors.GatewayAPI, Spec: stepping(argov1.CanaryStep{SetCanaryScale: &argov1.SetCanaryScale{Replicas: new(int32(1))}}, weight(10), pause(5)), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "blue-green", Router: actors.NoRouter, Green: true, Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "blue-green, analysed", Router: actors.NoRouter, Green: true, Spec: func(spec *argov1.RolloutSpec) {
			spec.Strategy.BlueGreen.PrePromotionAnalysis = new(judgedBy(shortTemplate))
			spec.Strategy.BlueGreen.PostPromotionAnalysis = new(judgedBy(shortTemplate))
		}, Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "blue-green, rolled back", Router: actors.NoRouter, Green: true, Spec: func(spec *argov1.RolloutSpec) {
			spec.Strategy.BlueGreen.PostPromotionAnalysis = new(judgedBy(shortTemplate))
		}, Acts: []Act{shipping(actors.BadVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
	}
	return slices.Concat(stories, interruptions(), pingPongStories(), jobStories(), returns())
}

// interruptions are stories in which users change their minds.
func interruptions() []Story {
	return []Story{
		{Name: "failed analysis", Router: actors.Istio, Spec: stepping(weight(50), analysed()), Acts: []Act{shipping(actors.BadVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "never ready", Router: actors.Istio, Spec: func(spec *argov1.RolloutSpec) {
			stepping(weight(50))(spec)
			spec.ProgressDeadlineAbort = true
		}, Acts: []Act{shipping(actors.NeverReady)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "promoted by a user", Router: actors.GatewayAPI, Spec: stepping(weight(30), pause(0)), Acts: []Act{
			shipping(actors.GoodVersion),
			{When: pausedNow, After: 10 * time.Second, Do: func(p *users, r *Release) { p.promote(r.Key) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "blue-green, promoted by a user", Router: actors.NoRouter, Green: true, Spec: func(spec *argov1.RolloutSpec) {
			spec.Strategy.BlueGreen.AutoPromotionEnabled = new(false)
		}, Acts: []Act{
			shipping(actors.GoodVersion),
			{When: pausedNow, After: 10 * time.Second, Do: func(p *users, r *Release) { p.promote(r.Key) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "aborted and tried again", Router: actors.Istio, Spec: stepping(weight(50), pause(20)), Acts: []Act{
			shipping(actors.GoodVersion),
			{When: halfway, After: 5 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }},
			{When: aborted, After: 15 * time.Second, Do: func(p *users, r *Release) { p.retry(r.Key) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "promoted at once", Router: actors.Istio, Spec: stepping(weight(10), pause(0), analysed()), Acts: []Act{
			shipping(actors.BadVersion),
			{When: pausedNow, After: 5 * time.Second, Do: func(p *users, r *Release) { p.promoteFull(r.Key) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "new revision on the way", Router: actors.Istio, Spec: stepping(weight(50), pause(20)), Acts: []Act{
			shipping(actors.GoodVersion),
			{When: halfway, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.GoodVersion)) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v3"},
		{Name: "back on the way", Router: actors.GatewayAPI, Spec: stepping(weight(50), pause(20)), Acts: []Act{
			shipping(actors.GoodVersion),
			{When: halfway, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Known["v1"]) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v1"},
		{Name: "scaled on the way", Router: actors.Istio, Spec: stepping(weight(50), pause(20)), Acts: []Act{
			shipping(actors.GoodVersion),
			{When: halfway, After: 5 * time.Second, Do: func(p *users, r *Release) {
				p.respecify("user", r.Key, func(o *argov1.Rollout) { o.Spec.Replicas = new(int32(4)) })
			}},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		abortedWithoutRoom(),
		{Name: "restart", Router: actors.NoRouter, Acts: []Act{
			{When: healthyNow, After: 5 * time.Second, Do: func(p *users, r *Release) {
				p.respecify("user", r.Key, func(o *argov1.Rollout) { o.Spec.RestartAt = new(metav1.NewTime(p.world.Now().Add(-time.Second))) })
			}},
		}, End: argov1.RolloutPhaseHealthy, Version: "v1"},
		{Name: "deletion while no process is running", Router: actors.Istio, Spec: headed(pause(0)), Acts: []Act{
			shipping(actors.GoodVersion),
			{When: pausedNow, After: 5 * time.Second, Do: func(p *users, r *Release) {
				for _, process := range slices.Clone(p.world.Instances()) {
					process.CrashAndRestart("killed from outside")
				}
				p.userClient.DeleteOf(r.Key, r.Key.Name, rolloutKind)
			}},
		}},
		{Name: "deletion", Router: actors.Istio, Acts: []Act{
			{When: healthyNow, After: 5 * time.Second, Do: func(p *users, r *Release) { p.userClient.DeleteOf(r.Key, r.Key.Name, rolloutKind) }},
		}},
	}
}

// headed gives the new revision a part of the users, and those with a header, before the last step.
func headed(last argov1.CanaryStep) func(*argov1.RolloutSpec) {
	return func(spec *argov1.RolloutSpec) {
		header := argov1.SetHeaderRoute{Name: byHeader, Match: []argov1.HeaderRoutingMatch{{HeaderName: "x-new", HeaderValue: &argov1.StringMatch{Exact: "yes"}}}}
		stepping(weight(20), argov1.CanaryStep{SetHeaderRoute: &header}, last)(spec)
		spec.Strategy.Canary.TrafficRouting.ManagedRoutes = []argov1.ManagedRoute{{Name: byHeader}}
	}
}

// abortedWithoutRoom is a release that is aborted while twice as many pods are asked for as there are, and no node has room for
// more. The pods that served all the traffic before still can.
func abortedWithoutRoom() Story {
	return Story{
		Name: "aborted without room", Router: actors.Istio, Spec: func(spec *argov1.RolloutSpec) {
			stepping(weight(50), pause(0))(spec)
			spec.Replicas, spec.Strategy.Canary.AbortScaleDownDelaySeconds = new(int32(4)), new(int32(60))
		}, Acts: []Act{
			shipping(actors.GoodVersion),
			{When: pausedNow, After: 2 * time.Second, Do: func(p *users, r *Release) {
				p.cluster.Fill(0)
				p.respecify("user", r.Key, func(o *argov1.Rollout) { o.Spec.Replicas = new(int32(8)) })
			}},
			{After: 5 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }},
			{When: aborted, After: 10 * time.Second, Do: func(p *users, _ *Release) { p.cluster.Fill(1) }},
			{After: 20 * time.Second, Do: func(p *users, _ *Release) { p.cluster.Empty() }},
		}, End: argov1.RolloutPhaseDegraded, Version: "v1",
	}
}

// propagation is what becomes of what a deleted object owns.
func propagation(orphans bool) client.PropagationPolicy {
	if orphans {
		return client.PropagationPolicy(metav1.DeletePropagationOrphan)
	}
	return client.PropagationPolicy(metav1.DeletePropagationBackground)
}
