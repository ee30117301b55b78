package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// SeenRollout is one Rollout as it was left, and what Serin's first pass would do to it.
type SeenRollout struct {
	explain.Rollout

	// Decision of that pass.
	Decision rollout.Decision
	// Writes are the objects that it would change, as: patch Service shop/cart.
	Writes []string
	// Refused is what would keep Serin from a change; empty: nothing.
	Refused string
}

// Rollout is what would happen to one.
type Rollout struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Provider carries the traffic.
	Provider string `json:"provider"`
	// Phase as the status has it; empty for a Rollout that no controller has looked at.
	Phase   string  `json:"phase"`
	Outcome Outcome `json:"outcome"`
	// Sentences say what would happen, and why; the first stands for itself.
	Sentences []string `json:"sentences"`
	// Writes are the objects that the first pass would change, besides the status; empty: none.
	Writes []string `json:"writes,omitempty"`
}

// Template is an AnalysisTemplate whose measurements Serin cannot make.
type Template struct {
	// Name with its namespace, or of the cluster.
	Name string
	// Metrics that a program of others would measure.
	Metrics []string
}

func ofRollout(seen SeenRollout, now time.Time) Rollout {
	r := seen.At(now)
	out := Rollout{Name: r.Name, Namespace: r.Namespace, Provider: r.Provider, Phase: string(seen.Object.Status.Phase), Writes: slices.Clone(seen.Writes)}
	out.Outcome, out.Sentences = rolloutOutcome(&seen, &r)
	if len(out.Writes) > 0 && out.Outcome.fine() {
		out.Sentences = append(out.Sentences, "Besides the status it would "+strings.Join(out.Writes, ", ")+".")
	}
	if told := subscribed(seen.Object); told != "" {
		out.Sentences = append(out.Sentences, "It asks for notifications by the annotation "+told+": Serin sends them, but none to GitHub or Amazon SQS (docs/notifications.md).")
	}
	return out
}

func rolloutOutcome(seen *SeenRollout, r *explain.Release) (Outcome, []string) {
	s := seen.Snapshot
	switch {
	case len(seen.Assumed) > 0:
		return Unknown, []string{"Cannot be told: " + strings.Join(seen.Unread, " ")}
	case s.Problem != "":
		return Blocked, []string{sentence("Serin would not carry it out: " + s.Problem)}
	case seen.Refused != "":
		return Blocked, []string{sentence("A change would be refused: " + seen.Refused)}
	case len(plugins(s)) > 0:
		return Blocked, []string{fmt.Sprintf("Its steps call %s, and Serin runs no programs of others: such a step holds a release for ever. Take it out, or disable it.", strings.Join(plugins(s), ", "))}
	case s.Status.Phase == "":
		return Continue, []string{"No controller has looked at it yet: Serin would deploy its first revision."}
	case makesReplicaSet(seen.Decision):
		return Release, []string{"A release would start: its template is neither what was taken up last nor that of any ReplicaSet. Let Argo Rollouts finish it first, or let it start."}
	case r.Result == release.Promoted:
		return Adopt, []string{"Taken over as it is: nothing starts, and no pod restarts." + paused(r)}
	case r.Result == release.RolledBack:
		return Adopt, []string{"Taken over as it is, aborted: revision " + s.Status.StableRS + " serves." + paused(r)}
	default:
		return Continue, []string{underWay(r)}
	}
}

func paused(r *explain.Release) string {
	if r.Suspended {
		return " It is paused by spec.paused, and stays so."
	}
	return ""
}

func underWay(r *explain.Release) string {
	where := fmt.Sprintf("the new revision has %d %% of the traffic", r.Weight)
	if r.TotalSteps > 0 && r.Step > 0 {
		where = fmt.Sprintf("step %d of %d, %s", r.Step, r.TotalSteps, where)
	}
	text := fmt.Sprintf("In the middle of a release (%s, %s): it goes on from there.", r.Phase, where)
	if gate := r.Person(); gate != nil {
		text += fmt.Sprintf(" It waits for a person: %s.", strings.TrimSuffix(gate.Message, "."))
	}
	if r.NextStep != "" {
		text += " Next: " + r.NextStep + "."
	}
	return text
}

// makesReplicaSet is true of a decision that begins with a revision that nobody has seen.
func makesReplicaSet(d rollout.Decision) bool {
	for _, effect := range d.Effects {
		if _, makes := effect.(rollout.ReplicaSetExists); makes {
			return true
		}
	}
	return false
}

// plugins are the steps that programs of others would carry out.
func plugins(s rollout.Snapshot) []string {
	if s.Spec.Strategy.Canary == nil {
		return nil
	}
	var out []string
	for _, step := range s.Spec.Strategy.Canary.Steps {
		if step.Plugin != nil && !slices.Contains(s.DisabledPlugins, step.Plugin.Name) {
			out = append(out, "plugin "+step.Plugin.Name)
		}
	}
	return out
}

// subscribed is an annotation that asks for notifications; empty: there is none.
func subscribed(object *argov1.Rollout) string {
	for _, key := range slices.Sorted(maps.Keys(object.Annotations)) {
		if strings.HasPrefix(key, "notifications.argoproj.io/subscribe") {
			return key
		}
	}
	return ""
}

// aboutRollouts are the sentences about all Rollouts together.
func aboutRollouts(s Survey) []string {
	var out []string
	living := false
	for _, one := range s.Argos {
		if one.Ready == 0 {
			continue
		}
		living = true
		out = append(out, fmt.Sprintf("Argo Rollouts lives: Deployment %s of namespace %s has %d ready pods. Serin leaves the Rollouts to it until it is gone. To stop it:", one.Name, one.Namespace, one.Ready),
			fmt.Sprintf("  kubectl -n %s scale deployment/%s --replicas=0", one.Namespace, one.Name))
	}
	if !living && s.HeldByArgo.Text != "" {
		out = append(out, fmt.Sprintf("Argo Rollouts lives, or lived until a moment ago: %s. Serin leaves the Rollouts to it until %s.", s.HeldByArgo.Text, s.HeldByArgo.Until.UTC().Format(time.RFC3339)))
		living = true
	}
	if !living {
		out = append(out, "No living Argo Rollouts was found.")
	}
	if s.PrunesRollouts {
		out = append(out, "The installed definition of Rollouts drops what Serin adds to their status, their gates. It works without; serin why looks for itself. To have them:",
			"  serin crds --group argoproj.io | kubectl apply --server-side --force-conflicts -f -")
	}
	if ids := instances(s.Rollouts); len(ids) > 0 {
		out = append(out, "Some Rollouts carry an instance id: a Serin serves one, by --instance-id. There are: "+strings.Join(ids, ", ")+".")
	}
	if s.Verifies {
		out = append(out, "Argo Rollouts verifies target groups of AWS (--aws-verify-target-group): give Serin the same flag, and its service account the same role (elasticloadbalancing:Describe*).")
	}
	for _, t := range s.Templates {
		out = append(out, fmt.Sprintf("%s measures %s by a plugin, which Serin does not call: such a measurement is an error. Take another provider.", t.Name, strings.Join(t.Metrics, ", ")))
	}
	return out
}

// instances are the ids that Rollouts carry.
func instances(rollouts []SeenRollout) []string {
	ids := map[string]bool{}
	for i := range rollouts {
		if id := rollouts[i].Object.Labels[argov1.InstanceIDLabel]; id != "" {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
