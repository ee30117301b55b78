package controller

import (
	"context"

	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// observeEndpoints counts the published endpoints of the pods of each revision.
func (o *Observer) observeEndpoints(ctx context.Context, s *observation) error {
	reader := endpoints.Reader{Client: o.Client, Indexed: true, Unread: o.EndpointsUnread}
	for _, name := range rollout.ServicesWithEndpoints(s.spec.Strategy) {
		s.dependencies = append(s.dependencies, endpoints.Of(s.object.Namespace, name))
		published, err := reader.Of(ctx, s.object.Namespace, name)
		if err != nil {
			return err
		}
		service := s.snapshot.Services[name]
		service.Endpoints = map[string]release.Endpoints{}
		for _, rs := range s.snapshot.ReplicaSets {
			service.Endpoints[rs.Hash] = published.OfSet(rs.Name)
		}
		s.snapshot.Services[name] = service
	}
	return nil
}
