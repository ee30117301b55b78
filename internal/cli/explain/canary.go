package explain

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Canary is an observation of one Canary.
type Canary struct {
	SharedObservation

	// Object is the stored Canary.
	Object *flaggerv1.Canary
	// Snapshot contains no answers, because the commands send no queries.
	Snapshot canary.Snapshot
	// Assumed lists the parts of the snapshot that could not be read and are derived from the status.
	Assumed []release.Part
}

// Key implements Observation.
func (observed *Canary) Key() Key {
	return Key{KindCanary, observed.Object.Namespace, observed.Object.Name}
}

// Version implements Observation.
func (observed *Canary) Version() Version {
	return Version{observed.Object.ResourceVersion, observed.Snapshot.Now}
}

// WithShared implements Observation.
func (observed *Canary) WithShared(shared SharedObservation) Observation {
	other := *observed
	other.SharedObservation = shared
	return &other
}

// Describe implements Observation.
func (observed *Canary) Describe(now time.Time) Release {
	s := observed.Snapshot
	s.Now = now
	s.OtherController = canary.OtherController{Sign: observed.OtherController.Sign, Until: observed.OtherController.Until}
	v, plan := canary.View(s, observed.Assumed...), s.Plan
	r := newRelease(v, observed.SharedObservation, canaryEventBounds(s.Status))
	r.Kind, r.Name, r.Namespace, r.Target = KindCanary, plan.Name, plan.Namespace, plan.Kind+"/"+plan.Target
	r.Provider, r.Strategy = plan.Provider, string(plan.Strategy)
	r.Suspended, r.Deleting, r.PrimaryMissing = plan.Suspended, s.Deleting, !s.Workload.Primary.Found
	r.Iterations, r.TotalIterations, r.FailedChecks, r.Threshold = v.Step, v.TotalSteps, s.Status.FailedChecks, plan.Threshold
	if own := s.Status.Serin; own != nil {
		r.Run = own.Run
		if len(own.History) > 0 && r.Result == release.RolledBack && own.History[0].Result == string(release.EndingFailed) {
			r.LastFailure = new(pastRelease(own.History[0]))
		}
	}
	for _, gate := range v.Gates {
		r.Gates = append(r.Gates, observed.newGate(gate, &r))
	}
	messages := make([]string, 0, len(s.Status.Conditions))
	for _, condition := range s.Status.Conditions {
		messages = append(messages, condition.Message)
	}
	r.completeMessages(messages)
	r.nameApprovals()
	return r
}

// canaryEventBounds returns the bounds of the events of a Canary. A release that a new revision superseded, or that was canceled, has
// no event about its end.
func canaryEventBounds(status flaggerv1.CanaryStatus) eventBounds {
	bounds := eventBounds{first: "New revision detected!", last: []string{"Promotion completed!", "Canary failed!"}}
	if status.Serin != nil {
		for _, past := range status.Serin.History {
			if past.End != nil {
				bounds.ends = append(bounds.ends, past.End.Time)
			}
		}
	}
	return bounds
}

// newGate formats a gate, with the receiver of its query and the action with which the user opens it.
func (observed *Canary) newGate(view release.GateView, r *Release) Gate {
	g := newGate(view, r, observed.OtherController)
	switch q := view.Request.(type) {
	case canary.SourcesQuery:
		g.QueryReceiver = "the metrics providers of all checks"
	case canary.HookQuery:
		g.QueryReceiver = "webhook " + q.Hook.Name + " at " + outbound.Redact(q.Hook.URL)
	case canary.MetricQuery:
		g.QueryReceiver, g.Check = metricSource(q.Check, observed.Object), true
	}
	return g
}

// metricSource names the service that a check queries.
func metricSource(check canary.Check, object *flaggerv1.Canary) string {
	if check.Source == canary.Template {
		ref := *check.Metric.TemplateRef
		if ref.Namespace == "" {
			ref.Namespace = object.Namespace
		}
		return "MetricTemplate " + ref.Name + "." + ref.Namespace
	}
	if object.Spec.MetricsServer != "" {
		return "Prometheus at " + outbound.Redact(object.Spec.MetricsServer)
	}
	return "the Prometheus of the controller"
}
