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

// stateSchema is whether the schema of Canaries in this cluster stores status.serin.
type stateSchema string

const (
	schemaUnknown stateSchema = ""
	schemaStores  stateSchema = "stores"
	schemaDrops   stateSchema = "drops"
)

// statusWriter writes statuses so that status.serin survives with any schema of the resource: if the schema drops the field, the
// same content is stored in a condition. The schema belongs to the cluster, not to one Canary, and may be replaced at any time.
type statusWriter struct {
	mu     sync.Mutex
	schema stateSchema
}

// decodeState decodes the state of a Canary from its field or from the condition, and returns the status as it is stored.
func decodeState(c *flaggerv1.Canary) (stored flaggerv1.CanaryStatus) {
	stored = c.Status
	c.Status = flaggerv1.DecodeState(stored)
	return stored
}

// write replaces the status of stored in one request, and returns what the API server stored.
func (w *statusWriter) write(ctx context.Context, writer client.Client, stored *flaggerv1.Canary, status *flaggerv1.CanaryStatus) (*flaggerv1.Canary, error) {
	schema, err := w.schemaFor(ctx, writer, stored, status)
	if err != nil {
		return nil, err
	}
	written, err := patchStatus(ctx, writer, stored, status, schema == schemaDrops)
	if err != nil {
		return nil, err
	}
	w.recordSchema(schemaOf(written))
	if schema == schemaStores && schemaOf(written) == schemaDrops {
		// The schema was replaced by an older one since the last write.
		return patchStatus(ctx, writer, written, status, true)
	}
	return written, nil
}

// schemaFor determines the schema before the first write, because a write without the condition would lose the state if the
// process stopped before it could write again.
func (w *statusWriter) schemaFor(ctx context.Context, writer client.Client, stored *flaggerv1.Canary, status *flaggerv1.CanaryStatus) (stateSchema, error) {
	switch known := w.knownSchema(); {
	case known != schemaUnknown:
		return known, nil
	case stored.Status.Serin != nil:
		return schemaStores, nil
	case flaggerv1.HasEncodedState(stored.Status):
		return schemaDrops, nil
	}
	// A dry run writes nothing, so no cache will ever have the version of the response.
	shown, err := patchStatus(ctx, writer, stored, status, false, client.DryRunAll, client.DisableReadYourWritesConsistency)
	switch {
	case apierrors.IsBadRequest(err):
		return schemaDrops, nil // an admission webhook does not support dry runs: the condition is correct with any schema
	case err != nil:
		return schemaUnknown, err
	}
	w.recordSchema(schemaOf(shown))
	return schemaOf(shown), nil
}

// schemaOf derives the schema from the response to a write: every write contains a state.
func schemaOf(written *flaggerv1.Canary) stateSchema {
	if written.Status.Serin == nil {
		return schemaDrops
	}
	return schemaStores
}

func (w *statusWriter) knownSchema() stateSchema {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.schema
}

func (w *statusWriter) recordSchema(schema stateSchema) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.schema = schema
}

// patchStatus writes only the difference, with the resourceVersion that was read, so that fields of a newer Serin remain.
func patchStatus(
	ctx context.Context, writer client.Client, stored *flaggerv1.Canary, status *flaggerv1.CanaryStatus, encode bool, options ...client.SubResourcePatchOption,
) (*flaggerv1.Canary, error) {
	desired := *status
	if encode {
		var err error
		if desired, err = flaggerv1.EncodeState(*status); err != nil {
			return nil, err
		}
	}
	patch, err := reconciler.StatusPatch(stored.ResourceVersion, &stored.Status, &desired)
	if err != nil {
		return nil, fmt.Errorf("compute the patch of the status: %w", err)
	}
	written := &flaggerv1.Canary{}
	written.Namespace, written.Name = stored.Namespace, stored.Name
	return written, writer.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), options...)
}
