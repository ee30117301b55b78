package canary

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// The classes of actions of users and tools, in addition to those of every API.
const (
	EditConfig      sim.FaultClass = "edit-config"
	RecreateRelease sim.FaultClass = "recreate-release"
	DeleteTarget    sim.FaultClass = "delete-target"
	DeletePrimary   sim.FaultClass = "delete-primary"
	Suspend         sim.FaultClass = "suspend"
	Skip            sim.FaultClass = "skip"
	OtherController sim.FaultClass = "other-controller" // the status is written as another controller would
	SameTarget      sim.FaultClass = "same-target"
	Strangers       sim.FaultClass = "strangers"
	ChangeAlerts    sim.FaultClass = "change-alerts"    // the provider of an alert may not exist
	RemoveReference sim.FaultClass = "remove-reference" // configuration or an autoscaler that the release requires
	EditDuring      sim.FaultClass = "edit-during"      // the match, the steps or the provider, at a moment of a release
	ReplaceTarget   sim.FaultClass = "replace-target"   // spec.targetRef names another Deployment, and perhaps the former one again
	ManyPods        sim.FaultClass = "many-pods"        // so many that replacing the pods of a primary takes longer than the deadline
)

// users are the users of the workloads. They ship versions, change their minds, and edit objects that they should not edit.
type users struct {
	*Canaries
	*actors.Script
	// recreateAfterDeletion contains the functions that recreate Canaries after their deletion.
	recreateAfterDeletion map[types.NamespacedName]func()
}

// actions are the actions of users, in a fixed order.
var actions = []actors.Action[*users, *Release]{
	{Class: actors.EditTemplate, Do: (*users).editTemplate},
	{Class: actors.EditSpec, Do: (*users).editSpec},
	{Class: EditConfig, Do: (*users).editConfig},
	{Class: actors.Scale, Do: (*users).scale},
	{Class: actors.DeleteRelease, Do: (*users).deleteRelease},
	{Class: RecreateRelease, Do: (*users).recreateRelease},
	{Class: DeleteTarget, Do: (*users).deleteTarget},
	{Class: DeletePrimary, Do: (*users).deletePrimary},
	{Class: actors.DeleteService, Do: func(p *users, r *Release, s *sim.Stream) {
		p.UserClient.DeleteOf(r.Key, r.Apex+sim.Pick(s, "", "-primary", "-canary"), actors.ServiceKind)
	}},
	{Class: actors.DeleteRoute, Do: (*users).deleteRoute},
	{Class: actors.EditRouteWeights, Do: func(p *users, r *Release, s *sim.Stream) {
		if c := p.storedCanary(r.Key); c != nil && c.Spec.Provider != r.Provider {
			return // Serin does not observe the route of a provider that the spec no longer names
		}
		p.UserClient.EditRouteWeights(r.Key, r.Apex, r.Provider, r.isCanary, s)
	}},
	{Class: Suspend, Do: (*users).suspend},
	{Class: Skip, Do: (*users).skipAnalysis},
	{Class: actors.Command, Do: (*users).command},
	{Class: actors.NonsenseStatus, Do: (*users).writeInvalidStatus},
	{Class: OtherController, Do: (*users).writeStatusAsFlagger},
	{Class: actors.SwapStrategy, Do: (*users).swapStrategy},
	{Class: SameTarget, Do: (*users).createSecondCanary},
	{Class: ChangeAlerts, Do: (*users).changeAlerts},
	{Class: RemoveReference, Do: (*users).removeReference},
	{Class: EditDuring, Do: (*users).editDuringRelease},
	{Class: ReplaceTarget, Do: (*users).replaceTarget},
}

// observe receives every event.
func (u *users) observe(event any) {
	written, ok := event.(sim.ObjectWritten)
	switch {
	case ok && (written.Kind == actors.DeploymentKind || written.Kind == actors.DaemonSetKind) && written.Actor != "user" && written.Subresource == "":
		u.recordPromoted(written)
		return
	case !ok || written.Kind != canaryKind:
		return
	}
	if recreate := u.recreateAfterDeletion[written.Key]; recreate != nil && written.Type == store.Deleted {
		delete(u.recreateAfterDeletion, written.Key)
		u.After(2*time.Second, recreate)
	}
	u.repairObserved(written)
	u.editAtMoment(written)
	u.Continue()
}

// recordPromoted records the version that the primary of a release received last.
func (u *users) recordPromoted(written sim.ObjectWritten) {
	for _, r := range u.Releases {
		if version := actors.Labels(nested(written.New.Content(), "spec", "template"))["version"]; written.Key.Name == r.Target+"-primary" && r.Known[version] != nil {
			r.promoted = version
		}
	}
}

// changeObject changes one object as a user.
func (u *users) changeObject(name string, kind schema.GroupKind, change func(map[string]any) bool) bool {
	return u.UserClient.Write("user", name, kind, change)
}

// storedCanary returns a Canary with its state decoded, or nil if there is none. It must not be modified.
func (k *Canaries) storedCanary(key types.NamespacedName) *flaggerv1.Canary {
	return decodeState(actors.Typed[*flaggerv1.Canary](k.World, k.World.Server.Peek(canaryKind, key)))
}

// updateSpec changes the spec of a Canary.
func (u *users) updateSpec(r *Release, change func(*flaggerv1.Canary)) bool {
	c := u.storedCanary(r.Key)
	if c == nil || c.DeletionTimestamp != nil {
		return false
	}
	c = c.DeepCopy()
	change(c)
	if err := u.User.Update(context.Background(), c); err != nil {
		u.World.Trace("the API server rejects a change of Canary %s: %v", r.Key.Name, err)
		return false
	}
	r.Strategy = strategyOf(c.Spec)
	return true
}

// targetVersion returns the version that the target of a release runs, or "" if there is no target.
func (k *Canaries) targetVersion(r *Release) string {
	return versionOf(k.World.Server.Peek(r.Kind, types.NamespacedName{Namespace: actors.Namespace, Name: r.Target}))
}

// versionOf returns the version that a workload runs, or "" if it does not exist.
func versionOf(workload *store.Version) string {
	if workload == nil {
		return ""
	}
	template, _, _ := unstructured.NestedFieldNoCopy(workload.Content(), "spec", "template")
	content, _ := template.(map[string]any)
	return actors.Labels(content)["version"]
}

// repair is what users do once faults have ended: they repair what would block a release indefinitely, or leave it, so that the
// release has to report what it waits for.
func (u *users) repair() {
	for _, r := range u.Releases {
		s := u.World.Draws.Stream("mend/" + r.Key.Name)
		resume, valid, retarget := s.Chance(0.7), s.Chance(0.75), s.Chance(0.8)
		if resume {
			u.resume(r)
		}
		if valid {
			u.repairSpec(r)
		}
		if retarget {
			u.recreateTarget(r)
			u.restorePromoted(r)
		}
		if u.World.Draws.Stream("mend-references/" + r.Key.Name).Chance(0.5) {
			u.restoreReferences(r)
		} else {
			r.unrepaired = true
		}
		u.replaceStuckVersion(r)
	}
}

// restorePromoted ships the promoted version again if the primary is gone, as the release requests if it cannot recreate the
// primary automatically.
func (u *users) restorePromoted(r *Release) {
	gone := u.World.Server.Peek(r.Kind, types.NamespacedName{Namespace: actors.Namespace, Name: r.Target + "-primary"}) == nil
	if c := u.storedCanary(r.Key); gone && c != nil && c.Status.Phase != "" && c.Status.Phase != flaggerv1.CanaryPhaseInitializing && r.promoted != "" {
		u.ship(r, r.Known[r.promoted])
	}
}

// replaceStuckVersion ships a version whose pods become ready to each target that would otherwise wait for pods that never do: its
// Canary is being initialized or deleted, or its primary already has that version. The second Canary may have another target.
func (u *users) replaceStuckVersion(r *Release) {
	for _, name := range []string{r.Key.Name, r.Key.Name + secondCanary} {
		c := u.storedCanary(types.NamespacedName{Namespace: actors.Namespace, Name: name})
		if c == nil || !waitsForPods(c) {
			continue
		}
		stuck := r
		if target := usedTarget(c); target != r.Target {
			other := *r
			other.Target = target
			stuck = &other
		}
		if v := r.Known[u.targetVersion(stuck)]; v != nil && v.Pods.NeverReady {
			u.ship(stuck, r.Add(actors.GoodVersion))
		}
	}
}

// usedTarget returns the name of the target of a Canary: a deletion restores the one that was initialized last.
func usedTarget(c *flaggerv1.Canary) string {
	if recorded := recordedTarget(&c.Status); c.DeletionTimestamp != nil && recorded != "" {
		return recorded
	}
	return c.Spec.TargetRef.Name
}

// waitsForPods reports whether a Canary waits for pods without a deadline. A release in progress has a deadline.
func waitsForPods(c *flaggerv1.Canary) bool {
	if c.DeletionTimestamp != nil {
		return true
	}
	switch c.Status.Phase {
	case "", flaggerv1.CanaryPhaseInitializing, flaggerv1.CanaryPhaseTerminating, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		return true
	default:
		return false
	}
}
