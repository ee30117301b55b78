package rollout

import (
	"fmt"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// IsOwnRelease reports whether a status describes a release in progress that Serin started or adopted. Such a release
// still rolls back while another controller seems to be active: the detection may be wrong, and users must not remain
// on a broken revision because of it.
func IsOwnRelease(status argov1.RolloutStatus) bool {
	return status.Serin != nil && status.Serin.Release != "" && status.Serin.Release == status.CurrentPodHash &&
		status.StableRS != "" && status.CurrentPodHash != status.StableRS
}

// RollsBack reports whether a decision aborts a release in progress, or returns it to the stable revision.
func RollsBack(s Snapshot, d Decision) bool {
	return IsOwnRelease(s.Status) && (s.Status.Abort || d.Status.Abort || s.Hash == s.Status.StableRS)
}

// OtherControllerGate returns the gate of a Rollout that a running Argo Rollouts reconciles. Serin then changes and
// writes nothing, because a release advances twice if two controllers write its status. sign describes how Serin
// detected the controller. until is the time at which the sign expires; zero: never.
func OtherControllerGate(sign string, until time.Time) release.Gate {
	gate := release.NewWaitingGate("peer", release.ByUser, fmt.Sprintf(
		"Argo Rollouts acts on this Rollout (%s), so Serin does not: scale Argo Rollouts to zero to let Serin continue, or start Serin with -adopt-while-peer-runs if the Rollouts are divided between the two by namespace or instance ID",
		sign,
	))
	gate.Until = until
	gate.Events = []release.Event{{Type: release.Warning, Reason: "LeftToArgoRollouts", Persistent: true, Message: gate.Message}}
	return gate
}
