package canary

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/equality"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Limits of a forecast: a plan with a hundred weights takes about ten decisions for each.
const (
	maxDecisions = 4000
	maxUpcoming  = 120
)

// expectedCourse contains the steps of a release in which nothing fails.
type expectedCourse struct {
	steps []release.Step
	// limits of the checks, by the names of their gates.
	limits map[string]string
}

// forecast plays a release in which users approve and checks pass. The displayed steps are thus derived from the code that
// executes them.
func forecast(s Snapshot) expectedCourse {
	result := expectedCourse{limits: map[string]string{}}
	Play(s, PassingAnswer, func(t Transition) bool {
		for _, gate := range t.Decision.Gates {
			if gate.Limit != "" && result.limits[gate.Name] == "" {
				result.limits[gate.Name] = gate.Limit
			}
		}
		if t.Text != "" {
			result.steps = append(result.steps, release.Step{Text: t.Text, Weight: t.After.Route.Canary, At: t.After.Now})
		}
		return len(result.steps) < maxUpcoming
	})
	return result
}

// Transition is one decision of a release that is played, with the snapshots around it.
type Transition struct {
	Before, After Snapshot
	Decision      Decision
	// Answered are the queries that the decision sent and that were answered at once.
	Answered []release.Query
	// Text describes the change as users see it; empty if only the status records a change.
	Text string
}

// Play runs the state machine on a simulated cluster where pods are ready at once and every query is answered at once with the
// result of answer, until nothing more follows, see returns false, or after a maximum number of decisions. It returns the last
// snapshot, and whether nothing more follows.
func Play(s Snapshot, answer func(Snapshot, release.Query) release.Answer, see func(Transition) bool) (last Snapshot, settled bool) {
	s = idealSnapshot(s)
	for range maxDecisions {
		t := Transition{Before: s, Decision: Next(s)}
		t.Answered = answerQueries(s, t.Decision, answer)
		for _, effect := range t.Decision.Effects {
			s = withEffect(s, effect)
		}
		status := *t.Decision.Status.DeepCopy()
		FillStamps(&status, s.Plan, t.Decision.Stamp, s.Now)
		s.Status = status
		t.After = s
		t.Text = stepText(t.Before, s, t.Decision)
		if !see(t) {
			return s, false
		}
		switch {
		case len(t.Answered) > 0, !equality.Semantic.DeepEqual(t.Before.Status, s.Status), t.Before.Route != s.Route,
			t.Before.Workload.Target != s.Workload.Target, t.Before.Workload.Primary != s.Workload.Primary:
		case t.Decision.Wake.After(s.Now):
			s.Now = t.Decision.Wake
		default:
			return s, true
		}
	}
	return s, false
}

// answerQueries adds an answer for each unanswered query of a decision, and returns these queries.
func answerQueries(s Snapshot, d Decision, answer func(Snapshot, release.Query) release.Answer) []release.Query {
	var answered []release.Query
	for _, query := range d.Queries {
		if _, ok := s.Answers.AnswerTo(query); !ok {
			s.Answers[query.ID] = answer(s, query)
			answered = append(answered, query)
		}
	}
	return answered
}

// idealSnapshot returns the snapshot of a cluster in which the release waits only for time.
func idealSnapshot(s Snapshot) Snapshot {
	s.Answers = release.Answers{}
	s.OtherController, s.TargetConflict, s.MissingReferences, s.Plan.Suspended, s.Plan.ValidationErrors = OtherController{}, "", nil, false, nil
	s.Workload.Problem, s.Workload.ScalerProblem = "", ""
	s.Workload.Primary = withPods(s.Workload.Primary, max(s.Workload.Primary.Replicas, 1))
	s.Workload.Target = withPods(s.Workload.Target, s.Workload.Target.Replicas)
	s.Workload.Target.Found = true
	s.Route.Problem, s.Route.Reason, s.Route.Confirmation, s.Route.Unreported = "", "", Confirmed, Unreported{}
	return s
}

// withPods returns the workload with as many ready pods as desired.
func withPods(w WorkloadState, replicas int32) WorkloadState {
	w.Replicas, w.Total, w.Available = replicas, replicas, replicas
	w.Ready, w.DeadlineExceeded, w.Message, w.PodProblem = replicas > 0, false, "", ""
	w.RequiredPods, w.Endpoints = replicas, release.Endpoints{Ready: replicas}
	return w
}

// withEffect returns the snapshot after an effect was applied.
func withEffect(s Snapshot, effect release.Effect) Snapshot {
	switch e := effect.(type) {
	case HasFinalizer:
		s.Finalizer = e.Present
	case ServicesExist:
		s.Workload.ServicesSelectOther = false
		if e.Apex {
			s.Workload.ApexSelectsTarget, s.Workload.ApexSelectsPrimary = false, true
		}
	case PrimaryExists:
		s.Workload.Primary.Found = true
		if s.Workload.Primary.ID == "" || e.Follow {
			s.Workload.Primary.ID = e.ID
		}
		s.Workload.SameTemplate = s.Workload.SameTemplate || e.Follow
	case CopyTemplate:
		s.Workload.Primary.ID, s.Workload.SameTemplate = e.ID, true
	case RestoreTemplate:
		s.Workload.Primary.ID, s.Workload.SameTemplate = e.ID, false
	case RouteMaintained:
		s.Route.OtherMatches = false
		if !s.Route.Found {
			s.Route.Found, s.Route.Canary, s.Route.Mirrored = true, e.Canary, e.Mirror
		}
	case TrafficWeight:
		s.Route.OtherMatches = false
		s.Route.Found, s.Route.Canary, s.Route.Mirrored = true, e.Canary, e.Mirror
	case TargetScaledUp:
		replicas := s.Workload.Target.Replicas
		switch {
		case e.ToPrimaryCapacity:
			replicas = max(replicas, s.Workload.returnCapacity(), 1)
		case replicas == 0: // as many as the primary has
			replicas = max(s.Workload.Primary.Replicas, 1)
		}
		s.Workload.Target = withPods(s.Workload.Target, replicas)
	case TargetScaledToZero:
		s.Workload.Target = withPods(s.Workload.Target, 0)
	default: // no other effect changes what a decision depends on
	}
	return s
}

// PassingAnswer returns the answer with which a release continues.
func PassingAnswer(s Snapshot, query release.Query) release.Answer {
	began := release.LaterOf(s.Now, query.Since)
	answer := release.Answer{ID: query.ID, Began: began, Ended: began, Outcome: release.Yes}
	switch q := query.Request.(type) {
	case HookQuery:
		if q.Hook.Type == flaggerv1.RollbackHook {
			answer.Outcome = release.No
		}
	case MetricQuery:
		answer.Outcome, answer.Value = release.Measured, passingValue(q.Check.Metric)
	}
	return answer
}

// passingValue returns a value within the limits of a metric: bounds are inclusive.
func passingValue(m flaggerv1.CanaryMetric) float64 {
	switch r := m.ThresholdRange; {
	case r == nil:
		return m.Threshold
	case r.Min != nil:
		return *r.Min
	case r.Max != nil:
		return *r.Max
	default:
		return 0
	}
}

// SlowestAnswer returns the answers of the longest release that is still promoted: checks fail until one more failed check would
// roll the release back. Only checks count; webhooks that must approve and that request a rollback answer as in PassingAnswer.
func SlowestAnswer(s Snapshot, query release.Query) release.Answer {
	answer := PassingAnswer(s, query)
	if s.Status.FailedChecks+1 >= s.Plan.Threshold {
		return answer
	}
	switch q := query.Request.(type) {
	case HookQuery:
		if q.Hook.Type == flaggerv1.RolloutHook || q.Hook.Type == flaggerv1.PreRolloutHook {
			answer.Outcome = release.No
		}
	case MetricQuery:
		answer.Value = math.NaN() // fails every check
	}
	return answer
}

// stepText describes the change between two decisions as users see it; empty if only the status records a change.
func stepText(before, after Snapshot, d Decision) string {
	plan := after.Plan
	if text := phaseText(before, after); text != "" {
		return text
	}
	for _, effect := range d.Effects {
		switch e := effect.(type) {
		case CopyTemplate:
			return plan.Target + "-primary is updated to the new revision"
		case TrafficWeight:
			switch {
			case e.Mirror:
				return mirrorText(after)
			case e.Canary == before.Route.Canary && before.Route.Found && after.Status.Iterations == before.Status.Iterations:
			case e.Canary == 0:
				return "all traffic returns to " + plan.Target + "-primary"
			case plan.Strategy == Weighted:
				return fmt.Sprintf("weight %d", e.Canary)
			case plan.Strategy == BlueGreen:
				return "all traffic is routed to the canary"
			}
		}
	}
	switch from, to := before.Status.Iterations, after.Status.Iterations; {
	case to > from && to > plan.Iterations:
		return "the checks are evaluated once more"
	case to > from:
		return iterationText(after)
	case runChanged(before, after):
		return "the analysis restarts with the current revision of the target"
	default:
		return ""
	}
}

func iterationText(s Snapshot) string {
	return fmt.Sprintf("iteration %d of %d", s.Status.Iterations, s.Plan.Iterations)
}

func mirrorText(s Snapshot) string {
	if s.Plan.Strategy == BlueGreen {
		return iterationText(s) + ", requests are mirrored to the canary"
	}
	return "requests are mirrored to the canary"
}

func runChanged(before, after Snapshot) bool {
	a, b := before.Status.Serin, after.Status.Serin
	return a != nil && b != nil && a.Run != "" && a.Run != b.Run
}

// phaseText describes the entry into a phase.
func phaseText(before, after Snapshot) string {
	plan := after.Plan
	from, to := before.Status.Phase, after.Status.Phase
	if from == to {
		return ""
	}
	switch to {
	case flaggerv1.CanaryPhaseInitializing:
		return fmt.Sprintf("%s-primary and its Services are created", plan.Target)
	case flaggerv1.CanaryPhaseInitialized:
		return fmt.Sprintf("%s-primary serves users, and %s is scaled to zero", plan.Target, plan.Target)
	case flaggerv1.CanaryPhaseProgressing:
		if from == flaggerv1.CanaryPhaseWaitingPromotion {
			return ""
		}
		return fmt.Sprintf("the new revision starts: %s is scaled up", plan.Target)
	case flaggerv1.CanaryPhasePromoting:
		return fmt.Sprintf("promotion: %s-primary is updated to the new revision", plan.Target)
	case flaggerv1.CanaryPhaseFinalising:
		return fmt.Sprintf("all traffic is routed to %s-primary, which runs the new revision", plan.Target)
	case flaggerv1.CanaryPhaseSucceeded:
		return fmt.Sprintf("the release succeeds: %s is scaled to zero", plan.Target)
	case flaggerv1.CanaryPhaseFailed:
		return fmt.Sprintf("the release fails: %s is scaled to zero", plan.Target)
	case flaggerv1.CanaryPhaseTerminating:
		return "the original objects are restored"
	default: // Waiting and WaitingPromotion are not entered when users approve at once
		return ""
	}
}
