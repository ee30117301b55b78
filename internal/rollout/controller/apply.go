package controller

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
)

// applyEffects applies effects in order, up to the first that fails. It returns the events about what changed, whether one failed
// or not.
func (r *Reconciler) applyEffects(ctx context.Context, s *seen, effects []release.Effect) (all []release.Event, err error) {
	for _, effect := range effects {
		changed, events, err := r.one(ctx, s, effect)
		all = append(all, events...)
		if event, news := rollout.EffectEvent(effect); changed && news {
			all = append(all, event)
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// one applies one effect, and reports whether that changed anything.
func (r *Reconciler) one(ctx context.Context, s *seen, effect release.Effect) (changed bool, events []release.Event, err error) {
	switch e := effect.(type) {
	case rollout.TrafficRouted:
		return r.routeIs(ctx, s, e)
	case rollout.RouteRestored:
		return false, nil, r.routeReleased(ctx, s, e.RemoveCreated)
	case rollout.AnalysisRunExists:
		changed, err = r.runExists(ctx, s, e)
	case rollout.AnalysisRunTerminated:
		changed, err = r.endRun(ctx, s, e.Name)
	case rollout.AnalysisRunDeleted:
		changed, err = r.forgetOwned(ctx, s, e.Name, &argov1.AnalysisRun{})
	case rollout.ExperimentExists:
		changed, err = r.experimentExists(ctx, s, e)
	case rollout.ExperimentTerminated:
		changed, err = r.endExperiment(ctx, s, e.Name)
	case rollout.ExperimentDeleted:
		changed, err = r.forgetOwned(ctx, s, e.Name, &argov1.Experiment{})
	default:
		changed, err = r.onPods(ctx, s, effect)
	}
	return changed, nil, err
}

// onPods makes one effect true that is about the Rollout itself, its pods, or the way to them.
func (r *Reconciler) onPods(ctx context.Context, s *seen, effect release.Effect) (changed bool, err error) {
	switch e := effect.(type) {
	case rollout.ReplicasDefaulted:
		return r.edit(ctx, s, func(object *argov1.Rollout) {
			if object.Spec.Replicas == nil {
				object.Spec.Replicas = new(int32(1))
			}
		})
	case rollout.UnreadableQuantitiesRemoved:
		return true, r.takeOut(ctx, s, e.Pointers)
	case rollout.RevisionAnnotated:
		return r.annotate(ctx, s, argov1.RevisionAnnotation, strconv.FormatInt(e.Revision, 10))
	case rollout.WorkloadGenerationAnnotated:
		return r.annotate(ctx, s, argov1.WorkloadGenerationAnnotation, e.Generation)
	case rollout.ReplicaSetExists:
		return r.make(ctx, s, e)
	case rollout.ReplicaSetMaintained:
		return r.changeSet(ctx, s, e.Name, func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
			hash := s.hash
			if replicaset.PodTemplateHash(rs) != s.snapshot.Hash { // it is of an older template: the new one waits for its turn
				hash = ""
			}
			return replicaset.Maintain(rs, s.object, s.spec, e, hash)
		})
	case rollout.ReplicaSetScaled:
		return r.changeSet(ctx, s, e.Name, func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return replicaset.Scale(rs, e) })
	case rollout.ScaleDownDeadlineSet:
		return r.changeSet(ctx, s, e.Name, func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return replicaset.SetScaleDownDeadline(rs, e.Until) })
	case rollout.EphemeralMetadataSet:
		return r.labelled(ctx, s, e)
	case rollout.ReplicaSetDeleted:
		rs, err := s.set(e.Name)
		if err != nil {
			return false, err
		}
		return deleteObserved(ctx, r.Client, rs)
	case rollout.PodEvicted:
		return r.evict(ctx, s, e)
	case rollout.ServiceSelects:
		return r.selects(ctx, s, e)
	case rollout.ServiceRestored:
		return r.releaseService(ctx, s.object.Namespace, s.object.Name, e.Service)
	case rollout.WorkloadScaled:
		return r.scaleWorkload(ctx, s, e)
	case rollout.WorkloadRestored:
		return r.releaseWorkload(ctx, s.object, e.Name)
	default:
		return false, fmt.Errorf("effect %T is unknown", effect)
	}
}
