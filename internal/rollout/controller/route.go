package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

// routersOf are those that a Rollout names.
func (r *Reconciler) routersOf(object *argov1.Rollout) ([]traffic.Router, error) {
	if object.Spec.Strategy.Canary == nil {
		return nil, nil
	}
	return r.Routers.ForRollout(object.Spec.Strategy.Canary.TrafficRouting)
}

// target is the Rollout as a router sees it at rest.
func (s *seen) target(router traffic.Router) traffic.Target {
	canary, stable := s.object.Status.CurrentPodHash, s.object.Status.StableRS
	if weights := s.object.Status.Canary.Weights; weights != nil {
		canary, stable = weights.Canary.PodTemplateHash, weights.Stable.PodTemplateHash
	}
	object := s.object
	if len(s.unnamed) > 0 {
		object = object.DeepCopy()
		s.knowUnnamed(object)
	}
	return router.Target(object, canary, stable)
}

// lookAtRoute asks all routers whether they serve what they were told. What cannot be read is found again when the Rollout
// is validated, and said there.
func (r *Reconciler) lookAtRoute(ctx context.Context, s *seen) error {
	routers, err := r.routersOf(s.object)
	if err != nil {
		return nil //nolint:nilerr // see validateRoutes
	}
	s.routers, s.versions = routers, make([]traffic.Versions, len(routers))
	for i, router := range routers {
		target := s.target(router)
		refs, err := r.Applier.Refs(ctx, router.Renderer, target)
		for _, ref := range refs {
			s.things = append(s.things, watching.Object{Kind: ref.GVK.GroupKind(), Namespace: ref.Namespace, Name: ref.Name})
			if !slices.Contains(s.kinds, ref.GVK) {
				s.kinds = append(s.kinds, ref.GVK)
			}
		}
		if reconciler.NeedsUser(err) {
			continue
		}
		if err != nil {
			return err
		}
		observed, versions, err := r.Applier.Observe(ctx, router.Renderer, target)
		s.versions[i] = versions
		if reconciler.NeedsUser(err) {
			continue
		}
		if err != nil {
			return err
		}
		s.snapshot.Router.HasCanaryWeight = s.snapshot.Router.HasCanaryWeight || observed.Found && observed.Route.Canary > 0
		s.snapshot.Router.ManagedRoutes = append(s.snapshot.Router.ManagedRoutes, observed.ManagedRoutes...)
		s.snapshot.Router.CanaryHash = cmp.Or(s.snapshot.Router.CanaryHash, observed.CanaryHash)
		s.snapshot.Router.StableHash = cmp.Or(s.snapshot.Router.StableHash, observed.StableHash)
		s.forwards = append(s.forwards, observed.Forwards...)
		if verified := router.Verified(target, observed); verified != nil && (s.snapshot.Router.Confirmed == nil || !*verified) {
			s.snapshot.Router.Confirmed, s.snapshot.Router.UnconfirmedReason = verified, observed.Reason
		}
	}
	return nil
}

// validateRoutes finds what of the user's routes does not fit the spec.
func (r *Reconciler) validateRoutes(ctx context.Context, s *seen) (field.ErrorList, error) {
	if _, err := r.routersOf(s.object); err != nil {
		return field.ErrorList{field.Forbidden(traffic.RoutingPath(), err.Error())}, nil
	}
	for _, router := range s.routers {
		problems, err := r.Applier.Validate(ctx, router.Renderer, s.target(router))
		switch {
		case errors.Is(err, traffic.ErrNotInstalled):
			s.missing = true // no watch tells of a definition
			return field.ErrorList{field.Forbidden(traffic.RoutingPath(), err.Error())}, nil
		case reconciler.NeedsUser(err):
			return field.ErrorList{field.Forbidden(traffic.RoutingPath(), err.Error())}, nil
		case err != nil:
			return nil, err
		case len(problems) > 0:
			return problems, nil
		}
	}
	return nil, nil
}

// routeIs makes all routers share the traffic so.
func (r *Reconciler) routeIs(ctx context.Context, s *seen, e rollout.TrafficRouted) (changed bool, events []release.Event, err error) {
	for i, router := range s.routers {
		told := s.object.DeepCopy()
		told.Status.Canary.StablePingPong = e.StablePingPong // the status that will be written
		s.knowUnnamed(told)
		target := router.Target(told, e.Weights.Canary.PodTemplateHash, e.Weights.Stable.PodTemplateHash)
		target.Drained = e.Drained
		outcome, err := r.Applier.Apply(ctx, router.Renderer, target, router.Route(target, routeOf(e, target)), s.versions[i])
		if outcome.Changed {
			s.versions[i] = nil // whatever it is told next in this pass was decided with that
		}
		for _, event := range outcome.Events {
			events = append(events, release.Event{Type: typeOf(event.Warning), Reason: event.Reason, Message: event.Message})
		}
		changed = changed || outcome.Changed
		if reconciler.Overtaken(err) || errors.Is(err, traffic.ErrUnreachable) { // which the decision that follows tells
			return changed, events, err
		}
		if err != nil {
			return changed, append(events, release.Event{Type: release.Warning, Reason: "TrafficRoutingError", Message: err.Error()}), err
		}
	}
	return changed, events, nil
}

func typeOf(warning bool) release.EventType {
	if warning {
		return release.Warning
	}
	return release.Normal
}

// routeOf is what an effect tells a router.
func routeOf(e rollout.TrafficRouted, target traffic.Target) release.Route {
	route := release.Route{Canary: int(e.Weights.Canary.Weight), Total: int(e.MaxWeight)}
	for _, additional := range e.Weights.Additional {
		route.Others = append(route.Others, release.Destination{
			Service: additional.ServiceName, Weight: int(additional.Weight), Revision: additional.PodTemplateHash,
		})
	}
	for _, header := range e.Headers {
		route.HeaderRoutes = append(route.HeaderRoutes, traffic.HeaderRoute(header))
	}
	for _, mirror := range e.Mirrors {
		route.MirrorRoutes = append(route.MirrorRoutes, traffic.MirrorRoute(mirror))
	}
	slices.SortStableFunc(route.HeaderRoutes, func(a, b release.HeaderRoute) int { return target.CompareManagedRoutes(a.Name, b.Name) })
	slices.SortStableFunc(route.MirrorRoutes, func(a, b release.MirrorRoute) int { return target.CompareManagedRoutes(a.Name, b.Name) })
	return route
}
