package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot is the observed state of a Canary at one moment. Its methods are facts derived from it: about the traffic
// (traffic.go), the primary (primary.go), the revisions (revision.go), an unfinished promotion (unfinished.go), a rollback
// (rollback.go, returning.go), the deadlines (deadline.go) and the IDs of a run (queries.go). Gates, events, queries and effects
// are built by functions that take it as a parameter.
type Snapshot struct {
	Now        time.Time
	UID        string
	Generation int64
	Plan       Plan
	Status     flaggerv1.CanaryStatus
	// Deleting is true once the user deleted the Canary; Finalizer while it has Serin's finalizer.
	Deleting, Finalizer bool
	// TargetConflict is the message for the user if Serin must not act on this Canary although its plan is valid, because an older
	// Canary has the same target; empty: no conflict.
	TargetConflict string
	// OtherController is another controller that acts on this Canary.
	OtherController OtherController
	// MissingReferences are messages about referenced metric templates and Secrets that do not exist.
	MissingReferences []string
	// Command is the user's command, as <verb>@<run>; empty: none.
	Command  string
	Workload Workload
	Route    Route
	Answers  release.Answers
	// Queue contains whether this release may start in addition to those in progress; nil if their number is not limited.
	Queue *release.QueueState
}

// OtherController is a Flagger that acts on a Canary. Serin must not act on it at the same time: the two would revert each
// other's changes.
type OtherController struct {
	// Sign is the evidence for it, worded for the middle of a sentence; empty: there is no other controller.
	Sign string
	// Until is when that evidence expires; zero: never.
	Until time.Time
}

// Acts reports whether there is another controller.
func (o OtherController) Acts() bool { return o.Sign != "" }

// Workload is the observed state of the target and its primary.
type Workload struct {
	// Problem is the reason why the target cannot be used, in Flagger's words; empty: none.
	Problem string
	// ScalerProblem is the reason why the autoscaler cannot be used; empty: none.
	ScalerProblem   string
	Target, Primary WorkloadState
	// SameTemplate is true when target and primary have the same template and configuration, except for their names.
	SameTemplate bool
	// Configs are Serin's checksums of the tracked configuration, FlaggerConfigs those that Flagger stores in the status.
	Configs, FlaggerConfigs map[string]string
	// NewestTemplateTime is the time at which the target last received a template that it never had before; zero: unknown.
	NewestTemplateTime time.Time
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
	// RequiredPods is the number of available pods that the readiness threshold requires, once the workload is ready.
	RequiredPods int32
	// DeadlineExceeded is true when Kubernetes reports that the progress deadline of the workload is exceeded.
	DeadlineExceeded bool
	// Message explains why the workload is not ready.
	Message string
	// PodProblem is the reason why its pods do not run, for example ImagePullBackOff; empty: there is none, or it has not been
	// determined.
	PodProblem string
	// Endpoints are those of its Service.
	Endpoints release.Endpoints
	// Track contains the observations of its readiness by this process so far.
	Track ReadinessTrack
}

// canServe reports whether the workload has pods that can serve requests.
func (w WorkloadState) canServe() bool { return w.Found && w.Available > 0 }

// servingPods is the number of pods that requests reach.
func (w WorkloadState) servingPods() int32 {
	if w.Endpoints.Unknown != "" {
		return w.Available
	}
	return min(w.Available, w.Endpoints.Ready)
}

// isReachable reports whether the workload can serve and requests would reach it.
func (w WorkloadState) isReachable() bool { return w.canServe() && w.Endpoints.AtLeast(1) }

// isScaledToZero reports whether the workload has no pods and desires none.
func (w WorkloadState) isScaledToZero() bool { return !w.Found || w.Replicas == 0 && w.Total == 0 }

// Confirmation reports whether the router serves the written route.
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
	// Problem is the reason why it cannot be read; empty: none.
	Problem  string
	Canary   int // settle weight, 0 to 100
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
