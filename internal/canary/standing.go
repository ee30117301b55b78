package canary

import (
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// standing are the effects that hold in every pass once the Canary is initialised.
func standing(s Snapshot, more ...release.Effect) []release.Effect {
	effects := make([]release.Effect, 0, 8)
	if s.Plan.Revert != s.Finalizer {
		effects = append(effects, HasFinalizer{Held: s.Plan.Revert})
	}
	if !s.Workload.Primary.Found {
		effects = append(effects, s.primaryAgain())
	}
	effects = append(effects, ServicesExist{Apex: true})
	if s.Workload.Primary.Found {
		effects = append(effects, ScalerExists{})
	}
	if s.Plan.Routed {
		stands := RouteStands{Canary: s.live(), Mirror: s.Route.Mirrored}
		rests := !Moves(s.Status.Phase) && !s.primaryUnpromoted()
		if !s.readable() && (s.drainStarted() || rests || !s.canaryReachable()) {
			stands.Canary = 0 // a new route sends no traffic to a workload that is scaled down, idle, or unreachable
		}
		effects = append(effects, stands)
	}
	return append(effects, more...)
}

// primaryAgain creates a deleted primary again, with what it is meant to run: the promoted revision, or the
// one that is being promoted. After a promotion that failed that is what the target serves with.
func (s *Snapshot) primaryAgain() release.Effect {
	revision := s.Workload.Target.Revision
	promoting := s.Status.Phase == flaggerv1.CanaryPhasePromoting || s.Status.Phase == flaggerv1.CanaryPhaseFinalising
	switch {
	case promoting && s.serin().Intent == "" && revision == s.pinnedRevision():
		return PrimaryExists{Revision: revision, ID: s.copyID()}
	case !promoting && (revision == s.promotedRevision() || s.primaryUnpromoted() && (s.live() > 0 || !s.Plan.Routed)):
		return PrimaryExists{Revision: revision, ID: s.id("recreated", revision)}
	case promoting && s.serin().Intent == "":
		return s.recalled(s.pinnedRevision(), s.Status.LastAppliedSpec, "")
	case s.primaryUnpromoted():
		return s.recalled("", "", "") // nothing that it ran was promoted
	default:
		return s.recalled(s.promotedRevision(), s.Status.LastPromotedSpec, s.copyID()) // it may have had the copy of this run
	}
}

// recalled makes the primary again from its history. Of a revision that another controller took up only the hash is known.
func (s *Snapshot) recalled(revision, hash, undone string) release.Effect {
	id := s.id("recalled", revision)
	if strings.HasPrefix(revision, peer) {
		revision = ""
	}
	return PrimaryRecalled{Revision: revision, PeerHash: hash, Undone: undone, ID: id}
}

// id names a copy of the template for one purpose.
func (s *Snapshot) id(purpose, revision string) string {
	return identity(s.UID, purpose, revision)
}
