package experiment

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// The defaults of the API.
const (
	defaultProgressDeadline = 600 * time.Second
	defaultScaleDownDelay   = 30 * time.Second
)

// templateStatus returns the status of a template. It is created if it does not exist.
func (e *decisionBuilder) templateStatus(name string) *argov1.TemplateStatus {
	all := &e.decision.Status.TemplateStatuses
	i := slices.IndexFunc(*all, func(t argov1.TemplateStatus) bool { return t.Name == name })
	if i < 0 {
		i = len(*all)
		*all = append(*all, argov1.TemplateStatus{Name: name})
	}
	return &(*all)[i]
}

func desiredReplicas(t argov1.TemplateSpec) int32 {
	if t.Replicas == nil {
		return 1
	}
	return *t.Replicas
}

// reconcileTemplate decides about the ReplicaSet, the pods and the Service of a template.
func (e *decisionBuilder) reconcileTemplate(t argov1.TemplateSpec) {
	status, now := e.templateStatus(t.Name), e.snapshot.Templates[t.Name]
	recordPods(status, now, e.snapshot.Now)
	if now.Problem != "" && !isCompleted(status.Status) {
		e.setTemplateStatus(status, argov1.TemplateStatusError, now.Problem)
		return
	}
	wanted := e.desiredPods(t, *status)
	if !now.Found && !e.isUnused(*status) {
		e.addEffect(ReplicaSetExists{t.Name})
		e.addEvent(release.Normal, "NewReplicaSetCreated", "Created ReplicaSet "+now.ReplicaSet)
	}
	e.scalePods(t, now, wanted)
	e.reconcileService(t, status, now, wanted)
	if !isCompleted(status.Status) {
		e.assessTemplate(t, status, now)
	}
}

// recordPods records the observed pods in the status. A change of their numbers is progress, from which the progress
// deadline starts again.
func recordPods(status *argov1.TemplateStatus, now TemplateState, at time.Time) {
	before := *status
	status.Replicas, status.UpdatedReplicas, status.ReadyReplicas, status.AvailableReplicas = now.Total, now.Total, now.Ready, now.Available
	if now.Found {
		status.PodTemplateHash = now.Hash
	}
	moved := before.Replicas != status.Replicas || before.ReadyReplicas != status.ReadyReplicas || before.AvailableReplicas != status.AvailableReplicas
	if status.LastTransitionTime == nil || moved && !isCompleted(status.Status) {
		status.LastTransitionTime = new(metav1.NewTime(at))
	}
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
func (e *decisionBuilder) isUnused(status argov1.TemplateStatus) bool {
	return e.isEnding || isCompleted(status.Status) || e.isDurationElapsed()
}

// desiredPods returns the desired number of pods of a template.
func (e *decisionBuilder) desiredPods(t argov1.TemplateSpec, status argov1.TemplateStatus) int32 {
	if e.isUnused(status) {
		return 0
	}
	return desiredReplicas(t)
}

// scalePods scales the ReplicaSet of a template. It is scaled down after a delay.
func (e *decisionBuilder) scalePods(t argov1.TemplateSpec, now TemplateState, wanted int32) {
	switch {
	case !now.Found, now.Desired == wanted:
	// The deadline is an annotation of the ReplicaSet, so that it survives a restart of Serin. A deadline later than the
	// delay permits means that a clock was set back.
	case wanted == 0 && e.scaleDownDelay() > 0 && (now.ScaleDownDeadline.IsZero() || now.ScaleDownDeadline.After(e.snapshot.Now.Add(e.scaleDownDelay()))):
		at := e.snapshot.Now.Add(e.scaleDownDelay())
		e.addEffect(ScaleDownDeadlineSet{t.Name, at})
		e.wakeAt(at)
	case wanted == 0 && e.scaleDownDelay() > 0 && e.snapshot.Now.Before(now.ScaleDownDeadline):
		e.addGate(release.NewTimedGate("delay/"+t.Name, now.ScaleDownDeadline, "pods retained until "+now.ScaleDownDeadline.UTC().Format(time.RFC3339)))
		e.wakeAt(now.ScaleDownDeadline)
	default:
		e.addEffect(ReplicaSetScaled{t.Name, wanted})
		e.addEvent(release.Normal, "ScalingReplicaSet", scaledText(now, wanted))
	}
}

func scaledText(now TemplateState, wanted int32) string {
	direction := "up"
	if wanted < now.Desired {
		direction = "down"
	}
	return fmt.Sprintf("Scaled %s ReplicaSet %s from %d to %d", direction, now.ReplicaSet, now.Desired, wanted)
}

func (e *decisionBuilder) scaleDownDelay() time.Duration {
	if e.snapshot.Spec.ScaleDownDelaySeconds == nil {
		return defaultScaleDownDelay
	}
	return time.Duration(*e.snapshot.Spec.ScaleDownDelaySeconds) * time.Second
}

// reconcileService creates the Service of a template while it is to have pods, and deletes the Service after them.
func (e *decisionBuilder) reconcileService(t argov1.TemplateSpec, status *argov1.TemplateStatus, now TemplateState, wanted int32) {
	name := ""
	if t.Service != nil && hasPorts(t) {
		name = t.Service.Name
		if name == "" {
			name = now.ReplicaSet
		}
	}
	switch {
	case name != "" && now.Found && wanted > 0:
		status.ServiceName = name
		if now.Service != name {
			e.addEffect(ServiceExists{t.Name, name})
		}
	case now.Service != "" && wanted == 0 && now.Desired == 0 && now.Available == 0:
		status.ServiceName = ""
		e.addEffect(ServiceDeleted{t.Name, now.Service})
	}
}

func hasPorts(t argov1.TemplateSpec) bool {
	for _, c := range t.Template.Spec.Containers {
		if len(c.Ports) > 0 {
			return true
		}
	}
	return false
}

// assessTemplate sets the status of a template.
func (e *decisionBuilder) assessTemplate(t argov1.TemplateSpec, status *argov1.TemplateStatus, now TemplateState) {
	switch {
	case e.isEnding, e.isDurationElapsed():
		e.setTemplateStatus(status, argov1.TemplateStatusSuccessful, "")
	case now.Found && now.Desired == desiredReplicas(t) && now.Available == desiredReplicas(t):
		e.setTemplateStatus(status, argov1.TemplateStatusRunning, "")
	default:
		e.setTemplateStatus(status, argov1.TemplateStatusProgressing, "")
		deadline := status.LastTransitionTime.Add(e.progressDeadline())
		if !e.snapshot.Now.Before(deadline) {
			e.setTemplateStatus(status, argov1.TemplateStatusFailed, fmt.Sprintf("Template '%s' exceeded its progressDeadlineSeconds (%d)", t.Name, int(e.progressDeadline()/time.Second)))
			return
		}
		e.addGate(release.NewWaitingGate("available/"+t.Name, release.ByCluster, fmt.Sprintf("%d of %d pods available", now.Available, desiredReplicas(t))))
		e.wakeAt(deadline)
	}
}

func (e *decisionBuilder) progressDeadline() time.Duration {
	if e.snapshot.Spec.ProgressDeadlineSeconds == nil {
		return defaultProgressDeadline
	}
	return time.Duration(*e.snapshot.Spec.ProgressDeadlineSeconds) * time.Second
}

// setTemplateStatus sets the status of a template, with an event if it changes.
func (e *decisionBuilder) setTemplateStatus(status *argov1.TemplateStatus, now argov1.TemplateStatusCode, why string) {
	if status.Status == now {
		return
	}
	e.decision.Events = append(e.decision.Events, transitionTemplate(status, now, why, e.snapshot.Now))
	e.decision.Wake = e.snapshot.Now
}

// transitionTemplate sets another status of a template, and returns the event about it.
func transitionTemplate(status *argov1.TemplateStatus, now argov1.TemplateStatusCode, why string, at time.Time) release.Event {
	kind := release.Normal
	if now == argov1.TemplateStatusFailed || now == argov1.TemplateStatusError {
		kind = release.Warning
	}
	text := fmt.Sprintf("Template '%s' transitioned from %s -> %s", status.Name, status.Status, now)
	if why != "" {
		text += ": " + why
	}
	status.Status, status.Message, status.LastTransitionTime = now, why, new(metav1.NewTime(at))
	return release.Event{Type: kind, Reason: "Template" + string(now), Message: text}
}

// RecordTemplateRejected records in a decided status that the API server rejects the ReplicaSet or the Service of a template. Only a
// change of the template can help, so the Experiment fails.
func RecordTemplateRejected(status *argov1.ExperimentStatus, template, why string, now time.Time) []release.Event {
	i := slices.IndexFunc(status.TemplateStatuses, func(t argov1.TemplateStatus) bool { return t.Name == template })
	if i < 0 || isCompleted(status.TemplateStatuses[i].Status) {
		return nil
	}
	return []release.Event{transitionTemplate(&status.TemplateStatuses[i], argov1.TemplateStatusError, why, now)}
}
