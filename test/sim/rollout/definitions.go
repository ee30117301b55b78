package rollout

import (
	"context"
	"fmt"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// Definitions returns the definitions of the custom kinds that runs need.
func Definitions(ctx context.Context) (*store.Definitions, error) {
	own, err := store.Argo()
	if err != nil {
		return nil, fmt.Errorf("read Serin's definitions: %w", err)
	}
	routes, err := store.Routes(ctx, actors.HTTPRouteKind, actors.VirtualServiceKind, actors.DestinationRuleKind)
	if err != nil {
		return nil, err
	}
	return own.And(routes), nil
}
