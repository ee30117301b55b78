package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/readyourwrites"
)

// checkNewest prevents a process from acting on a stale version of a release: see readyourwrites.NewestVersions. An idle
// release is read from the API server only when something is written for it; see requireNewest.
func (r *Reconciler) checkNewest(ctx context.Context, object *flaggerv1.Canary, acts bool) error {
	key := client.ObjectKeyFromObject(object)
	if !acts {
		return r.newest.VerifyNotStale(key, object)
	}
	return r.newest.VerifyTakeover(ctx, key, object, &flaggerv1.Canary{})
}

// requireNewest is the same check at each write of a reconciliation: an idle release may be suspended or deleted by now. Writes
// of the Canary itself contain the version that they are based on.
func (r *Reconciler) requireNewest(object *flaggerv1.Canary) readyourwrites.WriteCheck {
	return func(ctx context.Context, written client.Object) error {
		if _, itself := written.(*flaggerv1.Canary); itself {
			return nil
		}
		return r.checkNewest(ctx, object, true)
	}
}
