// Package migrate says what would happen if Serin took over from Flagger and Argo Rollouts: to each release, and to all of
// them together.
//
// It knows values only: what was seen of a cluster, and what the machines decide about it. It must not know clients, and
// it never judges by itself what a release would do.
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
	"github.com/serin-dev/serin/internal/peer"
	"github.com/serin-dev/serin/internal/release"
)

// Survey is what was seen of a cluster.
type Survey struct {
	// Flaggers are the Deployments that run one, Held a lease of one that is held.
	Flaggers []peer.Controller
	Held     peer.Sign
	// Prunes is true where the installed definition of Canaries drops what Serin adds to their status.
	Prunes   bool
	Canaries []Seen
	// Argos are the Deployments that run Argo Rollouts, HeldByArgo a lease of one that is held. Verifies is true where one
	// verifies target groups.
	Argos      []peer.Controller
	HeldByArgo peer.Sign
	Verifies   bool
	// PrunesRollouts is true where the installed definition of Rollouts drops what Serin adds to their status.
	PrunesRollouts bool
	Rollouts       []SeenRollout
	// Templates are those whose measurements Serin cannot make.
	Templates []Template
	// Unread says what could not be read, one sentence each.
	Unread []string
}

// Seen is one Canary as it was left, and what Serin's first passes would do to it.
type Seen struct {
	explain.Canary

	// Writes are the objects that they would change, as: patch Service shop/cart.
	Writes []string
	// Refused is what would keep Serin from a change; empty: nothing.
	Refused string
}

// Adopts is true for a decision that only records in Serin's form what another controller left.
func Adopts(before flaggerv1.CanaryStatus, d canary.Decision) bool {
	ours := before.Serin != nil && before.Serin.Revision != ""
	return !ours && d.Status.Phase == before.Phase && d.Status.Serin != nil && d.Status.Serin.Revision != ""
}

// Report is the document of migrate --check -o json and -o yaml. Fields are added to it, never renamed or removed.
type Report struct {
	// Ready is true when nothing has to be looked at before Serin takes over.
	Ready bool `json:"ready"`
	// Sentences are about all releases together.
	Sentences []string `json:"sentences"`
	// Canaries, sorted by namespace and name.
	Canaries []Canary `json:"canaries"`
	// Rollouts, sorted by namespace and name.
	Rollouts []Rollout `json:"rollouts,omitempty"`
	// Unread says what could not be read, one sentence each.
	Unread []string `json:"unread,omitempty"`
}

// Outcome of a takeover for one Canary.
type Outcome string

// The outcomes.
const (
	// Adopt: it is taken over at rest, and nothing starts.
	Adopt Outcome = "adopt"
	// Continue: what is under way goes on where it stands.
	Continue Outcome = "continue"
	// Release: a release would start.
	Release Outcome = "release"
	// Blocked: Serin does nothing until a person mends what the sentences name.
	Blocked Outcome = "blocked"
	// Unknown: what could be read is not enough to tell.
	Unknown Outcome = "unknown"
)

// fine outcomes need nobody.
func (o Outcome) fine() bool { return o == Adopt || o == Continue }

// Canary is what would happen to one.
type Canary struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Target is the workload, as kind/name.
	Target   string `json:"target"`
	Provider string `json:"provider"`
	// Phase as the status has it; empty for a Canary that no controller has looked at.
	Phase   string  `json:"phase"`
	Outcome Outcome `json:"outcome"`
	// Sentences say what would happen, and why; the first stands for itself.
	Sentences []string `json:"sentences"`
	// Hash says who wrote the revision that the status records: serin, flagger, other or none.
	Hash string `json:"hash"`
	// Writes are the objects that the first passes would change, besides the status; empty: none.
	Writes []string `json:"writes,omitempty"`
}

// Of says what would happen.
func Of(s Survey, now time.Time) Report {
	r := Report{Ready: len(s.Templates) == 0 || len(s.Rollouts) == 0, Canaries: make([]Canary, 0, len(s.Canaries)), Unread: slices.Clone(s.Unread)}
	if len(s.Canaries) > 0 || len(s.Rollouts) == 0 || len(s.Flaggers) > 0 {
		r.Sentences = together(s)
	}
	if len(s.Rollouts) > 0 || len(s.Argos) > 0 {
		r.Sentences = append(r.Sentences, aboutRollouts(s)...)
	}
	for _, seen := range s.Rollouts {
		one := ofRollout(seen, now)
		r.Ready = r.Ready && one.Outcome.fine()
		r.Rollouts = append(r.Rollouts, one)
	}
	for _, seen := range s.Canaries {
		one := of(seen, now)
		r.Ready = r.Ready && one.Outcome.fine()
		r.Canaries = append(r.Canaries, one)
		for _, unread := range seen.Unread {
			if !slices.Contains(r.Unread, unread) {
				r.Unread = append(r.Unread, unread)
			}
		}
	}
	return r
}

// together are the sentences about the cluster.
func together(s Survey) []string {
	var out []string
	living := false
	for _, f := range s.Flaggers {
		if f.Ready == 0 {
			continue
		}
		living = true
		out = append(out, fmt.Sprintf("Flagger lives: Deployment %s of namespace %s has %d ready pods. Serin leaves the Canaries to it until it is gone. To stop it:", f.Name, f.Namespace, f.Ready),
			fmt.Sprintf("  kubectl -n %s scale deployment/%s --replicas=0", f.Namespace, f.Name))
	}
	if !living && s.Held.Text != "" {
		out = append(out, fmt.Sprintf("Flagger lives, or lived until a moment ago: %s. Serin leaves the Canaries to it until %s.", s.Held.Text, s.Held.Until.UTC().Format(time.RFC3339)))
		living = true
	}
	if !living {
		out = append(out, "No living Flagger was found.")
	}
	if s.Prunes {
		out = append(out, "The installed definition of Canaries drops what Serin adds to their status. It works without, with less precision after a restart; better, before Serin starts:",
			"  serin crds | kubectl apply --server-side --force-conflicts -f -")
	}
	if len(s.Canaries) == 0 {
		out = append(out, "There are no Canaries here.")
	}
	return out
}

func of(seen Seen, now time.Time) Canary {
	before := seen.At(now)
	c := Canary{
		Name: before.Name, Namespace: before.Namespace, Target: before.Target, Provider: before.Provider, Phase: before.Phase,
		Hash: form(seen.Object.Status), Writes: slices.Clone(seen.Writes),
	}
	after, said := adopted(seen.Canary, now)
	r := after.At(now)
	c.Outcome, c.Sentences = outcome(seen, &r, said)
	if c.Hash == "other" {
		c.Sentences = append(c.Sentences, fmt.Sprintf("status.lastAppliedSpec is %q, which is a hash neither of Flagger's nor of Serin's: what the workloads run decides, not the hash.", seen.Object.Status.LastAppliedSpec))
	}
	if len(c.Writes) > 0 && c.Outcome.fine() {
		c.Sentences = append(c.Sentences, "Besides the status it would "+strings.Join(c.Writes, ", ")+".")
	}
	return c
}

// adopted is a Canary after the pass that takes over what another controller recorded, and what that pass tells people.
func adopted(seen explain.Canary, now time.Time) (explain.Canary, []string) {
	s := seen.Snapshot
	s.Now, s.Pruned = now, false // whether our part of the status is kept shows when it was written
	seen.Snapshot = s
	d := canary.Next(s)
	if !Adopts(s.Status, d) {
		return seen, nil
	}
	status := *d.Status.DeepCopy()
	canary.Stamp(&status, s.Plan, d.Stamp, now)
	seen.Snapshot.Status = status
	said := make([]string, 0, len(d.Events))
	for _, event := range d.Events {
		said = append(said, event.Message)
	}
	return seen, said
}

func outcome(seen Seen, r *explain.Release, told []string) (Outcome, []string) {
	phase := seen.Object.Status.Phase
	person := r.Person()
	switch {
	case len(seen.Assumed) > 0:
		return Unknown, []string{"Cannot be told: " + strings.Join(seen.Unread, " ")}
	case seen.Refused != "":
		return Blocked, []string{"A change would be refused: " + sentence(seen.Refused)}
	case person != nil && (person.Verdict == "fail"):
		return Blocked, []string{sentence(person.Message)}
	case !canary.Moves(phase) && phase != "" && r.State != release.Idle:
		return Release, []string{fmt.Sprintf("A release would start: %s is neither what was taken up last nor what runs as its primary. Let Flagger finish it first, or let it start.", r.Target)}
	case !canary.Moves(phase) && phase != "":
		return Adopt, []string{"Taken over as it is: nothing starts, and no pod restarts." + suspended(r)}
	case phase == "" || phase == flaggerv1.CanaryPhaseInitializing:
		return Continue, []string{"Not initialised yet: Serin would do that, as Flagger would."}
	default:
		return Continue, continued(r, told)
	}
}

func suspended(r *explain.Release) string {
	if r.Suspended {
		return " It is suspended, and stays so."
	}
	return ""
}

// continued says where a release stands and what follows.
func continued(r *explain.Release, told []string) []string {
	where := fmt.Sprintf("weight %d", r.Weight)
	if r.TotalIterations > 0 {
		where = fmt.Sprintf("iteration %d of %d", r.Iterations, r.TotalIterations)
	}
	text := fmt.Sprintf("In the middle of a release (%s, %s, %d of %d failed checks): it goes on from there.", r.Phase, where, r.FailedChecks, r.Threshold)
	if r.Window != nil {
		text += fmt.Sprintf(" Its window of %s starts again, because Serin did not see it.", r.Window.End.Sub(r.Window.Start))
	}
	if r.NextStep != "" {
		text += " Next: " + r.NextStep + "."
	}
	out := []string{text + suspended(r)}
	for _, said := range told {
		if strings.Contains(said, "could not be verified") {
			out = append(out, sentence(said))
		}
	}
	return out
}

func sentence(text string) string { return strings.TrimSuffix(text, ".") + "." }

// flaggers are hashes in the form that Flagger writes: a number of 32 bits, in letters that make no words.
var flaggers = regexp.MustCompile(`^[bcdf4-9]{1,10}$`)

// form is who wrote the revision that a status records.
func form(status flaggerv1.CanaryStatus) string {
	switch hash := status.LastAppliedSpec; {
	case status.Serin != nil && status.Serin.Revision != "":
		return "serin"
	case hash == "":
		return "none"
	case flaggers.MatchString(hash):
		return "flagger"
	default:
		return "other"
	}
}

// Paragraphs are the report for a person: what is about all, then one for each Canary, those that need somebody first.
func (r Report) Paragraphs() []string {
	out := slices.Clone(r.Sentences)
	canaries := slices.Clone(r.Canaries)
	slices.SortStableFunc(canaries, func(a, b Canary) int { return cmp.Compare(urgency(a.Outcome), urgency(b.Outcome)) })
	for _, c := range canaries {
		out = append(out, fmt.Sprintf("%s.%s: %s", c.Name, c.Namespace, strings.Join(c.Sentences, " ")))
	}
	rollouts := slices.Clone(r.Rollouts)
	slices.SortStableFunc(rollouts, func(a, b Rollout) int { return cmp.Compare(urgency(a.Outcome), urgency(b.Outcome)) })
	for _, one := range rollouts {
		out = append(out, fmt.Sprintf("Rollout %s.%s: %s", one.Name, one.Namespace, strings.Join(one.Sentences, " ")))
	}
	for _, unread := range r.Unread {
		out = append(out, "Not read: "+unread)
	}
	return append(out, r.summary())
}

func urgency(o Outcome) int {
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
	text := sum("Canary", "Canaries", canaries) + sum("Rollout", "Rollouts", rollouts)
	if r.Ready {
		return text + "Nothing stands in the way."
	}
	return text + "Look at those first that are named above."
}

// sum counts the outcomes of one kind, as a sentence with a blank behind it; empty where there are none.
func sum(one, several string, outcomes []Outcome) string {
	counts := map[Outcome]int{}
	for _, o := range outcomes {
		counts[o]++
	}
	var parts []string
	for _, o := range []Outcome{Adopt, Continue, Release, Blocked, Unknown} {
		if n := counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, words[o]))
		}
	}
	switch len(outcomes) {
	case 0:
		return ""
	case 1:
		return "Of 1 " + one + ": " + parts[0] + ". "
	default:
		return fmt.Sprintf("Of %d %s: %s. ", len(outcomes), several, strings.Join(parts, ", "))
	}
}

var words = map[Outcome]string{
	Adopt: "at rest", Continue: "under way", Release: "with a release that would start",
	Blocked: "blocked", Unknown: "unknown",
}
