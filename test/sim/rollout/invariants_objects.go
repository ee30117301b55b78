package rollout

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

func keyNamed(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: actors.Namespace, Name: name}
}

// ofSerin is true of a write of an object that is Serin's, or belongs to another object of Serin.
func ofSerin(e oracle.Write) bool { return controlled(e.Old) || e.Kind == actors.ReplicaSetKind }

// controlled is true of an object that has a controller.
func controlled(v *store.Version) bool { return metav1.GetControllerOfNoCopy(v.Meta()) != nil }

// mayChange are the fields of users' objects that are documented to change.
func (l *ledger) mayChange(h oracle.Write, path string) bool {
	switch h.Kind {
	case rolloutKind:
		return path == "spec/replicas" || path == "metadata/annotations"
	case actors.DeploymentKind:
		return path == "spec/replicas" || path == "metadata/annotations"
	case actors.ServiceKind:
		return path == "spec/selector" || path == "metadata/annotations"
	case actors.VirtualServiceKind:
		return path == "spec/http" || path == "metadata/annotations"
	case actors.DestinationRuleKind:
		return path == "spec/subsets" && l.ownSubsets(h) || path == "metadata/annotations"
	case actors.HTTPRouteKind:
		return path == "spec/rules" || path == "metadata/annotations" || path == "metadata/labels"
	case runKind, experimentKind: // whose owner was deleted: their status is not a subresource, and is still written
		return strings.HasPrefix(path, "status") || path == "spec/terminate"
	default:
		return false
	}
}

// triedAgain is when a reconciliation that failed is tried again at the latest.
const triedAgain = 5 * time.Minute

// atRest are the Rollouts of an object that have been at rest for so long that every process knows.
func (l *ledger) atRest(h oracle.Write) []*record {
	if h.Kind == runKind || h.Kind == experimentKind || h.Subresource == "status" {
		return nil
	}
	var out []*record
	for _, r := range l.All {
		belongs := h.Key.Name == r.Name() || strings.HasPrefix(h.Key.Name, r.Name()+"-")
		if !belongs || r.Gone() || r.Rested.IsZero() || r.Rested.After(l.OldestView()) || len(l.expectedSpecs(r)) > 1 || len(l.All) > 1 && l.sameName(r) {
			continue
		}
		if h.Kind == actors.ReplicaSetKind && actors.Labels(h.New.Content())[argov1.PodTemplateHashLabel] != r.object.Status.StableRS {
			continue // its delay is over
		}
		out = append(out, r)
	}
	return out
}

// mayWriteAgain is true of a write at rest with another cause than what others wrote into the object. What could not be
// written when the release came to its end is written when it can be.
func (l *ledger) mayWriteAgain(h oracle.Write, r *record, w oracle.Writes) bool {
	return l.resumes(h.Actor) || w.Last.Before(l.Now().Add(-time.Minute)) || w.Last.Before(r.Rested) || l.anybody(l.unattended(h.Actor)) ||
		l.LastFault.After(l.OldestView().Add(-triedAgain))
}

// sameName is true of a Rollout that was there before under that name: what the other had is taken over.
func (l *ledger) sameName(r *record) bool {
	return slices.ContainsFunc(l.All, func(o *record) bool { return o != r && o.Key == r.Key })
}

// anybody is true when someone else wrote anything since then.
func (l *ledger) anybody(then time.Time) bool {
	for _, w := range l.Objects {
		if w.ByOthers.After(then) {
			return true
		}
	}
	return false
}

// uniqueObjects is I22.
type uniqueObjects struct {
	*ledger
	oracle.EventsOnly

	// steps are those at which Experiments were made: two steps may ask for the same, and of the one that a release left its
	// Experiment is ended a moment later.
	steps map[types.UID]stepOf
	// jobs are those that were made, by their names, and when; jobsBy has them by the process that created them.
	jobs   map[string]time.Time
	jobsBy map[createdJob]time.Time
}

// stepOf is a step of one release.
type stepOf struct {
	run   *run
	index int32
}

func (c *uniqueObjects) Observe(event any) {
	h, ok := event.(oracle.Write)
	if ok {
		c.oneJob(h)
	}
	if !ok || !h.BySerin || h.Type != store.Added {
		return
	}
	of := metav1.GetControllerOfNoCopy(h.New.Meta())
	if of == nil {
		return
	}
	c.noteStep(h.New.UID(), of.UID)
	for _, v := range c.World.Server.All(h.Kind) {
		rival := metav1.GetControllerOfNoCopy(v.Meta())
		if v.UID() == h.New.UID() || rival == nil || rival.UID != of.UID || v.Deleting() {
			continue
		}
		if what := c.same(h, v); what != "" {
			c.Violate("I22", of.Name, "%s %s was created although there is %s for the same %s", h.Kind.Kind, h.Key.Name, v.Key().Name, what)
		}
	}
}

func (c *uniqueObjects) noteStep(made, of types.UID) {
	if c.steps == nil {
		c.steps = map[types.UID]stepOf{}
	}
	if r := c.ByUID[of]; r != nil && r.object.Status.CurrentStepIndex != nil {
		c.steps[made] = stepOf{r.run, *r.object.Status.CurrentStepIndex}
	}
}

// same says what two objects of one owner are both for; empty: for different things.
func (c *uniqueObjects) same(h oracle.Write, v *store.Version) string {
	switch h.Kind {
	case actors.ReplicaSetKind:
		a, b := actors.Typed[*appsv1.ReplicaSet](c.World, h.New).Spec.Template.DeepCopy(), actors.Typed[*appsv1.ReplicaSet](c.World, v).Spec.Template.DeepCopy()
		for _, template := range []map[string]string{a.Labels, b.Labels} {
			delete(template, argov1.PodTemplateHashLabel)
			delete(template, "role")
		}
		if reflect.DeepEqual(a, b) {
			return "template"
		}
	case runKind:
		a, b := actors.Typed[*argov1.AnalysisRun](c.World, h.New), actors.Typed[*argov1.AnalysisRun](c.World, v)
		going := !b.Status.Phase.Completed() && !b.Spec.Terminate
		if going && sameLabels(a.Labels, b.Labels) && a.Labels[argov1.RolloutTypeLabel] != "" {
			return "purpose"
		}
	case experimentKind:
		a, b := actors.Typed[*argov1.Experiment](c.World, h.New), actors.Typed[*argov1.Experiment](c.World, v)
		going := !b.Status.Phase.Completed() && !b.Spec.Terminate
		if going && sameLabels(a.Labels, b.Labels) && reflect.DeepEqual(a.Spec, b.Spec) && c.steps[a.UID] == c.steps[b.UID] {
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

// remainders are facts for I27: routes of steps, users of another revision, and pods that are not in use.
func (l *ledger) remainders() []oracle.Remainder {
	var out []oracle.Remainder
	add := func(r *record, format string, args ...any) {
		out = append(out, oracle.Remainder{Release: r.Name(), What: fmt.Sprintf(format, args...)})
	}
	for _, r := range l.All {
		s := r.object.Status
		over := s.Phase == argov1.RolloutPhaseHealthy || s.Abort && s.Phase == argov1.RolloutPhaseDegraded && !invalid(s)
		left := managedIn(l.World.Server.Peek(actors.VirtualServiceKind, r.Key))
		if !r.Gone() && over && !r.object.Spec.Paused && manages(r.object.Spec.Strategy) && len(left) > 0 {
			add(r, "in phase %s its route still has %v", s.Phase, left)
		}
		if r.Gone() || s.Phase != argov1.RolloutPhaseHealthy {
			continue
		}
		for _, hash := range l.served(r) {
			if hash != "" && hash != s.StableRS && !r.object.Spec.Paused {
				add(r, "users reach %s, although %s is stable", hash, s.StableRS)
			}
		}
		for _, set := range l.setsOf(r) {
			if hash := hashOf(set); wanted(set) > 0 && hash != s.StableRS {
				add(r, "%s still has %d pods", set.Name, wanted(set))
			}
		}
	}
	return out
}
