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

// When a spec no longer names a router, the objects of that router still contain the last route, and the spec may change while no
// process runs. Therefore, the status records the routers that the spec named: see argov1.RoutedStatus.

// maxRouted limits how many former specs a status records; the oldest are dropped.
const maxRouted = 10

// routedBy returns what the status records of the routers of a spec; nil if it names none.
func routedBy(spec argov1.RolloutSpec) *argov1.RoutedStatus {
	c := spec.Strategy.Canary
	if c == nil || c.TrafficRouting == nil {
		return nil
	}
	return &argov1.RoutedStatus{CanaryService: c.CanaryService, StableService: c.StableService, PingPong: c.PingPong, TrafficRouting: *c.TrafficRouting}
}

// observeFormerRouters finds the routers that the spec no longer names, or names with another configuration. If the installed
// definition drops them from the status, the process that wrote them still knows them.
func (o *Observer) observeFormerRouters(s *seen, managed []*unstructured.Unstructured) error {
	former, err := o.formerOf(s.object, managed)
	if err != nil {
		return err
	}
	s.former = former
	for _, was := range s.former {
		s.formerManagedRoutes = append(s.formerManagedRoutes, was.TrafficRouting.ManagedRoutes...)
	}
	s.snapshot.Router.HasStaleRouters = len(s.former) > 0
	return nil
}

// formerOf returns the routers that former specs named, according to the status, to this process, or else to the Services that the
// Rollout manages. A Service may still contain the record of an earlier Rollout of the same name.
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
			return nil, fmt.Errorf("compare the routers of Rollout %s with its former ones: %w", key, err)
		}
		if !same {
			former = append(former, was)
		}
	}
	return former, nil
}

// addFormerManagedRoutes adds the managed routes of former specs to a Rollout: it owns them until they are removed.
func (s *seen) addFormerManagedRoutes(object *argov1.Rollout) {
	if c := object.Spec.Strategy.Canary; c != nil && c.TrafficRouting != nil {
		c.TrafficRouting.ManagedRoutes = append(c.TrafficRouting.ManagedRoutes, s.formerManagedRoutes...)
	}
}

// routed returns what the status must record: former routers whose objects are not restored yet, and those of the spec.
func (s *seen) routed() []argov1.RoutedStatus {
	all := slices.Clone(s.former)
	if now := routedBy(s.object.Spec); now != nil {
		all = append(all, *now)
	}
	return all[max(len(all)-maxRouted, 0):]
}

// record returns the value of the annotation with which the Services of the Rollout record its routers.
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
