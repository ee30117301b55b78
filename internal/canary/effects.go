package canary

import (
	"fmt"

	"github.com/serin-dev/serin/internal/release"
)

// Effect is a desired state of the objects of one Canary.
//
//sumtype:decl
type Effect interface {
	release.Effect
	effect()
}

// The effects. Steady-state effects (HasFinalizer, ServicesExist, PrimaryExists or PrimaryRecreated, ScalerExists, RouteMaintained) apply
// in every reconciliation, RoutePrepared until there is a route; all others are transition effects.
type (
	// HasFinalizer adds or removes the finalizer of the Canary.
	HasFinalizer struct{ Present bool }
	// ServicesExist creates the Services of primary and canary, and the apex Service once the primary can serve.
	ServicesExist struct{ Apex bool }
	// PrimaryExists creates the primary, if the target has the revision. With Follow, an existing primary is updated too, on the same
	// condition: the effects after it, and the status, are about the template that was observed.
	PrimaryExists struct {
		Revision, ID string
		Follow       bool
	}
	// PrimaryRecreated recreates a deleted primary from its history, because the target has another revision. The primary receives
	// Revision; if that is empty, the one with FlaggerHash; if both are empty, the one that it ran last. Changes of its
	// configuration by a CopyTemplate with the ID RevertedCopyID are reverted.
	PrimaryRecreated struct{ Revision, FlaggerHash, RevertedCopyID, ID string }
	// ScalerExists creates the autoscaler of the primary; with Update it is updated from that of the target.
	ScalerExists struct{ Update bool }
	// RoutePrepared creates the objects that a mesh requires before pods can join it, and none that routes traffic.
	RoutePrepared struct{}
	// RouteMaintained maintains the route except for its weights, which remain as they are. Canary and Mirror apply to a route that
	// has to be created: to none that was Observed, because the weights of a route that existed are no decision of Serin. If it is
	// gone since, the effect fails with a conflict.
	RouteMaintained struct {
		Canary   int
		Mirror   bool
		Observed bool
	}
	// TrafficWeight sets the weights.
	TrafficWeight struct {
		Canary int
		Mirror bool
		// Provider is set if the traffic is still routed by another provider than that of the plan.
		Provider string
	}
	// TargetScaledUp scales the target up from zero; with ToPrimaryCapacity, until it can carry the traffic of the primary.
	TargetScaledUp struct{ ToPrimaryCapacity bool }
	// PrimaryScaledUpFromZero scales the primary up from zero, so that the traffic can return to it.
	PrimaryScaledUpFromZero struct{}
	// TargetScaledToZero scales the target to zero.
	TargetScaledToZero struct{}
	// ScalerPaused pauses or resumes the autoscaler of the target.
	ScalerPaused struct{ Paused bool }
	// CopyTemplate copies template and configuration of the target to the primary, if they still have that revision.
	CopyTemplate struct{ Revision, ID string }
	// RestoreTemplate restores the template and configuration that the primary had before the run.
	RestoreTemplate struct{ ID string }
	// ConfigsRestored restores the configuration that the primary had before a CopyTemplate with that ID, if the template itself was
	// never copied.
	ConfigsRestored struct{ ID string }
	// ConfigsCollected deletes copies of configuration that are no longer referenced.
	ConfigsCollected struct{}
	// UserObjectsRestored restores the user's Services and route.
	UserObjectsRestored struct{}
)

func (HasFinalizer) effect() {}

func (ServicesExist) effect() {}

func (PrimaryExists) effect() {}

func (PrimaryRecreated) effect() {}

func (ScalerExists) effect() {}

func (RoutePrepared) effect() {}

func (RouteMaintained) effect() {}

func (TrafficWeight) effect() {}

func (TargetScaledUp) effect() {}

func (PrimaryScaledUpFromZero) effect() {}

func (TargetScaledToZero) effect() {}

func (ScalerPaused) effect() {}

func (CopyTemplate) effect() {}

func (RestoreTemplate) effect() {}

func (ConfigsRestored) effect() {}

func (ConfigsCollected) effect() {}

func (UserObjectsRestored) effect() {}

// removesCanaryTraffic reports whether an effect leaves the canary without a weight.
func removesCanaryTraffic(effect release.Effect) bool {
	route, ok := effect.(TrafficWeight)
	return ok && route.Canary == 0
}

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

func (PrimaryScaledUpFromZero) String() string { return "primary up-from-zero" }

func (TargetScaledToZero) String() string { return "down-to-zero" }

func (e ScalerPaused) String() string {
	if e.Paused {
		return "scaler paused"
	}
	return "scaler resumed"
}

func (e CopyTemplate) String() string { return fmt.Sprintf("copy-template %s", e.Revision) }

func (RestoreTemplate) String() string { return "restore-template" }

func (ConfigsRestored) String() string { return "configs restored" }

func (ConfigsCollected) String() string { return "configs collected" }

func (UserObjectsRestored) String() string { return "services and route restored" }
