// Package migrate reports the effects of a migration from Flagger and Argo Rollouts to Serin, for each release and for all
// together.
//
// It knows values only: the observed state of a cluster, and the decisions of the state machines about it. It must not know
// clients, nor how a release decides.
package migrate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/release"
)

// Survey is the observed state of a cluster.
type Survey struct {
	// Flaggers are the Deployments that run Flagger. FlaggerSign is the sign of a Flagger without ready pods, such as a held
	// lease.
	Flaggers    []othercontroller.Controller
	FlaggerSign othercontroller.Sign
	// PrunesCanaries is true if the installed definition of Canaries prunes the fields that Serin adds to their status.
	PrunesCanaries bool
	Canaries       []ObservedCanary
	// ArgoRollouts are the Deployments that run Argo Rollouts. ArgoRolloutsSign is the sign of an Argo Rollouts without ready
	// pods, such as a held lease. VerifiesTargetGroups is true if one of the Deployments verifies target groups of AWS.
	ArgoRollouts         []othercontroller.Controller
	ArgoRolloutsSign     othercontroller.Sign
	VerifiesTargetGroups bool
	// PrunesRollouts is true if the installed definition of Rollouts prunes the fields that Serin adds to their status.
	PrunesRollouts bool
	Rollouts       []ObservedRollout
	// Templates are the AnalysisTemplates with metrics that Serin cannot measure.
	Templates []Template
	// Unread has one sentence for each kind of object that could not be read.
	Unread []string
}

// ObservedCanary is the observation of a Canary, and the result of Serin's first reconciliations of it.
type ObservedCanary struct {
	explain.Canary

	// Writes are the writes of these reconciliations, such as: patch Service shop/cart.
	Writes []string
	// Refused is the reason why a write would be refused; empty: none would be refused.
	Refused string
}

// Adopts reports whether a decision only converts the state of another controller to Serin's format.
func Adopts(before flaggerv1.CanaryStatus, d canary.Decision) bool {
	ours := before.Serin != nil && before.Serin.Revision != ""
	return !ours && d.Status.Phase == before.Phase && d.Status.Serin != nil && d.Status.Serin.Revision != ""
}

// Report is the document of migrate --check -o json and -o yaml. Fields are added to it, never renamed or removed.
type Report struct {
	// Ready is true if no release requires attention before Serin takes over.
	Ready bool `json:"ready"`
	// Sentences describe the migration of all releases together.
	Sentences []string `json:"sentences"`
	// Canaries are sorted by namespace and name.
	Canaries []Canary `json:"canaries"`
	// Rollouts are sorted by namespace and name.
	Rollouts []Rollout `json:"rollouts,omitempty"`
	// Unread has one sentence for each kind of object that could not be read.
	Unread []string `json:"unread,omitempty"`
}

// Outcome is the effect of the migration on one release.
type Outcome string

// The outcomes.
const (
	// Adopt: the release is idle and remains so.
	Adopt Outcome = "adopt"
	// Continue: the release in progress continues.
	Continue Outcome = "continue"
	// Release: a new release would start.
	Release Outcome = "release"
	// Blocked: Serin would not act until the user corrects the errors in the sentences.
	Blocked Outcome = "blocked"
	// Unknown: the user has no permission to read the required objects.
	Unknown Outcome = "unknown"
)

// isReady reports whether no user action is required.
func (o Outcome) isReady() bool { return o == Adopt || o == Continue }

// Canary describes the effect of the migration on one Canary.
type Canary struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Target is the workload, as kind/name.
	Target   string `json:"target"`
	Provider string `json:"provider"`
	// Phase of the status; empty for a Canary that no controller has observed.
	Phase   string  `json:"phase"`
	Outcome Outcome `json:"outcome"`
	// Sentences describe the effect and its reasons; the first sentence is a summary.
	Sentences []string `json:"sentences"`
	// Hash names the writer of the revision in the status: serin, flagger, other or none.
	Hash string `json:"hash"`
	// Writes are the writes of the first reconciliations, except for those of the status.
	Writes []string `json:"writes,omitempty"`
}

// NewReport describes the effects of a migration at that time.
func NewReport(s Survey, now time.Time) Report {
	r := Report{Ready: len(s.Templates) == 0 || len(s.Rollouts) == 0, Canaries: make([]Canary, 0, len(s.Canaries)), Unread: slices.Clone(s.Unread)}
	if len(s.Canaries) > 0 || len(s.Rollouts) == 0 || len(s.Flaggers) > 0 {
		r.Sentences = flaggerSentences(s)
	}
	if len(s.Rollouts) > 0 || len(s.ArgoRollouts) > 0 {
		r.Sentences = append(r.Sentences, argoRolloutsSentences(s)...)
	}
	for _, observed := range s.Rollouts {
		one := describeRollout(observed, now)
		r.Ready = r.Ready && one.Outcome.isReady()
		r.Rollouts = append(r.Rollouts, one)
	}
	for _, observed := range s.Canaries {
		one := describeCanary(observed, now)
		r.Ready = r.Ready && one.Outcome.isReady()
		r.Canaries = append(r.Canaries, one)
		for _, unread := range observed.Unread {
			if !slices.Contains(r.Unread, unread) {
				r.Unread = append(r.Unread, unread)
			}
		}
	}
	return r
}

// flaggerSentences returns the sentences about Flagger and all Canaries.
func flaggerSentences(s Survey) []string {
	var out []string
	isRunning := false
	for _, f := range s.Flaggers {
		if f.Ready == 0 {
			continue
		}
		isRunning = true
		out = append(out, fmt.Sprintf("Flagger is running: Deployment %s in namespace %s has %d ready pods. Serin does not act on its Canaries until it is stopped. To stop it:", f.Name, f.Namespace, f.Ready),
			fmt.Sprintf("  kubectl -n %s scale deployment/%s --replicas=0", f.Namespace, f.Name))
	}
	if !isRunning && s.FlaggerSign.Text != "" {
		out = append(out, fmt.Sprintf("Flagger is running, or was until recently: %s. Serin does not act on its Canaries until %s.", s.FlaggerSign.Text, s.FlaggerSign.Until.UTC().Format(time.RFC3339)))
		isRunning = true
	}
	if !isRunning {
		out = append(out, "No running Flagger was found.")
	}
	if s.PrunesCanaries {
		out = append(out, "The installed definition of Canaries drops what Serin adds to their status. Serin writes it into a condition instead, as JSON; to have it as fields:",
			"  serin crds | kubectl apply --server-side --force-conflicts -f -")
	}
	if len(s.Canaries) == 0 {
		out = append(out, "There are no Canaries.")
	}
	return out
}

func describeCanary(observed ObservedCanary, now time.Time) Canary {
	before := observed.Describe(now)
	c := Canary{
		Name: before.Name, Namespace: before.Namespace, Target: before.Target, Provider: before.Provider, Phase: before.Phase,
		Hash: hashOrigin(observed.Object.Status), Writes: slices.Clone(observed.Writes),
	}
	after, events := afterAdoption(observed.Canary, now)
	r := after.Describe(now)
	c.Outcome, c.Sentences = canaryOutcome(observed, &r, events)
	if c.Hash == "other" {
		c.Sentences = append(c.Sentences, fmt.Sprintf("status.lastAppliedSpec is %q, which neither Flagger nor Serin wrote: Serin ignores it and compares the workloads.", observed.Object.Status.LastAppliedSpec))
	}
	if len(c.Writes) > 0 && c.Outcome.isReady() {
		c.Sentences = append(c.Sentences, "Besides the status, Serin would "+strings.Join(c.Writes, ", ")+".")
	}
	if !observed.Object.Spec.RevertOnDeletion {
		c.Sentences = append(c.Sentences, fmt.Sprintf("Without spec.revertOnDeletion, deleting it removes the Services and the route: run serin eject %s -n %s instead.", c.Name, c.Namespace))
	}
	return c
}

// afterAdoption returns a Canary after the reconciliation that adopts the state of another controller, and the events of that
// reconciliation.
func afterAdoption(observed explain.Canary, now time.Time) (explain.Canary, []string) {
	s := observed.Snapshot
	s.Now = now
	observed.Snapshot = s
	d := canary.Next(s)
	if !Adopts(s.Status, d) {
		return observed, nil
	}
	status := *d.Status.DeepCopy()
	canary.FillStamps(&status, s.Plan, d.Stamp, now)
	observed.Snapshot.Status = status
	events := make([]string, 0, len(d.Events))
	for _, event := range d.Events {
		events = append(events, event.Message)
	}
	return observed, events
}

func canaryOutcome(observed ObservedCanary, r *explain.Release, events []string) (Outcome, []string) {
	phase := observed.Object.Status.Phase
	userGate := r.UserGate()
	switch {
	case len(observed.Assumed) > 0:
		return Unknown, []string{"Unknown: " + strings.Join(observed.Unread, " ")}
	case observed.Refused != "":
		return Blocked, []string{"A change would be refused: " + withFullStop(observed.Refused)}
	case userGate != nil && userGate.Verdict == "fail":
		return Blocked, []string{withFullStop(userGate.Message)}
	case !canary.IsActivePhase(phase) && phase != "" && r.State != release.Idle:
		return Release, []string{fmt.Sprintf("A release would start: the revision of %s is neither the last released one nor that of the primary. If Flagger is still running, let it finish first; otherwise, the release continues with Serin.", r.Target) + missingReferencesText(r)}
	case !canary.IsActivePhase(phase) && phase != "":
		return Adopt, []string{"Adopted unchanged: no release starts, and no pod restarts." + suspendedText(r) + missingReferencesText(r)}
	case phase == "" || phase == flaggerv1.CanaryPhaseInitializing:
		return Continue, []string{"Not initialized yet: Serin would initialize it, as Flagger would."}
	default:
		return Continue, progressSentences(r, events)
	}
}

// missingReferencesText contains the notices about objects that do not exist, without which releases fail.
func missingReferencesText(r *explain.Release) string {
	var text strings.Builder
	for _, gate := range r.Gates {
		if gate.Name == "references" && gate.IsNotice() {
			text.WriteString(" " + withFullStop(gate.Message))
		}
	}
	return text.String()
}

func suspendedText(r *explain.Release) string {
	if r.Suspended {
		return " It remains suspended."
	}
	return ""
}

// progressSentences describes the progress of a release and its next step.
func progressSentences(r *explain.Release, events []string) []string {
	progress := fmt.Sprintf("weight %d", r.Weight)
	if r.TotalIterations > 0 {
		progress = fmt.Sprintf("iteration %d of %d", r.Iterations, r.TotalIterations)
	}
	text := fmt.Sprintf("A release is in progress (%s, %s, %d of %d failed checks) and would continue.", r.Phase, progress, r.FailedChecks, r.Threshold)
	if r.Window != nil {
		text += fmt.Sprintf(" Its window of %s starts again, because Serin did not observe it.", r.Window.End.Sub(r.Window.Start))
	}
	if r.NextStep != "" {
		text += " Next: " + r.NextStep + "."
	}
	out := []string{text + suspendedText(r)}
	for _, event := range events {
		if strings.Contains(event, "could not be verified") {
			out = append(out, withFullStop(event))
		}
	}
	return out
}

func withFullStop(text string) string { return strings.TrimSuffix(text, ".") + "." }

// flaggerHash matches Flagger's hashes: a 32-bit number in an alphabet without vowels.
var flaggerHash = regexp.MustCompile(`^[bcdf4-9]{1,10}$`)

// hashOrigin names the controller that wrote the revision in a status.
func hashOrigin(status flaggerv1.CanaryStatus) string {
	switch hash := status.LastAppliedSpec; {
	case status.Serin != nil && status.Serin.Revision != "":
		return "serin"
	case hash == "":
		return "none"
	case flaggerHash.MatchString(hash):
		return "flagger"
	default:
		return "other"
	}
}

// Paragraphs returns the report as text: sentences about all releases, then one paragraph for each release, those that require
// attention first.
func (r Report) Paragraphs() []string {
	out := slices.Clone(r.Sentences)
	canaries := slices.Clone(r.Canaries)
	slices.SortStableFunc(canaries, func(a, b Canary) int { return cmp.Compare(outcomeOrder(a.Outcome), outcomeOrder(b.Outcome)) })
	for _, c := range canaries {
		out = append(out, fmt.Sprintf("%s.%s: %s", c.Name, c.Namespace, strings.Join(c.Sentences, " ")))
	}
	rollouts := slices.Clone(r.Rollouts)
	slices.SortStableFunc(rollouts, func(a, b Rollout) int { return cmp.Compare(outcomeOrder(a.Outcome), outcomeOrder(b.Outcome)) })
	for _, one := range rollouts {
		out = append(out, fmt.Sprintf("Rollout %s.%s: %s", one.Name, one.Namespace, strings.Join(one.Sentences, " ")))
	}
	for _, unread := range r.Unread {
		out = append(out, "Incomplete: "+unread)
	}
	return append(out, r.summary())
}

func outcomeOrder(o Outcome) int {
	return slices.Index([]Outcome{Blocked, Unknown, Release, Continue, Adopt}, o)
}

func (r Report) summary() string {
	var canaries, rollouts []Outcome
	for _, c := range r.Canaries {
		canaries = append(canaries, c.Outcome)
	}
	for _, one := range r.Rollouts {
		rollouts = append(rollouts, one.Outcome)
	}
	text := countText("Canary", "Canaries", canaries) + countText("Rollout", "Rollouts", rollouts)
	if r.Ready {
		return text + "No release requires attention."
	}
	return text + "Some require attention first, see above."
}

// countText counts the outcomes of one kind in a sentence with a trailing blank; empty: there are no outcomes.
func countText(singular, plural string, outcomes []Outcome) string {
	counts := map[Outcome]int{}
	for _, o := range outcomes {
		counts[o]++
	}
	var parts []string
	for _, o := range []Outcome{Adopt, Continue, Release, Blocked, Unknown} {
		if n := counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, outcomeWords[o]))
		}
	}
	switch len(outcomes) {
	case 0:
		return ""
	case 1:
		return "1 " + singular + ": " + parts[0] + ". "
	default:
		return fmt.Sprintf("%d %s: %s. ", len(outcomes), plural, strings.Join(parts, ", "))
	}
}

var outcomeWords = map[Outcome]string{
	Adopt: "idle", Continue: "in progress", Release: "with a release that would start",
	Blocked: "blocked", Unknown: "unknown",
}
