package controller

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/reconciler"
)

// stateSchema is what a process knows of the schema of Canaries: whether it stores status.serin.
type stateSchema string

const (
	schemaUnknown stateSchema = ""
	schemaStores  stateSchema = "stores"
	schemaDrops   stateSchema = "drops"
)

// statusForm writes statuses so that status.serin survives, whatever the schema of the resource is: where the schema drops the
// field, the status has a condition with the same content. The schema belongs to the cluster, not to one Canary, and may be
// replaced at any time.
type statusForm struct {
	mu     sync.Mutex
	schema stateSchema
}

// decodeState puts the state of a Canary into its field, wherever it is stored, and returns the status as it is stored.
func decodeState(c *flaggerv1.Canary) (stored flaggerv1.CanaryStatus) {
	stored = c.Status
	c.Status = flaggerv1.DecodeState(stored)
	return stored
}

// write stores a status instead of the one of stored, in one request, and returns what the API server stored.
func (f *statusForm) write(ctx context.Context, writer client.Client, stored *flaggerv1.Canary, status *flaggerv1.CanaryStatus) (*flaggerv1.Canary, error) {
	schema, err := f.schemaFor(ctx, writer, stored, status)
	if err != nil {
		return nil, err
	}
	written, err := patchStatus(ctx, writer, stored, status, schema == schemaDrops)
	if err != nil {
		return nil, err
	}
	f.learn(schemaShown(written))
	if schema == schemaStores && schemaShown(written) == schemaDrops {
		// The schema was replaced by an older one since the last write.
		return patchStatus(ctx, writer, written, status, true)
	}
	return written, nil
}

// schemaFor finds out what the schema does with the state before the first write depends on it: a write without the condition
// would lose the state if the process stopped before it could write again.
func (f *statusForm) schemaFor(ctx context.Context, writer client.Client, stored *flaggerv1.Canary, status *flaggerv1.CanaryStatus) (stateSchema, error) {
	switch known := f.known(); {
	case known != schemaUnknown:
		return known, nil
	case stored.Status.Serin != nil:
		return schemaStores, nil
	case flaggerv1.HasEncodedState(stored.Status):
		return schemaDrops, nil
	}
	// Nothing is written, so that no cache will ever have the version of the response.
	shown, err := patchStatus(ctx, writer, stored, status, false, client.DryRunAll, client.DisableReadYourWritesConsistency)
	switch {
	case apierrors.IsBadRequest(err):
		return schemaDrops, nil // an admission webhook without dry runs: the condition is right with any schema
	case err != nil:
		return schemaUnknown, err
	}
	f.learn(schemaShown(shown))
	return schemaShown(shown), nil
}

// schemaShown is what the response to a write shows: every write has a state.
func schemaShown(written *flaggerv1.Canary) stateSchema {
	if written.Status.Serin == nil {
		return schemaDrops
	}
	return schemaStores
}

func (f *statusForm) known() stateSchema {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.schema
}

func (f *statusForm) learn(schema stateSchema) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.schema = schema
}

// patchStatus writes the difference under the version that was read, so that fields of a newer Serin remain.
func patchStatus(
	ctx context.Context, writer client.Client, stored *flaggerv1.Canary, status *flaggerv1.CanaryStatus, encode bool, options ...client.SubResourcePatchOption,
) (*flaggerv1.Canary, error) {
	wanted := *status
	if encode {
		var err error
		if wanted, err = flaggerv1.EncodeState(*status); err != nil {
			return nil, err
		}
	}
	patch, err := reconciler.StatusPatch(stored.ResourceVersion, &stored.Status, &wanted)
	if err != nil {
		return nil, fmt.Errorf("compute the patch of the status: %w", err)
	}
	written := &flaggerv1.Canary{}
	written.Namespace, written.Name = stored.Namespace, stored.Name
	return written, writer.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), options...)
}
