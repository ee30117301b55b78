package rollout

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestConditionsChangeWithStatusAndReasonOnly(t *testing.T) {
	later := noon.Add(time.Minute)
	start := conditions{}.withCondition(availableCondition(true), noon).withCondition(pausedCondition(true), noon)
	before := slices.Clone(start)
	for _, test := range []struct {
		name   string
		got    conditions
		types  string // in order
		update time.Time
		moved  time.Time
	}{
		{"the same", start.withCondition(availableCondition(true), later), "Available Paused", noon, noon},
		{"another status", start.withCondition(availableCondition(false), later), "Paused Available", later, later},
		{"another reason", start.withCondition(argov1.RolloutCondition{Type: argov1.RolloutAvailable, Status: corev1.ConditionTrue, Reason: "Other"}, later), "Paused Available", later, noon},
		{"another message", start.withCondition(argov1.RolloutCondition{Type: argov1.RolloutAvailable, Status: corev1.ConditionTrue, Reason: reasonAvailable, Message: "other"}, later), "Available Paused", noon, noon},
		{"renewed", start.withRenewedCondition(availableCondition(true), later), "Paused Available", later, noon},
		{"renewed with another status", start.withRenewedCondition(availableCondition(false), later), "Paused Available", later, later},
	} {
		types := ""
		for i, c := range test.got {
			if i > 0 {
				types += " "
			}
			types += string(c.Type)
		}
		c := test.got.find(argov1.RolloutAvailable)
		if types != test.types || !c.LastUpdateTime.Time.Equal(test.update) || !c.LastTransitionTime.Time.Equal(test.moved) {
			t.Errorf("%s: %s, updated %s, moved %s; want %s, %s, %s", test.name, types, c.LastUpdateTime, c.LastTransitionTime, test.types, test.update, test.moved)
		}
	}
	if diff := cmp.Diff(before, start); diff != "" {
		t.Errorf("what was given has changed (-before +after):\n%s", diff)
	}
	if got := start.withoutCondition(argov1.RolloutPaused); len(got) != 1 || got.find(argov1.RolloutPaused) != nil {
		t.Errorf("without Paused: %v", got)
	}
}

func TestTextsOfConditionsAreThoseOfArgoRollouts(t *testing.T) {
	for got, want := range map[argov1.RolloutCondition]string{
		invalidSpecCondition("cart", "spec: wrong"): `InvalidSpec True InvalidSpec: The Rollout "cart" is invalid: spec: wrong`,
		availableCondition(true):                    "Available True AvailableReason: Rollout has minimum availability",
		availableCondition(false):                   "Available False AvailableReason: Rollout does not have minimum availability",
		healthyCondition(true):                      "Healthy True RolloutHealthy: Rollout is healthy",
		healthyCondition(false):                     "Healthy False RolloutHealthy: Rollout is not healthy",
		pausedCondition(true):                       "Paused True RolloutPaused: Rollout is paused",
		pausedCondition(false):                      "Paused False RolloutPaused: Rollout is paused",
		completedCondition(true):                    "Completed True RolloutCompleted: RolloutCompleted",
		progressingCondition(corev1.ConditionFalse, reasonDeadlineExceeded, progressSubject("cart", "cart-1")+" has timed out progressing."): `Progressing False ProgressDeadlineExceeded: ReplicaSet "cart-1" has timed out progressing.`,
		progressingCondition(corev1.ConditionTrue, reasonUpdated, progressSubject("cart", "")+" is progressing."):                            `Progressing True ReplicaSetUpdated: Rollout "cart" is progressing.`,
		progressingCondition(corev1.ConditionFalse, reasonAborted, abortText(2, "")):                                                         "Progressing False RolloutAborted: Rollout aborted update to revision 2",
		progressingCondition(corev1.ConditionFalse, reasonAborted, abortText(2, "why")):                                                      "Progressing False RolloutAborted: Rollout aborted update to revision 2: why",
	} {
		if text := string(got.Type) + " " + string(got.Status) + " " + got.Reason + ": " + got.Message; text != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
}

// desiredState is the status of a Rollout of 2 pods in its desired state.
func desiredState(change ...func(*argov1.RolloutSpec, *argov1.RolloutStatus)) (argov1.RolloutSpec, argov1.RolloutStatus) {
	spec := argov1.RolloutSpec{Replicas: new(int32(2)), Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{Steps: []argov1.CanaryStep{setWeight(10)}}}}
	status := argov1.RolloutStatus{
		Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, ObservedGeneration: "3",
		CurrentPodHash: "a", StableRS: "a", CurrentStepIndex: new(int32(1)),
	}
	for _, c := range change {
		c(&spec, &status)
	}
	return spec, status
}

func toBlueGreen(spec *argov1.RolloutSpec, status *argov1.RolloutStatus) {
	spec.Strategy = argov1.RolloutStrategy{BlueGreen: &argov1.BlueGreenStrategy{ActiveService: "active"}}
	status.BlueGreen.ActiveSelector, status.CurrentStepIndex = "a", nil
}

func TestPhaseFollowsFromSpecAndStatus(t *testing.T) {
	type change = func(*argov1.RolloutSpec, *argov1.RolloutStatus)
	aborted := func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) {
		s.Conditions = conditions{}.withCondition(progressingCondition(corev1.ConditionFalse, reasonAborted, abortText(2, "")), noon)
	}
	isPaused := func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) {
		s.PauseConditions = []argov1.PauseCondition{{Reason: argov1.PauseReasonCanaryPauseStep}}
	}
	byHand := func(s *argov1.RolloutSpec, _ *argov1.RolloutStatus) { s.Paused = true }
	notPromoted := func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.StableRS = "b" }
	analysed := func(phase argov1.AnalysisPhase) change {
		return func(spec *argov1.RolloutSpec, s *argov1.RolloutStatus) {
			spec.Strategy.BlueGreen.PostPromotionAnalysis = &argov1.RolloutAnalysis{}
			if phase != "" {
				s.BlueGreen.PostPromotionAnalysisRunStatus = &argov1.RolloutAnalysisRunStatus{Status: phase}
			}
		}
	}
	for _, test := range []struct {
		name    string
		changes []change
		want    string
	}{
		{"healthy", nil, "Healthy "},
		{"invalid", []change{byHand, func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) {
			s.Conditions = conditions{}.withCondition(invalidSpecCondition("cart", "wrong"), noon)
		}}, `Degraded InvalidSpec: The Rollout "cart" is invalid: wrong`},
		{"aborted", []change{aborted, byHand, isPaused}, "Degraded RolloutAborted: Rollout aborted update to revision 2"},
		{"timed out", []change{func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) {
			s.Conditions = conditions{}.withCondition(progressingCondition(corev1.ConditionFalse, reasonDeadlineExceeded, "late"), noon)
		}}, "Degraded ProgressDeadlineExceeded: late"},
		{"paused by hand", []change{byHand, isPaused}, "Paused manually paused"},
		{"paused", []change{isPaused}, "Paused CanaryPauseStep"},
		{"restarting", []change{func(s *argov1.RolloutSpec, _ *argov1.RolloutStatus) { s.RestartAt = &metav1.Time{Time: noon} }}, "Progressing rollout is restarting"},
		{"restarted", []change{func(s *argov1.RolloutSpec, st *argov1.RolloutStatus) {
			s.RestartAt, st.RestartedAt = &metav1.Time{Time: noon}, &metav1.Time{Time: noon}
		}}, "Healthy "},
		{"not all updated", []change{func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.UpdatedReplicas = 1 }}, "Progressing more replicas need to be updated"},
		{"not all available", []change{func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.AvailableReplicas = 1 }}, "Progressing updated replicas are still becoming available"},
		{"old pods", []change{func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.Replicas = 3 }}, "Progressing old replicas are pending termination"},
		{"old pods behind a router", []change{func(spec *argov1.RolloutSpec, s *argov1.RolloutStatus) {
			s.Replicas, spec.Strategy.Canary.TrafficRouting = 3, &argov1.RolloutTrafficRouting{}
		}}, "Healthy "},
		{"steps", []change{notPromoted}, "Progressing waiting for all steps to complete"},
		{"no stable revision", []change{func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.StableRS = "" }}, "Progressing waiting for all steps to complete"},
		{"switched", []change{toBlueGreen}, "Healthy "},
		{"not switched", []change{toBlueGreen, func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.BlueGreen.ActiveSelector = "b" }}, "Progressing active service cutover pending"},
		{"never switched", []change{toBlueGreen, func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.BlueGreen.ActiveSelector = "" }}, "Progressing active service cutover pending"},
		{"switched, not promoted", []change{toBlueGreen, notPromoted}, "Progressing waiting for post-promotion verification to complete"},
		{"switched, analysis to come", []change{toBlueGreen, notPromoted, analysed("")}, "Progressing waiting for analysis to complete"},
		{"switched, analysed", []change{toBlueGreen, notPromoted, analysed(argov1.AnalysisPhaseRunning)}, "Progressing waiting for analysis to complete"},
		{"switched, analysis done", []change{toBlueGreen, notPromoted, analysed(argov1.AnalysisPhaseSuccessful)}, "Progressing waiting for post-promotion verification to complete"},
	} {
		phase, message := phaseOf(desiredState(test.changes...))
		if got := string(phase) + " " + message; got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestIsInDesiredState(t *testing.T) {
	type change = func(*argov1.RolloutSpec, *argov1.RolloutStatus)
	for _, test := range []struct {
		name   string
		change change
		want   bool
	}{
		{"all", func(*argov1.RolloutSpec, *argov1.RolloutStatus) {}, true},
		{"one replica without saying so", func(spec *argov1.RolloutSpec, s *argov1.RolloutStatus) {
			spec.Replicas, s.Replicas, s.UpdatedReplicas, s.AvailableReplicas = nil, 1, 1, 1
		}, true},
		{"not all updated", func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.UpdatedReplicas = 1 }, false},
		{"not all available", func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.AvailableReplicas = 1 }, false},
		{"old pods", func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.Replicas = 3 }, false},
		{"another generation", func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.ObservedGeneration = "2" }, false},
		{"a step to do", func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.CurrentStepIndex = new(int32(0)) }, false},
		{"not promoted", func(_ *argov1.RolloutSpec, s *argov1.RolloutStatus) { s.StableRS = "b" }, false},
		{"no steps", func(spec *argov1.RolloutSpec, s *argov1.RolloutStatus) {
			spec.Strategy.Canary.Steps, s.CurrentStepIndex = nil, nil
		}, true},
		{"switched", toBlueGreen, true},
		{"preview not switched", func(spec *argov1.RolloutSpec, s *argov1.RolloutStatus) {
			toBlueGreen(spec, s)
			spec.Strategy.BlueGreen.PreviewService = "preview"
		}, false},
	} {
		spec, status := desiredState(test.change)
		if got := isInDesiredState(spec, status, "3"); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestEndOfADelayIsProgress: pods that are retained for longer than the progress deadline, and that take a while to end after that,
// do not degrade the Rollout.
func TestEndOfADelayIsProgress(t *testing.T) {
	w := newWorld(argov1.RolloutSpec{
		Replicas: new(int32(2)), ProgressDeadlineSeconds: new(int32(5)),
		Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{
			CanaryService: "canary", StableService: "stable", ScaleDownDelaySeconds: new(int32(10)),
			TrafficRouting: &argov1.RolloutTrafficRouting{Nginx: &argov1.NginxTrafficRouting{StableIngress: "shop"}},
			Steps:          []argov1.CanaryStep{{SetWeight: new(int32(50))}},
		}},
	})
	w.settle(t)
	w.deploy(t, "v2")
	w.settle(t)
	ending := true
	w.become = func(rs ReplicaSet) (int32, int32) {
		if rs.Hash == "hash-v1" && ending {
			return 2, 2
		}
		return rs.SpecReplicas, rs.SpecReplicas
	}
	for _, passed := range []time.Duration{10 * time.Second, time.Second} { // the decision that removes the pods, and one while they end
		w.now = w.now.Add(passed)
		w.settle(t)
		if phase := w.status.Phase; phase == argov1.RolloutPhaseDegraded || w.replicaSet("cart-hash-v1").SpecReplicas != 0 {
			t.Fatalf("%s later, with %d desired pods of v1: %s (%s)", passed, w.replicaSet("cart-hash-v1").SpecReplicas, phase, w.status.Message)
		}
	}
	w.now = w.now.Add(10 * time.Second)
	if w.settle(t); w.status.Phase != argov1.RolloutPhaseDegraded {
		t.Errorf("pods that do not end within the deadline: %s", w.status.Phase)
	}
	ending = false
	if w.settle(t); w.status.Phase != argov1.RolloutPhaseHealthy {
		t.Errorf("once they have ended: %s", w.status.Phase)
	}
}

// TestADeadlineBeyondTheDelaySuspendsNothing: after a clock was set back, the scale-down deadline of pods that are needed lies a day
// ahead, and the progress deadline of the missing pods passes all the same.
func TestADeadlineBeyondTheDelaySuspendsNothing(t *testing.T) {
	for name, test := range map[string]struct {
		ahead time.Duration
		want  argov1.RolloutPhase
	}{
		"within the delay": {10 * time.Second, argov1.RolloutPhaseProgressing},
		"a day":            {24 * time.Hour, argov1.RolloutPhaseDegraded},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(argov1.RolloutSpec{
				Replicas: new(int32(2)), ProgressDeadlineSeconds: new(int32(5)),
				Strategy: argov1.RolloutStrategy{BlueGreen: &argov1.BlueGreenStrategy{ActiveService: "active", ScaleDownDelaySeconds: new(int32(20))}},
			})
			w.settle(t)
			w.deploy(t, "v2")
			w.become = func(rs ReplicaSet) (int32, int32) {
				if rs.Hash == "hash-v2" {
					return rs.SpecReplicas, 0
				}
				return rs.SpecReplicas, rs.SpecReplicas
			}
			w.settle(t)
			w.status.StableRS = "" // a Rollout that was recreated
			w.settle(t)
			w.replicaSet("cart-hash-v1").ScaleDownDeadline = w.now.Add(6*time.Second + test.ahead)
			w.now = w.now.Add(6 * time.Second)
			if w.settle(t); w.status.Phase != test.want {
				t.Errorf("got %s (%s), want %s", w.status.Phase, w.status.Message, test.want)
			}
		})
	}
}

// TestTheEndOfADelayIsProgressUnlessPaused: pods whose delay ends get the time of the deadline to end. A paused Rollout has no deadline
// that could start again, and during some pauses these pods remain.
func TestTheEndOfADelayIsProgressUnlessPaused(t *testing.T) {
	for _, test := range []struct {
		reason       string
		delay, after time.Duration
		want         bool
	}{
		{reasonUpdated, 10 * time.Second, 10 * time.Second, true},
		{reasonUpdated, 10 * time.Second, 9 * time.Second, false},
		{reasonUpdated, 0, 10 * time.Second, false}, // it ended before the last progress
		{reasonPaused, 10 * time.Second, 10 * time.Second, false},
	} {
		f := facts{Snapshot: Snapshot{Hash: "new", Now: noon.Add(test.after), ReplicaSets: []ReplicaSet{
			{Hash: "old", SpecReplicas: 1, ScaleDownDeadline: noon.Add(test.delay)},
		}}}
		s := argov1.RolloutStatus{Conditions: conditions{}.withCondition(progressingCondition(corev1.ConditionTrue, test.reason, ""), noon)}
		if got := scaleDownDelayEnds(f, s); got != test.want {
			t.Errorf("%s after %s, with a delay of %s: got %v, want %v", test.reason, test.after, test.delay, got, test.want)
		}
	}
}

func TestHasStatusProgressed(t *testing.T) {
	_, old := desiredState()
	for name, change := range map[string]func(*argov1.RolloutStatus) (moves, switches bool){
		"nothing":            func(*argov1.RolloutStatus) (bool, bool) { return false, false },
		"more updated":       func(s *argov1.RolloutStatus) (bool, bool) { s.UpdatedReplicas, s.Replicas = 3, 3; return true, true },
		"fewer old":          func(s *argov1.RolloutStatus) (bool, bool) { s.Replicas = 1; return true, true },
		"more old":           func(s *argov1.RolloutStatus) (bool, bool) { s.Replicas = 3; return false, false },
		"more ready":         func(s *argov1.RolloutStatus) (bool, bool) { s.ReadyReplicas = 3; return true, true },
		"fewer ready":        func(s *argov1.RolloutStatus) (bool, bool) { s.ReadyReplicas = 1; return false, false },
		"more available":     func(s *argov1.RolloutStatus) (bool, bool) { s.AvailableReplicas = 3; return true, true },
		"another stable":     func(s *argov1.RolloutStatus) (bool, bool) { s.StableRS = "b"; return true, false },
		"another step":       func(s *argov1.RolloutStatus) (bool, bool) { s.CurrentStepIndex = new(int32(0)); return true, false },
		"other steps":        func(s *argov1.RolloutStatus) (bool, bool) { s.CurrentStepHash = "b"; return true, false },
		"another active one": func(s *argov1.RolloutStatus) (bool, bool) { s.BlueGreen.ActiveSelector = "b"; return false, true },
		"another preview":    func(s *argov1.RolloutStatus) (bool, bool) { s.BlueGreen.PreviewSelector = "b"; return false, true },
	} {
		now := *old.DeepCopy()
		moves, switches := change(&now)
		if got := hasStatusProgressed(old, now, false); got != moves {
			t.Errorf("%s: a canary moved %v, want %v", name, got, moves)
		}
		if got := hasStatusProgressed(old, now, true); got != switches {
			t.Errorf("%s: blue-green moved %v, want %v", name, got, switches)
		}
	}
}

func TestProgressDeadlineDoesNotRunDuringWaits(t *testing.T) {
	after := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	progress := func(reason string) conditions {
		return conditions{}.withCondition(progressingCondition(corev1.ConditionTrue, reason, ""), noon)
	}
	for _, test := range []struct {
		name   string
		change func(*progressDeadline)
		late   bool // 1 s after the deadline of 10 minutes
	}{
		{"no progress", func(*progressDeadline) {}, true},
		{"a longer deadline", func(d *progressDeadline) { d.Spec.ProgressDeadlineSeconds = new(int32(3600)) }, false},
		{"never progressed", func(d *progressDeadline) { d.Status.Conditions = nil }, false},
		{"aborted", func(d *progressDeadline) { d.Status.Conditions = progress(reasonAborted) }, false},
		{"abort asked for", func(d *progressDeadline) { d.Status.Abort = true }, false},
		{"paused", func(d *progressDeadline) { d.Status.Conditions = progress(reasonPaused) }, false},
		{"paused, progress older", func(d *progressDeadline) {
			d.Status.Conditions = progress(reasonUpdated).withCondition(pausedCondition(true), noon)
		}, false},
		{"was paused", func(d *progressDeadline) {
			d.Status.Conditions = progress(reasonUpdated).withCondition(pausedCondition(false), noon)
		}, true},
		{"waits out a delay", func(d *progressDeadline) { d.ScaleDownPending = true }, false},
		{"in a pause step", func(d *progressDeadline) {
			d.Spec.Strategy.Canary.Steps[0] = argov1.CanaryStep{Pause: &argov1.RolloutPause{}}
		}, false},
		{"in an analysis", func(d *progressDeadline) {
			d.Spec.Strategy.Canary.Steps[0] = argov1.CanaryStep{Analysis: &argov1.RolloutAnalysis{}}
		}, false},
		{"in an experiment", func(d *progressDeadline) {
			d.Spec.Strategy.Canary.Steps[0] = argov1.CanaryStep{Experiment: &argov1.RolloutExperimentStep{}}
		}, false},
		{"in a plugin step", func(d *progressDeadline) {
			d.Spec.Strategy.Canary.Steps[0] = argov1.CanaryStep{Plugin: &argov1.PluginStep{}}
		}, true},
		{"in a scale step", func(d *progressDeadline) { d.Spec.Strategy.Canary.Steps[0] = scaleTo(1) }, true},
	} {
		spec, status := desiredState()
		status.Conditions, status.CurrentStepIndex = progress(reasonUpdated), new(int32(0))
		d := progressDeadline{Now: after(601), Spec: spec, Status: status}
		test.change(&d)
		if got := d.IsExceeded(); got != test.late {
			t.Errorf("%s: timed out %v, want %v", test.name, got, test.late)
		}
		d.Now = after(600)
		if d.IsExceeded() {
			t.Errorf("%s: timed out at the moment itself", test.name)
		}
	}
	late := progressDeadline{Now: noon, Status: argov1.RolloutStatus{Conditions: progress(reasonDeadlineExceeded)}}
	if !late.IsExceeded() {
		t.Error("what has timed out stays so until there is progress")
	}
}

func TestRollbackWindowCountsRevisionsInBetween(t *testing.T) {
	made := func(revision int) time.Time { return noon.Add(time.Duration(revision) * time.Hour) }
	var all []time.Time
	for revision := range 6 {
		all = append(all, made(revision))
	}
	for _, test := range []struct {
		name           string
		window         *argov1.RollbackWindowSpec
		newSet, stable int
		want           bool
	}{
		{"one between", &argov1.RollbackWindowSpec{Revisions: 2}, 2, 4, true},
		{"two between", &argov1.RollbackWindowSpec{Revisions: 2}, 2, 5, false},
		{"right before", &argov1.RollbackWindowSpec{Revisions: 1}, 3, 4, true},
		{"forward", &argov1.RollbackWindowSpec{Revisions: 2}, 4, 2, false},
		{"to itself", &argov1.RollbackWindowSpec{Revisions: 2}, 4, 4, false},
		{"no window", nil, 2, 4, false},
		{"a window of nothing", &argov1.RollbackWindowSpec{}, 3, 4, false},
	} {
		if got := isRecentRevision(test.window, made(test.newSet), made(test.stable), all); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSameStatusComparesTheContent(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC))
	status := func() argov1.RolloutStatus {
		return argov1.RolloutStatus{Phase: argov1.RolloutPhaseHealthy, CurrentStepIndex: new(int32(1)), Conditions: []argov1.RolloutCondition{
			{Type: "A", Status: "True", Reason: "R", Message: "M", LastUpdateTime: at, LastTransitionTime: at},
		}}
	}
	inOtherTimeZone := status()
	inOtherTimeZone.Conditions[0].LastUpdateTime = metav1.NewTime(at.In(time.FixedZone("east", 3600)))
	if !SameStatus(status(), inOtherTimeZone) || !SameStatus(argov1.RolloutStatus{}, argov1.RolloutStatus{Conditions: []argov1.RolloutCondition{}}) {
		t.Error("equal statuses are reported as different")
	}
	for name, change := range map[string]func(*argov1.RolloutStatus){
		"type":       func(s *argov1.RolloutStatus) { s.Conditions[0].Type = "B" },
		"status":     func(s *argov1.RolloutStatus) { s.Conditions[0].Status = "False" },
		"reason":     func(s *argov1.RolloutStatus) { s.Conditions[0].Reason = "S" },
		"message":    func(s *argov1.RolloutStatus) { s.Conditions[0].Message = "N" },
		"updated":    func(s *argov1.RolloutStatus) { s.Conditions[0].LastUpdateTime.Time = at.Add(1) },
		"transition": func(s *argov1.RolloutStatus) { s.Conditions[0].LastTransitionTime.Time = at.Add(1) },
		"one more":   func(s *argov1.RolloutStatus) { s.Conditions = append(s.Conditions, s.Conditions[0]) },
		"step":       func(s *argov1.RolloutStatus) { s.CurrentStepIndex = new(int32(2)) },
	} {
		other := status()
		change(&other)
		if SameStatus(status(), other) {
			t.Errorf("another %s is reported as equal", name)
		}
	}
}

// TestScalingAHealthyRolloutStartsTheDeadline scales a Rollout long after its last progress, as an autoscaler does.
func TestScalingAHealthyRolloutStartsTheDeadline(t *testing.T) {
	for name, strategy := range map[string]argov1.RolloutStrategy{
		"canary":     {Canary: &argov1.CanaryStrategy{Steps: []argov1.CanaryStep{setWeight(10)}}},
		"blue-green": {BlueGreen: &argov1.BlueGreenStrategy{ActiveService: "active"}},
	} {
		for _, replicas := range []int32{4, 1, 0} {
			w := newWorld(argov1.RolloutSpec{Replicas: new(int32(2)), Strategy: strategy})
			w.settle(t)
			w.advanceTo(t, w.now.Add(time.Hour))
			w.generation++
			w.spec.Replicas = &replicas
			for w.reconcile(t) {
				if w.status.Phase == argov1.RolloutPhaseDegraded {
					t.Errorf("%s, scaled from 2 to %d pods: Degraded (%s)", name, replicas, w.status.Message)
				}
			}
		}
	}
}

// TestScaledToZeroWithRetainedPods scales a Rollout to zero that has waited longer than its deadline, while the pods of the previous
// revision were retained. They are removed at once, which ends their delay.
func TestScaledToZeroWithRetainedPods(t *testing.T) {
	w := newWorld(argov1.RolloutSpec{
		Replicas: new(int32(2)), ProgressDeadlineSeconds: new(int32(60)),
		Strategy: argov1.RolloutStrategy{BlueGreen: &argov1.BlueGreenStrategy{ActiveService: "active", ScaleDownDelaySeconds: new(int32(600))}},
	})
	w.settle(t)
	w.generation++
	w.template = "v2"
	w.settle(t)
	w.ready["hash-v2"] = 0
	w.settle(t)
	w.advanceTo(t, w.now.Add(5*time.Minute))
	w.generation++
	w.spec.Replicas = new(int32(0))
	s := w.snapshot(t)
	for i := range s.ReplicaSets { // scaled down, but their pods have not ended yet
		s.ReplicaSets[i].SpecReplicas, s.ReplicaSets[i].ScaleDownDeadline = 0, time.Time{}
	}
	if got := Next(s).Status; got.Phase != argov1.RolloutPhaseProgressing {
		t.Errorf("got %s (%s), want Progressing", got.Phase, got.Message)
	}
}
