package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// A steady-state effect applies in every reconciliation, and nearly always has nothing to do. It depends only on its inputs and
// on the objects that it reads. An effect that had nothing to do therefore has nothing to do again, as long as its inputs are
// the same and these objects have the same versions. The versions are recorded when the effect reads, and compared before the
// effect is skipped: an object that was edited, deleted or created since then has another version, and the effect is applied.
// An effect that wrote, failed or warned is not recorded.

// appliedEffect records the dependencies of an effect when it last had nothing to do.
type appliedEffect struct {
	inputs effectInputs
	reads  []read
}

// effectInputs is everything that a steady-state effect depends on, except for objects.
type effectInputs struct {
	effect     release.Effect
	canary     types.UID
	generation int64 // changes with the spec of the Canary
	// annotations of the Canary, which some providers read: the generation does not change with them.
	annotations       string
	selector, selects string
	// Cookies of the status that will be written; when a run starts they are newer than those of the Canary.
	session, primary, previous string
}

func inputsOf(s *observation, effect release.Effect, status flaggerv1.CanaryStatus) effectInputs {
	return effectInputs{
		effect: effect, canary: s.object.UID, generation: s.object.Generation, annotations: annotationsOf(s.object),
		selector: s.selector, selects: s.selects,
		session: status.SessionAffinityCookie, primary: status.PrimarySessionAffinityCookie, previous: status.PreviousSessionAffinityCookie,
	}
}

// annotationsOf formats the annotations of a Canary except for commands, which do not affect its objects.
func annotationsOf(c *flaggerv1.Canary) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		if key != canary.CommandAnnotation {
			fmt.Fprintf(&b, "%s=%q ", key, c.Annotations[key])
		}
	}
	return b.String()
}

// restrict returns the part of an observation, and of its status, that a steady-state effect depends on: its inputs, with the
// spec and the annotations that they identify. Nearly every reconciliation has another version of the Canary, and the effect
// does not depend on the rest of it.
func (t effectInputs) restrict(s *observation) (*observation, flaggerv1.CanaryStatus) {
	object := &flaggerv1.Canary{TypeMeta: s.object.TypeMeta, Spec: s.object.Spec}
	object.Namespace, object.Name, object.UID, object.Generation = s.object.Namespace, s.object.Name, t.canary, t.generation
	object.Annotations = s.object.Annotations
	part := &observation{object: object, renderer: s.renderer, target: s.target, selector: t.selector, selects: t.selects}
	part.target.Canary = object
	part.snapshot.Plan.Strategy = s.snapshot.Plan.Strategy
	return part, flaggerv1.CanaryStatus{
		SessionAffinityCookie: t.session, PrimarySessionAffinityCookie: t.primary, PreviousSessionAffinityCookie: t.previous,
	}
}

// version of an object; the zero value: the object does not exist.
type version struct {
	uid             types.UID
	resourceVersion string
}

func versionOf(object client.Object) version {
	return version{object.GetUID(), object.GetResourceVersion()}
}

// read is one object as it was read, whether it exists or not.
type read struct {
	from    client.Reader
	kind    schema.GroupVersionKind
	key     client.ObjectKey
	version version
}

// unchanged reports whether the object still has the version that was read.
func (r read) unchanged(ctx context.Context) bool {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": r.kind.GroupVersion().String(), "kind": r.kind.Kind}}
	err := r.from.Get(ctx, r.key, object, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false
	}
	return versionOf(object) == r.version
}

// steadyState returns the name of a steady-state effect; false for a transition effect.
func steadyState(effect release.Effect) (name string, ok bool) {
	switch effect.(type) {
	case canary.ServicesExist:
		return "services", true
	case canary.ScalerExists:
		return "scaler", true
	case canary.RoutePrepared:
		return "prepared", true
	case canary.RouteMaintained:
		return "route", true
	default:
		return "", false
	}
}

// applyIfNeeded applies an effect, unless it is a steady-state effect that still has nothing to do.
func (a effectApplier) applyIfNeeded(ctx context.Context, s *observation, effect release.Effect, status flaggerv1.CanaryStatus) error {
	name, ok := steadyState(effect)
	if !ok {
		return a.applyEffect(ctx, s, effect, status)
	}
	key := client.ObjectKeyFromObject(s.object)
	inputs := inputsOf(s, effect, status)
	last := a.memory.lastApplied(key, name)
	if last.inputs == inputs && !slices.ContainsFunc(last.reads, func(r read) bool { return !r.unchanged(ctx) }) {
		return nil
	}
	notes := &notes{}
	part, cookies := inputs.restrict(s)
	if err := a.applyEffect(context.WithValue(ctx, notesKey{}, notes), part, effect, cookies); err != nil {
		return err
	}
	if notes.more || len(notes.reads) == 0 {
		return nil
	}
	a.memory.recordApplied(key, name, appliedEffect{inputs, notes.reads})
	return nil
}

// notes are the reads of one effect.
type notes struct {
	reads []read
	// more is true if it did more than read objects by name.
	more bool
}

type notesKey struct{}

func noteMore(ctx context.Context) {
	if notes, ok := ctx.Value(notesKey{}).(*notes); ok {
		notes.more = true
	}
}

// Noting returns a client that records what steady-state effects read, so that they need not be applied in every reconciliation.
// Components that apply effects should use it; with another client they are correct too, but cost more requests.
func Noting(c client.Client) client.Client { return noting{c} }

type noting struct{ client.Client }

func (n noting) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := n.Client.Get(ctx, key, object, options...)
	notes, ok := ctx.Value(notesKey{}).(*notes)
	if !ok || client.IgnoreNotFound(err) != nil {
		return err
	}
	generic, ok := object.(*unstructured.Unstructured)
	if !ok {
		notes.more = true // typed objects have another cache
		return err
	}
	looked := read{from: n.Client, kind: generic.GroupVersionKind(), key: key}
	if err == nil {
		looked.version = versionOf(object)
	}
	notes.reads = append(notes.reads, looked)
	return err
}

func (n noting) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	noteMore(ctx)
	return n.Client.List(ctx, list, options...)
}

func (n noting) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	noteMore(ctx)
	return n.Client.Create(ctx, object, options...)
}

func (n noting) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	noteMore(ctx)
	return n.Client.Update(ctx, object, options...)
}

func (n noting) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	noteMore(ctx)
	return n.Client.Patch(ctx, object, patch, options...)
}

func (n noting) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	noteMore(ctx)
	return n.Client.Apply(ctx, object, options...)
}

func (n noting) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	noteMore(ctx)
	return n.Client.Delete(ctx, object, options...)
}
