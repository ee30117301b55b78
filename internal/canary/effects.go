package canary

import (
	"fmt"

	"github.com/serin-dev/serin/internal/release"
)

// Effect is something that shall be true of the cluster of one Canary.
//
//sumtype:decl
type Effect interface {
	release.Effect
	effect()
}

// The effects. State effects (HasFinalizer, ServicesExist, PrimaryExists, ScalerExists, RouteMaintained) are true in every
// pass, RoutePrepared until there is a route; all others exist only in the states that move something.
type (
	// HasFinalizer holds or lets go of the Canary.
	HasFinalizer struct{ Present bool }
	// ServicesExist makes the Services of primary and canary, and the apex Service once the primary can serve.
	ServicesExist struct{ Apex bool }
	// PrimaryExists makes the primary of the target, if that has the revision; while Follow is set it takes over whatever
	// template the target has.
	PrimaryExists struct {
		Revision, ID string
		Follow       bool
	}
	// PrimaryRecreated makes a primary that was deleted again from its history, because the target has another revision. It
	// is to run that revision; where none is named, what has that hash of the API; without either, what it ran last. What a
	// CopyTemplate with the ID Undone made of its configuration is undone.
	PrimaryRecreated struct{ Revision, FlaggerHash, Undone, ID string }
	// ScalerExists makes the primary's autoscaler; Update brings it up to date with the target's.
	ScalerExists struct{ Update bool }
	// RoutePrepared makes what a mesh must have before it lets pods join, and nothing that traffic follows.
	RoutePrepared struct{}
	// RouteMaintained keeps the route right in everything but its weights, which stay as they are observed; Canary and
	// Mirror are for a route that has to be made.
	RouteMaintained struct {
		Canary int
		Mirror bool
	}
	// TrafficWeight sets the weights.
	TrafficWeight struct {
		Canary int
		Mirror bool
		// Provider is set when the traffic is still carried by another provider than the plan's.
		Provider string
	}
	// TargetScaledUp gives the target pods; Like says that it must carry the primary's traffic.
	TargetScaledUp struct{ ToPrimaryCapacity bool }
	// PrimaryScaledUp gives the primary pods again, so that the traffic can go back to it.
	PrimaryScaledUp struct{}
	// TargetScaledToZero takes the target's pods away.
	TargetScaledToZero struct{}
	// ScalerPaused stops or resumes the target's autoscaler.
	ScalerPaused struct{ Paused bool }
	// CopyTemplate gives the primary the target's template and configuration, if they still have that revision.
	CopyTemplate struct{ Revision, ID string }
	// RestoreTemplate gives the primary back what it had before the run.
	RestoreTemplate struct{ ID string }
	// ConfigsRestored gives the primary's configuration back the content that it had before a CopyTemplate with that ID
	// which never came to the template.
	ConfigsRestored struct{ ID string }
	// ConfigsCollected removes copies of configuration that nothing refers to any more.
	ConfigsCollected struct{}
	// UserObjectsRestored restores the user's Services and route.
	UserObjectsRestored struct{}
)

func (HasFinalizer) effect()        {}
func (ServicesExist) effect()       {}
func (PrimaryExists) effect()       {}
func (PrimaryRecreated) effect()    {}
func (ScalerExists) effect()        {}
func (RoutePrepared) effect()       {}
func (RouteMaintained) effect()     {}
func (TrafficWeight) effect()       {}
func (TargetScaledUp) effect()      {}
func (PrimaryScaledUp) effect()     {}
func (TargetScaledToZero) effect()  {}
func (ScalerPaused) effect()        {}
func (CopyTemplate) effect()        {}
func (RestoreTemplate) effect()     {}
func (ConfigsRestored) effect()     {}
func (ConfigsCollected) effect()    {}
func (UserObjectsRestored) effect() {}

func (e HasFinalizer) String() string {
	if e.Present {
		return "finalizer present"
	}
	return "finalizer removed"
}

func (e ServicesExist) String() string {
	if e.Apex {
		return "services apex primary canary"
	}
	return "services primary canary"
}

func (e PrimaryExists) String() string {
	if e.Follow {
		return "primary follows the target"
	}
	return "primary exists"
}

func (PrimaryRecreated) String() string { return "primary recreated" }

func (e ScalerExists) String() string {
	if e.Update {
		return "primary-scaler up to date"
	}
	return "primary-scaler exists"
}

func (RoutePrepared) String() string { return "route prepared" }

func (e RouteMaintained) String() string { return "route maintained" }

func (e TrafficWeight) String() string {
	s := "weight " + release.Route{Canary: e.Canary, Mirror: release.Mirror{Enabled: e.Mirror}}.String()
	if e.Provider != "" {
		s += " provider=" + e.Provider
	}
	return s
}

func (e TargetScaledUp) String() string {
	if e.ToPrimaryCapacity {
		return "up-from-zero to primary capacity"
	}
	return "up-from-zero"
}
func (PrimaryScaledUp) String() string    { return "primary up-from-zero" }
func (TargetScaledToZero) String() string { return "down-to-zero" }

func (e ScalerPaused) String() string {
	if e.Paused {
		return "scaler paused"
	}
	return "scaler resumed"
}
func (e CopyTemplate) String() string      { return fmt.Sprintf("copy-template %s", e.Revision) }
func (RestoreTemplate) String() string     { return "restore-template" }
func (ConfigsRestored) String() string     { return "configs restored" }
func (ConfigsCollected) String() string    { return "configs collected" }
func (UserObjectsRestored) String() string { return "services and route restored" }
