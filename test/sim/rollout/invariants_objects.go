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
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

func keyNamed(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: actors.Namespace, Name: name}
}

// hasController reports whether an object has a controller.
func hasController(v *store.Version) bool { return actors.ControllerOf(v.Meta()).UID != "" }

// documentedFields are the fields of users' objects that Serin may change, for I8.
type documentedFields struct{ *ledger }

// mayChange reports whether a field of a user's object is documented to change.
func (c *documentedFields) mayChange(h oracle.Write, path string) bool {
	switch h.Kind {
	case rolloutKind:
		return path == "spec/replicas" || path == "metadata/annotations"
	case actors.DeploymentKind:
		return path == "spec/replicas" || path == "metadata/annotations"
	case actors.ServiceKind:
		return path == "spec/selector" || path == "metadata/annotations"
	case cluster.VirtualServiceKind:
		return path == "spec/http" || path == "metadata/annotations"
	case cluster.DestinationRuleKind, cluster.ServiceResolverKind:
		return path == "spec/subsets" && c.ownSubsets(h) || path == "metadata/annotations"
	case cluster.OpenShiftRouteKind, cluster.HTTPProxyKind, cluster.RouteTableKind, cluster.ServiceSplitterKind:
		return strings.HasPrefix(path, "spec/") && onlyWeights(h)
	case cluster.HTTPRouteKind:
		return path == "spec/rules" || path == "metadata/annotations" || path == "metadata/labels"
	case runKind, experimentKind: // if their owner was deleted: their status is not a subresource, and is still written
		return strings.HasPrefix(path, "status") || path == "spec/terminate"
	default:
		return false
	}
}

// maxRetryDelay is the maximum delay before a failed reconciliation is retried.
const maxRetryDelay = 5 * time.Minute

// idleRollouts are the Rollouts that need no writes, for I19.
type idleRollouts struct{ *ledger }

// idleReleases returns the Rollouts of an object that have been idle for so long that every process knows it.
func (c *idleRollouts) idleReleases(h oracle.Write) []*record {
	if h.Kind == runKind || h.Kind == experimentKind || h.Subresource == "status" {
		return nil
	}
	var out []*record
	for _, r := range c.All {
		belongs := h.Key.Name == r.Name() || strings.HasPrefix(h.Key.Name, r.Name()+"-")
		if !belongs || r.Gone() || r.IdleSince.IsZero() || r.IdleSince.After(c.OldestView()) || len(c.expectedSpecs(r)) > 1 || len(c.All) > 1 && c.replacesRollout(r) {
			continue
		}
		if h.Kind == actors.ReplicaSetKind && actors.Labels(h.New.Content())[argov1.PodTemplateHashLabel] != r.object.Status.StableRS {
			continue // its scale-down delay has expired
		}
		out = append(out, r)
	}
	return out
}

// mayWriteAgain reports whether a write for an idle release has another cause than a change of the object by another actor. A
// write that failed when the release ended is retried.
func (c *idleRollouts) mayWriteAgain(h oracle.Write, r *record, w oracle.Writes) bool {
	return c.work.resumesWork(h.Actor) || w.Last.Before(c.Now().Add(-time.Minute)) || w.Last.Before(r.IdleSince) || c.othersWroteAnything(c.work.unattendedSince(h.Actor)) ||
		c.LastFault.After(c.OldestView().Add(-maxRetryDelay))
}

// replacesRollout reports whether another Rollout had the name of this one before, whose objects are taken over.
func (c *idleRollouts) replacesRollout(r *record) bool {
	return slices.ContainsFunc(c.All, func(o *record) bool { return o != r && o.Key == r.Key })
}

// othersWroteAnything reports whether another actor wrote any object since then.
func (c *idleRollouts) othersWroteAnything(then time.Time) bool {
	for _, w := range c.Objects {
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

	// steps contains the steps at which Experiments were created: two steps may request the same Experiment, and the Experiment
	// of the previous step ends a moment later.
	steps map[types.UID]stepOf
	// jobs contains when each Job was created, by name; jobsBy by the process that created it as well.
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
		c.checkJob(h)
	}
	if !ok || !h.BySerin || h.Type != store.Added {
		return
	}
	of := metav1.GetControllerOfNoCopy(h.New.Meta())
	if of == nil {
		return
	}
	c.recordStep(h.New.UID(), of.UID)
	for _, v := range c.World.Server.All(h.Kind) {
		rival := metav1.GetControllerOfNoCopy(v.Meta())
		if v.UID() == h.New.UID() || rival == nil || rival.UID != of.UID || v.Deleting() {
			continue
		}
		if what := c.sharedPurpose(h, v); what != "" {
			c.Violate("I22", of.Name, "%s %s was created although %s exists for the same %s", h.Kind.Kind, h.Key.Name, v.Key().Name, what)
		}
	}
}

func (c *uniqueObjects) recordStep(made, of types.UID) {
	if c.steps == nil {
		c.steps = map[types.UID]stepOf{}
	}
	if r := c.ByUID[of]; r != nil && r.object.Status.CurrentStepIndex != nil {
		c.steps[made] = stepOf{r.run, *r.object.Status.CurrentStepIndex}
	}
}

// sharedPurpose returns what two objects of one owner are both for, or "".
func (c *uniqueObjects) sharedPurpose(h oracle.Write, v *store.Version) string {
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
		running := !b.Status.Phase.Completed() && !b.Spec.Terminate
		if running && sameLabels(a.Labels, b.Labels) && a.Labels[argov1.RolloutTypeLabel] != "" {
			return "purpose"
		}
	case experimentKind:
		a, b := actors.Typed[*argov1.Experiment](c.World, h.New), actors.Typed[*argov1.Experiment](c.World, v)
		running := !b.Status.Phase.Completed() && !b.Spec.Terminate
		if running && sameLabels(a.Labels, b.Labels) && reflect.DeepEqual(a.Spec, b.Spec) && c.steps[a.UID] == c.steps[b.UID] {
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

// remnants returns the facts for I27: routes of steps, traffic of another revision, and unused pods.
func (c *finalStatuses) remnants() []oracle.Remnant {
	var out []oracle.Remnant
	add := func(r *record, format string, args ...any) {
		out = append(out, oracle.Remnant{Release: r.Name(), What: fmt.Sprintf(format, args...)})
	}
	for _, r := range c.All {
		s := r.object.Status
		ended := s.Phase == argov1.RolloutPhaseHealthy || s.Abort && s.Phase == argov1.RolloutPhaseDegraded && !invalid(s)
		var remaining []string
		for _, kind := range cluster.WeightKinds {
			remaining = append(remaining, managedIn(c.World.Server.Peek(kind, r.Key))...)
		}
		if !r.Gone() && ended && !r.object.Spec.Paused && hasManagedRoutes(r.object.Spec.Strategy) && len(remaining) > 0 {
			add(r, "in phase %s its route still has %v", s.Phase, remaining)
		}
		if r.Gone() || s.Phase != argov1.RolloutPhaseHealthy {
			continue
		}
		for _, hash := range c.hashesWithTraffic(r) {
			if hash != "" && hash != s.StableRS && !r.object.Spec.Paused {
				add(r, "%s receives traffic, although %s is stable", hash, s.StableRS)
			}
		}
		for _, set := range c.replicaSetsOf(r) {
			if hash := hashOf(set); desiredReplicas(set) > 0 && hash != s.StableRS {
				add(r, "%s still has %d pods", set.Name, desiredReplicas(set))
			}
		}
	}
	return out
}
