package eject

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/utils/ptr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// The steps for a Rollout, in their order, in addition to Delete and AwaitGone. The pods of a Deployment join those of the Rollout
// behind the Services, before the pods of the Rollout are deleted with it.
const (
	// KeepWorkload sets scaleDown of spec.workloadRef to never, so that the controller does not scale the Deployment down.
	KeepWorkload Action = "keep-workload"
	// CreateDeployment creates a Deployment with the template of the Rollout.
	CreateDeployment Action = "create-deployment"
	// ScaleDeployment scales the Deployment to the replicas of the Rollout.
	ScaleDeployment Action = "scale-deployment"
	// AwaitScaleDown waits until only the stable revision has pods: the Services will select all pods.
	AwaitScaleDown Action = "await-scale-down"
	// AwaitDeployment waits until the pods of the Deployment are available.
	AwaitDeployment Action = "await-deployment"
	// ReleaseServices removes Services and routers from the strategy.
	ReleaseServices Action = "release-services"
	// AwaitServices waits until the controller has restored Services and routes.
	AwaitServices Action = "await-services"
	// AwaitEndpoints waits until the pods of the Deployment are endpoints of the Services.
	AwaitEndpoints Action = "await-endpoints"
)

// Rollout is the observation of a Rollout that is to be ejected.
type Rollout struct {
	explain.Rollout

	Controller explain.Controller
	// ControllerSpecified is true if the user specified the flags of the controller, which implies that it runs.
	ControllerSpecified bool
	// Deployment is the Deployment that is to serve.
	Deployment Deployment
	// MissingEndpoints describes the first Service that does not have all pods as endpoints yet; empty: there is none.
	MissingEndpoints string
	// LostServices are the names of the Services that select pods of the Rollout, and do not select those of the Deployment.
	LostServices []string
	// Scalers are the names of the HorizontalPodAutoscalers that scale the Rollout.
	Scalers []string

	gone bool
}

// AvailablePods returns the numbers of available and of desired pods of the application, whether they belong to the Rollout or to the
// Deployment.
func (r *Rollout) AvailablePods() (available, desired int32) {
	available = r.Deployment.Available
	for _, rs := range r.Snapshot.ReplicaSets {
		available += rs.Available
	}
	return available, ptr.Deref(r.Snapshot.Spec.Replicas, 1)
}

// Deployment is the observed state of a Deployment.
type Deployment struct {
	Name  string
	Found bool
	// PodLabels are the labels of its pods; if it does not exist yet, those that they will have.
	PodLabels map[string]string
	// Foreign is true if the Deployment was neither referenced by the Rollout nor created by an ejection of its stable revision.
	Foreign bool
	// Replicas is the desired number of pods. Ready is true if all of them are available and have the current template.
	Replicas, Available int32
	Ready               bool
}

// replicas is the number of pods that the Deployment needs.
func (r *Rollout) replicas() int32 {
	if r.Snapshot.Spec.Replicas == nil {
		return 1
	}
	return *r.Snapshot.Spec.Replicas
}

// refersToDeployment reports whether the template is that of a Deployment.
func (r *Rollout) refersToDeployment() bool {
	ref := r.Object.Spec.WorkloadRef
	return ref != nil && ref.Kind == "Deployment"
}

// hasManagedServices reports whether the controller has not restored all Services and routes.
func (r *Rollout) hasManagedServices() bool {
	for _, service := range r.Snapshot.Services {
		if service.ManagedBy == r.Object.Name {
			return true
		}
	}
	return r.Snapshot.Route.HasStaleRouters
}

// StrategyWithoutServices returns the merge patch of a strategy to one that names no Services and no routers. It is nil if there
// is nothing to change.
func StrategyWithoutServices(strategy map[string]any) map[string]any {
	canary := map[string]any{}
	fields, _ := strategy["canary"].(map[string]any)
	for field := range fields {
		if field != "stableMetadata" { // Services may select the pods by it, and the Deployment may be created later
			canary[field] = nil
		}
	}
	_, isBlueGreen := strategy["blueGreen"]
	if !isBlueGreen && len(canary) == 0 {
		return nil
	}
	return map[string]any{"blueGreen": nil, "canary": canary}
}

// earlierRevision returns the name of a ReplicaSet other than the stable one that has pods; empty: there is none.
func (r *Rollout) earlierRevision() string {
	for _, rs := range r.Snapshot.ReplicaSets {
		if rs.Hash != r.Snapshot.Status.StableRS && rs.Replicas > 0 {
			return rs.Name
		}
	}
	return ""
}

// namesServices reports whether the strategy is other than the empty canary strategy.
func (r *Rollout) namesServices() bool {
	strategy := r.Object.Spec.Strategy
	c := strategy.Canary
	return strategy.BlueGreen != nil || c != nil &&
		(c.StableService != "" || c.CanaryService != "" || c.PingPong != nil || c.TrafficRouting != nil || len(c.Steps) > 0)
}

// routesByProxy reports whether the router knows only pods that its objects select when they start: those of the Deployment must
// be selected before they exist.
func (r *Rollout) routesByProxy() bool {
	c := r.Object.Spec.Strategy.Canary
	return c != nil && c.TrafficRouting != nil && c.TrafficRouting.AppMesh != nil
}

// releaseServices returns the steps that end with ReleaseServices.
func (r *Rollout) releaseServices() Step {
	name, deployment := r.Object.Name, "Deployment "+r.Deployment.Name
	if earlier := r.earlierRevision(); earlier != "" {
		return Step{Action: AwaitScaleDown, Waits: true, Text: "waiting until the pods of an earlier revision are removed: " + earlier}
	}
	selecting := "the Services"
	if r.routesByProxy() {
		selecting = "the Services and the VirtualNode of the stable pods"
	}
	return Step{Action: ReleaseServices, Text: fmt.Sprintf("remove Services, routers and steps from the strategy of Rollout %s: Serin makes %s select the pods of %s too", name, selecting, deployment)}
}

// Next implements Release.
func (r *Rollout) Next() (Step, error) {
	name, deployment := r.Object.Name, "Deployment "+r.Deployment.Name
	if r.Object.DeletionTimestamp != nil {
		return Step{Action: AwaitGone, Waits: true, Text: "waiting until Rollout " + name + " is deleted"}, nil
	}
	if problem := r.problem(); problem != "" {
		return Step{}, Refuse(r.Key(), "%s", problem)
	}
	ref := r.Object.Spec.WorkloadRef
	switch {
	case r.refersToDeployment() && ref.ScaleDown != "" && ref.ScaleDown != argov1.ScaleDownNever:
		return Step{Action: KeepWorkload, Text: fmt.Sprintf("set spec.workloadRef.scaleDown of Rollout %s to never, so that %s is not scaled down", name, deployment)}, nil
	case r.routesByProxy():
		return r.releaseServices(), nil
	case !r.namesServices() && r.hasManagedServices():
		return Step{Action: AwaitServices, Waits: true, Text: "waiting until Serin has restored the Services and routes of Rollout " + name}, nil
	case !r.Deployment.Found:
		return Step{Action: CreateDeployment, Text: fmt.Sprintf("create %s with %s and the template of Rollout %s", deployment, release.Count(int(r.replicas()), "pod"), name)}, nil
	case r.Deployment.Replicas < r.replicas():
		return Step{Action: ScaleDeployment, Text: fmt.Sprintf("scale %s to %s", deployment, release.Count(int(r.replicas()), "pod"))}, nil
	case !r.Deployment.Ready:
		return Step{Action: AwaitDeployment, Waits: true, Text: fmt.Sprintf("waiting for the pods of %s: %d of %d available", deployment, r.Deployment.Available, r.Deployment.Replicas)}, nil
	case r.namesServices():
		return r.releaseServices(), nil
	case r.MissingEndpoints != "":
		return Step{Action: AwaitEndpoints, Waits: true, Text: "waiting for endpoints: " + r.MissingEndpoints}, nil
	default:
		return Step{Action: Delete, Text: fmt.Sprintf("delete Rollout %s with its pods", name)}, nil
	}
}

// problem returns the reason why the Rollout cannot be ejected in its state; empty: it can.
func (r *Rollout) problem() string {
	s := r.Snapshot
	ref := r.Object.Spec.WorkloadRef
	arguments := "rollout/" + r.Object.Name + " -n " + r.Object.Namespace
	if problem := cmp.Or(controllerProblem(r.Controller, r.OtherController, r.ControllerSpecified), s.ValidationError); problem != "" {
		return problem
	}
	stable := s.Status.StableRS
	switch {
	case ref != nil && !r.refersToDeployment():
		return fmt.Sprintf("its template is that of %s %s: follow docs/leaving.md", ref.Kind, ref.Name)
	case s.Spec.Paused:
		return "spec.paused is true: run serin resume " + arguments
	case stable == "" || s.Status.CurrentPodHash != stable || s.Hash != stable:
		return fmt.Sprintf("a release is in progress or was aborted (%s): complete it, see serin why %s; or deploy the version of the stable revision again",
			cmp.Or(string(s.Status.Phase), "new"), arguments)
	case r.Deployment.Foreign:
		return fmt.Sprintf("Deployment %s exists and was not created for its stable revision: delete it, or rename it", r.Deployment.Name)
	case len(r.LostServices) > 0:
		return fmt.Sprintf("Services would have no pods, because they select its pods and not those of Deployment %s (%s): add the labels that they select to the template of the Deployment, or change their selectors",
			r.Deployment.Name, strings.Join(r.LostServices, ", "))
	default:
		return ""
	}
}

func (r *Rollout) after(step Step) Release {
	next := *r
	next.Object = r.Object.DeepCopy()
	switch step.Action {
	case KeepWorkload:
		next.Object.Spec.WorkloadRef.ScaleDown = argov1.ScaleDownNever
	case CreateDeployment:
		next.Deployment.Found, next.Deployment.Replicas, next.Deployment.Ready = true, r.replicas(), false
	case ScaleDeployment:
		next.Deployment.Replicas, next.Deployment.Ready = r.replicas(), false
	case AwaitDeployment:
		next.Deployment.Ready = true
	case AwaitScaleDown:
		next.Snapshot.ReplicaSets = nil
	case ReleaseServices:
		next.Object.Spec.Strategy = argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{}}
	case AwaitServices:
		next.Snapshot.Services, next.Snapshot.Route.HasStaleRouters = nil, false
	case AwaitEndpoints:
		next.MissingEndpoints = ""
	case Delete, AwaitGone:
		next.gone = true
	default: // a Rollout has no other steps
	}
	return &next
}

func (r *Rollout) isGone() bool { return r.gone }

// Summary implements Release.
func (r *Rollout) Summary() []string {
	out := []string{fmt.Sprintf("Deployment %s serves without Serin.", r.Deployment.Name)}
	for _, scaler := range r.Scalers {
		out = append(out, fmt.Sprintf("HorizontalPodAutoscaler %s scales a Rollout that no longer exists: set its scaleTargetRef to Deployment %s.", scaler, r.Deployment.Name))
	}
	if !r.refersToDeployment() {
		return append(out, fmt.Sprintf("Replace Rollout %s in your manifests by Deployment %s.", r.Object.Name, r.Deployment.Name))
	}
	return append(out, fmt.Sprintf("Remove Rollout %s from your manifests, and set the replicas of Deployment %s there.", r.Object.Name, r.Deployment.Name))
}
