package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

var analysed = &argov1.RolloutAnalysis{Templates: []argov1.AnalysisTemplateRef{{TemplateName: "a"}}}

func drawOneOf[T any](t *rapid.T, label string, of ...T) T {
	return rapid.SampledFrom(of).Draw(t, label)
}

func drawBool(t *rapid.T, label string) bool { return rapid.Bool().Draw(t, label) }

// drawOptional draws one of the values, or none.
func drawOptional[T any](t *rapid.T, label string, of ...T) *T {
	if drawBool(t, "has "+label) {
		return new(drawOneOf(t, label, of...))
	}
	return nil
}

// drawStrategy draws valid and invalid strategies.
func drawStrategy(t *rapid.T) argov1.RolloutStrategy {
	if drawBool(t, "blue-green") {
		b := argov1.BlueGreenStrategy{
			ActiveService: drawOneOf(t, "active", "active", ""), PreviewService: drawOneOf(t, "preview", "preview", ""),
			PreviewReplicaCount: drawOptional(t, "preview count", int32(0), 1, 2), AutoPromotionEnabled: drawOptional(t, "auto", true, false),
			AutoPromotionSeconds: drawOneOf(t, "auto seconds", int32(0), 10), ScaleDownDelaySeconds: drawOptional(t, "delay", int32(0), 5),
			ScaleDownDelayRevisionLimit: drawOptional(t, "limit", int32(0), 1), AbortScaleDownDelaySeconds: drawOptional(t, "abort delay", int32(0), 5),
		}
		if drawBool(t, "pre") {
			b.PrePromotionAnalysis = analysed
		}
		if drawBool(t, "post") {
			b.PostPromotionAnalysis = analysed
		}
		return argov1.RolloutStrategy{BlueGreen: &b}
	}
	kinds := []argov1.CanaryStep{
		{},
		setWeight(0), setWeight(50), setWeight(100), pauseFor(""), pauseFor("5"),
		{Analysis: &argov1.RolloutAnalysis{}},
		{Analysis: analysed},
		{Plugin: &argov1.PluginStep{Name: "p"}},
		scaleTo(1), scaleLike(50), scaleLike(100), scaleFollow,
		{Experiment: &argov1.RolloutExperimentStep{}},
		{SetHeaderRoute: &argov1.SetHeaderRoute{Name: "h", Match: []argov1.HeaderRoutingMatch{{HeaderName: "a"}}}},
		{SetHeaderRoute: &argov1.SetHeaderRoute{Name: "h"}},
		{SetMirrorRoute: &argov1.SetMirrorRoute{Name: "m", Match: []argov1.RouteMatch{{}}}},
	}
	c := argov1.CanaryStrategy{
		Steps:         rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 4).Draw(t, "steps"),
		CanaryService: drawOneOf(t, "canary service", "", "canary"), StableService: drawOneOf(t, "stable service", "", "stable"),
	}
	if drawBool(t, "analysed") {
		c.Analysis = &argov1.RolloutAnalysisBackground{RolloutAnalysis: *analysed, StartingStep: drawOptional(t, "starting step", int32(1), 9)}
	}
	if drawBool(t, "threshold") {
		c.ReplicaProgressThreshold = &argov1.ReplicaProgressThreshold{Type: drawOneOf(t, "type", argov1.ProgressPercent, argov1.ProgressPods), Value: drawOneOf(t, "enough", int32(-1), 50)}
	}
	if drawBool(t, "routed") {
		c.TrafficRouting = &argov1.RolloutTrafficRouting{MaxTrafficWeight: drawOptional(t, "most", int32(0), 1000)}
		c.DynamicStableScale, c.AbortScaleDownDelaySeconds = drawBool(t, "dynamic"), drawOptional(t, "abort delay", int32(0), 5)
		c.MinPodsPerReplicaSet, c.ScaleDownDelaySeconds = drawOptional(t, "least", int32(2)), drawOptional(t, "delay", int32(0), 5)
		if drawBool(t, "ping-pong") {
			c.PingPong = &argov1.PingPongSpec{PingService: "ping", PongService: "pong"}
		}
	}
	return argov1.RolloutStrategy{Canary: &c}
}

// drawSnapshot draws any snapshot, including those that no healthy cluster produces.
func drawSnapshot(t *rapid.T) Snapshot {
	hashes := []string{"a", "b", "c", ""}
	phases := []argov1.AnalysisPhase{"", argov1.AnalysisPhaseRunning, argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseInconclusive}
	ago := func(label string) metav1.Time {
		return metav1.NewTime(noon.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, label)) * time.Second))
	}
	s := Snapshot{
		Now: noon, Name: "cart", Generation: 3, StepHash: drawOneOf(t, "steps now", "s", "t"), ValidationError: drawOneOf(t, "problem", "", "", "", "bad"),
		UnreadableTemplate: drawOneOf(t, "unreadable template", "", "", "", "forbidden"),
		Hash:               drawOneOf(t, "new", hashes...), RevisionAnnotation: drawOneOf(t, "revision", "", "1", "x"),
		Spec: argov1.RolloutSpec{
			Replicas: drawOptional(t, "replicas", int32(0), 1, 3), Paused: drawBool(t, "paused"), ProgressDeadlineAbort: drawBool(t, "abort late"),
			Strategy: drawStrategy(t), RevisionHistoryLimit: drawOptional(t, "history", int32(0), 1),
		},
		Status: argov1.RolloutStatus{
			Abort: drawBool(t, "abort"), PromoteFull: drawBool(t, "full"), ControllerPause: drawBool(t, "controller pause"),
			CurrentPodHash: drawOneOf(t, "current", hashes...), StableRS: drawOneOf(t, "stable", hashes...),
			CurrentStepHash: drawOneOf(t, "steps then", "s", "t", ""), ObservedGeneration: drawOneOf(t, "observed", "3", "2", "x"),
			CurrentStepIndex: drawOptional(t, "index", int32(-2), 0, 1, 2, 5),
		},
		Services: map[string]Service{},
	}
	if drawBool(t, "window") {
		s.Spec.RollbackWindow = &argov1.RollbackWindowSpec{Revisions: 2}
	}
	if drawBool(t, "restart") {
		s.Spec.RestartAt = new(ago("restart"))
	}
	for _, reason := range []argov1.PauseReason{argov1.PauseReasonCanaryPauseStep, argov1.PauseReasonBlueGreenPause, argov1.PauseReasonInconclusiveAnalysis, argov1.PauseReasonInconclusiveExperiment} {
		if rapid.IntRange(0, 3).Draw(t, "held") == 0 {
			s.Status.PauseConditions = append(s.Status.PauseConditions, argov1.PauseCondition{Reason: reason, StartTime: ago("since")})
		}
	}
	if drawBool(t, "aborted before") {
		s.Status.AbortedAt = new(ago("aborted"))
	}
	if drawBool(t, "has progressed") {
		reason := drawOneOf(t, "progress", reasonUpdated, reasonAborted, reasonPaused, reasonDeadlineExceeded, reasonProgressed)
		s.Status.Conditions = conditions{}.withCondition(progressingCondition(conditionStatus(true), reason, ""), noon.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "ago"))*time.Minute))
	}
	if drawBool(t, "has weights") {
		s.Status.Canary.Weights = &argov1.TrafficWeights{
			Canary: argov1.WeightDestination{Weight: drawOneOf(t, "weight", int32(0), 50, 100), PodTemplateHash: drawOneOf(t, "weighted", hashes...)},
			Stable: argov1.WeightDestination{Weight: drawOneOf(t, "rest", int32(0), 50, 100)},
		}
	}
	if drawBool(t, "has carriers") {
		s.Status.Serin = &argov1.SerinStatus{CarriedBy: drawOptional(t, "carriers", int32(0), 1, 3)}
	}
	for i, hash := range hashes[:3] {
		if drawBool(t, "gone") {
			continue
		}
		pods := rapid.Int32Range(0, 3).Draw(t, "pods")
		rs := ReplicaSet{
			Name: "cart-" + hash, Hash: hash, Revision: int64(i), Created: noon.Add(-time.Duration(i) * time.Hour), SpecReplicas: pods, Replicas: pods, Ready: pods,
			Available: rapid.Int32Range(0, pods).Draw(t, "available"), RolloutReplicas: drawOptional(t, "desired", int32(0), 1, 3),
			Deleting: drawBool(t, "deleting"), StatusCurrent: drawBool(t, "settled"),
		}
		if drawBool(t, "delayed") {
			rs.ScaleDownDeadline = drawOneOf(t, "deadline", noon.Add(time.Minute), noon.Add(-time.Minute))
		}
		s.ReplicaSets = append(s.ReplicaSets, rs)
		s.Pods = append(s.Pods, Pod{Name: "pod-" + hash, ReplicaSet: rs.Name, Created: ago("pod").Time, Ready: drawBool(t, "pod ready"), Deleting: drawBool(t, "pod deleting")})
		s.AnalysisRuns = append(s.AnalysisRuns, AnalysisRun{
			Name: drawOneOf(t, "run", "cart-a-1", "cart-a-1-1", "cart-a-1-pre", "x") + drawOneOf(t, "suffix", "", ".1"), Hash: drawOneOf(t, "run of", hashes...),
			Type: drawOneOf(t, "run type", argov1.TypeStep, argov1.TypeBackground, argov1.TypePrePromotion), Phase: drawOneOf(t, "run is", phases...),
			Terminated: drawBool(t, "terminated"), Deleting: drawBool(t, "run deleting"),
		})
		s.Experiments = append(s.Experiments, Experiment{Name: drawOneOf(t, "experiment", "cart-a-1-1", "y"), Hash: drawOneOf(t, "experiment of", hashes...), Phase: drawOneOf(t, "experiment is", phases...)})
	}
	if drawBool(t, "judged") {
		run := &argov1.RolloutAnalysisRunStatus{Name: drawOneOf(t, "recorded", "cart-a-1", "cart-a-1-1", "cart-a-1-pre", "x"), Status: drawOneOf(t, "recorded as", phases...)}
		s.Status.Canary.CurrentStepAnalysisRunStatus, s.Status.Canary.CurrentBackgroundAnalysisRunStatus = run, run
		s.Status.BlueGreen.PrePromotionAnalysisRunStatus, s.Status.BlueGreen.PostPromotionAnalysisRunStatus = run, run
		s.Status.Canary.CurrentExperiment = "cart-a-1-1"
	}
	for _, name := range []string{"active", "preview", "stable", "canary", "ping", "other"} {
		service := Service{Found: true, Selector: map[string]string{argov1.PodTemplateHashLabel: drawOneOf(t, "selects", hashes...)}, ManagedBy: drawOneOf(t, "managed", "", "cart", "other")}
		if drawBool(t, "endpoints of "+name) {
			service.Endpoints = map[string]release.Endpoints{}
			for _, hash := range hashes[:3] {
				service.Endpoints[hash] = drawOneOf(t, "published", release.Endpoints{}, release.Endpoints{}, release.Endpoints{Ready: 1}, release.Endpoints{Ready: 3}, release.Endpoints{Unknown: "unread"})
			}
		}
		if drawBool(t, "there is "+name) {
			s.Services[name] = service
		}
	}
	s.Route.Confirmed, s.Route.ExternalLoadBalancer = drawOptional(t, "confirmed", true, false), drawBool(t, "outside")
	if drawBool(t, "has a managed route") {
		s.Route.ManagedRoutes = []string{drawOneOf(t, "managed route", "h", "m")}
	}
	return s
}

func TestNextIsTotalAndDoesNotChangeItsSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		before, sets := *s.Status.DeepCopy(), fmt.Sprintf("%+v %+v", s.ReplicaSets, s.Services)
		first, second := Next(s), Next(s)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("two decisions about one snapshot differ:\n%s", diff)
		}
		if !equality.Semantic.DeepEqual(before, s.Status) || sets != fmt.Sprintf("%+v %+v", s.ReplicaSets, s.Services) {
			t.Fatalf("the snapshot was changed")
		}
	})
}

// TestChangeOfStrategyAfterAbort: the status still contains the weights of the canary strategy at the first decision
// about a blue-green one.
func TestChangeOfStrategyAfterAbort(t *testing.T) {
	s := Snapshot{
		Now: noon, Name: "cart", Hash: "b", Spec: argov1.RolloutSpec{Replicas: new(int32(2)), Strategy: argov1.RolloutStrategy{
			BlueGreen: &argov1.BlueGreenStrategy{ActiveService: "active"},
		}},
		Status: argov1.RolloutStatus{Abort: true, CurrentPodHash: "b", StableRS: "a", Canary: argov1.CanaryStatus{Weights: &argov1.TrafficWeights{
			Canary: argov1.WeightDestination{Weight: 50, PodTemplateHash: "b"}, Stable: argov1.WeightDestination{Weight: 50, PodTemplateHash: "a"},
		}}},
		ReplicaSets: []ReplicaSet{
			{Name: "cart-a", Hash: "a", Revision: 1, SpecReplicas: 2, Replicas: 2, Available: 1, RolloutReplicas: new(int32(2))},
			{Name: "cart-b", Hash: "b", Revision: 2, SpecReplicas: 2, Replicas: 2, Available: 2, RolloutReplicas: new(int32(2))},
		},
	}
	if d := Next(s); d.Status.Canary.Weights != nil {
		t.Errorf("the weights remain: %+v", d.Status.Canary.Weights)
	}
}

func TestNextSatisfiesTheInvariantsOfTheAPI(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		d := Next(s)
		next := d.Status
		if s.ValidationError != "" {
			if len(d.Effects) > 0 || next.Phase != argov1.RolloutPhaseDegraded {
				t.Fatalf("invalid, and %v, %s", d.Effects, next.Phase)
			}
			return
		}
		made := slices.ContainsFunc(s.ReplicaSets, func(rs ReplicaSet) bool { return rs.Hash == s.Hash && s.Hash != "" })
		if !made || equality.Semantic.DeepEqual(next, s.Status) || next.ObservedGeneration != "3" {
			return // the decision concerned something else first
		}
		if c := s.Spec.Strategy.Canary; c != nil && next.CurrentStepHash == s.StepHash && next.CurrentPodHash == s.Hash {
			switch index := next.CurrentStepIndex; {
			case index != nil && (*index < 0 || int(*index) > len(c.Steps)):
				t.Fatalf("%d steps, and the index is %d", len(c.Steps), *index)
			case isPromoted(next) && len(c.Steps) > 0 && s.Status.StableRS != next.StableRS && int(*index) != len(c.Steps):
				t.Fatalf("promoted, and at step %d of %d", *index, len(c.Steps))
			}
		}
		if next.Abort && next.AbortedAt != nil && s.Status.AbortedAt == nil && (len(next.PauseConditions) > 0 || next.ControllerPause || next.Phase != argov1.RolloutPhaseDegraded) {
			t.Fatalf("aborted, and %+v", next)
		}
		if next.StableRS != s.Status.StableRS && next.StableRS != s.Hash {
			t.Fatalf("%s became stable", next.StableRS)
		}
	})
}

// TestNoDecisionIsADeadEnd: a Rollout that is neither in its desired state nor in progress has a gate with an opener.
func TestNoDecisionIsADeadEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		d := Next(s)
		for _, gate := range d.Gates {
			if gate.Verdict != release.Pass && (gate.Opener == "" || gate.Opener == release.ByTime && gate.Until.IsZero()) {
				t.Fatalf("nobody opens the gate %s: %s", gate.Name, gate.Message)
			}
		}
		moves := !equality.Semantic.DeepEqual(d.Status, s.Status)
		for _, effect := range d.Effects {
			switch effect.(type) {
			case ReplicaSetMaintained, EphemeralMetadataSet, TrafficRouted, RouteRestored:
			default:
				moves = true
			}
		}
		if !moves && d.Gates.Verdict() == release.Pass && d.Status.Phase != argov1.RolloutPhaseHealthy {
			t.Fatalf("%s (%s), and no gate says why: %v", d.Status.Phase, d.Status.Message, d.Gates)
		}
		if moves := !equality.Semantic.DeepEqual(d.Status, s.Status); moves && !d.Wake.Equal(s.Now) {
			t.Fatalf("the status changes, and nobody looks at the new one")
		}
	})
}
