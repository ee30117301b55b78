package controller

import (
	"context"

	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/release"
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
	for _, read := range []struct {
		into    *release.Endpoints
		service string
	}{{&w.Target.Endpoints, plan.Apex + "-canary"}, {&w.Primary.Endpoints, plan.Apex + "-primary"}} {
		published, err := reader.Of(ctx, plan.Namespace, read.service)
		if err != nil {
			return err
		}
		*read.into = published.Endpoints
	}
	return nil
}
