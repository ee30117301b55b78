package controller

import (
	"context"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/endpoints"
)

// readEndpoints reads the published endpoints of both workloads.
func (o *Observer) readEndpoints(ctx context.Context, s *observation) error {
	w, plan := &s.snapshot.Workload, s.snapshot.Plan
	if plan.Knative {
		w.Target.Endpoints.Unknown = "Knative tracks the pods of its revisions and starts them on demand"
		w.Primary.Endpoints.Unknown = w.Target.Endpoints.Unknown
		return nil
	}
	reader := endpoints.Reader{Client: o.Client, Indexed: o.Indexed, Unread: o.EndpointsUnread}
	target, err := reader.Of(ctx, plan.Namespace, plan.Apex+"-canary")
	if err != nil {
		return err
	}
	primary, err := reader.Of(ctx, plan.Namespace, plan.Apex+"-primary")
	if err != nil {
		return err
	}
	w.Target.Endpoints, w.Primary.Endpoints = target.Endpoints, primary.Endpoints
	phase := s.snapshot.Status.Phase
	if !readsApexEndpoints(phase) || plan.Kind == "Service" { // of a Service, Serin removes no pods
		return nil
	}
	former, except := plan.Target, plan.Target+"-primary"
	if phase == flaggerv1.CanaryPhaseTerminating {
		former, except = except, ""
	}
	apex, err := reader.Of(ctx, plan.Namespace, plan.Apex)
	if err != nil {
		return err
	}
	s.snapshot.ApexFormerEndpoints = apex.OfWorkload(former, except)
	return nil
}

// readsApexEndpoints reports whether the endpoints of the apex Service matter in a phase: those in which it gets other pods. In all
// others, its endpoints change along with those of the primary, and would requeue the release twice.
func readsApexEndpoints(phase flaggerv1.CanaryPhase) bool {
	return phase == flaggerv1.CanaryPhaseInitializing || phase == flaggerv1.CanaryPhaseTerminating
}
