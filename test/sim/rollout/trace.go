package rollout

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// describeWrite describes the content of a write for the trace.
func (k *Rollouts) describeWrite(e *store.Event) string {
	switch e.Kind {
	case rolloutKind:
		return statusText(actors.Typed[*argov1.Rollout](k.World, e.New), e.Subresource)
	case actors.ReplicaSetKind:
		set := actors.Typed[*appsv1.ReplicaSet](k.World, e.New)
		return fmt.Sprintf(" replicas=%d version=%s deadline=%s", *set.Spec.Replicas, set.Spec.Template.Labels["version"], set.Annotations[argov1.ScaleDownDeadlineAnnotation])
	case actors.ServiceKind:
		return fmt.Sprintf(" selector=%v", actors.Typed[*corev1.Service](k.World, e.New).Spec.Selector)
	case runKind:
		run := actors.Typed[*argov1.AnalysisRun](k.World, e.New)
		return fmt.Sprintf(" %s terminate=%t", run.Status.Phase, run.Spec.Terminate)
	case experimentKind:
		experiment := actors.Typed[*argov1.Experiment](k.World, e.New)
		return fmt.Sprintf(" %s terminate=%t", experiment.Status.Phase, experiment.Spec.Terminate)
	case cluster.DestinationRuleKind, cluster.ServiceResolverKind:
		return " subsets=" + subsetsText(e.New)
	default:
		if slices.Contains(cluster.WeightKinds, e.Kind) {
			return fmt.Sprintf(" weights=%v", weightsOf(e.New))
		}
		return ""
	}
}

// subsetsText returns the revision of each subset.
func subsetsText(v *store.Version) string {
	var all []string
	for _, subset := range subsetsIn(v) {
		all = append(all, fmt.Sprintf("%s:%s", subset["name"], selectionIn(subset)))
	}
	return strings.Join(all, ",")
}

func statusText(r *argov1.Rollout, subresource string) string {
	if subresource == "" {
		return fmt.Sprintf(" replicas=%v revision=%s", r.Spec.Replicas != nil, r.Annotations[argov1.RevisionAnnotation])
	}
	s := r.Status
	var text strings.Builder
	fmt.Fprintf(&text, " %s(%s) hash=%s stable=%s", s.Phase, s.Message, s.CurrentPodHash, s.StableRS)
	if s.CurrentStepIndex != nil {
		fmt.Fprintf(&text, " step=%d", *s.CurrentStepIndex)
	}
	if w := s.Canary.Weights; w != nil {
		fmt.Fprintf(&text, " weight=%d", w.Canary.Weight)
	}
	if s.Canary.StablePingPong != "" {
		fmt.Fprintf(&text, " stable is %s", s.Canary.StablePingPong)
	}
	if s.Abort {
		text.WriteString(" aborted")
	}
	for _, c := range s.PauseConditions {
		text.WriteString(" " + string(c.Reason))
	}
	if s.Serin != nil {
		for _, gate := range s.Serin.Gates {
			if gate.Verdict != string(release.Pass) {
				fmt.Fprintf(&text, " [%s by %s: %s]", gate.Name, gate.Opener, gate.Message)
			}
		}
	}
	return text.String()
}
