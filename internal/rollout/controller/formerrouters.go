package controller

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/traffic"
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

// observeFormerRouters finds the routers that the spec does not name any more, or not as it did. What a definition of others drops
// from the status is still known to the process that wrote it.
func (o *Observer) observeFormerRouters(s *seen, managed []*unstructured.Unstructured) error {
	former, err := o.formerOf(s.object, managed)
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
func (o *Observer) formerOf(object *argov1.Rollout, managed []*unstructured.Unstructured) ([]argov1.RoutedStatus, error) {
	var stored, former []argov1.RoutedStatus
	if own := object.Status.Serin; own != nil {
		stored = own.Routed
	}
	key := client.ObjectKeyFromObject(object)
	if len(stored) == 0 {
		var known bool
		own := o.memory.Own(key)
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
