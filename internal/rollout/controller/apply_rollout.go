package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/readyourwrites"
)

// rolloutEditor changes the Rollout itself.
type rolloutEditor struct {
	client client.Client
	newest *readyourwrites.NewestVersions
}

// edit changes the Rollout itself, except for its status, which is written separately.
func (e rolloutEditor) edit(ctx context.Context, s *observation, change func(*argov1.Rollout)) (bool, error) {
	after := s.object.DeepCopy()
	change(after)
	changed, err := writeChanges(ctx, e.client, s.object, after)
	if err != nil {
		return false, err
	}
	if changed {
		e.newest.RecordIfUnknown(s.key(), s.object)
	}
	s.object = after
	return changed, nil
}

// removeFields removes the fields at JSON pointers from the stored Rollout. Other fields that this version cannot decode are
// retained.
func (e rolloutEditor) removeFields(ctx context.Context, s *observation, pointers []string) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value,omitempty"`
	}
	operations := []operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: s.object.ResourceVersion}}
	for _, pointer := range slices.Backward(pointers) { // from the end of lists: a removal shifts the elements after it
		operations = append(operations, operation{Op: "remove", Path: pointer})
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encode a patch of Rollout %s: %w", s.key(), err)
	}
	after := s.object.DeepCopy()
	if err := e.client.Patch(ctx, after, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("remove the unreadable fields of Rollout %s: %w", s.key(), err)
	}
	e.newest.RecordIfUnknown(s.key(), s.object)
	s.object = after
	return nil
}

// annotate writes one annotation of the Rollout; it removes an empty one.
func (e rolloutEditor) annotate(ctx context.Context, s *observation, key, value string) (bool, error) {
	if current, exists := s.object.Annotations[key]; current == value && exists == (value != "") {
		return false, nil // the usual case
	}
	return e.edit(ctx, s, func(object *argov1.Rollout) {
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
