package traffic

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/release"
)

// Outcome is what came of applying a route.
type Outcome struct {
	// Changed is true when something was written.
	Changed bool
	// Events are what a person is to be told, also where the rest failed.
	Events []Event
}

// Event is something that a person is told about a router.
type Event struct {
	Warning         bool
	Reason, Message string
}

// Told are the reasons of the events about an object; empty where nobody is told.
type Told struct {
	Created, NotCreated, Changed, Missing string
}

// ObserveRollout reads what the objects of the route say, and in which versions. Errors: ErrNotInstalled, and those of
// Client and RolloutRenderer.Read.
func (a *Applier) ObserveRollout(ctx context.Context, x RolloutRouter, t RolloutTarget) (Observed, RolloutVersions, error) {
	existing, err := a.find(ctx, x, t, release.Route{})
	if err != nil {
		return Observed{}, nil, err
	}
	observed, err := x.Renderer.Read(t, existing)
	return observed, existing.versions(), err
}

// RolloutVersions are those in which the objects of a route were read, by UID; nil: nobody looked.
type RolloutVersions map[types.UID]string

func (o Objects) versions() RolloutVersions {
	out := make(RolloutVersions, len(o))
	for _, found := range o {
		if found.Object != nil {
			out[found.Object.GetUID()] = found.Object.GetResourceVersion()
		}
	}
	return out
}

// differs is true where one of these objects has another version. What another route needs besides was not read.
func (v RolloutVersions) differs(now RolloutVersions) bool {
	for uid, version := range now {
		if before, read := v[uid]; read && before != version {
			return true
		}
	}
	return false
}

// ValidateRollout finds what of the user's objects does not fit the spec. Errors: ErrNotInstalled, and those of Client.
func (a *Applier) ValidateRollout(ctx context.Context, x RolloutRouter, t RolloutTarget) (field.ErrorList, error) {
	existing, err := a.find(ctx, x, t, release.Route{})
	if err != nil {
		return nil, err
	}
	return x.Renderer.Validate(t, existing), nil
}

// ApplyRollout makes the route so, as far as it is this router's: see RolloutRouter.Route. decided are the versions in which
// the route was when that was decided: see Apply. Errors: ErrChanged, those of RolloutRenderer.Render, ErrNotInstalled, and
// those of Client. There may be events with an error.
func (a *Applier) ApplyRollout(ctx context.Context, x RolloutRouter, t RolloutTarget, r release.Route, decided RolloutVersions) (Outcome, error) {
	r = x.Route(t, r)
	existing, err := a.find(ctx, x, t, r)
	if err != nil {
		return Outcome{}, err
	}
	if decided.differs(existing.versions()) {
		return Outcome{}, fmt.Errorf("set the weights of %s: %w", t.owner().Name, ErrChanged)
	}
	told := &teller{route: r}
	desired, err := x.Renderer.Render(t, r, existing)
	if err != nil {
		told.missing(existing)
		return Outcome{Events: told.events}, err
	}
	changed, err := a.write(ctx, t.owner(), existing.refs(), existing.Unchanged(), desired, told.wrote)
	return Outcome{Changed: changed, Events: told.events}, err
}

// RestoreRollout takes back what the route left in the user's objects. Objects that are gone are no error.
func (a *Applier) RestoreRollout(ctx context.Context, x RolloutRouter, t RolloutTarget) error {
	existing, err := a.find(ctx, x, t, release.Route{})
	if err != nil {
		return err
	}
	// In the reverse of the order in which they were written: the marks by which another process would go on come last.
	refs, unchanged, restored := existing.refs(), existing.Unchanged(), x.Renderer.Restore(t, existing)
	slices.Reverse(refs)
	slices.Reverse(unchanged)
	slices.Reverse(restored)
	_, err = a.write(ctx, t.owner(), refs, unchanged, restored, nil)
	return err
}

// MadeForRollout are the objects of the route that were made for the Rollout, as far as they exist.
func (a *Applier) MadeForRollout(ctx context.Context, x RolloutRouter, t RolloutTarget) (Objects, error) {
	existing, err := a.find(ctx, x, t, release.Route{})
	return slices.DeleteFunc(existing, func(x Found) bool { return !x.Ref.Owned || x.Object == nil || !t.IsMade(x.Object) }), err
}

// Unmake deletes objects that were made for the Rollout.
func (a *Applier) Unmake(ctx context.Context, t RolloutTarget, made Objects) error {
	_, err := a.write(ctx, t.owner(), made.refs(), made.Unchanged(), make([]*unstructured.Unstructured, len(made)), nil)
	return err
}

// find reads the objects of a route. Like read, it gives the cache's own.
func (a *Applier) find(ctx context.Context, x RolloutRouter, t RolloutTarget, r release.Route) (Objects, error) {
	return Gather(x.Renderer, t, r, func(ref Ref) (Objects, error) { return a.look(ctx, t, ref) })
}

// look reads what one reference leads to: an object that may be absent, or all that a selector finds.
func (a *Applier) look(ctx context.Context, t RolloutTarget, ref Ref) (Objects, error) {
	if ref.Selector == "" {
		found, err := a.read(ctx, t.owner(), []Ref{ref})
		if err != nil {
			return nil, err
		}
		return Objects{{Ref: ref, Object: found[0]}}, nil
	}
	selector, err := labels.Parse(ref.Selector)
	if err != nil {
		return nil, Refuse(ErrInvalid, "the selector of %s is %q: %v", ref.GVK.Kind, ref.Selector, err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(ref.GVK.GroupVersion().WithKind(ref.GVK.Kind + "List"))
	err = a.of(ref.GVK.Group).List(ctx, list, client.InNamespace(ref.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, t.owner().failed([]Ref{ref}, ref, "list", err)
	}
	var out Objects
	for i := range list.Items {
		one := ref
		one.Name = list.Items[i].GetName()
		out = append(out, Found{Ref: one, Object: &list.Items[i]})
	}
	return out, nil
}

func (o Objects) refs() []Ref {
	out := make([]Ref, len(o))
	for i, x := range o {
		out[i] = x.Ref
	}
	return out
}

// teller makes the events of one application of a route.
type teller struct {
	route  release.Route
	events []Event
}

func (e *teller) missing(existing Objects) {
	for _, x := range existing {
		if x.Object == nil && x.Ref.Told.Missing != "" {
			e.events = append(e.events, Event{Warning: true, Reason: x.Ref.Told.Missing, Message: x.Ref.String() + " not found"})
		}
	}
}

// wrote is told of each write, with its error.
func (e *teller) wrote(ref Ref, verb string, err error) {
	switch {
	case err != nil && verb == verbCreate:
		e.add(true, ref.Told.NotCreated, fmt.Sprintf("%s was not created: %v", ref, err))
	case err != nil:
	case verb == verbCreate:
		e.add(false, ref.Told.Created, "Created "+ref.String()+e.weights(ref))
	case verb == verbUpdate:
		e.add(false, ref.Told.Changed, "Updated "+ref.String()+e.weights(ref))
	}
}

func (e *teller) add(warning bool, reason, message string) {
	if reason != "" {
		e.events = append(e.events, Event{Warning: warning, Reason: reason, Message: message})
	}
}

// weights are said of what has them.
func (e *teller) weights(ref Ref) string {
	if ref.Joins {
		return ""
	}
	return fmt.Sprintf(": canary=%d stable=%d", e.route.Canary, e.route.Stable())
}

// RolloutRefs are the objects of a route, found or not: those whose change may move the Rollout. Errors: those of Client.
func (a *Applier) RolloutRefs(ctx context.Context, x RolloutRouter, t RolloutTarget) ([]Ref, error) {
	existing, err := a.find(ctx, x, t, release.Route{})
	return existing.refs(), err
}
