package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/ownwrites"
)

// takeOver keeps a process from acting on a release as it was long ago: see ownwrites.Newest. One that only rests is not
// read before something is written for it; see takenOver.
func (r *Reconciler) takeOver(ctx context.Context, object *flaggerv1.Canary, acts bool) error {
	key := client.ObjectKeyFromObject(object)
	if !acts {
		return r.known.Look(key, object)
	}
	return r.known.TakeOver(ctx, key, object, &flaggerv1.Canary{})
}

// takenOver is the same at each write of a pass: what is done at rest must not be done for a release that is suspended by
// now, or gone. Writes of the Canary itself name the version that they were decided on.
func (r *Reconciler) takenOver(object *flaggerv1.Canary) ownwrites.Check {
	return func(ctx context.Context, written client.Object) error {
		if _, itself := written.(*flaggerv1.Canary); itself {
			return nil
		}
		return r.takeOver(ctx, object, true)
	}
}
