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
	"github.com/serin-dev/serin/test/sim/store"
)

// The classes of actions of users and tools, in addition to those of every API.
const (
	DeleteSet   sim.FaultClass = "delete-replicaset"
	EditService sim.FaultClass = "edit-service"
	DeleteJudge sim.FaultClass = "delete-judge" // an AnalysisRun or an Experiment
	Scaler      sim.FaultClass = "autoscaler"
)

// users are the users of the workloads. They ship versions, change their minds, and edit objects that they should not edit.
type users struct {
	*Rollouts
	*actors.Script
	// noticedPauses are the pauses that a user has already noticed.
	noticedPauses map[string]bool
	// stuckRevisions are the revisions of releases that made no progress after the end of the faults, in the order in which
	// users intervened.
	stuckRevisions map[types.NamespacedName][]string
}

// actions are the actions of users, in a fixed order.
var actions = []actors.Action[*users, *Release]{
	{Class: actors.EditTemplate, Do: (*users).editTemplate},
	{Class: actors.EditSpec, Do: (*users).editSpec},
	{Class: actors.Scale, Do: (*users).scale},
	{Class: actors.Command, Do: (*users).command},
	{Class: actors.DeleteRelease, Do: (*users).deleteRelease},
	{Class: DeleteSet, Do: (*users).deleteReplicaSet},
	{Class: actors.DeleteService, Do: (*users).deleteService},
	{Class: EditService, Do: (*users).editService},
	{Class: actors.DeleteRoute, Do: (*users).deleteRoute},
	{Class: actors.EditRouteWeights, Do: func(p *users, r *Release, s *sim.Stream) {
		p.UserClient.EditRouteWeights(r.Key, r.apex(), r.Provider, p.isCanary(r), s)
	}},
	{Class: DeleteJudge, Do: (*users).deleteAnalysis},
	{Class: actors.NonsenseStatus, Do: (*users).writeInvalidStatus},
	{Class: actors.SwapStrategy, Do: (*users).swapStrategy},
	{Class: EditSubsets, Do: (*users).editSubsets},
	{Class: DeleteJob, Do: (*users).deleteJob},
	{Class: EditReference, Do: (*users).editReference},
}

// observe receives every event.
func (u *users) observe(event any) {
	written, ok := event.(sim.ObjectWritten)
	if !ok || written.Kind != rolloutKind {
		return
	}
	if u.story == nil && written.Type != store.Deleted {
		object := actors.Typed[*argov1.Rollout](u.World, written.New)
		u.endPauses(object)
		u.replaceStuck(object)
	}
	u.Continue()
}

// endPauses makes a user notice each pause. The user promotes or aborts after a while, or ignores the pause. Once faults have
// ended, no user ignores a pause while a background analysis would continue indefinitely.
func (u *users) endPauses(object *argov1.Rollout) {
	for _, pause := range object.Status.PauseConditions {
		id := fmt.Sprintf("%s/%s/%s/%d", object.UID, object.Status.CurrentPodHash, pause.Reason, pause.StartTime.Unix())
		if u.noticedPauses[id] {
			continue
		}
		if u.noticedPauses == nil {
			u.noticedPauses = map[string]bool{}
		}
		u.noticedPauses[id] = true
		s := u.World.Draws.Stream(fmt.Sprintf("pause/%s/%d", object.Name, len(u.noticedPauses)))
		after, aborts, ignores := s.Between(20*time.Second, 4*time.Minute), s.Chance(0.2), s.Chance(0.15)
		u.After(after, func() {
			if ignores && !u.hasBackgroundAnalysis(keyOf(object)) {
				return
			}
			u.endPause(keyOf(object), pause, aborts)
		})
	}
}

// replaceStuck ships a working version once faults have ended, if pods never become ready and a background analysis would
// continue indefinitely. If that version is stuck too, because the previous revision may have no pods either, it is promoted
// fully. This is repeated after each change of the spec, because a change of the strategy revokes the promotion.
func (u *users) replaceStuck(object *argov1.Rollout) {
	key := keyOf(object)
	for _, r := range u.Releases {
		if r.Key != key || !u.Stopped || !u.hasBackgroundAnalysis(key) || object.Status.Phase != argov1.RolloutPhaseDegraded {
			continue
		}
		stuck, id := u.stuckRevisions[key], object.Status.CurrentPodHash
		if len(stuck) > 0 && id != stuck[0] {
			id += "@" + object.Status.ObservedGeneration
		}
		if slices.Contains(stuck, id) {
			continue
		}
		if u.stuckRevisions == nil {
			u.stuckRevisions = map[types.NamespacedName][]string{}
		}
		u.stuckRevisions[key] = append(stuck, id)
		if len(stuck) == 0 {
			u.After(30*time.Second, func() { u.ship(r, r.Add(actors.GoodVersion)) })
		} else {
			u.After(30*time.Second, func() { u.promoteFull(key) })
		}
	}
}

func keyOf(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }

// hasBackgroundAnalysis reports whether a Rollout has a background analysis, which continues while the Rollout is paused.
func (u *users) hasBackgroundAnalysis(key types.NamespacedName) bool {
	object := u.storedRollout(key)
	return object != nil && object.Spec.Strategy.Canary != nil && object.Spec.Strategy.Canary.Analysis != nil
}

// endPause ends a pause, if it still exists.
func (u *users) endPause(key types.NamespacedName, pause argov1.PauseCondition, aborts bool) {
	object := u.storedRollout(key)
	if object == nil || !slices.ContainsFunc(object.Status.PauseConditions, func(c argov1.PauseCondition) bool {
		return c.Reason == pause.Reason && c.StartTime.Equal(&pause.StartTime)
	}) {
		return
	}
	if aborts {
		u.abort(key)
		return
	}
	u.promote(key)
}

// updateRollout changes a Rollout except for its status.
func (k *Rollouts) updateRollout(actor string, key types.NamespacedName, change func(*argov1.Rollout)) bool {
	object := k.storedRollout(key)
	if object == nil || object.DeletionTimestamp != nil {
		return false
	}
	after := object.DeepCopy()
	change(after)
	if err := k.World.Server.Client(actor).Update(context.Background(), after); err != nil {
		k.World.Trace("the API server rejects a change of Rollout %s: %v", key.Name, err)
		return false
	}
	return after.ResourceVersion != object.ResourceVersion
}

// patchStatus changes the status of a Rollout as the tools of Argo Rollouts do.
func (k *Rollouts) patchStatus(key types.NamespacedName, patch string) bool {
	object := k.storedRollout(key)
	if object == nil || object.DeletionTimestamp != nil {
		return false
	}
	into := &argov1.Rollout{}
	into.Namespace, into.Name = key.Namespace, key.Name
	if err := k.User.Status().Patch(context.Background(), into, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		k.World.Trace("the API server rejects a change of Rollout %s: %v", key.Name, err)
		return false
	}
	return into.ResourceVersion != object.ResourceVersion
}

// repair is what users do once faults have ended: they repair what would block a release indefinitely, or leave it, so that the
// release has to report what it waits for.
func (u *users) repair() {
	u.allowTemplates(true)
	u.deleteHangingJobs()
	for _, r := range u.Releases {
		s := u.World.Draws.Stream("mend/" + r.Key.Name)
		resume, valid := s.Chance(0.8), s.Chance(0.8)
		object := u.storedRollout(r.Key)
		if object == nil {
			continue
		}
		background := u.hasBackgroundAnalysis(r.Key) // it continues until its Rollout makes progress, so neither would end
		if resume || background {
			u.resume(r.Key)
			for _, pause := range object.Status.PauseConditions {
				u.endPause(r.Key, pause, false)
			}
		}
		if valid || background {
			u.recreateObjects(r)
		}
		u.replaceStuck(object)
	}
}

// recreateObjects recreates missing objects of a release.
func (u *users) recreateObjects(r *Release) {
	for _, object := range r.userObjects() {
		gvk, err := u.User.GroupVersionKindFor(object)
		if err == nil && u.World.Server.Peek(gvk.GroupKind(), keyOf(object)) == nil {
			u.UserClient.Create(object)
			u.UserClient.TraceAction(r.Key, "recreate %s %s", gvk.Kind, object.GetName())
		}
	}
}
