package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot is all that is known about a Canary at one moment.
type Snapshot struct {
	Now        time.Time
	UID        string
	Generation int64
	Plan       Plan
	Status     flaggerv1.CanaryStatus
	// Deleting is true once the user deleted the Canary; Finalizer while ours holds it.
	Deleting, Finalizer bool
	// TargetConflict is why Serin may not act on this Canary at all, although its plan is fine: an older Canary has the same
	// target. One sentence; empty: none.
	TargetConflict string
	// OtherController is another controller that acts on this Canary.
	OtherController OtherController
	// MissingReferences are references that lead nowhere, one sentence each: metric templates and their secrets.
	MissingReferences []string
	// Command of a person, as verb@run; empty: none.
	Command  string
	Workload Workload
	Route    Route
	Answers  release.Answers
	// Queue is whether this release may start beside those that move; nil where their number is not limited.
	Queue *release.QueueState
}

// OtherController is another controller that acts on a Canary: two at once would undo each other's work.
type OtherController struct {
	// Sign is how it was noticed, for the middle of a sentence; empty: there is none.
	Sign string
	// Until is when that sign expires; zero: never.
	Until time.Time
}

// Acts is true where there is one.
func (p OtherController) Acts() bool { return p.Sign != "" }

// Workload is what was seen of the target and its primary.
type Workload struct {
	// Problem is why the target cannot be used, in the words of the API; empty: none.
	Problem string
	// ScalerProblem is why the autoscaler cannot be used; empty: none.
	ScalerProblem   string
	Target, Primary WorkloadState
	// SameTemplate is true when target and primary have the same template and configuration, their names apart.
	SameTemplate bool
	// Configs are our checksums of the tracked configuration, PeerConfigs those of the API's status.
	Configs, FlaggerConfigs map[string]string
	// NewestTemplate is when the target last got a template that it never had before; zero: unknown.
	NewestTemplate time.Time
}

// WorkloadState is one of the two workloads.
type WorkloadState struct {
	Found bool
	// Revision is ours, PeerHash the one that the API's status holds, ID the annotation flagger-id of the template.
	Revision, FlaggerHash, ID string
	Replicas                  int32 // asked for
	Total, Available          int32 // there
	Updated, ReadyPods        int32 // of the newest template; ready, but perhaps not for long enough to be available
	Ready                     bool
	// RequiredPods is how many of them its threshold asks for, once it is ready.
	RequiredPods int32
	// Exceeded is true when Kubernetes itself gave the rollout up.
	Exceeded bool
	// Message says what is missing for being ready.
	Message string
	// PodProblem is what keeps its pods from running, where that was looked up: ImagePullBackOff and its like.
	PodProblem string
	// Endpoints are those of its Service.
	Endpoints release.Endpoints
	// Track is what this process has seen of its readiness so far.
	Track ReadinessTrack
}

// canServe is true when pods of the copy can answer requests.
func (c WorkloadState) canServe() bool { return c.Found && c.Available > 0 }

// isScaledToZero is true when the copy neither has pods nor asks for any.
func (c WorkloadState) isScaledToZero() bool { return !c.Found || c.Replicas == 0 && c.Total == 0 }

// Confirmation is whether the router says that it serves what was written.
type Confirmation string

// The confirmations. Many routers cannot tell.
const (
	Confirmed   Confirmation = "yes"
	Unconfirmed Confirmation = "no"
	CannotTell  Confirmation = "cannot-tell"
)

// Route is what was seen of the traffic.
type Route struct {
	// Found is false when the route does not exist yet.
	Found bool
	// Problem is why it cannot be read; empty: none.
	Problem  string
	Canary   int // live weight, 0 to 100
	Mirrored bool
	Confirmation
	// Reason says why it is not confirmed.
	Reason string
}

// serin is the additive status, never nil.
func (s *Snapshot) serin() flaggerv1.SerinStatus {
	if s.Status.Serin == nil {
		return flaggerv1.SerinStatus{}
	}
	return *s.Status.Serin
}

// routeReadable reports whether the route could be read.
func (s *Snapshot) routeReadable() bool {
	return s.Plan.HasRouter && s.Route.Found && s.Route.Problem == ""
}

// liveWeight is the current weight of the canary: that of the router where there is one.
func (s *Snapshot) liveWeight() int {
	switch {
	case !s.Plan.HasRouter:
		return 0
	case s.routeReadable():
		return s.Route.Canary
	default:
		return s.Status.CanaryWeight
	}
}

// canaryHasTraffic reports whether the canary receives, or may still receive, requests of users.
func (s *Snapshot) canaryHasTraffic() bool {
	return s.Plan.HasRouter && (s.liveWeight() > 0 || s.Status.CanaryWeight > 0 || s.Route.Mirrored)
}

// primaryUnpromoted reports whether the primary runs a revision that was never promoted, because a promotion failed: the target
// serves until the next revision repairs the primary.
func (s *Snapshot) primaryUnpromoted() bool {
	return s.serin().Promoted == nothing
}

// primaryCanServe reports whether the primary has pods that may serve. After a failed promotion one pod is not enough: the primary
// must be ready, or have at least as many available pods as the canary, which has the traffic.
func (s *Snapshot) primaryCanServe() bool {
	primary := s.Workload.Primary
	return primary.canServe() && (primary.Ready || !s.primaryUnpromoted() || primary.Available >= s.Workload.Target.Available)
}

// primaryReachable reports whether the primary can serve and requests would reach it.
func (s *Snapshot) primaryReachable() bool {
	return s.primaryCanServe() && s.Workload.Primary.Endpoints.AtLeast(1)
}

// canaryReachable reports whether requests to the target would be answered.
func (s *Snapshot) canaryReachable() bool {
	return s.Workload.Target.canServe() && s.Workload.Target.Endpoints.AtLeast(1)
}

// primaryHasTemplate reports whether the primary has the template of this run: the promotion was decided and has begun.
func (s *Snapshot) primaryHasTemplate() bool {
	return s.Workload.Primary.Found && s.Workload.Primary.ID == s.promotionCopyID()
}
