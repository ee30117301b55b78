package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
)

var releases = reconciler.Releases[*argov1.Rollout]{
	Kind:       argov1.RolloutKind,
	New:        func() *argov1.Rollout { return &argov1.Rollout{} },
	NewList:    func() client.ObjectList { return &argov1.RolloutList{} },
	QueueEntry: rollout.QueueEntryOf,
}

// IndexQueueEntries lets caches find the Rollouts that are in progress, or in the queue, without reading all.
func IndexQueueEntries(ctx context.Context, indexer client.FieldIndexer) error {
	return releases.Index(ctx, indexer)
}

// QueueKind returns Rollouts as a kind of the queue. indexed is true for a reader with the index of IndexQueueEntries.
func QueueKind(reader client.Reader, indexed bool) queue.Kind {
	return releases.QueueKind(reader, indexed)
}

// observeQueueSlot determines whether a release may start in addition to those in progress.
func (o *Observer) observeQueueSlot(ctx context.Context, s *observation) (err error) {
	s.snapshot.Spec = s.spec
	if !o.Queue.Limits() || !rollout.MayStartRelease(s.snapshot) {
		return nil
	}
	s.snapshot.QueuePlacePruned = o.memory.losesPlace()
	s.snapshot.QueueSlot, err = o.Queue.MayStart(ctx, rollout.QueueEntryOf(s.object), s.snapshot.QueuePlacePruned, s.snapshot.Now)
	return err
}
