package controller

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
)

// applier applies effects, by the kind of object that they are about.
type applier struct {
	rollouts    rolloutEditor
	replicaSets replicaSetApplier
	pods        podApplier
	managed     managedObjects
	routes      routeApplier
	analyses    analysisApplier
}

// newApplier returns the applier of a reconciler with these parts. newest are the newest known versions of Rollouts.
func newApplier(parts Parts, memory *memory, newest *readyourwrites.NewestVersions) *applier {
	replicaSets := replicaSetApplier{parts.Client, parts.APIReader}
	return &applier{
		rollouts:    rolloutEditor{parts.Client, newest},
		replicaSets: replicaSets,
		pods:        podApplier{parts.Client, parts.APIReader, replicaSets, memory},
		managed:     managedObjects{parts.Client},
		routes:      routeApplier{parts.Routers, parts.Applier},
		analyses:    analysisApplier{parts.Client, parts.APIReader, parts.Runs, parts.InstanceID},
	}
}

// applyEffects applies effects in order, up to the first that fails. It returns the events about the changes, even if an effect
// failed, and records in the observation that there were changes.
func (a *applier) applyEffects(ctx context.Context, s *observation, effects []release.Effect) (all []release.Event, err error) {
	for _, effect := range effects {
		changed, events, err := a.applyEffect(ctx, s, effect)
		s.changed = s.changed || changed
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

// applyEffect applies one effect, and reports whether that changed anything.
func (a *applier) applyEffect(ctx context.Context, s *observation, effect release.Effect) (changed bool, events []release.Event, err error) {
	switch e := effect.(type) {
	case rollout.TrafficRouted:
		return a.routes.setRoutes(ctx, s, e)
	case rollout.RouteRestored:
		return false, nil, a.routes.restoreFormer(ctx, s, e.RemoveCreated)
	case rollout.AnalysisRunExists:
		changed, err = a.analyses.startRun(ctx, s, e)
	case rollout.AnalysisRunTerminated:
		changed, err = a.analyses.terminateRun(ctx, s, e.Name)
	case rollout.AnalysisRunDeleted:
		changed, err = a.analyses.deleteOwned(ctx, s, e.Name, &argov1.AnalysisRun{})
	case rollout.ExperimentExists:
		changed, err = a.analyses.startExperiment(ctx, s, e)
	case rollout.ExperimentTerminated:
		changed, err = a.analyses.terminateExperiment(ctx, s, e.Name)
	case rollout.ExperimentDeleted:
		changed, err = a.analyses.deleteOwned(ctx, s, e.Name, &argov1.Experiment{})
	default:
		changed, err = a.applyWorkloadEffect(ctx, s, effect)
	}
	return changed, nil, err
}

// applyWorkloadEffect applies an effect that is about the Rollout itself, its pods, or the Services in front of them.
func (a *applier) applyWorkloadEffect(ctx context.Context, s *observation, effect release.Effect) (changed bool, err error) {
	switch e := effect.(type) {
	case rollout.ReplicasDefaulted:
		return a.rollouts.edit(ctx, s, func(object *argov1.Rollout) {
			if object.Spec.Replicas == nil {
				object.Spec.Replicas = new(int32(1))
			}
		})
	case rollout.UnreadableQuantitiesRemoved:
		return true, a.rollouts.removeFields(ctx, s, e.Pointers)
	case rollout.RevisionAnnotated:
		return a.rollouts.annotate(ctx, s, argov1.RevisionAnnotation, strconv.FormatInt(e.Revision, 10))
	case rollout.WorkloadGenerationAnnotated:
		return a.rollouts.annotate(ctx, s, argov1.WorkloadGenerationAnnotation, e.Generation)
	case rollout.ReplicaSetExists:
		return a.replicaSets.create(ctx, s, e)
	case rollout.ReplicaSetMaintained:
		return a.replicaSets.update(ctx, s, e.Name, func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
			hash := s.hash
			if replicaset.PodTemplateHash(rs) != s.snapshot.Hash { // it has an older template: the new one waits in the queue
				hash = ""
			}
			return replicaset.Maintain(rs, s.object, s.spec, e, hash)
		})
	case rollout.ReplicaSetScaled:
		return a.replicaSets.update(ctx, s, e.Name, func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return replicaset.Scale(rs, e) })
	case rollout.ScaleDownDeadlineSet:
		return a.replicaSets.update(ctx, s, e.Name, func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return replicaset.SetScaleDownDeadline(rs, e) })
	case rollout.EphemeralMetadataSet:
		return a.pods.setEphemeralMetadata(ctx, s, e)
	case rollout.ReplicaSetDeleted:
		return a.replicaSets.delete(ctx, s, e.Name)
	case rollout.PodEvicted:
		return a.pods.evict(ctx, s, e)
	case rollout.ServiceSelects:
		return a.managed.selectPods(ctx, s, e)
	case rollout.ServiceRestored:
		return a.managed.restoreService(ctx, s.object.Namespace, s.object.Name, e.Service)
	case rollout.WorkloadScaled:
		return a.managed.scaleWorkload(ctx, s, e)
	case rollout.WorkloadRestored:
		return a.managed.restoreWorkload(ctx, s.object, e.Name)
	default:
		return false, fmt.Errorf("unknown effect %T", effect)
	}
}
