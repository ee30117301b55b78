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

// template returns the status of a template. It is created if it does not exist.
func (e *edit) template(name string) *argov1.TemplateStatus {
	all := &e.d.Status.TemplateStatuses
	i := slices.IndexFunc(*all, func(t argov1.TemplateStatus) bool { return t.Name == name })
	if i < 0 {
		i = len(*all)
		*all = append(*all, argov1.TemplateStatus{Name: name})
	}
	return &(*all)[i]
}

func replicas(t argov1.TemplateSpec) int32 {
	if t.Replicas == nil {
		return 1
	}
	return *t.Replicas
}

// side decides about the ReplicaSet, the pods and the Service of a template.
func (e *edit) side(t argov1.TemplateSpec) {
	status, now := e.template(t.Name), e.s.Sides[t.Name]
	counted(status, now, e.s.Now)
	if now.Problem != "" && !completed(status.Status) {
		e.become(status, argov1.TemplateStatusError, now.Problem)
		return
	}
	wanted := e.wanted(t, *status)
	if !now.Found && !e.over(*status) {
		e.do(ReplicaSetExists{t.Name})
		e.tell(release.Normal, "NewReplicaSetCreated", "Created ReplicaSet "+now.ReplicaSet)
	}
	e.pods(t, now, wanted)
	e.service(t, status, now, wanted)
	if !completed(status.Status) {
		e.judgeSide(t, status, now)
	}
}

// counted records the observed pods in the status. A change of their numbers is progress, from which the progress
// deadline starts again.
func counted(status *argov1.TemplateStatus, now Side, at time.Time) {
	before := *status
	status.Replicas, status.UpdatedReplicas, status.ReadyReplicas, status.AvailableReplicas = now.Total, now.Total, now.Ready, now.Available
	if now.Found {
		status.PodTemplateHash = now.Hash
	}
	moved := before.Replicas != status.Replicas || before.ReadyReplicas != status.ReadyReplicas || before.AvailableReplicas != status.AvailableReplicas
	if status.LastTransitionTime == nil || moved && !completed(status.Status) {
		status.LastTransitionTime = new(metav1.NewTime(at))
	}
}

func completed(status argov1.TemplateStatusCode) bool {
	switch status {
	case argov1.TemplateStatusSuccessful, argov1.TemplateStatusFailed, argov1.TemplateStatusError:
		return true
	default: // not completed, and statuses that only a newer controller writes
		return false
	}
}

// over reports whether the pods of a template are no longer needed.
func (e *edit) over(status argov1.TemplateStatus) bool {
	return e.ending || completed(status.Status) || e.passed()
}

// wanted returns the desired number of pods of a template.
func (e *edit) wanted(t argov1.TemplateSpec, status argov1.TemplateStatus) int32 {
	if e.over(status) {
		return 0
	}
	return replicas(t)
}

// pods scales the ReplicaSet of a template. It is scaled down after a delay.
func (e *edit) pods(t argov1.TemplateSpec, now Side, wanted int32) {
	switch {
	case !now.Found, now.Wanted == wanted:
	// The deadline is an annotation of the ReplicaSet, so that it survives a restart of Serin. A deadline later than the
	// delay permits means that a clock was set back.
	case wanted == 0 && e.delay() > 0 && (now.Deadline.IsZero() || now.Deadline.After(e.s.Now.Add(e.delay()))):
		at := e.s.Now.Add(e.delay())
		e.do(GoesAt{t.Name, at})
		e.wake(at)
	case wanted == 0 && e.delay() > 0 && e.s.Now.Before(now.Deadline):
		e.gate(release.WaitsUntil("delay/"+t.Name, now.Deadline, "the pods stay until "+now.Deadline.UTC().Format(time.RFC3339)))
		e.wake(now.Deadline)
	default:
		e.do(Scaled{t.Name, wanted})
		e.tell(release.Normal, "ScalingReplicaSet", scaled(now, wanted))
	}
}

func scaled(now Side, wanted int32) string {
	direction := "up"
	if wanted < now.Wanted {
		direction = "down"
	}
	return fmt.Sprintf("Scaled %s ReplicaSet %s from %d to %d", direction, now.ReplicaSet, now.Wanted, wanted)
}

func (e *edit) delay() time.Duration {
	if e.s.Spec.ScaleDownDelaySeconds == nil {
		return defaultScaleDownDelay
	}
	return time.Duration(*e.s.Spec.ScaleDownDelaySeconds) * time.Second
}

// service creates the Service of a template while it is to have pods, and deletes the Service after them.
func (e *edit) service(t argov1.TemplateSpec, status *argov1.TemplateStatus, now Side, wanted int32) {
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
			e.do(ServiceExists{t.Name, name})
		}
	case now.Service != "" && wanted == 0 && now.Wanted == 0 && now.Available == 0:
		status.ServiceName = ""
		e.do(ServiceGone{t.Name, now.Service})
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

// judgeSide sets the status of a template.
func (e *edit) judgeSide(t argov1.TemplateSpec, status *argov1.TemplateStatus, now Side) {
	switch {
	case e.ending, e.passed():
		e.become(status, argov1.TemplateStatusSuccessful, "")
	case now.Found && now.Wanted == replicas(t) && now.Available == replicas(t):
		e.become(status, argov1.TemplateStatusRunning, "")
	default:
		e.become(status, argov1.TemplateStatusProgressing, "")
		deadline := status.LastTransitionTime.Add(e.deadline())
		if !e.s.Now.Before(deadline) {
			e.become(status, argov1.TemplateStatusFailed, fmt.Sprintf("Template '%s' exceeded its progressDeadlineSeconds (%d)", t.Name, int(e.deadline()/time.Second)))
			return
		}
		e.gate(release.WaitsFor("available/"+t.Name, release.ByCluster, fmt.Sprintf("%d of %d pods are available", now.Available, replicas(t))))
		e.wake(deadline)
	}
}

func (e *edit) deadline() time.Duration {
	if e.s.Spec.ProgressDeadlineSeconds == nil {
		return defaultProgressDeadline
	}
	return time.Duration(*e.s.Spec.ProgressDeadlineSeconds) * time.Second
}

// become sets the status of a template, with an event if it changes.
func (e *edit) become(status *argov1.TemplateStatus, now argov1.TemplateStatusCode, why string) {
	if status.Status == now {
		return
	}
	e.d.Events = append(e.d.Events, changed(status, now, why, e.s.Now))
	e.d.Wake = e.s.Now
}

// changed sets another status of a template, and returns the event about it.
func changed(status *argov1.TemplateStatus, now argov1.TemplateStatusCode, why string, at time.Time) release.Event {
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

// Broken records in a decided status that the API server rejects the ReplicaSet or the Service of a template. Only a
// change of the template can help, so the Experiment fails.
func Broken(status *argov1.ExperimentStatus, template, why string, now time.Time) []release.Event {
	i := slices.IndexFunc(status.TemplateStatuses, func(t argov1.TemplateStatus) bool { return t.Name == template })
	if i < 0 || completed(status.TemplateStatuses[i].Status) {
		return nil
	}
	return []release.Event{changed(&status.TemplateStatuses[i], argov1.TemplateStatusError, why, now)}
}
