package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
)

// errTaken says that somebody else has the name that a ReplicaSet should get.
var errTaken = errors.New("the name is taken")

// refusedError is why a ReplicaSet could not be made.
type refusedError struct {
	name  string
	cause error
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("create ReplicaSet %s: %v", e.name, e.cause)
}

func (e *refusedError) Unwrap() error { return e.cause }

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
		return r.remove(ctx, rs)
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

// edit changes the Rollout itself. Its status stays what was observed: it is written on its own.
func (r *Reconciler) edit(ctx context.Context, s *seen, how func(*argov1.Rollout)) (bool, error) {
	after := s.object.DeepCopy()
	how(after)
	changed, err := r.change(ctx, s.object, after)
	if err != nil {
		return false, err
	}
	if changed {
		r.newest.RecordIfUnknown(s.key(), s.object)
	}
	s.object = after
	return changed, nil
}

// takeOut takes what is at JSON pointers out of the stored Rollout, and nothing else: what else there is that nobody here
// can read stays.
func (r *Reconciler) takeOut(ctx context.Context, s *seen, pointers []string) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value,omitempty"`
	}
	operations := []operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: s.object.ResourceVersion}}
	for _, pointer := range slices.Backward(pointers) { // from the end of lists, whose elements would move
		operations = append(operations, operation{Op: "remove", Path: pointer})
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("write a patch of Rollout %s: %w", s.key(), err)
	}
	after := s.object.DeepCopy()
	if err := r.Client.Patch(ctx, after, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("take out of Rollout %s what cannot be read: %w", s.key(), err)
	}
	r.newest.RecordIfUnknown(s.key(), s.object)
	s.object = after
	return nil
}

// annotate writes one annotation of the Rollout; an empty one is taken away.
func (r *Reconciler) annotate(ctx context.Context, s *seen, key, value string) (bool, error) {
	if is, there := s.object.Annotations[key]; is == value && there == (value != "") {
		return false, nil // as mostly
	}
	return r.edit(ctx, s, func(object *argov1.Rollout) {
		if value == "" {
			delete(object.Annotations, key)
			return
		}
		if object.Annotations == nil {
			object.Annotations = map[string]string{}
		}
		object.Annotations[key] = value
	})
}

// set is a ReplicaSet of the Rollout as it was written last.
func (s *seen) set(name string) (*appsv1.ReplicaSet, error) {
	rs := s.sets[name]
	if rs == nil {
		return nil, fmt.Errorf("ReplicaSet %s of Rollout %s: %w", name, s.key(), reconciler.ErrChanged)
	}
	return rs, nil
}

// changeSet writes what is different about a ReplicaSet.
func (r *Reconciler) changeSet(ctx context.Context, s *seen, name string, how func(*appsv1.ReplicaSet) *appsv1.ReplicaSet) (bool, error) {
	before, err := s.set(name)
	if err != nil {
		return false, err
	}
	after := how(before)
	changed, err := r.change(ctx, before, after)
	if err == nil {
		s.sets[name] = after
	}
	return changed, err
}

// make creates the ReplicaSet of the template. One of that name that is this very one, made by an attempt whose answer
// was lost, is taken.
func (r *Reconciler) make(ctx context.Context, s *seen, e rollout.ReplicaSetExists) (bool, error) {
	if s.sets[e.Name] != nil {
		return false, nil
	}
	rs := replicaset.New(s.object, s.spec, e)
	err := r.Client.Create(ctx, rs)
	switch {
	case err == nil:
		s.sets[e.Name] = rs
		s.snapshot.ReplicaSets = append(slices.Clip(s.snapshot.ReplicaSets), replicaset.Observe(rs)) // the release begins with it
		return true, nil
	case errors.Is(err, readyourwrites.ErrStale): // nothing was asked
		return false, err
	case !apierrors.IsAlreadyExists(err):
		return false, &refusedError{e.Name, err}
	}
	live := &appsv1.ReplicaSet{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(rs), live); err != nil {
		return false, fmt.Errorf("look at ReplicaSet %s.%s, which is there already: %w", rs.Name, rs.Namespace, err)
	}
	if !metav1.IsControlledBy(live, s.object) || live.DeletionTimestamp != nil || !replicaset.RunsTemplate(live, s.spec.Template) {
		return false, fmt.Errorf("create ReplicaSet %s.%s: %w", rs.Name, rs.Namespace, errTaken)
	}
	s.sets[e.Name] = live
	return false, nil
}
