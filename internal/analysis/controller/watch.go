package controller

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/sharding"
)

// Options of the controller.
type Options struct {
	// Workers is the maximum number of concurrent reconciliations.
	Workers int
	// Cache contains the runs; Jobs is the cache of the cluster in which the Jobs run.
	Cache, Jobs cache.Cache
}

// Add adds the reconciler to the manager. queue must be the one to which the query runner adds answered runs.
func (r *Reconciler) Add(mgr manager.Manager, queue *reconciler.Queue, o Options) error {
	c, err := controller.New("analysisrun", mgr, reconciler.Options(r, o.Workers))
	if err != nil {
		return fmt.Errorf("create the controller of AnalysisRuns: %w", err)
	}
	for _, from := range []source.Source{
		queue,
		source.Kind(o.Cache, &argov1.AnalysisRun{}, &handler.TypedEnqueueRequestForObject[*argov1.AnalysisRun]{}),
		source.Kind(o.Jobs, &batchv1.Job{}, handler.TypedEnqueueRequestsFromMapFunc(requestsForJob)),
	} {
		if err := c.Watch(from); err != nil {
			return fmt.Errorf("start watches for AnalysisRuns: %w", err)
		}
	}
	return nil
}

// runs lists the AnalysisRuns.
var runs = reconciler.Releases[*argov1.AnalysisRun]{
	Kind:    argov1.AnalysisRunKind,
	New:     func() *argov1.AnalysisRun { return &argov1.AnalysisRun{} },
	NewList: func() client.ObjectList { return &argov1.AnalysisRunList{} },
}

// RequeueShard requeues the AnalysisRuns in the namespaces of a shard.
func (r *Reconciler) RequeueShard(queue *reconciler.Queue) sharding.Requeue {
	return func(ctx context.Context, inShard func(namespace string) bool) error {
		return runs.RequeueShard(ctx, r.Client, queue, inShard)
	}
}

func requestsForJob(_ context.Context, job *batchv1.Job) []reconcile.Request {
	key, ok := runOf(job)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}
