package canary

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// phaseIs returns a condition: the release is in that phase and no decision is pending.
func phaseIs(phase flaggerv1.CanaryPhase) func(*Release, flaggerv1.CanaryStatus) bool {
	return func(_ *Release, s flaggerv1.CanaryStatus) bool {
		return s.Phase == phase && (s.Serin == nil || s.Serin.Intent == "")
	}
}

// weightIs returns a condition: the canary has at least that weight.
func weightIs(weight int) func(*Release, flaggerv1.CanaryStatus) bool {
	return func(_ *Release, s flaggerv1.CanaryStatus) bool {
		return s.Phase == flaggerv1.CanaryPhaseProgressing && s.CanaryWeight >= weight
	}
}

// shipWhenInitialized returns the act that ships a version once the release is initialized.
func shipWhenInitialized(v actors.Version) Act {
	return Act{When: phaseIs(flaggerv1.CanaryPhaseInitialized), After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(v)) }}
}

// badUnderLoad is a version that fails its checks only once it has 40 percent of the traffic.
var badUnderLoad = actors.Version{BadFromWeight: 40, Pods: actors.Healthy}

// useStepWeights sets the step weights of most stories.
func useStepWeights(spec *flaggerv1.CanarySpec) { spec.Analysis.StepWeights = []int{20, 50} }

// Stories returns one plain release for each way in which a release can end. Each has few steps, so that faults can be injected
// at every request.
func Stories() []Story {
	iterations := func(spec *flaggerv1.CanarySpec) { spec.Analysis.Iterations = 2 }
	succeeded := flaggerv1.CanaryPhaseSucceeded
	stories := []Story{
		{Name: "take-over", Provider: actors.Istio, Spec: useStepWeights, End: flaggerv1.CanaryPhaseInitialized},
		{Name: "take-over with Services", Provider: actors.NoRouter, Spec: iterations, Around: func(r *Release) {
			r.objects = append(r.objects, r.newService())
			r.addConfig()
			r.addAutoscaler()
		}, End: flaggerv1.CanaryPhaseInitialized},
		{Name: "steps", Provider: actors.Istio, Spec: useStepWeights, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: succeeded},
		{Name: "step and slow return", Provider: actors.GatewayAPI, Spec: func(spec *flaggerv1.CanarySpec) {
			spec.Analysis.StepWeight, spec.Analysis.MaxWeight, spec.Analysis.StepWeightPromotion = 50, 60, 50
		}, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: succeeded},
		{Name: "affinity and mirror", Provider: actors.Istio, Spec: func(spec *flaggerv1.CanarySpec) {
			spec.Analysis.StepWeights, spec.Analysis.Mirror = []int{30}, true
			spec.Analysis.SessionAffinity = &flaggerv1.SessionAffinity{CookieName: "side", PrimaryCookieName: "stable-side"}
		}, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: succeeded},
		{Name: "a/b test", Provider: actors.GatewayAPI, Spec: func(spec *flaggerv1.CanarySpec) {
			iterations(spec)
			spec.Analysis.Match = []flaggerv1.AnalysisMatch{{Headers: map[string]flaggerv1.HeaderMatch{"x-canary": {Exact: "always"}}}}
		}, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: succeeded},
		{Name: "blue/green without a mesh", Provider: actors.NoRouter, Spec: iterations, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: succeeded},
		{Name: "blue/green", Provider: actors.Istio, Spec: iterations, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: succeeded},
		{Name: "blue/green with a mirror", Provider: actors.GatewayAPI, Spec: func(spec *flaggerv1.CanarySpec) {
			iterations(spec)
			spec.Analysis.Mirror = true
		}, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: succeeded},
		{Name: "without analysis", Provider: actors.Istio, Spec: func(spec *flaggerv1.CanarySpec) {
			useStepWeights(spec)
			spec.SkipAnalysis = true
		}, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: succeeded},
		{Name: "rollback", Provider: actors.Istio, Spec: func(spec *flaggerv1.CanarySpec) {
			useStepWeights(spec)
			spec.Analysis.Threshold = 2
		}, Acts: []Act{shipWhenInitialized(badUnderLoad)}, End: flaggerv1.CanaryPhaseFailed},
		{Name: "never ready", Provider: actors.GatewayAPI, Spec: useStepWeights, Acts: []Act{shipWhenInitialized(actors.NeverReady)}, End: flaggerv1.CanaryPhaseFailed},
		{Name: "hooks", Provider: actors.Istio, Spec: func(spec *flaggerv1.CanarySpec) {
			useStepWeights(spec)
			for i, of := range []flaggerv1.HookType{flaggerv1.PreRolloutHook, flaggerv1.RolloutHook, flaggerv1.PostRolloutHook} {
				spec.Analysis.Webhooks = append(spec.Analysis.Webhooks, newHook(of, "test", i, "5s", 0))
			}
		}, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: succeeded},
		{Name: "gates", Provider: actors.GatewayAPI, Spec: func(spec *flaggerv1.CanarySpec) {
			spec.Analysis.StepWeights = []int{40}
			for i, of := range []flaggerv1.HookType{flaggerv1.ConfirmRolloutHook, flaggerv1.ConfirmTrafficIncreaseHook, flaggerv1.ConfirmPromotionHook} {
				spec.Analysis.Webhooks = append(spec.Analysis.Webhooks, newHook(of, "gate", i, "5s", 0))
			}
		}, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: succeeded},
	}
	return slices.Concat(stories, interruptions(), latePrimaries(), daemonSets(), otherProviders(), blockedReleases(), editedReleases(), silentGateways(), []Story{rolledBackWithoutRoom(), routeDeletedWithAWeight(), windowInTheFuture()})
}

// rolledBackWithoutRoom is a release that fails its checks while pods of the primary are missing, more pods are desired than
// before, and no node has room for them. The primary receives the traffic that its pods have capacity for, and the rest once
// the next pod is ready.
func rolledBackWithoutRoom() Story {
	scale := func(p *users, r *Release, replicas int64) {
		p.changeObject(r.Target+"-primary", actors.DeploymentKind, func(o map[string]any) bool {
			return unstructured.SetNestedField(o, replicas, "spec", "replicas") == nil
		})
	}
	return Story{
		Name: "rollback without room", Provider: actors.Istio, Spec: func(spec *flaggerv1.CanarySpec) {
			spec.Analysis.StepWeights = []int{80}
		}, Acts: []Act{
			shipWhenInitialized(badUnderLoad),
			{When: weightIs(80), After: time.Second, Do: func(p *users, r *Release) { scale(p, r, 1) }},
			{After: 5 * time.Second, Do: func(p *users, r *Release) {
				p.Cluster.LimitRoom(-1) // another workload gets the room of the terminating pod
				scale(p, r, 4)
			}},
			{After: 19 * time.Second, Do: func(p *users, _ *Release) { p.Cluster.LimitRoom(1) }},
		}, End: flaggerv1.CanaryPhaseFailed,
	}
}

// routeDeletedWithAWeight is an idle release whose route is deleted with the weight of a user, after Serin has observed the weight
// and before it maintains the route: it is creating a Service at that moment. The canary has no pods.
func routeDeletedWithAWeight() Story {
	return Story{Name: "route deleted with a weight", Provider: actors.GatewayAPI, Spec: useStepWeights, Acts: []Act{
		// By then no process can still believe that the pods of the target answer (I1).
		{When: phaseIs(flaggerv1.CanaryPhaseInitialized), After: 5 * time.Minute, Do: func(p *users, r *Release) {
			p.UserClient.DuringWrite(store.Create, actors.ServiceKind, false, func() {
				p.UserClient.DeleteRoute(r.Key, r.Apex, r.Provider)
				p.UserClient.Reconnect(cluster.HTTPRouteKind)
			})
			p.UserClient.DeleteOf(r.Key, r.Apex+"-canary", actors.ServiceKind)
			p.UserClient.Write("user", r.Apex, cluster.HTTPRouteKind, func(o map[string]any) bool { return actors.SetCanaryWeight(o, r.isCanary, 77) })
			p.UserClient.Reconnect(actors.ServiceKind, cluster.HTTPRouteKind)
		}},
	}, End: flaggerv1.CanaryPhaseInitialized}
}

// windowInTheFuture is a release whose second window begins while the clock is a day ahead: once the clock is correct, the window
// begins again, and has its full length.
func windowInTheFuture() Story {
	set := func(skew time.Duration) func(*users, *Release) {
		return func(p *users, _ *Release) { p.World.SetClocks(skew) }
	}
	return Story{Name: "window in the future", Provider: actors.Istio, Spec: func(spec *flaggerv1.CanarySpec) {
		useStepWeights(spec)
		spec.Analysis.Interval = "2m" // the rule for windows after a change of the clock (I14) tolerates half a minute
	}, Acts: []Act{
		shipWhenInitialized(actors.GoodVersion),
		{When: weightIs(20), After: 45 * time.Second, Do: set(24 * time.Hour)}, // the faults have ended by then, which corrects all clocks
		{When: weightIs(50), After: time.Second, Do: set(0)},
	}, End: flaggerv1.CanaryPhaseSucceeded}
}

// latePrimaries returns stories of promotions that fail because the primary needs longer than its deadline, and that recover
// once it is ready.
func latePrimaries() []Story {
	slow := Act{When: weightIs(50), Do: func(_ *users, r *Release) {
		r.Known["v2"].Pods = cluster.PodBehaviour{Start: func() time.Duration { return 90 * time.Second }} // from here on, only the primary starts pods
	}}
	return []Story{
		{Name: "late primary", Provider: actors.Istio, Spec: useStepWeights, Acts: []Act{shipWhenInitialized(actors.GoodVersion), slow}, End: flaggerv1.CanaryPhaseSucceeded},
		{Name: "new revision before a late primary", Provider: actors.GatewayAPI, Spec: func(spec *flaggerv1.CanarySpec) {
			useStepWeights(spec)
			spec.Analysis.Interval = "2m" // so that it is not promoted before the primary is ready
		}, Acts: []Act{
			shipWhenInitialized(actors.GoodVersion), slow,
			{When: phaseIs(flaggerv1.CanaryPhaseFailed), After: 5 * time.Second, Do: func(p *users, r *Release) {
				p.UserClient.DeleteOf(r.Key, r.Target+"-primary", actors.DeploymentKind) // and with it the pods of v1, which could serve users
			}},
			{After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.GoodVersion)) }},
		}, End: flaggerv1.CanaryPhaseSucceeded},
		{Name: "new revision after a change of the provider", Provider: actors.GatewayAPI, Spec: func(spec *flaggerv1.CanarySpec) {
			useStepWeights(spec)
			spec.Analysis.Interval = "2m"
		}, Acts: []Act{
			shipWhenInitialized(actors.GoodVersion), slow,
			{When: phaseIs(flaggerv1.CanaryPhasePromoting), After: time.Second, Do: func(p *users, r *Release) { p.changeProvider(r, actors.Istio) }},
			{When: phaseIs(flaggerv1.CanaryPhaseFailed), After: 5 * time.Second, Do: func(p *users, r *Release) {
				p.UserClient.DeleteOf(r.Key, r.Target+"-primary", actors.DeploymentKind) // so that the next release begins with all users
			}},
			{After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.GoodVersion)) }},
		}, End: flaggerv1.CanaryPhaseSucceeded},
		{Name: "new revision beside a late primary", Provider: actors.Istio, Spec: func(spec *flaggerv1.CanarySpec) {
			useStepWeights(spec)
			spec.Analysis.Interval = "2m"
		}, Acts: []Act{
			shipWhenInitialized(actors.GoodVersion), slow, // the pods of v1 serve until those of v2 have started
			{When: phaseIs(flaggerv1.CanaryPhaseFailed), After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.GoodVersion)) }},
		}, End: flaggerv1.CanaryPhaseSucceeded},
	}
}

// otherProviders returns stories of Contour and Gloo Edge: a release with the route of a user, which the deletion restores, and an A/B
// test with an Upstream for each side.
func otherProviders() []Story {
	return []Story{
		{Name: "deletion that restores an HTTPProxy", Provider: actors.Contour, Spec: func(spec *flaggerv1.CanarySpec) {
			useStepWeights(spec)
			spec.RevertOnDeletion = true
		}, Around: func(r *Release) {
			r.objects = append(r.objects, r.newOtherRoute(true))
		}, Acts: []Act{
			shipWhenInitialized(actors.GoodVersion),
			{When: phaseIs(flaggerv1.CanaryPhaseSucceeded), After: 10 * time.Second, Do: func(p *users, r *Release) {
				p.UserClient.DeleteOf(r.Key, r.Key.Name, canaryKind)
			}},
		}},
		{Name: "a/b test with Upstreams", Provider: actors.Gloo, Spec: func(spec *flaggerv1.CanarySpec) {
			spec.Analysis.Iterations = 2
			spec.Analysis.Match = []flaggerv1.AnalysisMatch{{Headers: map[string]flaggerv1.HeaderMatch{"x-canary": {Exact: "always"}}}}
		}, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: flaggerv1.CanaryPhaseSucceeded},
	}
}

// daemonSets returns stories of workloads without replicas.
func daemonSets() []Story {
	around := func(r *Release) {
		r.useDaemonSet()
		r.addConfig()
		r.Spec.ProgressDeadlineSeconds = new(int32(300)) // its pods are replaced one at a time
	}
	return []Story{
		{Name: "DaemonSet", Provider: actors.Istio, Spec: useStepWeights, Around: around, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: flaggerv1.CanaryPhaseSucceeded},
		{Name: "rollback of a DaemonSet", Provider: actors.GatewayAPI, Spec: useStepWeights, Around: around, Acts: []Act{shipWhenInitialized(badUnderLoad)}, End: flaggerv1.CanaryPhaseFailed},
		{Name: "deletion that restores a DaemonSet", Provider: actors.Istio, Spec: func(spec *flaggerv1.CanarySpec) {
			useStepWeights(spec)
			spec.RevertOnDeletion = true
		}, Around: around, Acts: []Act{
			{When: phaseIs(flaggerv1.CanaryPhaseInitialized), After: 10 * time.Second, Do: func(p *users, r *Release) {
				p.UserClient.DeleteOf(r.Key, r.Key.Name, canaryKind)
			}},
		}},
	}
}

// interruptions returns stories in which users change their minds.
func interruptions() []Story {
	deleted := func(revert bool) Story {
		name := "deletion"
		if revert {
			name = "deletion that restores"
		}
		return Story{
			Name: name, Provider: actors.Istio,
			Spec: func(spec *flaggerv1.CanarySpec) {
				useStepWeights(spec)
				spec.RevertOnDeletion = revert
			},
			Around: func(r *Release) { r.objects = append(r.objects, r.newService()) },
			Acts: []Act{shipWhenInitialized(actors.GoodVersion), {When: phaseIs(flaggerv1.CanaryPhaseSucceeded), After: 10 * time.Second, Do: func(p *users, r *Release) {
				p.UserClient.DeleteOf(r.Key, r.Key.Name, canaryKind)
			}}},
		}
	}
	limited := deleted(true)
	limited.Name, limited.Acts = "deletion limited by an autoscaler", limited.Acts[1:]
	limited.Acts[0].When = phaseIs(flaggerv1.CanaryPhaseInitialized)
	limited.Acts[0].After = time.Minute // the autoscaler of the primary has scaled it up
	limited.Around = func(r *Release) {
		r.Known["v1"].Pods = cluster.PodBehaviour{Start: func() time.Duration { return 20 * time.Second }} // longer than the autoscaler waits
		r.addAutoscaler()
		r.Spec.AutoscalerRef.PrimaryScalerReplicas = &flaggerv1.ScalerReplicas{MinReplicas: new(int32(6)), MaxReplicas: new(int32(8))}
	}
	return []Story{
		limited,
		{Name: "rollback by a hook", Provider: actors.Istio, Spec: func(spec *flaggerv1.CanarySpec) {
			useStepWeights(spec)
			spec.Analysis.Webhooks = []flaggerv1.CanaryWebhook{newHook(flaggerv1.RollbackHook, "halt", 0, "5s", 0)}
		}, Acts: []Act{shipWhenInitialized(actors.GoodVersion)}, End: flaggerv1.CanaryPhaseFailed},
		{Name: "new revision on the way", Provider: actors.Istio, Spec: useStepWeights, Acts: []Act{
			shipWhenInitialized(actors.GoodVersion),
			{When: weightIs(20), After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.GoodVersion)) }},
		}, End: flaggerv1.CanaryPhaseSucceeded},
		{Name: "back to the promoted revision", Provider: actors.GatewayAPI, Spec: useStepWeights, Acts: []Act{
			shipWhenInitialized(actors.BadVersion),
			{When: weightIs(20), After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Known["v1"]) }},
		}, End: flaggerv1.CanaryPhaseSucceeded},
		{
			Name: "new configuration", Provider: actors.NoRouter, Spec: func(spec *flaggerv1.CanarySpec) { spec.Analysis.Iterations = 1 },
			Around: func(r *Release) { r.addConfig() },
			Acts: []Act{{When: phaseIs(flaggerv1.CanaryPhaseInitialized), After: 5 * time.Second, Do: func(p *users, r *Release) {
				p.configure(r, "2")
			}}}, End: flaggerv1.CanaryPhaseSucceeded,
		},
		deleted(false), deleted(true),
	}
}
