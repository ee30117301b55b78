package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

// routeApplier writes the routes of Rollouts.
type routeApplier struct {
	routers traffic.Registry
	traffic *traffic.Applier
}

// setRoutes applies a traffic split to all routers of the Rollout.
func (a routeApplier) setRoutes(ctx context.Context, s *observation, e rollout.TrafficRouted) (changed bool, events []release.Event, err error) {
	for i, router := range s.routers {
		object := s.object.DeepCopy()
		object.Status.Canary.StablePingPong = e.StablePingPong // the status that will be written
		s.addFormerManagedRoutes(object)
		target := router.Target(object, e.Weights.Canary.PodTemplateHash, e.Weights.Stable.PodTemplateHash)
		target.Drained, target.PodAnnotations = e.Drained, s.podAnnotations()
		former, err := a.formerTargets(s, router)
		if err != nil {
			return changed, events, err
		}
		outcome, err := a.traffic.Apply(ctx, traffic.WithFormer(router.Renderer, former), target, router.Route(target, routeOf(e, target)), s.versions[i])
		if outcome.Changed {
			s.versions[i] = nil // later effects of this decision take this write into account
		}
		for _, event := range outcome.Events {
			if event.Warning {
				events = append(events, release.Event{Type: release.Warning, Reason: event.Reason, Message: event.Message})
			} else {
				events = append(events, rollout.StatusEvent(event.Reason, event.Message))
			}
		}
		changed = changed || outcome.Changed
		if reconciler.IsConflict(err) || errors.Is(err, traffic.ErrUnreachable) { // the decision that follows reports it
			return changed, events, err
		}
		if err != nil {
			return changed, append(events, release.Event{Type: release.Warning, Reason: "TrafficRoutingError", Message: err.Error()}), err
		}
	}
	return changed, events, nil
}

// routeOf returns the route of an effect.
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

// formerTargets returns the former configurations of a router whose routes are not restored yet.
func (a routeApplier) formerTargets(s *observation, router traffic.Router) ([]traffic.Target, error) {
	var targets []traffic.Target
	for _, former := range s.formerRouters {
		routers, err := a.changedRouters(s, former)
		if err != nil {
			return nil, err
		}
		for _, x := range routers {
			if x.Name == router.Name && !former.Restored {
				targets = append(targets, x.Target(withFormerStrategy(s.object, former), "", ""))
			}
		}
	}
	return targets, nil
}

// changedRouters returns the routers of a former spec that the spec no longer names, or configures in another way. An unsupported
// router has no objects of Serin.
func (a routeApplier) changedRouters(s *observation, former argov1.RoutedStatus) ([]traffic.Router, error) {
	routers, err := a.routers.ForRollout(&former.TrafficRouting)
	current := routedStatusOf(s.object.Spec)
	if err != nil || current == nil {
		return routers, nil //nolint:nilerr // none
	}
	var changed []traffic.Router
	for _, router := range routers {
		same, err := sameRouter(router.Name, former, *current)
		if err != nil {
			return nil, err
		}
		if !same {
			changed = append(changed, router)
		}
	}
	return changed, nil
}

// restoreFormer restores the objects of routers that the strategy no longer names, except for those into which setRoutes has written
// the route of the strategy. removeCreated is true if no release is in progress. Until then, objects that were created for the
// Rollout remain, because the other routers may not route their traffic yet.
func (a routeApplier) restoreFormer(ctx context.Context, s *observation, removeCreated bool) error {
	var remaining []argov1.RoutedStatus
	for _, former := range s.formerRouters {
		created, err := a.restoreRouting(ctx, s, former, removeCreated)
		if err != nil {
			return err
		}
		if created {
			former.Restored = true
			remaining = append(remaining, former)
		}
	}
	s.formerRouters, s.routersRestored = remaining, len(remaining) < len(s.formerRouters)
	return nil
}

// restoreRouting restores the objects of the routers that one former spec named. It reports whether objects remain that were
// created for the Rollout.
func (a routeApplier) restoreRouting(ctx context.Context, s *observation, former argov1.RoutedStatus, removeCreated bool) (remaining bool, err error) {
	routers, err := a.changedRouters(s, former)
	if err != nil {
		return false, err
	}
	for _, router := range routers {
		created, err := a.restoreRouter(ctx, s, router, former, removeCreated)
		if errors.Is(err, traffic.ErrNotInstalled) || errors.Is(err, traffic.ErrCrossNamespace) {
			continue // a reference that is forbidden now must not block the new routers
		}
		if err != nil {
			return false, fmt.Errorf("restore the objects of router %s: %w", router.Name, err)
		}
		remaining = remaining || created
	}
	return remaining, nil
}

func (a routeApplier) restoreRouter(ctx context.Context, s *observation, router traffic.Router, former argov1.RoutedStatus, removeCreated bool) (remaining bool, err error) {
	target := router.Target(withFormerStrategy(s.object, former), "", "")
	if !former.Restored {
		written, err := a.refsOf(ctx, s, router.Name)
		if err != nil {
			return false, err
		}
		if err := a.traffic.Restore(ctx, router.Renderer, target, written...); err != nil {
			return false, err
		}
	}
	created, err := a.traffic.Owned(ctx, router.Renderer, target)
	created = slices.DeleteFunc(created, func(x traffic.Lookup) bool { // a router of the spec needs it
		return slices.Contains(s.dependencies, watching.Object{Kind: x.Ref.GVK.GroupKind(), Namespace: x.Ref.Namespace, Name: x.Ref.Name})
	})
	if err != nil || !removeCreated {
		return len(created) > 0, err
	}
	return false, a.traffic.Delete(ctx, target, created)
}

// refsOf returns the objects that the router of that name in the spec writes; none if the spec does not name it.
func (a routeApplier) refsOf(ctx context.Context, s *observation, name string) ([]traffic.Ref, error) {
	for _, router := range s.routers {
		if router.Name == name {
			refs, err := a.traffic.Refs(ctx, router.Renderer, s.target(router))
			return slices.DeleteFunc(refs, func(ref traffic.Ref) bool { return !ref.Shared && !ref.Owned }), err
		}
	}
	return nil, nil
}

// sameRouter reports whether two specs configure a router in the same way.
func sameRouter(name string, former, current argov1.RoutedStatus) (bool, error) {
	var blocks [2]map[string]any
	for i, routed := range []argov1.RoutedStatus{former, current} {
		all, err := decodeRoutedStatus(routed)
		if err != nil {
			return false, err
		}
		routing, _ := all["trafficRouting"].(map[string]any)
		plugins, _ := routing["plugins"].(map[string]any)
		blocks[i] = map[string]any{
			"router": routing[name], "plugin": plugins[name],
			"canary": all["canaryService"], "stable": all["stableService"], "pingPong": all["pingPong"],
		}
	}
	return jsontree.Equal(blocks[0], blocks[1]), nil
}

// withFormerStrategy returns a Rollout with the routers of a former spec.
func withFormerStrategy(now *argov1.Rollout, former argov1.RoutedStatus) *argov1.Rollout {
	object := now.DeepCopy()
	canary := &argov1.CanaryStrategy{
		CanaryService: former.CanaryService, StableService: former.StableService, PingPong: former.PingPong, TrafficRouting: &former.TrafficRouting,
	}
	if now := object.Spec.Strategy.Canary; now != nil {
		canary.Steps = now.Steps
	}
	object.Spec.Strategy = argov1.RolloutStrategy{Canary: canary}
	return object
}
