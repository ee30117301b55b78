package rollout

import (
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/kinds"
	"github.com/serin-dev/serin/test/sim/store"
)

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

func keyNamed(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// usersOwn is I8.
type usersOwn struct {
	*ledger
	without
}

func (c *usersOwn) see(happening any) {
	h, ok := happening.(wrote)
	if !ok || !h.ours || h.Old == nil || h.Subresource == "status" {
		return
	}
	if kind, _ := owner(h.Old.Meta()); kind != "" || h.Kind == replicaSetKind {
		return
	}
	if h.Type == store.Deleted {
		c.violate("I8", h.Key.Name, "%s was deleted, which nobody of Serin's owns", h.Kind.Kind)
		return
	}
	for _, path := range differences(h.Old.Content(), h.New.Content(), "", 2) {
		if !c.mayChange(h, path) {
			c.violate("I8", h.Key.Name, "%s of %s was changed, which its user made", path, h.Kind.Kind)
		}
	}
}

// mayChange are the fields of users' objects that are documented to change.
func (c *usersOwn) mayChange(h wrote, path string) bool {
	switch path {
	case "metadata/resourceVersion", "metadata/generation", "metadata/managedFields":
		return true
	}
	switch h.Kind {
	case rolloutKind:
		return path == "spec/replicas" || path == "metadata/annotations"
	case deploymentKind:
		return path == "spec/replicas" || path == "metadata/annotations"
	case serviceKind:
		return path == "spec/selector" || path == "metadata/annotations"
	case virtualService:
		return path == "spec/http" || path == "metadata/annotations"
	case destinationRule:
		return path == "spec/subsets" && c.ownSubsets(h) || path == "metadata/annotations"
	case httpRoute:
		return path == "spec/rules" || path == "metadata/annotations" || path == "metadata/labels"
	case runKind, experimentKind: // whose owner is gone: their status is no part of their own, and goes on
		return strings.HasPrefix(path, "status") || path == "spec/terminate"
	default:
		return false
	}
}

// differences are the paths, down to a depth, at which two objects are not the same.
func differences(before, after map[string]any, at string, depth int) []string {
	var out []string
	fields := map[string]bool{}
	for field := range before {
		fields[field] = true
	}
	for field := range after {
		fields[field] = true
	}
	for field := range fields {
		x, y := before[field], after[field]
		if equal(x, y) {
			continue
		}
		inner, isMap := x.(map[string]any)
		other, areMaps := y.(map[string]any)
		if depth > 1 && isMap && areMaps {
			out = append(out, differences(inner, other, at+field+"/", depth-1)...)
		} else {
			out = append(out, at+field)
		}
	}
	slices.Sort(out)
	return out
}

// preconditions is I12.
type preconditions struct {
	*ledger
	without
}

func (c *preconditions) see(happening any) {
	h, ok := happening.(wrote)
	if !ok || !h.ours || h.Subresource == "eviction" {
		return
	}
	switch {
	case h.Verb == store.Create:
		if generated := h.New.Meta().GenerateName; generated != "" {
			c.violate("I12", h.Key.Name, "%s was made under a name that nobody can find again", h.Kind.Kind)
		}
	case h.Verb == store.Delete:
		if h.Basis.UID == "" {
			c.violate("I12", h.Key.Name, "the deletion of %s does not name its UID", h.Kind.Kind)
		}
	case h.Basis.ResourceVersion == "":
		c.violate("I12", h.Key.Name, "%s of %s names no version that it was decided on", h.Verb, h.Kind.Kind)
	}
}

// triedAgain is when a pass that failed is tried again at the latest.
const triedAgain = 5 * time.Minute

// noFight is I19.
type noFight struct {
	*ledger
	without
}

func (c *noFight) see(happening any) {
	h, ok := happening.(wrote)
	if !ok || !h.ours || h.Type != store.Modified || h.Kind == runKind || h.Kind == experimentKind || h.Subresource == "status" {
		return
	}
	for _, r := range c.all {
		belongs := h.Key.Name == r.key.Name || strings.HasPrefix(h.Key.Name, r.key.Name+"-")
		if !belongs || r.deleted || r.rested.IsZero() || r.rested.After(c.then()) || len(c.wishes(r)) > 1 || len(c.all) > 1 && c.sameName(r) {
			continue
		}
		if h.Kind == replicaSetKind && labelsOf(h.New.Content())[argov1.PodTemplateHashLabel] != r.object.Status.StableRS {
			continue // its delay is over
		}
		w := c.objects[thing{h.Kind, h.Key}]
		if w == nil || w.unanswered || c.resumes(h.Actor) || w.last.Before(c.now().Add(-time.Minute)) || w.last.Before(r.rested) || c.anybody(c.unattended(h.Actor)) {
			continue
		}
		if c.failed.After(c.then().Add(-triedAgain)) {
			continue // what could not be written when the release came to its end is written when it can be
		}
		c.violate("I19", r.key.Name, "at rest %s %s was written again, although nobody else had written anything", h.Kind.Kind, h.Key.Name)
	}
}

// sameName is true of a Rollout that was there before under that name: what the other had is taken over.
func (c *noFight) sameName(r *record) bool {
	return slices.ContainsFunc(c.all, func(o *record) bool { return o != r && o.key == r.key })
}

// anybody is true when somebody else wrote anything since then.
func (c *noFight) anybody(then time.Time) bool {
	for _, w := range c.objects {
		if w.foreign.After(then) {
			return true
		}
	}
	return false
}

// boundedWork is I21.
type boundedWork struct {
	*ledger
	without

	again, passes map[types.NamespacedName]int
	seen          int
}

// mostAgain is how often an object may be queued at once without a change, mostPasses how many passes each thing that
// happens may cost, and each second.
const (
	mostAgain  = 3
	mostPasses = 20
)

func (c *boundedWork) see(happening any) {
	h, ok := happening.(sim.Passed)
	if !ok {
		return
	}
	if c.passes == nil {
		c.passes, c.again = map[types.NamespacedName]int{}, map[types.NamespacedName]int{}
	}
	if c.events != c.seen {
		clear(c.again)
		c.seen = c.events
	}
	c.passes[h.Release]++
	if most := mostPasses * (10 + c.events + int(c.now().Sub(c.began)/time.Second)); c.passes[h.Release] > most {
		c.violate("I21", h.Release.Name, "it was looked at %d times, but only %d things have happened", c.passes[h.Release], c.events)
	}
	if h.Err != nil || h.Result.RequeueAfter <= 0 || h.Result.RequeueAfter > time.Millisecond {
		delete(c.again, h.Release)
		return
	}
	if c.again[h.Release]++; c.again[h.Release] > mostAgain {
		c.violate("I21", h.Release.Name, "it was queued at once %d times, and nothing had changed", c.again[h.Release])
	}
}

// oneOfEach is I22.
type oneOfEach struct {
	*ledger
	without

	// steps are those at which Experiments were made: two steps may ask for the same, and of the one that a release left its
	// Experiment is ended a moment later.
	steps map[types.UID]stepOf
	// jobs are those that were made, by their names, and when; jobsBy tells apart which process made them.
	jobs   map[string]time.Time
	jobsBy map[createdJob]time.Time
}

// stepOf is a step of one release.
type stepOf struct {
	run   *run
	index int32
}

func (c *oneOfEach) see(happening any) {
	h, ok := happening.(wrote)
	if ok {
		c.oneJob(h)
	}
	if !ok || !h.ours || h.Type != store.Added {
		return
	}
	of := metav1.GetControllerOfNoCopy(h.New.Meta())
	if of == nil {
		return
	}
	c.noteStep(h.New.UID(), of.UID)
	for _, v := range c.world.Server.All(h.Kind) {
		rival := metav1.GetControllerOfNoCopy(v.Meta())
		if v.UID() == h.New.UID() || rival == nil || rival.UID != of.UID || v.Deleting() {
			continue
		}
		if what := c.same(h, v); what != "" {
			c.violate("I22", of.Name, "%s %s was made although there is %s for the same %s", h.Kind.Kind, h.Key.Name, v.Key().Name, what)
		}
	}
}

func (c *oneOfEach) noteStep(made, of types.UID) {
	if c.steps == nil {
		c.steps = map[types.UID]stepOf{}
	}
	if r := c.records[of]; r != nil && r.object.Status.CurrentStepIndex != nil {
		c.steps[made] = stepOf{r.run, *r.object.Status.CurrentStepIndex}
	}
}

// same says what two objects of one owner are both for; empty: for different things.
func (c *oneOfEach) same(h wrote, v *store.Version) string {
	switch h.Kind {
	case replicaSetKind:
		a, b := kinds.Typed[*appsv1.ReplicaSet](c.world, h.New).Spec.Template.DeepCopy(), kinds.Typed[*appsv1.ReplicaSet](c.world, v).Spec.Template.DeepCopy()
		for _, template := range []map[string]string{a.Labels, b.Labels} {
			delete(template, argov1.PodTemplateHashLabel)
			delete(template, "role")
		}
		if equal(a, b) {
			return "template"
		}
	case runKind:
		a, b := kinds.Typed[*argov1.AnalysisRun](c.world, h.New), kinds.Typed[*argov1.AnalysisRun](c.world, v)
		going := !b.Status.Phase.Completed() && !b.Spec.Terminate
		if going && sameLabels(a.Labels, b.Labels) && a.Labels[argov1.RolloutTypeLabel] != "" {
			return "purpose"
		}
	case experimentKind:
		a, b := kinds.Typed[*argov1.Experiment](c.world, h.New), kinds.Typed[*argov1.Experiment](c.world, v)
		going := !b.Status.Phase.Completed() && !b.Spec.Terminate
		if going && sameLabels(a.Labels, b.Labels) && equal(a.Spec, b.Spec) && c.steps[a.UID] == c.steps[b.UID] {
			return "step"
		}
	}
	return ""
}

func sameLabels(a, b map[string]string) bool {
	for _, label := range []string{argov1.PodTemplateHashLabel, argov1.RolloutTypeLabel, argov1.StepIndexLabel} {
		if a[label] != b[label] {
			return false
		}
	}
	return true
}

// nothingLeft is I27.
type nothingLeft struct {
	*ledger

	overSince map[types.UID]time.Time // AnalysisRuns
}

func (c *nothingLeft) see(happening any) {
	h, ok := happening.(wrote)
	if ok {
		c.ofRuns(h)
	}
	if ok && h.ours && h.Type == store.Added {
		if kind, _ := owner(h.New.Meta()); kind == "" {
			c.violate("I27", h.Key.Name, "%s was made and belongs to nobody", h.Kind.Kind)
		}
	}
}

// end: what is not in use has no pods and no users, and routes of steps are gone.
func (c *nothingLeft) end() {
	c.lastJobs()
	for _, r := range c.all {
		s := r.object.Status
		over := s.Phase == argov1.RolloutPhaseHealthy || s.Abort && s.Phase == argov1.RolloutPhaseDegraded && !invalid(s)
		left := managedIn(c.world.Server.Peek(virtualService, r.key))
		if !r.deleted && over && !r.object.Spec.Paused && manages(r.object.Spec.Strategy) && len(left) > 0 {
			c.violate("I27", r.key.Name, "it is %s, and its route still has %v", s.Phase, left)
		}
		if r.deleted || s.Phase != argov1.RolloutPhaseHealthy {
			continue
		}
		for _, hash := range c.served(r) {
			if hash != "" && hash != s.StableRS && !r.object.Spec.Paused {
				c.violate("I27", r.key.Name, "it is healthy with %s, and users reach %s", s.StableRS, hash)
			}
		}
		for _, set := range c.setsOf(r) {
			if hash := hashOf(set); wanted(set) > 0 && hash != s.StableRS {
				c.violate("I27", r.key.Name, "it is healthy, and %s still has %d pods", set.Name, wanted(set))
			}
		}
	}
}
