package controller

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/watching"
)

// observeServices reads the Services that the strategy names, and those with the mark of the Rollout.
func (o *Observer) observeServices(ctx context.Context, s *observation) error {
	objects := managedObjects{o.Client}
	managed, err := objects.managedServices(ctx, s.key())
	if err != nil {
		return err
	}
	if err := o.observeFormerRouters(s, managed); err != nil {
		return err
	}
	record, names := s.serviceRecord(), namesOf(managed)
	for _, name := range rollout.ServiceNames(s.spec.Strategy) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	s.snapshot.Services = map[string]rollout.Service{}
	for _, name := range names {
		s.dependencies = append(s.dependencies, watching.Object{Kind: serviceKind.GroupKind(), Namespace: s.object.Namespace, Name: name})
		found, err := objects.getService(ctx, s.object.Namespace, name)
		if err != nil {
			return err
		}
		if found == nil {
			s.snapshot.Services[name] = rollout.Service{}
			continue
		}
		selector, _, _ := unstructured.NestedStringMap(found.Object, "spec", "selector")
		annotations := found.GetAnnotations()
		s.snapshot.Services[name] = rollout.Service{
			Found: true, Selector: selector, ManagedBy: annotations[argov1.ManagedByAnnotation], RecordOutdated: annotations[argov1.RoutedByAnnotation] != record,
		}
	}
	return nil
}
