package traffic

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/serin-dev/serin/internal/release"
)

// WithFormer returns a renderer for a Rollout whose configuration of the router has changed. It renders a route into its objects as
// they are without the routes of former configurations, so that one write replaces these: between a restoration and the next route,
// the weights and revisions of a release in progress would be lost.
func WithFormer(rd Renderer, former []Target) Renderer {
	if len(former) == 0 {
		return rd
	}
	return formerRenderer{rd, former}
}

type formerRenderer struct {
	Renderer
	former []Target
}

// Render implements Renderer. What cannot be restored remains.
func (rd formerRenderer) Render(t Target, r release.Route, existing Objects) ([]*unstructured.Unstructured, error) {
	restored := slices.Clone(existing)
	for _, former := range rd.former {
		objects, err := FindObjects(rd.Renderer, former, release.Route{}, restored.find)
		if err != nil {
			continue
		}
		originals, err := rd.Restore(former, objects)
		if err != nil && !errors.Is(err, ErrNoOriginal) {
			continue
		}
		for i, x := range objects {
			for j := range restored {
				if restored[j].Ref.Shared && restored[j].Ref.key() == x.Ref.key() && originals[i] != nil {
					restored[j].Object = originals[i]
				}
			}
		}
	}
	return rd.Renderer.Render(t, r, restored)
}

// find returns what a reference names among the objects.
func (o Objects) find(ref Ref) (Objects, error) {
	if ref.Selector == "" {
		return Objects{{Ref: ref, Object: o.Get(ref.GVK.Kind, ref.Namespace, ref.Name)}}, nil
	}
	selector, err := labels.Parse(ref.Selector)
	if err != nil {
		return nil, err
	}
	var found Objects
	for _, x := range o {
		if x.Object != nil && x.Ref.GVK == ref.GVK && x.Ref.Namespace == ref.Namespace && selector.Matches(labels.Set(x.Object.GetLabels())) {
			one := ref
			one.Name = x.Ref.Name
			found = append(found, Lookup{Ref: one, Object: x.Object})
		}
	}
	return found, nil
}
