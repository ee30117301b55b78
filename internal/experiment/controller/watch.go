package controller

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/sharding"
)

// Options of the controller.
type Options struct {
	// Workers is the maximum number of concurrent reconciliations.
	Workers int
	// Cache contains the Experiments and their objects.
	Cache cache.Cache
}

// Add adds the reconciler to the manager. queue is the one that RequeueShard uses.
func (r *Reconciler) Add(mgr manager.Manager, queue *reconciler.Queue, o Options) error {
	c, err := controller.New("experiment", mgr, reconciler.Options(r, o.Workers))
	if err != nil {
		return fmt.Errorf("create the controller of Experiments: %w", err)
	}
	owned := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &argov1.Experiment{}, handler.OnlyControllerOwner())
	sources := []source.Source{queue, source.Kind[client.Object](o.Cache, &argov1.Experiment{}, &handler.EnqueueRequestForObject{})}
	for _, object := range []client.Object{&appsv1.ReplicaSet{}, &argov1.AnalysisRun{}} {
		sources = append(sources, source.Kind(o.Cache, object, owned))
	}
	for _, from := range sources {
		if err := c.Watch(from); err != nil {
			return fmt.Errorf("start watches for Experiments: %w", err)
		}
	}
	r.watchServices = sync.OnceValue(func() error { return c.Watch(source.Kind[client.Object](o.Cache, &corev1.Service{}, owned)) })
	return nil
}

// experiments lists the Experiments.
var experiments = reconciler.Releases[*argov1.Experiment]{
	Kind:    argov1.ExperimentKind,
	New:     func() *argov1.Experiment { return &argov1.Experiment{} },
	NewList: func() client.ObjectList { return &argov1.ExperimentList{} },
}

// RequeueShard requeues the Experiments in the namespaces of a shard.
func (r *Reconciler) RequeueShard(queue *reconciler.Queue) sharding.Requeue {
	return func(ctx context.Context, inShard func(namespace string) bool) error {
		return experiments.RequeueShard(ctx, r.Client, queue, inShard)
	}
}
