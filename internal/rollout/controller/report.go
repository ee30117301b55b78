package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Component is the source of all events about Rollouts.
const Component = "rollouts-controller"

// EventRecorder returns a function that records an event of an object which exists: as a Kubernetes event, and, if it is a
// Rollout, in the metrics.
func EventRecorder(recorder *telemetry.Recorder, metrics *telemetry.Metrics) func(ctx context.Context, object client.Object, event release.Event) {
	return recordWith(recorder.Event, metrics)
}

// LateEventRecorder is EventRecorder for an object that may have been deleted.
func LateEventRecorder(recorder *telemetry.Recorder, metrics *telemetry.Metrics) func(ctx context.Context, object client.Object, event release.Event) {
	return recordWith(recorder.LateEvent, metrics)
}

func recordWith(record func(context.Context, corev1.ObjectReference, release.Event), metrics *telemetry.Metrics) func(context.Context, client.Object, release.Event) {
	return func(ctx context.Context, object client.Object, event release.Event) {
		kind := argov1.RolloutKind
		switch object.(type) {
		case *argov1.AnalysisRun:
			kind = argov1.AnalysisRunKind
		case *argov1.Experiment:
			kind = argov1.ExperimentKind
		}
		record(ctx, corev1.ObjectReference{
			APIVersion: argov1.SchemeGroupVersion.String(), Kind: kind,
			Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		}, event)
		if kind == argov1.RolloutKind {
			metrics.CountRolloutEvent(object.GetNamespace(), object.GetName(), string(event.Type), event.Reason)
		}
	}
}

// reporter reports what happened to Rollouts and how they are: as Kubernetes events, as notifications and in the metrics.
type reporter struct {
	client   client.Client
	recorder *telemetry.Recorder
	ongoing  *telemetry.OngoingEvents
	metrics  *telemetry.Metrics
	// notifications dispatches notifications; nil: there are none.
	notifications *dispatch.Dispatcher
	memory        *memory
}

func newReporter(parts Parts, memory *memory) reporter {
	return reporter{
		client: parts.Client, recorder: parts.Recorder, ongoing: parts.OngoingEvents, metrics: parts.Metrics,
		notifications: parts.Notifications, memory: memory,
	}
}

// report reports a decision, once its status is written.
func (r reporter) report(ctx context.Context, s *observation, d rollout.Decision) {
	r.recordNew(ctx, s, slices.Concat(d.Events, s.loadBalancerEvents))
	r.notify(ctx, r.subjectOf(s))
	r.updateMetrics(s, d)
}

// recordNew records the events that were not recorded before.
func (r reporter) recordNew(ctx context.Context, s *observation, events []release.Event) {
	r.recordFor(ctx, r.subjectOf(s), r.ongoing.NewEvents(s.key(), events)...)
}

// record records events of a Rollout that was not observed.
func (r reporter) record(ctx context.Context, object *argov1.Rollout, events ...release.Event) {
	r.recordFor(ctx, dispatch.About{Object: object, Runs: r.runsOf(object)}, events...)
}

// recordFor records events of a Rollout, also for the notifications that users asked for.
func (r reporter) recordFor(ctx context.Context, about dispatch.About, events ...release.Event) {
	record := EventRecorder(r.recorder, r.metrics)
	for _, event := range events {
		record(ctx, about.Object, event)
		if r.notifications != nil {
			r.notifications.NotifyEvent(ctx, about, event)
		}
	}
}

// recordFirstReconciliation records the events of the first reconciliation of a Rollout by this process.
func (r reporter) recordFirstReconciliation(ctx context.Context, object *argov1.Rollout) {
	if !r.memory.isFirst(client.ObjectKeyFromObject(object), object.UID) {
		return
	}
	r.record(ctx, object, addedEvent(object))
	if adopted, ok := rollout.AdoptionEvent(object); ok {
		r.record(ctx, object, adopted)
	}
}

// notify sends the notifications about the current state of a Rollout.
func (r reporter) notify(ctx context.Context, about dispatch.About) {
	if r.notifications != nil {
		r.notifications.NotifyChange(ctx, about)
	}
}

func (r reporter) subjectOf(s *observation) dispatch.About {
	return dispatch.About{Object: s.object, Spec: &s.spec, Runs: r.runsOf(s.object)}
}

// runsOf returns a function that lists the AnalysisRuns of a Rollout.
func (r reporter) runsOf(object *argov1.Rollout) func(context.Context) ([]argov1.AnalysisRun, error) {
	return func(ctx context.Context) ([]argov1.AnalysisRun, error) {
		var runs argov1.AnalysisRunList
		err := r.client.List(ctx, &runs, OwnedBy(object)...)
		return runs.Items, err
	}
}

func addedEvent(object *argov1.Rollout) release.Event {
	return release.Event{
		Type: release.Normal, Reason: "RolloutAddedToInformer",
		Message: fmt.Sprintf("Rollout resource added to informer: %s/%s", object.Namespace, object.Name),
	}
}

func deletedEvent(object *argov1.Rollout) release.Event {
	return release.Event{
		Type: release.Normal, Reason: "RolloutDeleted",
		Message: fmt.Sprintf("Rollout %s/%s is deleted.", object.Name, object.Namespace),
	}
}

// updateMetrics updates the metrics of the release.
func (r reporter) updateMetrics(s *observation, d rollout.Decision) {
	r.showRollout(s.key(), s.spec, d.Status, d.Gates)
	if duration := d.Status.Duration; hasEnded(duration) && !hasEnded(s.snapshot.Status.Duration) && duration.RolloutStartedAt != nil {
		total := duration.FinishedAt.Sub(duration.RolloutStartedAt.Time)
		paused := int64(0)
		if duration.TotalManualPauseDurationSeconds != nil {
			paused = *duration.TotalManualPauseDurationSeconds
		}
		r.metrics.RecordRolloutRelease(string(*duration.CompletionStatus), total, time.Duration(paused)*time.Second)
	}
}

// showCeded updates the metrics of a Rollout on which another controller acts. gate is the reason.
func (r reporter) showCeded(object *argov1.Rollout, gate release.Gate, now time.Time) {
	key, gates := client.ObjectKeyFromObject(object), release.Gates{gate}
	r.memory.Explain(key, reconciler.Evaluation{Gates: gates, Shown: shownGates(object.Status), Now: now}) // it records the beginning of the wait
	r.showRollout(key, object.Spec, object.Status, gates)
}

// showRollout exports the state of a Rollout, and the gate for which it waits.
func (r reporter) showRollout(key types.NamespacedName, spec argov1.RolloutSpec, status argov1.RolloutStatus, gates release.Gates) {
	series := telemetry.Rollout{
		Namespace: key.Namespace, Name: key.Name, Phase: metricPhase(status),
		Desired: 1, Available: status.AvailableReplicas, Updated: status.UpdatedReplicas,
	}
	if spec.Replicas != nil {
		series.Desired = *spec.Replicas
	}
	switch {
	case spec.Strategy.Canary != nil:
		series.Strategy, series.Router = "canary", routerName(spec.Strategy.Canary.TrafficRouting)
	case spec.Strategy.BlueGreen != nil:
		series.Strategy = "blueGreen"
	default:
		series.Strategy = "none"
	}
	r.metrics.SetRollout(series)
	r.metrics.SetWaitingGate(argov1.RolloutKind, series.Namespace, series.Name, r.memory.WaitingGate(key, gates))
}

func hasEnded(d *argov1.RolloutDuration) bool {
	return d != nil && d.FinishedAt != nil && d.CompletionStatus != nil
}

// metricPhase returns the name of the state of a Rollout in the metrics of Argo Rollouts.
func metricPhase(status argov1.RolloutStatus) string {
	phase := "Progressing"
	for _, c := range status.Conditions {
		switch {
		case c.Type == argov1.RolloutInvalidSpec:
			return "InvalidSpec"
		case c.Type != argov1.RolloutProgressing:
		case c.Reason == "NewReplicaSetAvailable":
			phase = "Completed"
		case c.Reason == "RolloutPaused":
			phase = "Paused"
		case c.Reason == "ReplicaSetCreateError":
			phase = "Error"
		case c.Reason == "ProgressDeadlineExceeded":
			phase = "Timeout"
		case c.Reason == "RolloutAborted":
			phase = "Abort"
		}
	}
	return phase
}

// routerName returns the name of the router in the metrics of Argo Rollouts; empty for other routers.
func routerName(routing *argov1.RolloutTrafficRouting) string {
	switch {
	case routing == nil:
		return ""
	case routing.ALB != nil:
		return "ALB"
	case routing.Ambassador != nil:
		return "Ambassador"
	case routing.Istio != nil:
		return "Istio"
	case routing.Nginx != nil:
		return "Nginx"
	case routing.SMI != nil:
		return "SMI"
	case routing.AppMesh != nil:
		return "AppMesh"
	default:
		return ""
	}
}

// forget drops the state of a deleted Rollout.
func (r reporter) forget(key types.NamespacedName) {
	r.recorder.Forget(key)
	if r.notifications != nil {
		r.notifications.Forget(argov1.RolloutKind, key)
	}
	r.ongoing.Forget(key)
	r.metrics.ForgetRollout(key.Namespace, key.Name)
}
