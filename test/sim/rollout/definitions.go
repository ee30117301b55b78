package rollout

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim/store"
)

var jobKind = schema.GroupKind{Group: "batch", Kind: "Job"}

// Definitions are those of the resources that histories have beside Kubernetes' own.
func Definitions(ctx context.Context) (*store.Definitions, error) {
	own, err := store.Argo()
	if err != nil {
		return nil, fmt.Errorf("read Serin's definitions: %w", err)
	}
	routes, err := store.Routes(ctx, httpRoute, virtualService, destinationRule)
	if err != nil {
		return nil, err
	}
	return own.And(routes), nil
}
