package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

// What routers were told stays in their objects when a spec does not name them any more, and a spec may change while nobody
// watches. So the status remembers whom the spec named: see argov1.RoutedStatus.

// maxRouted bounds what a status remembers; of more the oldest is forgotten.
const maxRouted = 10

// routedBy is what is remembered of the routers of a spec; nil where it names none.
func routedBy(spec argov1.RolloutSpec) *argov1.RoutedStatus {
	c := spec.Strategy.Canary
	if c == nil || c.TrafficRouting == nil {
		return nil
	}
	return &argov1.RoutedStatus{CanaryService: c.CanaryService, StableService: c.StableService, PingPong: c.PingPong, TrafficRouting: *c.TrafficRouting}
}

// lookForFormer finds the routers that the spec does not name any more, or not as it did. What a definition of others drops
// from the status is still known to the process that wrote it.
func (r *Reconciler) lookForFormer(s *seen, managed []*unstructured.Unstructured) error {
	former, err := r.formerOf(s.object, managed)
	if err != nil {
		return err
	}
	s.former = former
	for _, was := range s.former {
		s.unnamed = append(s.unnamed, was.TrafficRouting.ManagedRoutes...)
	}
	s.snapshot.Router.HasStaleRouters = len(s.former) > 0
	return nil
}

// formerOf is whom a spec named as router before, as far as anybody knows: the status, this process, or else the Services that
// the Rollout manages. These may have been another one's of the same name.
func (r *Reconciler) formerOf(object *argov1.Rollout, managed []*unstructured.Unstructured) ([]argov1.RoutedStatus, error) {
	var stored, former []argov1.RoutedStatus
	if own := object.Status.Serin; own != nil {
		stored = own.Routed
	}
	key := client.ObjectKeyFromObject(object)
	if len(stored) == 0 {
		var known bool
		own := r.memory.Own(key)
		if stored, known = own.routed, own.routedKnown; !known {
			var err error
			if _, stored, err = recorded(managed); err != nil {
				return nil, err
			}
		}
	}
	now := routedBy(object.Spec)
	for _, was := range stored {
		same, err := sameRouting(was, now)
		if err != nil {
			return nil, fmt.Errorf("compare the routers of Rollout %s with what they were: %w", key, err)
		}
		if !same {
			former = append(former, was)
		}
	}
	return former, nil
}

// knowUnnamed has a Rollout name the managed routes that it named before: they are its own until they are taken away.
func (s *seen) knowUnnamed(object *argov1.Rollout) {
	if c := object.Spec.Strategy.Canary; c != nil && c.TrafficRouting != nil {
		c.TrafficRouting.ManagedRoutes = append(c.TrafficRouting.ManagedRoutes, s.unnamed...)
	}
}

// routed is what the status shall remember: those that still hold something, and those of the spec.
func (s *seen) routed() []argov1.RoutedStatus {
	all := slices.Clone(s.former)
	if now := routedBy(s.object.Spec); now != nil {
		all = append(all, *now)
	}
	return all[max(len(all)-maxRouted, 0):]
}

// record is what the Services of the Rollout keep of it.
func (s *seen) record() string { return traffic.Record{UID: s.object.UID, Routed: s.routed()}.Text() }

func sameRouting(was argov1.RoutedStatus, now *argov1.RoutedStatus) (bool, error) {
	if now == nil {
		return false, nil
	}
	was.Restored = false
	if equality.Semantic.DeepEqual(was, *now) {
		return true, nil
	}
	a, err := tree(was)
	if err != nil {
		return false, err
	}
	b, err := tree(*now)
	return err == nil && jsontree.Equal(a, b), err
}

func tree(of argov1.RoutedStatus) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&of)
}

// sameRouter is true of a router that two specs name alike.
func sameRouter(name string, was, now argov1.RoutedStatus) (bool, error) {
	var blocks [2]map[string]any
	for i, of := range []argov1.RoutedStatus{was, now} {
		all, err := tree(of)
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

// routeReleased gives the objects of routers back that the strategy does not name any more. What was made for the Rollout
// stays until nothing is under way: it carries traffic, and nobody says that the others could take it.
func (r *Reconciler) routeReleased(ctx context.Context, s *seen, whole bool) error {
	var left []argov1.RoutedStatus
	for _, was := range s.former {
		made, err := r.release(ctx, s, was, whole)
		if err != nil {
			return err
		}
		if made {
			was.Restored = true
			left = append(left, was)
		}
	}
	s.former, s.released = left, len(left) < len(s.former)
	return nil
}

// release gives back what one spec had routers write, and is true while something is left that was made.
func (r *Reconciler) release(ctx context.Context, s *seen, was argov1.RoutedStatus, whole bool) (left bool, err error) {
	routers, err := r.Routers.ForRollout(&was.TrafficRouting)
	if err != nil {
		return false, nil //nolint:nilerr // a router that is not served has nothing of ours
	}
	now := routedBy(s.object.Spec)
	for _, router := range routers {
		if now != nil {
			same, err := sameRouter(router.Name, was, *now)
			if err != nil {
				return false, err
			}
			if same {
				continue
			}
		}
		made, err := r.releaseRouter(ctx, s, router, was, whole)
		if errors.Is(err, traffic.ErrNotInstalled) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("give back the objects of router %s: %w", router.Name, err)
		}
		left = left || made
	}
	return left, nil
}

func (r *Reconciler) releaseRouter(ctx context.Context, s *seen, router traffic.Router, was argov1.RoutedStatus, whole bool) (left bool, err error) {
	target := router.Target(as(s.object, was), "", "")
	if !was.Restored {
		if err := r.Applier.Restore(ctx, router.Renderer, target); err != nil {
			return false, err
		}
	}
	made, err := r.Applier.Owned(ctx, router.Renderer, target)
	made = slices.DeleteFunc(made, func(x traffic.Found) bool { // a router of the spec needs it
		return slices.Contains(s.things, watching.Object{Kind: x.Ref.GVK.GroupKind(), Namespace: x.Ref.Namespace, Name: x.Ref.Name})
	})
	if err != nil || !whole {
		return len(made) > 0, err
	}
	return false, r.Applier.Delete(ctx, target, made)
}

// as is a Rollout with the routers that it had.
func as(now *argov1.Rollout, was argov1.RoutedStatus) *argov1.Rollout {
	object := now.DeepCopy()
	canary := &argov1.CanaryStrategy{
		CanaryService: was.CanaryService, StableService: was.StableService, PingPong: was.PingPong, TrafficRouting: &was.TrafficRouting,
	}
	if now := object.Spec.Strategy.Canary; now != nil {
		canary.Steps = now.Steps
	}
	object.Spec.Strategy = argov1.RolloutStrategy{Canary: canary}
	return object
}
