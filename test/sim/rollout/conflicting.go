package rollout

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// Conflicting is the class of Rollouts that reference the Services of another Rollout, which a user creates by mistake and
// deletes again.
const Conflicting sim.FaultClass = "twin"

// conflictingLabel distinguishes the pods of a conflicting Rollout.
const conflictingLabel = "twin"

// conflictingRollout returns a Rollout with the strategy of a release, so that both reference the same Services and the same
// route.
func (r *Release) conflictingRollout() *argov1.Rollout {
	twin := &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: actors.Namespace, Name: "twin-of-" + r.Key.Name}}
	twin.Spec = argov1.RolloutSpec{
		Replicas: new(int32(1)), Strategy: *r.Spec.Strategy.DeepCopy(), Template: r.podTemplate(r.Known["v1"]),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": r.Key.Name, conflictingLabel: "yes"}},
	}
	twin.Spec.Template.Labels[conflictingLabel] = "yes"
	return twin
}

// scheduleConflicts schedules the conflicting Rollouts of a run. There are none in runs in which Services or releases are
// deleted, or releases stop using Services, because the next Rollout then becomes the manager.
func (u *users) scheduleConflicts() {
	for _, r := range u.Releases {
		s := u.World.Draws.Stream("twin/" + r.Key.Name)
		drawn, after, life := s.Chance(0.2), s.Between(time.Minute, 10*time.Minute), s.Between(time.Minute, 10*time.Minute)
		managersChange := u.World.Faults.Has(actors.DeleteService) || u.World.Faults.Has(actors.DeleteRelease) || u.World.Faults.Has(actors.SwapStrategy) || len(r.serviceNames()) < 2
		if !drawn || managersChange || !u.World.Faults.Admit(fmt.Sprintf("%s#%s", Conflicting, r.Key.Name)) {
			continue
		}
		u.After(after, func() {
			twin := r.conflictingRollout()
			u.UserClient.Create(twin)
			u.UserClient.TraceAction(r.Key, "create %s for its Services", twin.Name)
			u.After(life, func() { u.UserClient.DeleteOf(r.Key, twin.Name, rolloutKind) })
		})
	}
}

// exclusiveServices is I31.
type exclusiveServices struct {
	*ledger

	// managers contains the manager of each Service according to its annotation, and since when.
	managers map[string]manager
	// crashes counts the processes that crashed.
	crashes int
}

type manager struct {
	name  string
	since time.Time
}

// Observe records the managers of Services. It checks that no manager loses a Service, and what the status of a deleted Rollout
// reported.
func (c *exclusiveServices) Observe(event any) {
	switch h := event.(type) {
	case oracle.Write:
		if h.Kind == actors.ServiceKind {
			c.recordManager(h)
		}
	case rolloutWritten:
		if h.After == nil && h.Record != nil {
			c.checkReported(h.Record)
		}
	case sim.ProcessCrashed:
		c.crashes++
	}
}

// recordManager records the manager of a Service, and checks that no Rollout takes over a Service from another Rollout that
// exists and manages it.
func (c *exclusiveServices) recordManager(h oracle.Write) {
	name := h.New.Meta().Annotations[argov1.ManagedByAnnotation]
	before := c.managers[h.Key.Name]
	if before.name == name {
		return
	}
	if r := c.ByName[keyNamed(before.name)]; h.BySerin && name != "" && r != nil && before.since.Before(c.OldestView()) {
		c.Violate("I31", name, "Service %s was taken from Rollout %s", h.Key.Name, before.name)
	}
	c.managers[h.Key.Name] = manager{name, c.Now()}
}

// otherManagers returns the other Rollouts that manage Services of a Rollout.
func (c *exclusiveServices) otherManagers(r *record) []manager {
	var out []manager
	for _, service := range strategyServices(r.object.Spec.Strategy) {
		if m := c.managers[service]; m.name != "" && m.name != r.Name() && c.ByName[keyNamed(m.name)] != nil {
			out = append(out, m)
		}
	}
	return out
}

func strategyServices(s argov1.RolloutStrategy) []string {
	var names []string
	if s.Canary != nil {
		names = append(names, s.Canary.CanaryService, s.Canary.StableService)
		if pingPong := s.Canary.PingPong; pingPong != nil {
			names = append(names, pingPong.PingService, pingPong.PongService)
		}
	}
	if s.BlueGreen != nil {
		names = append(names, s.BlueGreen.ActiveService, s.BlueGreen.PreviewService)
	}
	return names
}

// claims returns the facts for I31.
func (c *exclusiveServices) claims(event any) []oracle.Claim {
	h, ok := event.(oracle.Write)
	if !ok || !h.BySerin || h.Type != store.Added {
		return nil
	}
	owner := actors.ControllerOf(h.New.Meta())
	r := c.ByName[keyNamed(owner.Name)]
	if owner.Kind != argov1.RolloutKind || r == nil || c.Relists && c.crashes > 0 || c.JustStarted(h.Actor) { // its first list may be older than the annotations of the Services
		return nil
	}
	var out []oracle.Claim
	for _, m := range c.otherManagers(r) {
		out = append(out, oracle.Claim{
			Release: owner.Name, What: fmt.Sprintf("%s %s was created for it", h.Kind.Kind, h.Key.Name), Other: m.name, Shared: "Services", Since: m.since,
		})
	}
	return out
}

// checkReported checks that the status of a Rollout reports the conflict, if it could be written.
func (c *exclusiveServices) checkReported(r *record) {
	if c.LastFault.After(c.OldestView().Add(-maxRetryDelay)) {
		return
	}
	if !r.object.CreationTimestamp.Time.Before(c.OldestView().Add(-time.Second)) {
		return
	}
	for _, m := range c.otherManagers(r) {
		if m.since.Before(c.OldestView()) {
			oracle.ExplainedConflict(c.Ledger, oracle.Conflict{Release: r.Name(), Other: m.name, Shared: "Services", Explained: invalid(r.object.Status)})
		}
	}
}

func (c *exclusiveServices) Finish() {
	for _, r := range c.All {
		if !r.Gone() {
			c.checkReported(r)
		}
	}
}
