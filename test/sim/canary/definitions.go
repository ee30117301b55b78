package canary

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim/store"
)

// Definitions are those of the resources that histories have beside Kubernetes' own.
func Definitions(ctx context.Context) (*store.Definitions, error) {
	own, err := store.Serin()
	if err != nil {
		return nil, fmt.Errorf("read Serin's definitions: %w", err)
	}
	var streams [][]byte
	for _, file := range []struct{ module, name string }{
		{"sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"},
		{"istio.io/api", "kubernetes/customresourcedefinitions.gen.yaml"},
	} {
		stream, err := store.ModuleFile(ctx, file.module, file.name)
		if err != nil {
			return nil, err
		}
		streams = append(streams, stream)
	}
	routes, err := store.Compile(streams, httpRoute, virtualService, schema.GroupKind{Group: virtualService.Group, Kind: "DestinationRule"})
	if err != nil {
		return nil, err
	}
	return own.And(routes), nil
}
