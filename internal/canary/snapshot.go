package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot is the observed state of a Canary at one moment. Its methods are facts derived from it; gates, events, queries and
// effects are built by functions that take it as a parameter.
type Snapshot struct {
	Now        time.Time
	UID        string
	Generation int64
	Plan       Plan
	Status     flaggerv1.CanaryStatus
	// Deleting is true once the user deleted the Canary; Finalizer while it has Serin's finalizer.
	Deleting, Finalizer bool
	// TargetConflict is why Serin must not act on this Canary although its plan is valid: an older Canary has the same target.
	// It is the message for the user; empty: no conflict.
	TargetConflict string
	// OtherController is another controller that acts on this Canary.
	OtherController OtherController
	// MissingReferences are messages about referenced metric templates and Secrets that do not exist.
	MissingReferences []string
	// Command is the command of a user, as verb@run; empty: none.
	Command  string
	Workload Workload
	Route    Route
	Answers  release.Answers
	// Queue is whether this release may start beside those in progress; nil where their number is not limited.
	Queue *release.QueueState
}

// OtherController is another controller that acts on a Canary: two controllers at once would revert each other's changes.
type OtherController struct {
	// Sign is the evidence for it, worded for the middle of a sentence; empty: there is no other controller.
	Sign string
	// Until is when that evidence expires; zero: never.
	Until time.Time
}

// Acts reports whether there is one.
func (p OtherController) Acts() bool { return p.Sign != "" }

// Workload is the observed state of the target and its primary.
type Workload struct {
	// Problem is why the target cannot be used, in Flagger's words; empty: none.
	Problem string
	// ScalerProblem is why the autoscaler cannot be used; empty: none.
	ScalerProblem   string
	Target, Primary WorkloadState
	// SameTemplate is true when target and primary have the same template and configuration, except for their names.
	SameTemplate bool
	// Configs are Serin's checksums of the tracked configuration, FlaggerConfigs those that Flagger stores in the status.
	Configs, FlaggerConfigs map[string]string
	// NewestTemplate is when the target last received a template that it never had before; zero: unknown.
	NewestTemplate time.Time
}

// WorkloadState is the observed state of one of the two workloads.
type WorkloadState struct {
	Found bool
	// Revision is Serin's hash, FlaggerHash the one that Flagger stores in the status, ID the annotation flagger-id of the template.
	Revision, FlaggerHash, ID string
	Replicas                  int32 // desired
	Total, Available          int32 // observed
	Updated, ReadyPods        int32 // of the newest template; ready, but perhaps not for long enough to be available
	Ready                     bool
	// RequiredPods is how many available pods the readiness threshold requires, once the workload is ready.
	RequiredPods int32
	// Exceeded is true when Kubernetes reports that the progress deadline of the workload is exceeded.
	Exceeded bool
	// Message explains why the workload is not ready.
	Message string
	// PodProblem is what prevents its pods from running, where that was determined: ImagePullBackOff, for example.
	PodProblem string
	// Endpoints are those of its Service.
	Endpoints release.Endpoints
	// Track is what this process has observed of its readiness so far.
	Track ReadinessTrack
}

// canServe reports whether the workload has pods that can serve requests.
func (c WorkloadState) canServe() bool { return c.Found && c.Available > 0 }

// servingPods is the number of pods that requests reach.
func (c WorkloadState) servingPods() int32 {
	if c.Endpoints.Unknown != "" {
		return c.Available
	}
	return min(c.Available, c.Endpoints.Ready)
}

// isReachable reports whether the workload can serve and requests would reach it.
func (c WorkloadState) isReachable() bool { return c.canServe() && c.Endpoints.AtLeast(1) }

// isScaledToZero reports whether the workload has no pods and desires none.
func (c WorkloadState) isScaledToZero() bool { return !c.Found || c.Replicas == 0 && c.Total == 0 }

// Confirmation is whether the router reports that it serves the written route.
type Confirmation string

// The confirmations. Many routers report nothing.
const (
	Confirmed   Confirmation = "yes"
	Unconfirmed Confirmation = "no"
	CannotTell  Confirmation = "cannot-tell"
)

// Route is the observed route.
type Route struct {
	// Found is false when the route does not exist yet.
	Found bool
	// Problem is why it cannot be read; empty: none.
	Problem  string
	Canary   int // live weight, 0 to 100
	Mirrored bool
	Confirmation
	// Reason explains why the route is not confirmed.
	Reason string
}

// serin returns status.serin; the zero value if there is none.
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
	return s.serin().Promoted == noRevision
}

// primaryCanServe reports whether the primary can serve the traffic. After a failed promotion one pod is not enough: the primary
// must be ready, or have at least as many available pods as the canary, which has the traffic.
func (s *Snapshot) primaryCanServe() bool {
	primary := s.Workload.Primary
	return primary.canServe() && (primary.Ready || !s.primaryUnpromoted() || primary.Available >= s.Workload.Target.Available)
}

// primaryReachable reports whether the primary can serve and requests would reach it.
func (s *Snapshot) primaryReachable() bool {
	return s.primaryCanServe() && s.Workload.Primary.Endpoints.AtLeast(1)
}

// primaryHasTemplate reports whether the primary has the template of this run: the promotion was decided and has begun.
func (s *Snapshot) primaryHasTemplate() bool {
	return s.Workload.Primary.Found && s.Workload.Primary.ID == s.promotionCopyID()
}
