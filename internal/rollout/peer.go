package rollout

import (
	"fmt"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// OwnRelease is true of the status of a release in progress that Serin began or took over. Such a release still rolls back
// while another controller is said to act: whatever that sign is worth, users must not stay on a broken revision because
// of it.
func OwnRelease(status argov1.RolloutStatus) bool {
	return status.Serin != nil && status.Serin.Release != "" && status.Serin.Release == status.CurrentPodHash &&
		status.StableRS != "" && status.CurrentPodHash != status.StableRS
}

// RollsBack is true of a decision by which a release in progress is aborted, or goes back to the stable revision.
func RollsBack(s Snapshot, d Decision) bool {
	return OwnRelease(s.Status) && (s.Status.Abort || d.Status.Abort || s.Hash == s.Status.StableRS)
}

// LeftTo is the gate of a Rollout that an Argo Rollouts acts on, by a sign of that one: nothing is done, and nothing is
// written, because a status that two write moves a release twice. until is when the sign is over by itself; zero: never.
// Its event is what people are told.
func LeftTo(sign string, until time.Time) release.Gate {
	gate := release.WaitsFor("peer", release.ByPerson, fmt.Sprintf(
		"Argo Rollouts acts on this Rollout (%s), so Serin does not: scale it to zero, or give -adopt-while-peer-runs where the two share Rollouts by namespace or instance id",
		sign))
	gate.Until = until
	gate.Events = []release.Event{{Type: release.Warning, Reason: "LeftToArgoRollouts", Standing: true, Message: gate.Message}}
	return gate
}
