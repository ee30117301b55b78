package rollout

import (
	"fmt"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

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
