package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// drawSpec draws a valid Rollout.
func drawSpec(t *rapid.T) argov1.RolloutSpec {
	spec := argov1.RolloutSpec{
		Replicas: new(rapid.Int32Range(1, 6).Draw(t, "replicas")), ProgressDeadlineSeconds: drawOptional(t, "deadline", int32(30)),
		ProgressDeadlineAbort: drawBool(t, "abort late"), RevisionHistoryLimit: drawOptional(t, "history", int32(0), 1),
	}
	if drawBool(t, "window") {
		spec.RollbackWindow = &argov1.RollbackWindowSpec{Revisions: 2}
	}
	if drawBool(t, "blue-green") {
		spec.Strategy.BlueGreen = drawBlueGreen(t)
		return spec
	}
	c := &argov1.CanaryStrategy{CanaryService: drawOneOf(t, "canary service", "", "canary"), StableService: drawOneOf(t, "stable service", "", "stable")}
	spec.Strategy.Canary = c
	kinds := []argov1.CanaryStep{setWeight(20), setWeight(50), setWeight(100), pauseFor(""), pauseFor("5"), {Analysis: analysed}}
	if drawBool(t, "routed") {
		c.CanaryService, c.StableService = "canary", "stable"
		c.TrafficRouting = &argov1.RolloutTrafficRouting{}
		kinds = append(kinds, scaleTo(2), scaleLike(50), scaleFollow, argov1.CanaryStep{Experiment: &argov1.RolloutExperimentStep{}},
			argov1.CanaryStep{SetHeaderRoute: &argov1.SetHeaderRoute{Name: "h", Match: []argov1.HeaderRoutingMatch{{HeaderName: "a"}}}})
		c.DynamicStableScale, c.AbortScaleDownDelaySeconds = drawBool(t, "dynamic"), drawOptional(t, "abort delay", int32(0), 5)
		if !c.DynamicStableScale {
			c.ScaleDownDelaySeconds = drawOptional(t, "delay", int32(0), 5)
		}
		c.MinPodsPerReplicaSet, c.ScaleDownDelayRevisionLimit = drawOptional(t, "least", int32(2)), drawOptional(t, "limit", int32(0), 1)
		if drawBool(t, "ping-pong") {
			c.PingPong = &argov1.PingPongSpec{PingService: "ping", PongService: "pong"}
		}
	} else {
		amounts := []string{"0", "1", "2", `"25%"`, `"100%"`}
		c.MaxSurge, c.MaxUnavailable = amount(drawOneOf(t, "surge", amounts...)), amount(drawOneOf(t, "unavailable", amounts[1:]...))
	}
	c.Steps = rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 4).Draw(t, "steps")
	if drawBool(t, "analysed") {
		c.Analysis = &argov1.RolloutAnalysisBackground{RolloutAnalysis: *analysed, StartingStep: drawOptional(t, "starting step", int32(1))}
	}
	return spec
}

func drawBlueGreen(t *rapid.T) *argov1.BlueGreenStrategy {
	b := &argov1.BlueGreenStrategy{
		ActiveService: "active", PreviewService: drawOneOf(t, "preview", "preview", ""), PreviewReplicaCount: drawOptional(t, "preview count", int32(1), 2),
		AutoPromotionEnabled: drawOptional(t, "auto", false), AutoPromotionSeconds: drawOneOf(t, "auto seconds", int32(0), 5),
		ScaleDownDelaySeconds: drawOptional(t, "delay", int32(0), 5), ScaleDownDelayRevisionLimit: drawOptional(t, "limit", int32(0), 1),
		AbortScaleDownDelaySeconds: drawOptional(t, "abort delay", int32(0), 5),
	}
	if drawBool(t, "pre") {
		b.PrePromotionAnalysis = analysed
	}
	if drawBool(t, "post") {
		b.PostPromotionAnalysis = analysed
	}
	return b
}

// TestReleasesConverge runs random histories: users change their minds, pods become available late or never, analyses
// have any result, and the process stops between two effects. No limit is ever violated, and when all faults end, the
// Rollout reaches its desired state.
func TestReleasesConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(drawSpec(t))
		w.become = func(rs ReplicaSet) (replicas, available int32) {
			replicas = rapid.Int32Range(min(rs.Replicas, rs.SpecReplicas), max(rs.Replicas, rs.SpecReplicas)).Draw(t, "there")
			most := min(replicas, rs.SpecReplicas)
			return replicas, rapid.Int32Range(min(rs.Available, most), most).Draw(t, "available")
		}
		w.lives = func(effects int) (int, bool) {
			if rapid.IntRange(0, 4).Draw(t, "dies") > 0 {
				return effects, false
			}
			return rapid.IntRange(0, effects).Draw(t, "after effects"), true
		}
		w.watch = func(effect release.Effect, before []ReplicaSet) { w.checkEffect(t, effect, before) }
		for range rapid.IntRange(1, 30).Draw(t, "happenings") {
			w.performAction(t)
			for range rapid.IntRange(1, 6).Draw(t, "passes") {
				w.reconcile(t)
			}
		}
		w.finish(t)
	})
}

// performAction is one action of users, pods or analyses.
func (w *world) performAction(t *rapid.T) {
	phases := []argov1.AnalysisPhase{argov1.AnalysisPhaseRunning, argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseInconclusive}
	switch drawOneOf(t, "happens", "template", "template", "replicas", "abort", "retry", "promote", "full", "pause", "judge", "ready", "time", "restart", "steps", "skip", "router", "endpoints", "endpoints", "templates") {
	case "template":
		w.generation++
		w.template = drawOneOf(t, "template", "v1", "v2", "v3", "v4")
	case "replicas":
		w.generation++
		w.spec.Replicas = new(rapid.Int32Range(0, 6).Draw(t, "replicas"))
	case "abort":
		w.status.Abort = true
	case "retry":
		w.status.Abort = false
	case "promote":
		w.promote()
	case "full":
		if w.status.CurrentPodHash != w.status.StableRS {
			w.status.PromoteFull = true
		}
	case "templates":
		w.unreadableTemplate = drawOneOf(t, "unreadable template", "", "forbidden")
	case "pause":
		w.generation++
		w.spec.Paused = !w.spec.Paused
	case "judge":
		w.verdict, w.outcome = drawOneOf(t, "verdict", phases...), drawOneOf(t, "outcome", phases...)
	case "ready":
		hash := "hash-" + drawOneOf(t, "of", "v1", "v2", "v3")
		delete(w.ready, hash)
		if limit := rapid.Int32Range(0, 4).Draw(t, "ready"); limit < 4 {
			w.ready[hash] = limit
		}
	case "time":
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
	case "restart":
		w.generation++
		w.spec.RestartAt = new(metav1.NewTime(w.now.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "restart")) * time.Second)))
	case "steps":
		if c := w.spec.Strategy.Canary; c != nil && len(c.Steps) > 0 {
			w.generation++
			c.Steps = c.Steps[:len(c.Steps)-1]
		}
	case "router":
		w.observedRoute.Confirmed, w.observedRoute.ExternalLoadBalancer = drawOptional(t, "serves", true, false), rapid.Bool().Draw(t, "outside")
	case "endpoints":
		if w.outdatedEndpoints = nil; drawBool(t, "late") {
			w.outdatedEndpoints = w.endpoints()
		}
		w.endpointsUnreadable = rapid.IntRange(0, 9).Draw(t, "unread") == 0
	case "skip":
		if w.status.CurrentStepIndex != nil {
			*w.status.CurrentStepIndex++
		}
	}
}

// promote promotes a Rollout like the kubectl plugin.
func (w *world) promote() {
	w.spec.Paused = false
	s := &w.status
	switch {
	case len(s.PauseConditions) > 0:
		s.PauseConditions = nil
	case w.spec.Strategy.Canary != nil && s.CurrentStepIndex != nil:
		*s.CurrentStepIndex = min(*s.CurrentStepIndex+1, int32(len(w.spec.Strategy.Canary.Steps)))
	}
}

// checkEffect are the invariants of all effects.
func (w *world) checkEffect(t *rapid.T, effect release.Effect, before []ReplicaSet) {
	switch e := effect.(type) {
	case ReplicaSetScaled:
		w.checkScaling(t, e, before)
	case TrafficRouted:
		newest := w.replicaSet("cart-hash-" + w.template)
		if canary := e.Weights.Canary; canary.Weight > 0 && newest != nil && newest.Hash == canary.PodTemplateHash && newest.Available == 0 && w.raisesCanaryWeight(e) {
			t.Fatalf("%d of the traffic goes to %s, which has no pods:\n%s", canary.Weight, canary.PodTemplateHash, w.events.String())
		}
		w.checkEndpoints(t, e)
	case AnalysisRunExists, ExperimentExists:
		if w.unreadableTemplate != "" {
			t.Fatalf("%s, although a template may not be read", effect)
		}
	}
}

// checkEndpoints: a revision receives no additional traffic while its endpoints are not published, if another revision can
// serve.
func (w *world) checkEndpoints(t *rapid.T, e TrafficRouted) {
	canary, serving := e.Weights.Canary, w.replicaSet("cart-"+e.Weights.Stable.PodTemplateHash)
	if w.outdatedEndpoints == nil || w.endpointsUnreadable || w.outdatedEndpoints[canary.ServiceName][canary.PodTemplateHash] > 0 || serving == nil || serving.Available == 0 {
		return
	}
	if canary.Weight > revisionWeight(w.status.Canary.Weights, canary.PodTemplateHash) || len(e.Headers) > w.headers {
		t.Fatalf("%s, and Kubernetes publishes %v:\n%s", e, w.outdatedEndpoints, w.events.String())
	}
}

// raisesCanaryWeight reports whether a route sends more requests to the new revision than before.
func (w *world) raisesCanaryWeight(e TrafficRouted) bool {
	known := w.status.Canary.Weights
	return known == nil || known.Canary.PodTemplateHash != e.Weights.Canary.PodTemplateHash || known.Canary.Weight < e.Weights.Canary.Weight
}

func (w *world) checkScaling(t *rapid.T, e ReplicaSetScaled, before []ReplicaSet) {
	hash := w.replicaSet(e.Name).Hash
	if e.Pods == 0 && e.From > 0 && valueOr(w.spec.Replicas, 1) > 0 {
		for name, service := range w.services {
			if (name == "stable" && w.spec.Strategy.Canary.TrafficRouting != nil && !w.spec.Strategy.Canary.DynamicStableScale || name == "active") && service.Selector[argov1.PodTemplateHashLabel] == hash && service.ManagedBy != "" {
				t.Fatalf("the pods of %s go, which Service %s selects:\n%s", hash, name, w.events.String())
			}
		}
		if r := w.route; r != nil && (r.Weights.Canary.PodTemplateHash == hash && r.Weights.Canary.Weight > 0 && !w.hasExplicitScale() || r.Weights.Stable.PodTemplateHash == hash && r.Weights.Stable.Weight > 0) {
			t.Fatalf("the pods of %s go, which has traffic (%s):\n%s", hash, r, w.events.String())
		}
	}
	c := w.spec.Strategy.Canary
	if c == nil || c.TrafficRouting != nil {
		return
	}
	l := pods.NewRollingLimits(valueOr(w.spec.Replicas, 1), c.MaxSurge, c.MaxUnavailable)
	was, is, had, has := int32(0), int32(0), int32(0), int32(0)
	for _, rs := range before {
		was, had = was+rs.SpecReplicas, had+min(rs.Available, rs.SpecReplicas)
	}
	for _, rs := range w.sets {
		is, has = is+rs.SpecReplicas, has+min(rs.Available, rs.SpecReplicas)
	}
	if is > was && is > l.MaxPods() {
		t.Fatalf("%s: %d pods are asked for, at most %d may be:\n%s", e, is, l.MaxPods(), w.events.String())
	}
	least := l.MinAvailable()
	if w.status.Abort { // during a rollback, maxUnavailable is relative to the pods that carried the traffic
		carriers := had
		if own := w.status.Serin; own != nil && own.CarriedBy != nil {
			carriers = *own.CarriedBy
		}
		carriers = min(max(carriers, 1), valueOr(w.spec.Replicas, 1))
		least = min(least, max(pods.NewRollingLimits(carriers, c.MaxSurge, c.MaxUnavailable).MinAvailable(), 1))
	}
	if has < had && has < min(had, least) {
		t.Fatalf("%s: %d of %d available pods are left, at least %d must be:\n%s", e, has, had, least, w.events.String())
	}
}

// hasExplicitScale reports whether the user configured a number of pods that does not follow the weight.
func (w *world) hasExplicitScale() bool {
	return pods.CanaryScaleAt(w.spec.Strategy.Canary.Steps, w.status.CurrentStepIndex) != nil
}

// finish ends all faults and promotes paused releases until the Rollout reaches its desired state.
func (w *world) finish(t *rapid.T) {
	w.become, w.lives, w.verdict, w.outcome = nil, nil, argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseSuccessful
	clear(w.ready)
	w.unreadableTemplate = ""
	w.observedRoute.Confirmed, w.spec.Paused, w.outdatedEndpoints, w.endpointsUnreadable = nil, false, nil, false
	w.generation++
	for range 40 {
		w.status.Abort = false
		w.settle(t)
		w.advanceTo(t, w.now.Add(2*time.Minute))
		if w.status.Phase == argov1.RolloutPhaseHealthy {
			w.checkDesiredState(t)
			return
		}
		w.promote()
	}
	t.Fatalf("does not arrive: %s (%s) %v\n%s", w.status.Phase, w.status.Message, w.last.Gates, w.events.String())
}

// checkDesiredState checks an idle Rollout.
func (w *world) checkDesiredState(t *rapid.T) {
	for _, rs := range w.sets {
		switch hash := "hash-" + w.template; {
		case rs.Hash == hash && (rs.SpecReplicas != valueOr(w.spec.Replicas, 1) || rs.Available != rs.SpecReplicas):
			t.Fatalf("at rest with %d/%d pods of %s", rs.Available, rs.SpecReplicas, rs.Hash)
		case rs.Hash != hash && rs.SpecReplicas != 0:
			t.Fatalf("at rest with %d pods of %s, gates %v\n%s", rs.SpecReplicas, rs.Hash, w.last.Gates, w.events.String())
		}
	}
	for name, service := range w.services {
		if hash := service.Selector[argov1.PodTemplateHashLabel]; name != "ping" && name != "pong" && hash != "hash-"+w.template {
			t.Fatalf("at rest, and Service %s selects %q", name, hash)
		}
	}
	if w.route != nil && w.route.Weights.Canary.Weight != 0 {
		t.Fatalf("at rest, and the route is %s", w.route)
	}
	if limit := valueOr(w.spec.RevisionHistoryLimit, defaultRevisionHistoryLimit); len(w.sets)-1 > int(limit) {
		t.Fatalf("at rest, and %d ReplicaSets are kept", len(w.sets))
	}
}
