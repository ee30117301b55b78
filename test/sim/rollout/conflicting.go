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

// Conflicting are Rollouts for the Services of another one, which someone makes by mistake and takes away again.
const Conflicting sim.FaultClass = "twin"

// conflictingLabel sets the pods of a twin apart.
const conflictingLabel = "twin"

// conflictingRollout is a Rollout with the strategy of a release: it names the same Services, and the same route.
func (r *Release) conflictingRollout() *argov1.Rollout {
	twin := &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: actors.Namespace, Name: "twin-of-" + r.Key.Name}}
	twin.Spec = argov1.RolloutSpec{
		Replicas: new(int32(1)), Strategy: *r.Spec.Strategy.DeepCopy(), Template: r.template(r.Known["v1"]),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": r.Key.Name, conflictingLabel: "yes"}},
	}
	twin.Spec.Template.Labels[conflictingLabel] = "yes"
	return twin
}

// scheduleConflicts plans those of a run. Where Services or releases go, or releases give Services up, whoever comes next has them, and so
// there are none.
func (p *users) scheduleConflicts() {
	for _, r := range p.releases {
		s := p.world.Draws.Stream("twin/" + r.Key.Name)
		drawn, after, life := s.Chance(0.2), s.Between(time.Minute, 10*time.Minute), s.Between(time.Minute, 10*time.Minute)
		shared := p.world.Faults.Has(actors.DeleteService) || p.world.Faults.Has(actors.DeleteRelease) || p.world.Faults.Has(actors.SwapStrategy) || len(r.around()) < 2
		if !drawn || shared || !p.world.Faults.TakesPlace(fmt.Sprintf("%s#%s", Conflicting, r.Key.Name)) {
			continue
		}
		p.After(after, func() {
			twin := r.conflictingRollout()
			p.userClient.Create(twin)
			p.userClient.TraceAction(r.Key, "make %s for its Services", twin.Name)
			p.After(life, func() { p.userClient.DeleteOf(r.Key, twin.Name, rolloutKind) })
		})
	}
}

// exclusiveServices is I31.
type exclusiveServices struct {
	*ledger

	// managers are who manages each Service, as it says, and since when.
	managers map[string]manager
	// crashes counts the processes that died.
	crashes int
}

type manager struct {
	name  string
	since time.Time
}

// Observe records the managers of Services, and checks that none loses one, and what the status of a deleted Rollout reports.
func (c *exclusiveServices) Observe(event any) {
	switch h := event.(type) {
	case oracle.Write:
		if h.Kind == actors.ServiceKind {
			c.note(h)
		}
	case rolloutWritten:
		if h.after == nil && h.of != nil {
			c.reported(h.of)
		}
	case sim.ProcessCrashed:
		c.crashes++
	}
}

// note: no Rollout takes over a Service from another Rollout that exists and manages it.
func (c *exclusiveServices) note(h oracle.Write) {
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

// others are the other Rollouts that manage Services of a Rollout.
func (c *exclusiveServices) others(r *record) []manager {
	var out []manager
	for _, service := range serviceNames(r.object.Spec.Strategy) {
		if m := c.managers[service]; m.name != "" && m.name != r.Name() && c.ByName[keyNamed(m.name)] != nil {
			out = append(out, m)
		}
	}
	return out
}

func serviceNames(s argov1.RolloutStrategy) []string {
	var names []string
	if s.Canary != nil {
		names = append(names, s.Canary.CanaryService, s.Canary.StableService)
		if turns := s.Canary.PingPong; turns != nil {
			names = append(names, turns.PingService, turns.PongService)
		}
	}
	if s.BlueGreen != nil {
		names = append(names, s.BlueGreen.ActiveService, s.BlueGreen.PreviewService)
	}
	return names
}

// claims are facts for I31.
func (c *exclusiveServices) claims(event any) []oracle.Claim {
	h, ok := event.(oracle.Write)
	if !ok || !h.BySerin || h.Type != store.Added {
		return nil
	}
	kind, name := owner(h.New.Meta())
	r := c.ByName[keyNamed(name)]
	if kind != argov1.RolloutKind || r == nil || c.Relists && c.crashes > 0 || c.JustStarted(h.Actor) { // its first list may be from before the Services had a manager
		return nil
	}
	var out []oracle.Claim
	for _, m := range c.others(r) {
		out = append(out, oracle.Claim{
			Release: name, What: fmt.Sprintf("%s %s was created for it", h.Kind.Kind, h.Key.Name), Other: m.name, Shared: "Services", Since: m.since,
		})
	}
	return out
}

// reported: the status of a Rollout reports the conflict, where it can be written.
func (c *exclusiveServices) reported(r *record) {
	if c.LastFault.After(c.OldestView().Add(-triedAgain)) {
		return
	}
	if !r.object.CreationTimestamp.Time.Before(c.OldestView().Add(-time.Second)) {
		return
	}
	for _, m := range c.others(r) {
		if m.since.Before(c.OldestView()) {
			oracle.ExplainedConflict(c.Ledger, oracle.Conflict{Release: r.Name(), Other: m.name, Shared: "Services", Explained: invalid(r.object.Status)})
		}
	}
}

func (c *exclusiveServices) Finish() {
	for _, r := range c.All {
		if !r.Gone() {
			c.reported(r)
		}
	}
}
