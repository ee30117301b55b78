package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
)

// maxDecisions limits a played release: a step takes about five decisions.
const maxDecisions = 4000

// newRolloutPlan plays the first revision, which is not shown, and then the release of a second one.
func newRolloutPlan(in Input) (Plan, error) {
	r := in.Rollout
	spec, unknown := resolvedSpec(in)
	referenced := rollout.ReferencedWorkload{IsUnknown: unknown}
	if in.Workload != nil {
		referenced.Template, referenced.Selector = in.Workload.Template, in.Workload.Selector
	}
	problems := rollout.Validate(r.Spec, referenced)
	if len(problems) == 0 && in.Routers != nil {
		if err := in.Routers.CheckRouting(r); err != nil {
			problems = field.ErrorList{field.Forbidden(traffic.RoutingPath(), err.Error())}
		}
	}
	if len(problems) > 0 {
		return Plan{}, &InvalidError{Release: argov1.RolloutKind + " " + objectName(r.Namespace, r.Name), Problems: []string{problems[0].Error()}}
	}
	out := Plan{
		Kind: argov1.RolloutKind, Namespace: r.Namespace, Name: r.Name, Target: argov1.RolloutKind + "/" + r.Name, Strategy: "canary", Provider: "replicas",
	}
	if ref := r.Spec.WorkloadRef; ref != nil {
		out.Target = ref.Kind + "/" + ref.Name
	}
	out.Replicas, out.ReplicasSource = in.rolloutReplicas()
	spec.Replicas = &out.Replicas
	switch c := spec.Strategy.Canary; {
	case c == nil:
		out.Strategy, out.Provider = "blue-green", "service"
	case c.TrafficRouting != nil:
		out.Provider = cmp.Or(joinWords(traffic.RouterNames(c.TrafficRouting)), out.Provider)
	}
	shortest, err := playRollout(in, spec, false)
	if err != nil {
		return Plan{}, err
	}
	longest, err := playRollout(in, spec, true)
	if err != nil {
		return Plan{}, err
	}
	deadline := 600 * time.Second
	if spec.ProgressDeadlineSeconds != nil {
		deadline = time.Duration(*spec.ProgressDeadlineSeconds) * time.Second
	}
	out.Steps, out.Queries, out.Plugins = shortest.steps, shortest.queries(), shortest.plugins(in.Plugins)
	out.Duration = Duration{
		ShortestSeconds: seconds(shortest.end.Sub(shortest.start)), PodStarts: shortest.podStarts, PodDeadlineSeconds: deadline.Seconds(),
		Unbounded: shortest.unbounded,
	}
	out.Duration.LongestSeconds = seconds(longest.end.Sub(longest.start)) + float64(shortest.podStarts)*deadline.Seconds()
	out.Notes = slices.Concat(in.Problems, shortest.notes)
	if unknown {
		out.Notes = append(out.Notes, fmt.Sprintf("%s is not known: its template is not validated.", out.Target))
	}
	return out, nil
}

// rolloutReplicas returns the number of pods of a Rollout, whose own number precedes that of the workload it refers to.
func (in *Input) rolloutReplicas() (count int32, source string) {
	if spec := in.Rollout.Spec; spec.Replicas != nil {
		return *spec.Replicas, "spec.replicas"
	}
	return in.replicas(nil)
}

// resolvedSpec returns the spec with the template of its workload; unknown is true if that is not known.
func resolvedSpec(in Input) (spec argov1.RolloutSpec, unknown bool) {
	spec = *in.Rollout.Spec.DeepCopy()
	if spec.WorkloadRef == nil {
		return spec, false
	}
	if in.Workload == nil {
		spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": in.Rollout.Name}}
		return spec, true
	}
	spec.Template = in.Workload.Template
	if spec.Selector == nil {
		spec.Selector = in.Workload.Selector
	}
	return spec, false
}

// rolloutRun is a played release of a Rollout.
type rolloutRun struct {
	recorder

	cluster   *rolloutCluster
	end       time.Time
	podStarts int
	unbounded []string
	notes     []string
	promoted  bool
}

// playRollout plays one release; slowest: with as many errors of measurements as analyses tolerate.
func playRollout(in Input, spec argov1.RolloutSpec, slowest bool) (*rolloutRun, error) {
	w := newRolloutCluster(in, spec, slowest)
	run := &rolloutRun{cluster: w}
	if !run.settle(nil) {
		return nil, run.unfinished("first revision")
	}
	w.startRelease()
	run.start, run.end = w.now, w.now
	if !run.settle(run.record) || !run.promoted {
		return nil, run.unfinished("release")
	}
	run.notes = w.notes
	if in.Rollout.Spec.Paused {
		run.unbounded = append([]string{"spec.paused: waits for a user"}, run.unbounded...)
	}
	return run, nil
}

// unfinished returns the error about a release that does not end.
func (r *rolloutRun) unfinished(what string) error {
	w := r.cluster
	reason := "it takes too many decisions"
	if gate := w.last.Gates.First(); gate != nil {
		reason = fmt.Sprintf("it waits for %s: %s", gate.Name, gate.Message)
	}
	return fmt.Errorf("the %s of Rollout %s does not end: %s", what, objectName(w.namespace, w.name), reason)
}

// settle reconciles until nothing follows, and reports whether that is reached. A pause that only a user ends, ends at once.
func (r *rolloutRun) settle(see func(before, after rollout.Snapshot, changed bool)) bool {
	w := r.cluster
	for range maxDecisions {
		before := w.snapshot()
		changed := w.reconcile()
		after := w.snapshot()
		if see != nil {
			see(before, after, changed)
		}
		switch {
		case changed:
		case waitsForUser(w.last.Gates):
			if !w.promote() {
				return false
			}
			r.addUnbounded(w.last.Gates)
		case !w.advanceTime():
			return true
		}
	}
	return false
}

func waitsForUser(gates release.Gates) bool {
	first := gates.First()
	return first != nil && first.Opener == release.ByUser
}

// addUnbounded records that a user has to continue the current step.
func (r *rolloutRun) addUnbounded(gates release.Gates) {
	text := gates.First().Name + ": waits for a user"
	if step := r.last(); step != nil {
		text = fmt.Sprintf("step %d, %s: waits for a user", step.Number, step.Action)
	}
	r.unbounded = append(r.unbounded, text)
}

// record adds one decision to the run. The gates of a decision that changed nothing are those that delay the step.
func (r *rolloutRun) record(before, after rollout.Snapshot, changed bool) {
	for _, gate := range r.cluster.last.Gates {
		if !changed && gate.Verdict != release.Pass && !rollout.GateKinds().Of(gate.Name).Informational {
			r.waitFor(gate.Name)
		}
	}
	if r.last() == nil {
		r.add(r.state("the new revision starts", after), r.start)
	}
	for _, text := range rolloutActions(before, after) {
		r.add(r.state(text, after), after.Now)
		if !r.promoted { // the previous pods may remain for a while after the end
			r.end = after.Now
		}
	}
	for _, rs := range after.ReplicaSets {
		i := slices.IndexFunc(before.ReplicaSets, func(old rollout.ReplicaSet) bool { return old.Name == rs.Name })
		if i >= 0 && rs.SpecReplicas > before.ReplicaSets[i].SpecReplicas {
			r.podStarts++
		}
	}
	if isPromoted(after) && after.Status.Phase == argov1.RolloutPhaseHealthy {
		r.promoted = true
	}
	step := r.last()
	current := r.state(step.Action, after)
	current.Number, current.AfterSeconds, current.WaitsFor = step.Number, step.AfterSeconds, step.WaitsFor
	*step = current
}

// isPromoted reports whether the new revision is the stable one.
func isPromoted(s rollout.Snapshot) bool { return s.Status.StableRS == s.Hash }

// state returns a step with the weights and pods of a snapshot.
func (r *rolloutRun) state(action string, s rollout.Snapshot) Step {
	step := Step{Action: action, CanaryWeight: int(rollout.TrafficShare(s))}
	if isPromoted(s) {
		step.CanaryWeight = release.Total
	}
	step.StableWeight = release.Total - step.CanaryWeight - r.cluster.experimentWeight()
	step.Mirrored = r.cluster.mirrors
	for _, rs := range s.ReplicaSets {
		if rs.Hash == s.Hash {
			step.CanaryPods = rs.SpecReplicas
		} else {
			step.StablePods += rs.SpecReplicas
		}
	}
	return step
}

// rolloutActions describes the changes between two snapshots that users see as steps.
func rolloutActions(before, after rollout.Snapshot) []string {
	var out []string
	if c := after.Spec.Strategy.Canary; c != nil {
		from, _ := rollout.StepPosition(before.Spec, before.Status)
		to, total := rollout.StepPosition(after.Spec, after.Status)
		started := before.Status.CurrentPodHash != after.Status.CurrentPodHash
		if to != nil && int(*to) < total && (started || from == nil || *from != *to) {
			out = append(out, rollout.DescribeStep(c.Steps[*to]))
		}
		if to != nil && int(*to) >= total && (started || from == nil || int(*from) < total) && !isPromoted(after) {
			out = append(out, "promotion: the new revision is scaled up")
		}
	}
	if b := after.Spec.Strategy.BlueGreen; b != nil {
		out = append(out, blueGreenActions(b, before.Status, after.Status)...)
	}
	if !isPromoted(before) && isPromoted(after) {
		out = append(out, "the new revision is stable")
	}
	if isPromoted(after) && previousPods(before) > 0 && previousPods(after) == 0 {
		out = append(out, "the pods of the previous revision are removed")
	}
	return out
}

func blueGreenActions(b *argov1.BlueGreenStrategy, before, after argov1.RolloutStatus) []string {
	var out []string
	from, to := before.BlueGreen, after.BlueGreen
	if b.PreviewService != "" && from.PreviewSelector != to.PreviewSelector {
		out = append(out, "Service "+b.PreviewService+" selects the new revision")
	}
	if from.PrePromotionAnalysisRunStatus == nil && to.PrePromotionAnalysisRunStatus != nil {
		out = append(out, "pre-promotion analysis")
	}
	if len(before.PauseConditions) == 0 && len(after.PauseConditions) > 0 {
		text := "pause before the promotion"
		if b.AutoPromotionSeconds > 0 {
			text = fmt.Sprintf("pause of %ds before the promotion", b.AutoPromotionSeconds)
		}
		out = append(out, text)
	}
	if from.ActiveSelector != to.ActiveSelector {
		out = append(out, "Service "+b.ActiveService+" switches to the new revision")
	}
	if from.PostPromotionAnalysisRunStatus == nil && to.PostPromotionAnalysisRunStatus != nil {
		out = append(out, "post-promotion analysis")
	}
	return out
}

// previousPods returns the number of pods of all revisions but the newest.
func previousPods(s rollout.Snapshot) int32 {
	count := int32(0)
	for _, rs := range s.ReplicaSets {
		if rs.Hash != s.Hash {
			count += rs.SpecReplicas
		}
	}
	return count
}
