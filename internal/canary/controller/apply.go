package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// effectApplier applies effects. It knows how the desired state is reached, not why it is desired.
type effectApplier struct {
	*Observer
	// reader reads from the API server.
	reader client.Reader
	memory *memory
}

func (r *Reconciler) effectApplier() effectApplier {
	return effectApplier{Observer: &r.Observer, reader: r.APIReader, memory: r.memory}
}

// applyDecision applies the effects of a decision in order, up to the first that fails. An effect that was applied only in part
// is a warning. The returned decision includes the warnings and what the user must fix; rejected is true if no watch notifies
// of the fix. Other errors are returned.
func (a effectApplier) applyDecision(ctx context.Context, s *observation, d canary.Decision) (decision canary.Decision, rejected bool, err error) {
	events := slices.Concat(d.Events, s.warnings)
	for _, effect := range d.Effects {
		err := a.applyIfNeeded(ctx, s, effect, d.Status)
		var partial *workload.PartialServiceError
		switch {
		case errors.As(err, &partial):
			for _, text := range partial.Messages {
				events = append(events, release.Event{Type: release.Warning, Message: text, Persistent: true})
			}
		case reconciler.NeedsUser(err), reconciler.IsRejected(err):
			return canary.RejectedEffectDecision(s.snapshot, d.Gates, effect, reconciler.Message(err)), reconciler.IsRejected(err), nil
		case err != nil:
			return d, false, err
		}
	}
	d.Events = events
	return d, false, nil
}

// applyEffect applies one effect. status is the one that will be written: it contains the cookies of the run.
func (a effectApplier) applyEffect(ctx context.Context, s *observation, effect release.Effect, status flaggerv1.CanaryStatus) error {
	c := s.object
	target := a.Workloads.ForCanary(c)
	switch e := effect.(type) {
	case canary.HasFinalizer:
		return a.setFinalizer(ctx, c, e.Present)
	case canary.ServicesExist:
		return target.EnsureServices(ctx, c, e.Apex)
	case canary.PrimaryExists:
		return target.EnsurePrimary(ctx, c, e.Revision, e.ID, e.Follow)
	case canary.PrimaryRecreated:
		return target.RecreatePrimary(ctx, c, workload.TemplateSource{Revision: e.Revision, FlaggerHash: e.FlaggerHash}, e.RevertedCopyID, e.ID)
	case canary.ScalerExists:
		return target.EnsureScaler(ctx, c, e.Update)
	case canary.ScalerPaused:
		if e.Paused {
			return target.PauseScaler(ctx, c)
		}
		return target.ResumeScaler(ctx, c)
	case canary.TargetScaledUp:
		if e.ToPrimaryCapacity {
			return target.UpToPrimary(ctx, c)
		}
		return target.UpFromZero(ctx, c)
	case canary.PrimaryScaledUpFromZero:
		return target.PrimaryUpFromZero(ctx, c)
	case canary.TargetScaledToZero:
		return target.DownToZero(ctx, c)
	case canary.CopyTemplate:
		return target.CopyTemplate(ctx, c, e.Revision, e.ID)
	case canary.RestoreTemplate:
		return target.RestoreTemplate(ctx, c, e.ID)
	case canary.ConfigsRestored:
		return target.RestoreConfigs(ctx, c, e.ID)
	case canary.ConfigsCollected:
		return target.CollectConfigs(ctx, c)
	case canary.RoutePrepared:
		if s.renderer == nil {
			return nil
		}
		_, err := a.Applier.Prepare(ctx, s.renderer, s.target)
		return err
	case canary.RouteMaintained:
		return a.maintainRoute(ctx, s, status, e)
	case canary.TrafficWeight:
		return a.setWeight(ctx, s, status, e)
	case canary.UserObjectsRestored:
		return a.restoreUserObjects(ctx, s)
	default:
		return fmt.Errorf("unknown effect %T", effect)
	}
}

// maintainRoute applies everything of a route except for its weights.
func (a effectApplier) maintainRoute(ctx context.Context, s *observation, status flaggerv1.CanaryStatus, e canary.RouteMaintained) error {
	if s.renderer == nil {
		return nil
	}
	route := routeOf(s, status, s.renderer, s.target)
	route.Canary, route.Mirror.Enabled = e.Canary, e.Mirror
	_, err := a.Applier.ApplyExceptWeights(ctx, s.renderer, s.target, route, e.Observed)
	return err
}

// setWeight applies a route with the provider of the plan, or with weight.Provider.
func (a effectApplier) setWeight(ctx context.Context, s *observation, status flaggerv1.CanaryStatus, weight canary.TrafficWeight) error {
	renderer, target, decided := s.renderer, s.target, s.versions
	if weight.Provider != "" {
		var ok bool
		if renderer, ok = a.Routers.ForCanary(weight.Provider); !ok {
			return nil // only an older version of Serin supports that provider
		}
		target, decided = s.targetOf(weight.Provider), nil // its objects were not read
	}
	if renderer == nil {
		return nil
	}
	route := routeOf(s, status, renderer, target)
	route.Canary, route.Mirror.Enabled = weight.Canary, weight.Mirror
	if !weight.Mirror {
		route.Mirror.Percent = 0
	}
	if weight.Canary == 0 && len(s.snapshot.Plan.ValidationErrors) > 0 {
		route.Matches = nil // they may be the invalid part, and must not prevent the rollback
	}
	_, err := a.Applier.Apply(ctx, renderer, target, route, decided)
	if weight.Provider != "" && errors.Is(err, traffic.ErrNotInstalled) {
		return nil // the previous provider was uninstalled, with its routes
	}
	return err
}

// routeOf returns the route of a Canary without its weight. The share of mirrored requests is set as if mirroring were enabled.
func routeOf(s *observation, status flaggerv1.CanaryStatus, renderer traffic.Renderer, target traffic.Target) release.Route {
	var route release.Route
	features := renderer.Features(target)
	if features.Sticky {
		route.Sticky = traffic.Sticky(s.object, status)
	}
	if features.MirrorPercent {
		route.Mirror.Percent = analysisOf(s.object).MirrorWeight
	}
	if s.snapshot.Plan.Strategy == canary.ABTesting {
		route.Matches = traffic.Matches(s.object)
	}
	return route
}

// liveReadClient reads from the API server instead of a cache: after the restoration there is no reconciliation that would
// correct a decision based on a stale cache.
type liveReadClient struct {
	client.Client
	reader client.Reader
}

// Get implements client.Client.
func (f liveReadClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return f.reader.Get(ctx, key, into, options...)
}

// restoreUserObjects restores the Services and the route of the user.
func (a effectApplier) restoreUserObjects(ctx context.Context, s *observation) error {
	if err := a.Workloads.ForCanary(s.object).RestoreServices(ctx, s.object); err != nil {
		return err
	}
	if s.renderer == nil {
		return nil
	}
	applier := *a.Applier
	applier.Client = liveReadClient{applier.Client, a.reader}
	err := applier.Restore(ctx, s.renderer, s.target)
	if errors.Is(err, traffic.ErrNoOriginal) {
		return &workload.PartialServiceError{Messages: []string{err.Error()}}
	}
	return err
}

// setFinalizer adds or removes the finalizer. The patch contains the version that was read. A Canary that is deleted with its
// finalizer may never appear in the cache in the resulting version: a watch that restarts shows only its absence.
func (a effectApplier) setFinalizer(ctx context.Context, c *flaggerv1.Canary, present bool) error {
	if slices.Contains(c.Finalizers, finalizer) == present {
		return nil
	}
	before := c.DeepCopy()
	if present {
		c.Finalizers = append(c.Finalizers, finalizer)
	} else {
		c.Finalizers = slices.DeleteFunc(c.Finalizers, func(name string) bool { return name == finalizer })
	}
	spec, status := c.Spec, c.Status // the target of the observation may be a former one
	var options []client.PatchOption
	if !present {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	err := a.Client.Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...)
	if err != nil {
		c.Finalizers = before.Finalizers
		return fmt.Errorf("set the finalizer of Canary %s.%s: %w", c.Name, c.Namespace, err)
	}
	c.Spec, c.Status = spec, status
	return nil
}
