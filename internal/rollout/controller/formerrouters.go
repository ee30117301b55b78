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

// maxRoutedStatuses limits how many former specs a status records; the oldest are dropped.
const maxRoutedStatuses = 10

// routedStatusOf returns the record of the routers of a spec for the status; nil: the spec names none.
func routedStatusOf(spec argov1.RolloutSpec) *argov1.RoutedStatus {
	c := spec.Strategy.Canary
	if c == nil || c.TrafficRouting == nil {
		return nil
	}
	return &argov1.RoutedStatus{CanaryService: c.CanaryService, StableService: c.StableService, PingPong: c.PingPong, TrafficRouting: *c.TrafficRouting}
}

// observeFormerRouters finds the routers that the spec no longer names, or names with another configuration. If the installed
// definition drops them from the status, they are in the memory of the process that wrote them.
func (o *Observer) observeFormerRouters(s *observation, managed []*unstructured.Unstructured) error {
	former, err := o.formerRoutersOf(s.object, managed)
	if err != nil {
		return err
	}
	s.formerRouters = former
	for _, former := range s.formerRouters {
		s.formerManagedRoutes = append(s.formerManagedRoutes, former.TrafficRouting.ManagedRoutes...)
	}
	s.snapshot.Route.HasStaleRouters = len(s.formerRouters) > 0
	return nil
}

// formerRoutersOf returns the routers that former specs named, according to the status, to this process, or else to the
// Services that the Rollout manages. A Service may still contain the record of an earlier Rollout of the same name.
func (o *Observer) formerRoutersOf(object *argov1.Rollout, managed []*unstructured.Unstructured) ([]argov1.RoutedStatus, error) {
	var stored, formerRouters []argov1.RoutedStatus
	if own := object.Status.Serin; own != nil {
		stored = own.Routed
	}
	key := client.ObjectKeyFromObject(object)
	if len(stored) == 0 {
		var known bool
		own := o.memory.Own(key)
		if stored, known = own.routedStatuses, own.routedKnown; !known {
			var err error
			if _, stored, err = readRecords(managed); err != nil {
				return nil, err
			}
		}
	}
	current := routedStatusOf(object.Spec)
	for _, former := range stored {
		same, err := sameRouting(former, current)
		if err != nil {
			return nil, fmt.Errorf("compare the routers of Rollout %s with its former ones: %w", key, err)
		}
		if !same {
			formerRouters = append(formerRouters, former)
		}
	}
	return formerRouters, nil
}

// addFormerManagedRoutes adds the managed routes of former specs to a Rollout: it owns them until they are removed.
func (s *observation) addFormerManagedRoutes(object *argov1.Rollout) {
	if c := object.Spec.Strategy.Canary; c != nil && c.TrafficRouting != nil {
		c.TrafficRouting.ManagedRoutes = append(c.TrafficRouting.ManagedRoutes, s.formerManagedRoutes...)
	}
}

// routedStatuses returns the routers that the status must record: former ones whose objects are not restored yet, and those of
// the spec.
func (s *observation) routedStatuses() []argov1.RoutedStatus {
	all := slices.Clone(s.formerRouters)
	if current := routedStatusOf(s.object.Spec); current != nil {
		all = append(all, *current)
	}
	return all[max(len(all)-maxRoutedStatuses, 0):]
}

// serviceRecord returns the value of the annotation with which the Services of the Rollout record its routers.
func (s *observation) serviceRecord() string {
	return traffic.Record{UID: s.object.UID, Routed: s.routedStatuses()}.Text()
}

func sameRouting(former argov1.RoutedStatus, current *argov1.RoutedStatus) (bool, error) {
	if current == nil {
		return false, nil
	}
	former.Restored = false
	if equality.Semantic.DeepEqual(former, *current) {
		return true, nil
	}
	a, err := decodeRoutedStatus(former)
	if err != nil {
		return false, err
	}
	b, err := decodeRoutedStatus(*current)
	return err == nil && jsontree.Equal(a, b), err
}

func decodeRoutedStatus(status argov1.RoutedStatus) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
}
