package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// The classes of what users and tools do, beside those that all kinds have.
const (
	DeleteSet   sim.FaultClass = "delete-replicaset"
	EditService sim.FaultClass = "edit-service"
	DeleteJudge sim.FaultClass = "delete-judge" // an AnalysisRun or an Experiment
	Scaler      sim.FaultClass = "autoscaler"
)

// users are the users of the workloads: they ship versions, change their minds, and do by hand what they should not.
type users struct {
	*Rollouts
	*actors.Script
	// asked are the pauses that someone has already been asked to end.
	asked map[string]bool
	// stuck are the revisions of releases that stood still at the end, in the order in which someone helped them.
	stuck map[types.NamespacedName][]string
}

// actions in a fixed order.
var actions = []actors.Action[*users, *Release]{
	{Class: actors.EditTemplate, Do: (*users).editTemplate},
	{Class: actors.EditSpec, Do: (*users).editSpec},
	{Class: actors.Scale, Do: (*users).scale},
	{Class: actors.Command, Do: (*users).command},
	{Class: actors.DeleteRelease, Do: (*users).deleteRelease},
	{Class: DeleteSet, Do: (*users).deleteSet},
	{Class: actors.DeleteService, Do: (*users).deleteService},
	{Class: EditService, Do: (*users).editService},
	{Class: actors.DeleteRoute, Do: (*users).deleteRoute},
	{Class: actors.EditRouteWeights, Do: func(p *users, r *Release, s *sim.Stream) {
		p.userClient.EditRouteWeights(r.Key, r.apex(), r.Router, p.onTheWay(r), s)
	}},
	{Class: DeleteJudge, Do: (*users).deleteJudge},
	{Class: actors.NonsenseStatus, Do: (*users).nonsense},
	{Class: actors.SwapStrategy, Do: (*users).swapStrategy},
	{Class: EditSubsets, Do: (*users).editSubsets},
	{Class: DeleteJob, Do: (*users).deleteJob},
	{Class: EditReference, Do: (*users).editReference},
}

// Classes are the faults that this kind of release adds to those of the world.
var Classes = slices.Concat(actors.MetricFaults, jobFaults, []sim.FaultClass{actors.GitOps, Scaler}, actors.ActionClasses(actions), cluster.Classes(), []sim.FaultClass{cluster.NoRoom})

// schedule plans what users do in this run.
func (p *users) schedule() {
	for _, r := range p.releases {
		actors.Shipping{
			World: p.world, Name: r.Key.Name, Most: 4, Soonest: time.Minute, Latest: 10 * time.Minute,
			Draw: func(s *sim.Stream) func() {
				v := actors.DrawVersion(s, 0.65, 0)
				return func() { p.ship(r, r.Add(v)) }
			},
			Over: func() bool { return p.over },
		}.Begin()
	}
	p.scheduleConflicts()
	actors.ScheduleActions(p.world, p, actions, func() []*Release { return p.releases })
}

// observe receives every event.
func (p *users) observe(event any) {
	wrote, ok := event.(sim.ObjectWritten)
	if !ok || wrote.Kind != rolloutKind {
		return
	}
	if p.story == nil && wrote.Type != store.Deleted {
		object := actors.Typed[*argov1.Rollout](p.world, wrote.New)
		p.endPauses(object)
		p.replaceStuck(object)
	}
	p.Continue()
}

// endPauses: a user notices each pause that begins, and promotes or aborts after a while, or ignores it, which no user
// does once faults are over and a analysis beside the steps would go on indefinitely.
func (p *users) endPauses(object *argov1.Rollout) {
	for _, pause := range object.Status.PauseConditions {
		id := fmt.Sprintf("%s/%s/%s/%d", object.UID, object.Status.CurrentPodHash, pause.Reason, pause.StartTime.Unix())
		if p.asked[id] {
			continue
		}
		if p.asked == nil {
			p.asked = map[string]bool{}
		}
		p.asked[id] = true
		s := p.world.Draws.Stream(fmt.Sprintf("pause/%s/%d", object.Name, len(p.asked)))
		after, aborts, forgets := s.Between(20*time.Second, 4*time.Minute), s.Chance(0.2), s.Chance(0.15)
		p.After(after, func() {
			if forgets && !p.judgedBeside(keyOf(object)) {
				return
			}
			p.decide(keyOf(object), pause, aborts)
		})
	}
}

// replaceStuck ships a working version once faults have ended, where pods never become ready and a background analysis would
// continue indefinitely. If that is stuck too, because the previous revision may have no pods either, it is promoted at
// once: after each change of the spec again, because a change of the strategy revokes the promotion.
func (p *users) replaceStuck(object *argov1.Rollout) {
	key := keyOf(object)
	for _, r := range p.releases {
		if r.Key != key || !p.over || !p.judgedBeside(key) || object.Status.Phase != argov1.RolloutPhaseDegraded {
			continue
		}
		stuck, id := p.stuck[key], object.Status.CurrentPodHash
		if len(stuck) > 0 && id != stuck[0] {
			id += "@" + object.Status.ObservedGeneration
		}
		if slices.Contains(stuck, id) {
			continue
		}
		if p.stuck == nil {
			p.stuck = map[types.NamespacedName][]string{}
		}
		p.stuck[key] = append(stuck, id)
		if len(stuck) == 0 {
			p.After(30*time.Second, func() { p.ship(r, r.Add(actors.GoodVersion)) })
		} else {
			p.After(30*time.Second, func() { p.promoteFull(key) })
		}
	}
}

func keyOf(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }

// judgedBeside is true of a Rollout with a background analysis, which continues while the Rollout is paused.
func (p *users) judgedBeside(key types.NamespacedName) bool {
	object := p.stored(key)
	return object != nil && object.Spec.Strategy.Canary != nil && object.Spec.Strategy.Canary.Analysis != nil
}

// decide ends a pause, if it is still on.
func (p *users) decide(key types.NamespacedName, pause argov1.PauseCondition, aborts bool) {
	object := p.stored(key)
	if object == nil || !slices.ContainsFunc(object.Status.PauseConditions, func(c argov1.PauseCondition) bool {
		return c.Reason == pause.Reason && c.StartTime.Equal(&pause.StartTime)
	}) {
		return
	}
	if aborts {
		p.abort(key)
		return
	}
	p.promote(key)
}

// respecify changes a Rollout but for its status.
func (k *Rollouts) respecify(actor string, key types.NamespacedName, change func(*argov1.Rollout)) bool {
	object := k.stored(key)
	if object == nil || object.DeletionTimestamp != nil {
		return false
	}
	after := object.DeepCopy()
	change(after)
	if err := k.world.Server.Client(actor).Update(context.Background(), after); err != nil {
		k.world.Trace("the API server refuses a change of Rollout %s: %v", key.Name, err)
		return false
	}
	return after.ResourceVersion != object.ResourceVersion
}

// patchStatus changes the status of a Rollout, as those do who give it commands.
func (k *Rollouts) patchStatus(key types.NamespacedName, patch string) bool {
	object := k.stored(key)
	if object == nil || object.DeletionTimestamp != nil {
		return false
	}
	into := &argov1.Rollout{}
	into.Namespace, into.Name = key.Namespace, key.Name
	if err := k.user.Status().Patch(context.Background(), into, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		k.world.Trace("the API server refuses a change of Rollout %s: %v", key.Name, err)
		return false
	}
	return into.ResourceVersion != object.ResourceVersion
}

// repair is what users do when nothing happens any more: they put right what would hold a release indefinitely, or leave it
// so that the release has to say what it waits for.
func (p *users) repair() {
	p.endHanging()
	for _, r := range p.releases {
		s := p.world.Draws.Stream("mend/" + r.Key.Name)
		resume, valid := s.Chance(0.8), s.Chance(0.8)
		object := p.stored(r.Key)
		if object == nil {
			continue
		}
		judged := p.judgedBeside(r.Key) // for as long as its Rollout makes no progress, and neither would come to rest
		if resume || judged {
			p.resume(r.Key)
			for _, pause := range object.Status.PauseConditions {
				p.decide(r.Key, pause, false)
			}
		}
		if valid || judged {
			p.mendAround(r)
		}
		p.replaceStuck(object)
	}
}

// mendAround makes again what is missing around a release.
func (p *users) mendAround(r *Release) {
	for _, object := range r.all() {
		gvk, err := p.user.GroupVersionKindFor(object)
		if err == nil && p.world.Server.Peek(gvk.GroupKind(), keyOf(object)) == nil {
			p.userClient.Create(object)
			p.userClient.TraceAction(r.Key, "make %s %s again", gvk.Kind, object.GetName())
		}
	}
}
