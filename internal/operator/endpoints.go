package operator

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/endpoints"
)

// endpointSliceCache is the shared cache of EndpointSlices for the releases of all APIs. The first API that is served
// checks whether they may be read; the others use its result.
type endpointSliceCache struct {
	mu         sync.Mutex
	prepared   bool
	unreadable string
}

// prepare adds the index to the cache. It returns the reason why EndpointSlices cannot be observed; empty means that they can.
func (e *endpointSliceCache) prepare(ctx context.Context, apiReader client.Reader, cache client.FieldIndexer, namespace string, logger logr.Logger) (unread string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.prepared {
		return e.unreadable, nil
	}
	if e.unreadable, err = endpointsUnreadable(ctx, apiReader, namespace); err != nil {
		return "", err
	}
	if e.unreadable == "" {
		err = endpoints.Index(ctx, cache)
	} else {
		logger.Info("Works without EndpointSlices: " + e.unreadable + "; routes may change shortly before routers know the new pods. " +
			"Allow get, list and watch on endpointslices of discovery.k8s.io, and restart")
	}
	e.prepared = err == nil
	return e.unreadable, err
}

// endpointsUnreadable returns the reason why EndpointSlices cannot be read; empty means that they can. The permissions of earlier
// versions did not include them, and a cache that may not read a kind would prevent the process from starting.
func endpointsUnreadable(ctx context.Context, reader client.Reader, namespace string) (string, error) {
	err := reader.List(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace(namespace), client.Limit(1))
	switch {
	case apierrors.IsForbidden(err):
		return "EndpointSlices may not be read, so nothing waits for them", nil
	case err != nil:
		return "", fmt.Errorf("list EndpointSlices: %w", err)
	default:
		return "", nil
	}
}
