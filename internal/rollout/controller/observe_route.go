package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

// routersOf returns the routers that a Rollout names.
func (o *Observer) routersOf(object *argov1.Rollout) ([]traffic.Router, error) {
	if object.Spec.Strategy.Canary == nil {
		return nil, nil
	}
	return o.Routers.ForRollout(object.Spec.Strategy.Canary.TrafficRouting)
}

// target returns the Rollout in the form that a router needs to read its route.
func (s *observation) target(router traffic.Router) traffic.Target {
	canary, stable := s.object.Status.CurrentPodHash, s.object.Status.StableRS
	if weights := s.object.Status.Canary.Weights; weights != nil {
		canary, stable = weights.Canary.PodTemplateHash, weights.Stable.PodTemplateHash
	}
	object := s.object
	if len(s.formerManagedRoutes) > 0 {
		object = object.DeepCopy()
		s.addFormerManagedRoutes(object)
	}
	target := router.Target(object, canary, stable)
	target.PodAnnotations = s.podAnnotations()
	return target
}

// podAnnotations returns the annotations in the pod templates of all ReplicaSets, by hash.
func (s *observation) podAnnotations() map[string]map[string]string {
	out := make(map[string]map[string]string, len(s.replicaSets))
	for _, rs := range s.replicaSets {
		out[replicaset.PodTemplateHash(rs)] = rs.Spec.Template.Annotations
	}
	return out
}

// observeRoute reads the route of each router, and whether the router serves it. Routes that cannot be read are skipped:
// validation reports them, or the next write corrects them.
func (o *Observer) observeRoute(ctx context.Context, s *observation) error {
	routers, err := o.routersOf(s.object)
	if err != nil {
		return nil //nolint:nilerr // see validateRoutes
	}
	s.routers, s.versions = routers, make([]traffic.Versions, len(routers))
	for i, router := range routers {
		target := s.target(router)
		refs, err := o.Applier.Refs(ctx, router.Renderer, target)
		for _, ref := range refs {
			s.dependencies = append(s.dependencies, watching.Object{Kind: ref.GVK.GroupKind(), Namespace: ref.Namespace, Name: ref.Name})
			if !slices.Contains(s.watchedKinds, ref.GVK) {
				s.watchedKinds = append(s.watchedKinds, ref.GVK)
			}
		}
		if reconciler.NeedsUser(err) {
			continue
		}
		if err != nil {
			return err
		}
		observed, versions, err := o.Applier.Observe(ctx, router.Renderer, target)
		s.versions[i] = versions
		if reconciler.NeedsUser(err) || errors.Is(err, traffic.ErrUnreadable) {
			continue
		}
		if err != nil {
			return err
		}
		s.snapshot.Route.HasCanaryWeight = s.snapshot.Route.HasCanaryWeight || observed.Found && observed.Route.Canary > 0
		s.snapshot.Route.ManagedRoutes = append(s.snapshot.Route.ManagedRoutes, observed.ManagedRoutes...)
		s.snapshot.Route.CanaryHash = cmp.Or(s.snapshot.Route.CanaryHash, observed.CanaryHash)
		s.snapshot.Route.StableHash = cmp.Or(s.snapshot.Route.StableHash, observed.StableHash)
		s.forwards = append(s.forwards, observed.Forwards...)
		if observed.Unreported != nil {
			s.snapshot.Route.Unreported = observed.Unreported.Message()
		}
		if verified := router.Verified(target, observed); verified != nil && (s.snapshot.Route.Confirmed == nil || !*verified) {
			s.snapshot.Route.Confirmed, s.snapshot.Route.UnconfirmedReason = verified, observed.Reason
		}
	}
	return nil
}
