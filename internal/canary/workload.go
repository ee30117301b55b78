package canary

import (
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// Workload is the observed state of the target and its primary.
type Workload struct {
	// Problem is the reason why the target cannot be used, in Flagger's words; empty: none.
	Problem string
	// ScalerProblem is the reason why the autoscaler cannot be used; empty: none.
	ScalerProblem string
	// TargetLimit is the maximum of the autoscaler of the target, in pods; 0: there is none.
	TargetLimit int32
	// PortWarning is a message about a target port that no container declares; empty: one does, or none declares any port.
	PortWarning     string
	Target, Primary WorkloadState
	// Images are the images of the target's containers, in their order; none if the target has no pod template.
	Images []string
	// SameTemplate is true when target and primary have the same template and configuration, except for their names.
	SameTemplate bool
	// Configs are Serin's checksums of the tracked configuration, FlaggerConfigs those that Flagger stores in the status.
	Configs, FlaggerConfigs map[string]string
	// ApexSelectsTarget is true when the Service that clients call selects pods of the target. Once the Canary is initialised, it
	// selects the primary, until something else edits it.
	ApexSelectsTarget bool
	// ApexSelectsPrimary is true when that Service selects pods of the primary.
	ApexSelectsPrimary bool
	// ServicesSelectOther is true when the Service of the primary selects pods of another workload, such as the primary of a former
	// target.
	ServicesSelectOther bool
	// CanaryServiceSelectsOther is true when the Canary is being deleted and the Service of the canary selects pods of another workload,
	// for example because it was deleted, and another Canary with the same Services created it.
	CanaryServiceSelectsOther bool
	// NewestTemplateTime is the time at which the target last received a template that it never had before; zero: unknown.
	NewestTemplateTime time.Time
}

// returnCapacity is the number of pods that the target needs to carry the traffic of the primary; at most the maximum of its autoscaler.
func (w Workload) returnCapacity() int32 {
	if w.TargetLimit > 0 {
		return min(w.Primary.Replicas, w.TargetLimit)
	}
	return w.Primary.Replicas
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

// ReadinessTrack contains the observations of the readiness of a workload by one process. It is lost on a restart, so it may only
// delay a deadline; the status contains what must survive a restart, see flaggerv1.UnreadyWorkload.
type ReadinessTrack struct {
	// UnreadySince is the time since which the process has continuously observed the workload as not ready or not reachable; zero:
	// the workload is ready and reachable.
	UnreadySince time.Time
	// LastProgress is the time at which the process last observed that the workload lost its readiness or made progress; zero:
	// never.
	LastProgress time.Time

	// State, ID, Updated, Ready and Available are the values of the last observation.
	State                     Readiness
	ID                        string
	Updated, Ready, Available int32
}

// Readiness is the state of a workload with regard to its deadline.
type Readiness string

// The states.
const (
	readinessUnknown Readiness = ""
	notReady         Readiness = "not ready"
	notReachable     Readiness = "not reached" // ready, but Kubernetes has published no endpoint
	readyToServe     Readiness = "ready"
)

func (w WorkloadState) readiness() Readiness {
	switch {
	case !w.Found || !w.Ready || w.Replicas == 0:
		return notReady
	case !w.Endpoints.AtLeast(1):
		return notReachable
	default:
		return readyToServe
	}
}

// Observe returns the track after another observation. Progress is defined as Kubernetes defines it for Deployments: more
// updated, ready or available pods than at the previous observation.
func (t ReadinessTrack) Observe(w WorkloadState, now time.Time) ReadinessTrack {
	notInFuture := func(at time.Time) time.Time { // the clock may have been set back
		if at.After(now) {
			return now
		}
		return at
	}
	next := ReadinessTrack{
		UnreadySince: notInFuture(t.UnreadySince), LastProgress: notInFuture(t.LastProgress),
		State: w.readiness(), ID: w.ID, Updated: w.Updated, Ready: w.ReadyPods, Available: w.Available,
	}
	progressed := t.State != readinessUnknown && (w.Updated > t.Updated || w.ReadyPods > t.Ready || w.Available > t.Available)
	switch {
	case next.State == readyToServe:
		next.UnreadySince = time.Time{}
	case next.State != t.State:
		next.UnreadySince = now
	}
	// A copied template is a requested change, even if the response to the copy was lost and the status does not record it.
	templateChanged := w.ID != t.ID
	if progressed || t.State != readinessUnknown && (t.State != next.State || templateChanged) {
		next.LastProgress = now
	}
	return next
}
