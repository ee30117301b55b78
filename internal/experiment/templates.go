package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// The defaults of the API.
const (
	defaultProgressDeadline = 600 * time.Second
	defaultScaleDownDelay   = 30 * time.Second
)

// findTemplateStatus returns the status of a template: a new one if the Experiment has none.
func findTemplateStatus(status argov1.ExperimentStatus, name string) argov1.TemplateStatus {
	for _, t := range status.TemplateStatuses {
		if t.Name == name {
			return t
		}
	}
	return argov1.TemplateStatus{Name: name}
}

// withTemplateStatus returns the status with another status of a template.
func withTemplateStatus(status argov1.ExperimentStatus, t argov1.TemplateStatus) argov1.ExperimentStatus {
	status.TemplateStatuses = slices.Clone(status.TemplateStatuses)
	i := slices.IndexFunc(status.TemplateStatuses, func(old argov1.TemplateStatus) bool { return old.Name == t.Name })
	if i < 0 {
		status.TemplateStatuses = append(status.TemplateStatuses, t)
	} else {
		status.TemplateStatuses[i] = t
	}
	return status
}

func desiredReplicas(t argov1.TemplateSpec) int32 {
	if t.Replicas == nil {
		return 1
	}
	return *t.Replicas
}

// decideTemplates decides about the ReplicaSets, the pods and the Services of all templates.
func decideTemplates(f facts, status argov1.ExperimentStatus) (argov1.ExperimentStatus, outcome) {
	var all outcome
	for _, t := range f.Spec.Templates {
		next, o := decideTemplate(f, t, findTemplateStatus(status, t.Name))
		status, all = withTemplateStatus(status, next), joinOutcomes(all, o)
	}
	return status, all
}

// decideTemplate decides about the ReplicaSet, the pods and the Service of a template.
func decideTemplate(f facts, t argov1.TemplateSpec, status argov1.TemplateStatus) (argov1.TemplateStatus, outcome) {
	observed := f.Templates[t.Name]
	status = withPods(status, observed, f.Now)
	if observed.Problem != "" && !isCompleted(status.Status) {
		return setTemplateStatus(status, argov1.TemplateStatusError, observed.Problem, f.Now)
	}
	desired := desiredPods(f, t, status)
	var creation outcome
	if !observed.Found && !isUnused(f, status) {
		creation = outcome{
			effects: []release.Effect{ReplicaSetExists{t.Name}},
			events:  []release.Event{newEvent(release.Normal, "NewReplicaSetCreated", "Created ReplicaSet "+observed.ReplicaSet)},
		}
	}
	scaling := scalePods(f, t, observed, desired)
	status.ServiceName = serviceName(t, status.ServiceName, observed, desired)
	service := planService(t, observed, desired)
	var assessment outcome
	if !isCompleted(status.Status) {
		status, assessment = assessTemplate(f, t, status, observed)
	}
	return status, joinOutcomes(creation, scaling, service, assessment)
}

// withPods returns the status with the observed pods. A change of their numbers is progress, from which the progress
// deadline starts again.
func withPods(status argov1.TemplateStatus, observed TemplateState, now time.Time) argov1.TemplateStatus {
	before := status
	status.Replicas, status.UpdatedReplicas, status.ReadyReplicas, status.AvailableReplicas = observed.Total, observed.Total, observed.Ready, observed.Available
	if observed.Found {
		status.PodTemplateHash = observed.Hash
	}
	changed := before.Replicas != status.Replicas || before.ReadyReplicas != status.ReadyReplicas || before.AvailableReplicas != status.AvailableReplicas
	if status.LastTransitionTime == nil || changed && !isCompleted(status.Status) {
		status.LastTransitionTime = new(metav1.NewTime(now))
	}
	return status
}

func isCompleted(status argov1.TemplateStatusCode) bool {
	switch status {
	case argov1.TemplateStatusSuccessful, argov1.TemplateStatusFailed, argov1.TemplateStatusError:
		return true
	default: // not completed, and statuses that only a newer controller writes
		return false
	}
}

// isUnused reports whether the pods of a template are no longer needed.
func isUnused(f facts, status argov1.TemplateStatus) bool {
	return f.isEnding || isCompleted(status.Status) || f.isDurationElapsed()
}

// desiredPods returns the desired number of pods of a template.
func desiredPods(f facts, t argov1.TemplateSpec, status argov1.TemplateStatus) int32 {
	if isUnused(f, status) {
		return 0
	}
	return desiredReplicas(t)
}

// scalePods scales the ReplicaSet of a template. It is scaled down after a delay.
func scalePods(f facts, t argov1.TemplateSpec, observed TemplateState, desired int32) outcome {
	delay, deadline := scaleDownDelay(f.Spec), observed.ScaleDownDeadline
	switch {
	case !observed.Found, observed.Desired == desired:
		return outcome{}
	// The deadline is an annotation of the ReplicaSet, so that it survives a restart of Serin. A deadline later than the
	// delay permits means that a clock was set back.
	case desired == 0 && delay > 0 && (deadline.IsZero() || deadline.After(f.Now.Add(delay))):
		at := f.Now.Add(delay)
		return outcome{effects: []release.Effect{ScaleDownDeadlineSet{t.Name, at}}, wake: at}
	case desired == 0 && delay > 0 && f.Now.Before(deadline):
		gate := release.NewTimedGate("delay/"+t.Name, deadline, "pods retained until "+deadline.UTC().Format(time.RFC3339))
		return outcome{gates: release.Gates{gate}, wake: deadline}
	default:
		return outcome{
			effects: []release.Effect{ReplicaSetScaled{t.Name, desired}},
			events:  []release.Event{newEvent(release.Normal, "ScalingReplicaSet", scaledText(observed, desired))},
		}
	}
}

func scaledText(observed TemplateState, desired int32) string {
	direction := "up"
	if desired < observed.Desired {
		direction = "down"
	}
	return fmt.Sprintf("Scaled %s ReplicaSet %s from %d to %d", direction, observed.ReplicaSet, observed.Desired, desired)
}

func scaleDownDelay(spec argov1.ExperimentSpec) time.Duration {
	if spec.ScaleDownDelaySeconds == nil {
		return defaultScaleDownDelay
	}
	return time.Duration(*spec.ScaleDownDelaySeconds) * time.Second
}

// requestedService returns the name of the Service that a template requests; empty: none.
func requestedService(t argov1.TemplateSpec, observed TemplateState) string {
	if t.Service == nil || !hasPorts(t) {
		return ""
	}
	return cmp.Or(t.Service.Name, observed.ReplicaSet)
}

// isServiceNeeded reports whether a template has a Service now: it requests one, and is to have pods.
func isServiceNeeded(t argov1.TemplateSpec, observed TemplateState, desired int32) bool {
	return requestedService(t, observed) != "" && observed.Found && desired > 0
}

// isServiceUnused reports whether the Service of a template is to be deleted: after its pods.
func isServiceUnused(observed TemplateState, desired int32) bool {
	return observed.Service != "" && desired == 0 && observed.Desired == 0 && observed.Available == 0
}

// serviceName returns the name of the Service for the status of a template.
func serviceName(t argov1.TemplateSpec, recorded string, observed TemplateState, desired int32) string {
	switch {
	case isServiceNeeded(t, observed, desired):
		return requestedService(t, observed)
	case isServiceUnused(observed, desired):
		return ""
	default:
		return recorded
	}
}

// planService creates the Service of a template while it is to have pods, and deletes the Service after them.
func planService(t argov1.TemplateSpec, observed TemplateState, desired int32) outcome {
	name := requestedService(t, observed)
	switch {
	case isServiceNeeded(t, observed, desired) && observed.Service != name:
		return outcome{effects: []release.Effect{ServiceExists{t.Name, name}}}
	case isServiceUnused(observed, desired):
		return outcome{effects: []release.Effect{ServiceDeleted{t.Name, observed.Service}}}
	default:
		return outcome{}
	}
}

func hasPorts(t argov1.TemplateSpec) bool {
	return slices.ContainsFunc(t.Template.Spec.Containers, func(c corev1.Container) bool { return len(c.Ports) > 0 })
}

// assessTemplate returns the status of a template that is not completed.
func assessTemplate(f facts, t argov1.TemplateSpec, status argov1.TemplateStatus, observed TemplateState) (argov1.TemplateStatus, outcome) {
	switch {
	case f.isEnding, f.isDurationElapsed():
		return setTemplateStatus(status, argov1.TemplateStatusSuccessful, "", f.Now)
	case observed.Found && observed.Desired == desiredReplicas(t) && observed.Available == desiredReplicas(t):
		return setTemplateStatus(status, argov1.TemplateStatusRunning, "", f.Now)
	}
	status, o := setTemplateStatus(status, argov1.TemplateStatusProgressing, "", f.Now)
	deadline := status.LastTransitionTime.Add(progressDeadline(f.Spec))
	if !f.Now.Before(deadline) {
		text := fmt.Sprintf("Template '%s' exceeded its progressDeadlineSeconds (%d)", t.Name, int(progressDeadline(f.Spec)/time.Second))
		failed, failure := setTemplateStatus(status, argov1.TemplateStatusFailed, text, f.Now)
		return failed, joinOutcomes(o, failure)
	}
	gate := release.NewWaitingGate("available/"+t.Name, release.ByCluster, fmt.Sprintf("%d of %d pods available", observed.Available, desiredReplicas(t)))
	return status, joinOutcomes(o, outcome{gates: release.Gates{gate}, wake: deadline})
}

func progressDeadline(spec argov1.ExperimentSpec) time.Duration {
	if spec.ProgressDeadlineSeconds == nil {
		return defaultProgressDeadline
	}
	return time.Duration(*spec.ProgressDeadlineSeconds) * time.Second
}

// setTemplateStatus returns another status of a template, with an event if it changes.
func setTemplateStatus(status argov1.TemplateStatus, code argov1.TemplateStatusCode, message string, now time.Time) (argov1.TemplateStatus, outcome) {
	if status.Status == code {
		return status, outcome{}
	}
	status, event := transitionTemplate(status, code, message, now)
	return status, outcome{events: []release.Event{event}, wake: now}
}

// transitionTemplate returns another status of a template, and the event about it.
func transitionTemplate(status argov1.TemplateStatus, code argov1.TemplateStatusCode, message string, now time.Time) (argov1.TemplateStatus, release.Event) {
	kind := release.Normal
	if code == argov1.TemplateStatusFailed || code == argov1.TemplateStatusError {
		kind = release.Warning
	}
	text := fmt.Sprintf("Template '%s' transitioned from %s -> %s", status.Name, status.Status, code)
	if message != "" {
		text += ": " + message
	}
	status.Status, status.Message, status.LastTransitionTime = code, message, new(metav1.NewTime(now))
	return status, newEvent(kind, "Template"+string(code), text)
}

// ScalingFailedEvent reports that the pods of a template could not be scaled. It is repeated until they are.
func ScalingFailedEvent(replicaSet string, from, to int32, cause error) release.Event {
	direction := "up"
	if to < from {
		direction = "down"
	}
	return release.Event{
		Type: release.Warning, Reason: "ReplicaSetUpdateError", Persistent: true,
		Message: fmt.Sprintf("Failed to scale %s %s: %v", replicaSet, direction, cause),
	}
}

// RecordTemplateRejected records in a decided status that the API server rejects the ReplicaSet or the Service of a template.
// Only a change of the template can help, so the Experiment fails.
func RecordTemplateRejected(status *argov1.ExperimentStatus, template, why string, now time.Time) []release.Event {
	old := findTemplateStatus(*status, template)
	if !slices.ContainsFunc(status.TemplateStatuses, func(t argov1.TemplateStatus) bool { return t.Name == template }) || isCompleted(old.Status) {
		return nil
	}
	failed, event := transitionTemplate(old, argov1.TemplateStatusError, why, now)
	*status = withTemplateStatus(*status, failed)
	return []release.Event{event}
}
