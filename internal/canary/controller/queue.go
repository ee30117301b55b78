package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
)

var releases = reconciler.Releases[*flaggerv1.Canary]{
	Kind:       flaggerv1.CanaryKind,
	New:        func() *flaggerv1.Canary { return &flaggerv1.Canary{} },
	NewList:    func() client.ObjectList { return &flaggerv1.CanaryList{} },
	QueueEntry: storedQueueEntry,
}

// storedQueueEntry is the queue entry of a Canary as the API server stores it.
func storedQueueEntry(c *flaggerv1.Canary) release.QueueEntry {
	decoded := *c // caches share c
	decoded.Status = flaggerv1.DecodeState(c.Status)
	return canary.QueueEntryOf(&decoded)
}

// IndexQueueEntries adds the index with which caches find the Canaries that are in progress or in the queue.
func IndexQueueEntries(ctx context.Context, indexer client.FieldIndexer) error {
	return releases.Index(ctx, indexer)
}

// QueueKind returns Canaries as a kind of the queue. indexed is true for a reader with the index of IndexQueueEntries.
func QueueKind(reader client.Reader, indexed bool) queue.Kind {
	return releases.QueueKind(reader, indexed)
}

// queueState returns whether a release may start in addition to those in progress; nil if their number is not limited, or if no
// release is to start.
func (o *Observer) queueState(ctx context.Context, s *observation) (*release.QueueState, error) {
	if !o.Queue.Limits() || !canary.MayStartRelease(s.snapshot) {
		return nil, nil
	}
	const pruned = false // the status of a Canary contains its queue entry with any schema
	return o.Queue.MayStart(ctx, canary.QueueEntryOf(s.object), pruned, s.snapshot.Now)
}
