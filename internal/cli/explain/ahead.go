package explain

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// Bounds of a look ahead: a plan of a hundred weights has about ten passes for each.
const (
	maxPasses = 4000
	maxSteps  = 120
)

// future is what a release does if nothing fails.
type future struct {
	steps []Step
	// limits of the checks, by name.
	limits map[string]string
}

// ahead plays the machine forward in a world where workloads are ready at once, people approve and checks hold. So the
// words for what comes next have the same source as what does come next.
func ahead(s canary.Snapshot) future {
	f := future{limits: map[string]string{}}
	s = fair(s)
	for range maxPasses {
		d := canary.Next(s)
		for _, gate := range d.Gates {
			if gate.Limit != "" && f.limits[gate.Name] == "" {
				f.limits[gate.Name] = gate.Limit
			}
		}
		asked := false
		for _, probe := range d.Probes {
			if _, ok := s.Answers.To(probe); !ok {
				s.Answers[probe.ID] = approving(probe, s.Now)
				asked = true
			}
		}
		before := s
		for _, effect := range d.Effects {
			s = happens(s, effect)
		}
		status := *d.Status.DeepCopy()
		canary.Stamp(&status, s.Plan, d.Stamp, s.Now)
		s.Status = status
		if text := move(before, s, d); text != "" {
			f.steps = append(f.steps, Step{Text: text, Weight: s.Route.Canary, At: s.Now.UTC()})
		}
		switch {
		case len(f.steps) == maxSteps:
			return f
		case asked, !equality.Semantic.DeepEqual(before.Status, s.Status), before.Route != s.Route,
			before.Workload.Target != s.Workload.Target, before.Workload.Primary != s.Workload.Primary:
		case d.Wake.After(s.Now):
			s.Now = d.Wake
		default:
			return f
		}
	}
	return f
}

// fair is the snapshot of a world in which nothing has to be waited for but time.
func fair(s canary.Snapshot) canary.Snapshot {
	s.Answers = release.Answers{}
	s.Peer, s.Obstacle, s.Missing, s.Plan.Suspended, s.Plan.Blocks = canary.Peer{}, "", nil, false, nil
	s.Workload.Problem, s.Workload.ScalerProblem = "", ""
	s.Workload.Primary = whole(s.Workload.Primary, max(s.Workload.Primary.Replicas, 1))
	s.Workload.Target = whole(s.Workload.Target, s.Workload.Target.Replicas)
	s.Workload.Target.Found = true
	s.Route.Problem, s.Route.Reason, s.Route.Confirmation = "", "", canary.Confirmed
	return s
}

// whole is a copy that has the pods it asks for.
func whole(c canary.Copy, replicas int32) canary.Copy {
	c.Replicas, c.Total, c.Available = replicas, replicas, replicas
	c.Ready, c.Exceeded, c.Message, c.PodProblem = replicas > 0, false, "", ""
	c.Enough, c.Endpoints = replicas, release.Endpoints{Ready: replicas}
	return c
}

// happens is the world after an effect.
func happens(s canary.Snapshot, effect release.Effect) canary.Snapshot {
	switch e := effect.(type) {
	case canary.HasFinalizer:
		s.Finalizer = e.Held
	case canary.PrimaryExists:
		s.Workload.Primary.Found = true
		if s.Workload.Primary.ID == "" || e.Follow {
			s.Workload.Primary.ID = e.ID
		}
		s.Workload.Same = s.Workload.Same || e.Follow
	case canary.CopyTemplate:
		s.Workload.Primary.ID, s.Workload.Same = e.ID, true
	case canary.RestoreTemplate:
		s.Workload.Primary.ID, s.Workload.Same = e.ID, false
	case canary.RouteStands:
		if !s.Route.Found {
			s.Route.Found, s.Route.Canary, s.Route.Mirrored = true, e.Canary, e.Mirror
		}
	case canary.RouteIs:
		s.Route.Found, s.Route.Canary, s.Route.Mirrored = true, e.Canary, e.Mirror
	case canary.UpFromZero:
		s.Workload.Target = whole(s.Workload.Target, max(s.Workload.Target.Replicas, 1))
	case canary.DownToZero:
		s.Workload.Target = whole(s.Workload.Target, 0)
	default: // what is left changes nothing that the machine looks at
	}
	return s
}

// approving is the answer that lets a release go on.
func approving(p release.Probe, now time.Time) release.Answer {
	began := release.Later(now, p.Since)
	answer := release.Answer{ID: p.ID, Began: began, Ended: began, Outcome: release.Yes}
	switch q := p.Question.(type) {
	case canary.HookQuestion:
		if q.Hook.Type == flaggerv1.RollbackHook {
			answer.Outcome = release.No
		}
	case canary.MetricQuestion:
		answer.Outcome, answer.Value = release.Measured, good(q.Check.Metric)
	}
	return answer
}

// good is a value that holds: bounds are inclusive.
func good(m flaggerv1.CanaryMetric) float64 {
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

// move says what changed between two passes, as people see it; empty when it was bookkeeping.
func move(before, after canary.Snapshot, d canary.Decision) string {
	plan := after.Plan
	if text := newPhase(before, after); text != "" {
		return text
	}
	for _, effect := range d.Effects {
		switch e := effect.(type) {
		case canary.CopyTemplate:
			return plan.Target + "-primary gets the new revision"
		case canary.RouteIs:
			switch {
			case e.Mirror:
				return mirrored(after)
			case e.Canary == before.Route.Canary && before.Route.Found && after.Status.Iterations == before.Status.Iterations:
			case e.Canary == 0:
				return "all traffic goes back to " + plan.Target + "-primary"
			case plan.Strategy == canary.Weighted:
				return fmt.Sprintf("weight %d", e.Canary)
			case plan.Strategy == canary.BlueGreen:
				return "all traffic goes to the canary"
			}
		}
	}
	switch from, to := before.Status.Iterations, after.Status.Iterations; {
	case to > from && to > plan.Iterations:
		return "the checks are asked once more"
	case to > from:
		return iteration(after)
	case restarted(before, after):
		return "the analysis begins anew with the revision that the target has now"
	default:
		return ""
	}
}

func iteration(s canary.Snapshot) string {
	return fmt.Sprintf("iteration %d of %d", s.Status.Iterations, s.Plan.Iterations)
}

func mirrored(s canary.Snapshot) string {
	if s.Plan.Strategy == canary.BlueGreen {
		return iteration(s) + ", requests are mirrored to the canary"
	}
	return "requests are mirrored to the canary"
}

func restarted(before, after canary.Snapshot) bool {
	a, b := before.Status.Serin, after.Status.Serin
	return a != nil && b != nil && a.Run != "" && a.Run != b.Run
}

// newPhase says the entry into a phase.
func newPhase(before, after canary.Snapshot) string {
	plan := after.Plan
	from, to := before.Status.Phase, after.Status.Phase
	if from == to {
		return ""
	}
	switch to {
	case flaggerv1.CanaryPhaseInitializing:
		return fmt.Sprintf("%s-primary and its Services are made", plan.Target)
	case flaggerv1.CanaryPhaseInitialized:
		return fmt.Sprintf("%s-primary serves, and %s goes to zero", plan.Target, plan.Target)
	case flaggerv1.CanaryPhaseProgressing:
		if from == flaggerv1.CanaryPhaseWaitingPromotion {
			return ""
		}
		return fmt.Sprintf("the new revision starts: %s is scaled up", plan.Target)
	case flaggerv1.CanaryPhasePromoting:
		return fmt.Sprintf("promotion: %s-primary gets the new revision", plan.Target)
	case flaggerv1.CanaryPhaseFinalising:
		return fmt.Sprintf("all traffic goes to %s-primary, which runs the new revision", plan.Target)
	case flaggerv1.CanaryPhaseSucceeded:
		return fmt.Sprintf("the release ends well: %s goes to zero", plan.Target)
	case flaggerv1.CanaryPhaseFailed:
		return fmt.Sprintf("the release ends as failed: %s goes to zero", plan.Target)
	case flaggerv1.CanaryPhaseTerminating:
		return "what was taken over is given back"
	default: // Waiting and WaitingPromotion are not entered when everybody approves
		return ""
	}
}
