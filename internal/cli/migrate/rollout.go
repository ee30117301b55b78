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

// ObservedRollout is the observation of a Rollout, and the result of Serin's first reconciliation of it.
type ObservedRollout struct {
	explain.Rollout

	// Decision is the decision of that reconciliation.
	Decision rollout.Decision
	// Writes are the writes of that reconciliation, such as: patch Service shop/cart.
	Writes []string
	// Refused is the reason why a write would be refused; empty: none would be refused.
	Refused string
}

// Rollout describes the effect of the migration on one Rollout.
type Rollout struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Provider is the component that splits the traffic.
	Provider string `json:"provider"`
	// Phase of the status; empty for a Rollout that no controller has observed.
	Phase   string  `json:"phase"`
	Outcome Outcome `json:"outcome"`
	// Sentences describe the effect and its reasons; the first sentence is a summary.
	Sentences []string `json:"sentences"`
	// Writes are the writes of the first reconciliation, except for those of the status.
	Writes []string `json:"writes,omitempty"`
}

// Template is an AnalysisTemplate with metrics that Serin cannot measure.
type Template struct {
	// Name is the kind and the name of the template, with the namespace unless the template is cluster-scoped.
	Name string
	// Metrics are the names of the metrics that use a plugin.
	Metrics []string
}

func describeRollout(observed ObservedRollout, now time.Time) Rollout {
	r := observed.Describe(now)
	out := Rollout{Name: r.Name, Namespace: r.Namespace, Provider: r.Provider, Phase: string(observed.Object.Status.Phase), Writes: slices.Clone(observed.Writes)}
	out.Outcome, out.Sentences = rolloutOutcome(&observed, &r)
	if len(out.Writes) > 0 && out.Outcome.isReady() {
		out.Sentences = append(out.Sentences, "Besides the status, Serin would "+strings.Join(out.Writes, ", ")+".")
	}
	if annotation := subscribeAnnotation(observed.Object); annotation != "" {
		out.Sentences = append(out.Sentences, "It subscribes to notifications by the annotation "+annotation+": Serin sends them, except to GitHub and Amazon SQS (docs/notifications.md).")
	}
	return out
}

func rolloutOutcome(observed *ObservedRollout, r *explain.Release) (Outcome, []string) {
	s := observed.Snapshot
	switch {
	case len(observed.Assumed) > 0:
		return Unknown, []string{"Unknown: " + strings.Join(observed.Unread, " ")}
	case s.ValidationError != "":
		return Blocked, []string{withFullStop("Serin would reject it: " + s.ValidationError)}
	case observed.Refused != "":
		return Blocked, []string{withFullStop("A change would be refused: " + observed.Refused)}
	case len(stepPlugins(s)) > 0:
		return Blocked, []string{fmt.Sprintf("Its steps call %s. Serin calls plugins only with the flag --allow-plugins: without it, the release would wait indefinitely. Set the flag (docs/plugins.md), or remove the step.", strings.Join(stepPlugins(s), ", "))}
	case len(s.RouterPlugins) > 0:
		return Blocked, []string{fmt.Sprintf("Its traffic is routed by %s. Serin calls plugins only with the flag --allow-plugins: without it, no weight would be set. Set the flag (docs/plugins.md), or use a router that is built in.", strings.Join(routerPlugins(s), ", "))}
	case s.Status.Phase == "":
		return Continue, []string{"No controller has observed it yet: Serin would deploy its first revision."}
	case createsReplicaSet(observed.Decision):
		return Release, []string{"A release would start: its template is that of no ReplicaSet. Let Argo Rollouts finish it first, or let it start."}
	case r.Result == release.Promoted:
		return Adopt, []string{"Adopted unchanged: no release starts, and no pod restarts." + pausedText(r)}
	case r.Result == release.RolledBack:
		return Adopt, []string{"Adopted unchanged, aborted: revision " + s.Status.StableRS + " serves." + pausedText(r)}
	default:
		return Continue, []string{rolloutProgressSentence(r)}
	}
}

func pausedText(r *explain.Release) string {
	if r.Suspended {
		return " It remains paused by spec.paused."
	}
	return ""
}

func rolloutProgressSentence(r *explain.Release) string {
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

// createsReplicaSet reports whether a decision creates a ReplicaSet, which means that the revision is new.
func createsReplicaSet(d rollout.Decision) bool {
	for _, effect := range d.Effects {
		if _, creates := effect.(rollout.ReplicaSetExists); creates {
			return true
		}
	}
	return false
}

// stepPlugins returns the enabled plugins that the steps call.
func stepPlugins(s rollout.Snapshot) []string {
	if s.Spec.Strategy.Canary == nil {
		return nil
	}
	var out []string
	for _, step := range s.Spec.Strategy.Canary.Steps {
		if step.Plugin != nil && !s.StepPlugins[step.Plugin.Name].Disabled {
			out = append(out, "plugin "+step.Plugin.Name)
		}
	}
	return out
}

// routerPlugins returns the plugins that route the traffic and are not built in.
func routerPlugins(s rollout.Snapshot) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.RouterPlugins)) {
		out = append(out, "plugin "+name)
	}
	return out
}

// subscribeAnnotation returns the first annotation that subscribes to notifications; empty: there is none.
func subscribeAnnotation(object *argov1.Rollout) string {
	for _, key := range slices.Sorted(maps.Keys(object.Annotations)) {
		if strings.HasPrefix(key, "notifications.argoproj.io/subscribe") {
			return key
		}
	}
	return ""
}

// argoRolloutsSentences returns the sentences about Argo Rollouts and all Rollouts.
func argoRolloutsSentences(s Survey) []string {
	var out []string
	isRunning := false
	for _, one := range s.ArgoRollouts {
		if one.Ready == 0 {
			continue
		}
		isRunning = true
		out = append(out, fmt.Sprintf("Argo Rollouts is running: Deployment %s in namespace %s has %d ready pods. Serin does not act on its Rollouts until it is stopped. To stop it:", one.Name, one.Namespace, one.Ready),
			fmt.Sprintf("  kubectl -n %s scale deployment/%s --replicas=0", one.Namespace, one.Name))
	}
	if !isRunning && s.ArgoRolloutsSign.Text != "" {
		out = append(out, fmt.Sprintf("Argo Rollouts is running, or was until recently: %s. Serin does not act on its Rollouts until %s.", s.ArgoRolloutsSign.Text, s.ArgoRolloutsSign.Until.UTC().Format(time.RFC3339)))
		isRunning = true
	}
	if !isRunning {
		out = append(out, "No running Argo Rollouts was found.")
	}
	if s.PrunesRollouts {
		out = append(out, "The installed definition of Rollouts drops the gates that Serin adds to their status. Serin works without them, and serin why evaluates them itself. To install the current definition:",
			"  serin crds --group argoproj.io | kubectl apply --server-side --force-conflicts -f -")
	}
	if ids := instanceIDs(s.Rollouts); len(ids) > 0 {
		out = append(out, "Some Rollouts have an instance ID, and a Serin serves one of them, by --instance-id: "+strings.Join(ids, ", ")+".")
	}
	if s.VerifiesTargetGroups {
		out = append(out, "Argo Rollouts verifies target groups of AWS (--aws-verify-target-group): give Serin the same flag, and its service account the same role (elasticloadbalancing:Describe*).")
	}
	for _, t := range s.Templates {
		out = append(out, fmt.Sprintf("%s measures %s with a plugin. Serin calls plugins only with the flag --allow-plugins: without it, such a measurement results in an error. Set the flag (docs/plugins.md), or use another provider.", t.Name, strings.Join(t.Metrics, ", ")))
	}
	return out
}

// instanceIDs returns the sorted instance IDs of Rollouts.
func instanceIDs(rollouts []ObservedRollout) []string {
	ids := map[string]bool{}
	for i := range rollouts {
		if id := rollouts[i].Object.Labels[argov1.InstanceIDLabel]; id != "" {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
