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

// ObservedRollout is a Rollout, and what Serin's first reconciliation would do to it.
type ObservedRollout struct {
	explain.Rollout

	// Decision of that reconciliation.
	Decision rollout.Decision
	// Writes are the objects that it would change, as: patch Service shop/cart.
	Writes []string
	// Refused is why a change would be refused; empty: none would.
	Refused string
}

// Rollout is what would happen to one Rollout.
type Rollout struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Provider divides the traffic.
	Provider string `json:"provider"`
	// Phase of the status; empty for a Rollout that no controller has observed.
	Phase   string  `json:"phase"`
	Outcome Outcome `json:"outcome"`
	// Sentences describe what would happen, and why; the first is a summary.
	Sentences []string `json:"sentences"`
	// Writes are the objects that the first reconciliation would change, besides the status; empty: none.
	Writes []string `json:"writes,omitempty"`
}

// Template is an AnalysisTemplate with metrics that Serin cannot measure.
type Template struct {
	// Name with its namespace; without one for a template of the cluster.
	Name string
	// Metrics that a plugin would measure.
	Metrics []string
}

func describeRollout(seen ObservedRollout, now time.Time) Rollout {
	r := seen.Describe(now)
	out := Rollout{Name: r.Name, Namespace: r.Namespace, Provider: r.Provider, Phase: string(seen.Object.Status.Phase), Writes: slices.Clone(seen.Writes)}
	out.Outcome, out.Sentences = rolloutOutcome(&seen, &r)
	if len(out.Writes) > 0 && out.Outcome.isReady() {
		out.Sentences = append(out.Sentences, "Besides the status, Serin would "+strings.Join(out.Writes, ", ")+".")
	}
	if annotation := subscribed(seen.Object); annotation != "" {
		out.Sentences = append(out.Sentences, "It subscribes to notifications by the annotation "+annotation+": Serin sends them, except to GitHub and Amazon SQS (docs/notifications.md).")
	}
	return out
}

func rolloutOutcome(seen *ObservedRollout, r *explain.Release) (Outcome, []string) {
	s := seen.Snapshot
	switch {
	case len(seen.Assumed) > 0:
		return Unknown, []string{"Unknown: " + strings.Join(seen.Unread, " ")}
	case s.ValidationError != "":
		return Blocked, []string{sentence("Serin would reject it: " + s.ValidationError)}
	case seen.Refused != "":
		return Blocked, []string{sentence("A change would be refused: " + seen.Refused)}
	case len(plugins(s)) > 0:
		return Blocked, []string{fmt.Sprintf("Its steps call %s, and Serin runs no step plugins: the release would wait indefinitely. Remove the step, or disable the plugin.", strings.Join(plugins(s), ", "))}
	case s.Status.Phase == "":
		return Continue, []string{"No controller has observed it yet: Serin would deploy its first revision."}
	case createsReplicaSet(seen.Decision):
		return Release, []string{"A release would start: its template is that of no ReplicaSet. Let Argo Rollouts finish it first, or let it start."}
	case r.Result == release.Promoted:
		return Adopt, []string{"Adopted unchanged: no release starts, and no pod restarts." + paused(r)}
	case r.Result == release.RolledBack:
		return Adopt, []string{"Adopted unchanged, aborted: revision " + s.Status.StableRS + " serves." + paused(r)}
	default:
		return Continue, []string{rolloutInProgress(r)}
	}
}

func paused(r *explain.Release) string {
	if r.Suspended {
		return " It remains paused by spec.paused."
	}
	return ""
}

func rolloutInProgress(r *explain.Release) string {
	progress := fmt.Sprintf("the new revision receives %d%% of the traffic", r.Weight)
	if r.TotalSteps > 0 && r.Step > 0 {
		progress = fmt.Sprintf("step %d of %d, %s", r.Step, r.TotalSteps, progress)
	}
	text := fmt.Sprintf("A release is in progress (%s, %s) and would continue.", r.Phase, progress)
	if gate := r.UserGate(); gate != nil {
		text += fmt.Sprintf(" It waits for the user: %s.", strings.TrimSuffix(gate.Message, "."))
	}
	if r.NextStep != "" {
		text += " Next: " + r.NextStep + "."
	}
	return text
}

// createsReplicaSet reports whether a decision creates a ReplicaSet, for an unknown revision.
func createsReplicaSet(d rollout.Decision) bool {
	for _, effect := range d.Effects {
		if _, creates := effect.(rollout.ReplicaSetExists); creates {
			return true
		}
	}
	return false
}

// plugins are the plugins of steps.
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

// subscribed is the first annotation that subscribes to notifications; empty if there is none.
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
	isRunning := false
	for _, one := range s.Argos {
		if one.Ready == 0 {
			continue
		}
		isRunning = true
		out = append(out, fmt.Sprintf("Argo Rollouts is running: Deployment %s in namespace %s has %d ready pods. Serin does not act on its Rollouts until it is stopped. To stop it:", one.Name, one.Namespace, one.Ready),
			fmt.Sprintf("  kubectl -n %s scale deployment/%s --replicas=0", one.Namespace, one.Name))
	}
	if !isRunning && s.HeldByArgo.Text != "" {
		out = append(out, fmt.Sprintf("Argo Rollouts is running, or was until recently: %s. Serin does not act on its Rollouts until %s.", s.HeldByArgo.Text, s.HeldByArgo.Until.UTC().Format(time.RFC3339)))
		isRunning = true
	}
	if !isRunning {
		out = append(out, "No running Argo Rollouts was found.")
	}
	if s.PrunesRollouts {
		out = append(out, "The installed definition of Rollouts drops the gates that Serin adds to their status. Serin works without them, and serin why evaluates them itself. To install the current definition:",
			"  serin crds --group argoproj.io | kubectl apply --server-side --force-conflicts -f -")
	}
	if ids := instances(s.Rollouts); len(ids) > 0 {
		out = append(out, "Some Rollouts have an instance ID, and a Serin serves one of them, by --instance-id: "+strings.Join(ids, ", ")+".")
	}
	if s.Verifies {
		out = append(out, "Argo Rollouts verifies target groups of AWS (--aws-verify-target-group): give Serin the same flag, and its service account the same role (elasticloadbalancing:Describe*).")
	}
	for _, t := range s.Templates {
		out = append(out, fmt.Sprintf("%s measures %s with a plugin, which Serin does not call: such a measurement results in an error. Use another provider.", t.Name, strings.Join(t.Metrics, ", ")))
	}
	return out
}

// instances are the instance IDs of Rollouts.
func instances(rollouts []ObservedRollout) []string {
	ids := map[string]bool{}
	for i := range rollouts {
		if id := rollouts[i].Object.Labels[argov1.InstanceIDLabel]; id != "" {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
