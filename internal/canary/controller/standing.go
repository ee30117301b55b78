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

// A state effect is true in every pass, and in nearly every pass it was true before. What it does follows from what it
// is told and from the objects that it reads, and from nothing else. So an effect that had nothing to do has nothing to do
// again, as long as it is told the same and all these objects are in the same versions. The versions are noted where
// the effect reads, and looked up the same way before it is left out: an object that somebody edited, deleted or made
// since has another version, and the effect is applied. An effect that wrote, failed or warned is not remembered.

// stood is what an effect was told and what it read when it last had nothing to do.
type stood struct {
	told  told
	reads []read
}

// told is everything but the objects that a state effect depends on.
type told struct {
	effect     release.Effect
	canary     types.UID
	generation int64 // counts the specs of the Canary
	// annotations of the Canary, which some providers read: generations do not count them.
	annotations       string
	selector, selects string
	// Cookies of the status that will be written; in a pass that begins a run they are newer than the Canary.
	session, primary, previous string
}

func toldOf(s *seen, effect release.Effect, status flaggerv1.CanaryStatus) told {
	return told{
		effect: effect, canary: s.object.UID, generation: s.object.Generation, annotations: annotationsOf(s.object),
		selector: s.selector, selects: s.selects,
		session: status.SessionAffinityCookie, primary: status.PrimarySessionAffinityCookie, previous: status.PreviousSessionAffinityCookie,
	}
}

// annotationsOf is what the annotations of a Canary say, but for commands, which are not about its objects.
func annotationsOf(c *flaggerv1.Canary) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		if key != canary.CommandAnnotation {
			fmt.Fprintf(&b, "%s=%q ", key, c.Annotations[key])
		}
	}
	return b.String()
}

// sees is what a state effect sees of a pass and of its status: what told has, with the spec and the annotations that it stands for. Nearly every
// pass has another version of the Canary, and what stands does not depend on the rest of it.
func (t told) sees(s *seen) (*seen, flaggerv1.CanaryStatus) {
	object := &flaggerv1.Canary{TypeMeta: s.object.TypeMeta, Spec: s.object.Spec}
	object.Namespace, object.Name, object.UID, object.Generation = s.object.Namespace, s.object.Name, t.canary, t.generation
	object.Annotations = s.object.Annotations
	sees := &seen{object: object, renderer: s.renderer, target: s.target, selector: t.selector, selects: t.selects}
	sees.target.Canary = object
	sees.snapshot.Plan.Strategy = s.snapshot.Plan.Strategy
	return sees, flaggerv1.CanaryStatus{
		SessionAffinityCookie: t.session, PrimarySessionAffinityCookie: t.primary, PreviousSessionAffinityCookie: t.previous,
	}
}

// version of an object; zero: there is none.
type version struct {
	uid             types.UID
	resourceVersion string
}

func versionOf(object client.Object) version {
	return version{object.GetUID(), object.GetResourceVersion()}
}

// read is one object as it was read, found or not.
type read struct {
	from    client.Reader
	kind    schema.GroupVersionKind
	key     client.ObjectKey
	version version
}

// still is true when the object is as it was.
func (r read) still(ctx context.Context) bool {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": r.kind.GroupVersion().String(), "kind": r.kind.Kind}}
	err := r.from.Get(ctx, r.key, object, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false
	}
	return versionOf(object) == r.version
}

// stands tells state effects, by a name for each, from those that move something.
func stands(effect release.Effect) (name string, ok bool) {
	switch effect.(type) {
	case canary.ServicesExist:
		return "services", true
	case canary.ScalerExists:
		return "scaler", true
	case canary.RoutePrepared:
		return "prepared", true
	case canary.RouteStands:
		return "route", true
	default:
		return "", false
	}
}

// ensure makes an effect true, unless it is a state effect that has nothing to do again.
func (r *Reconciler) ensure(ctx context.Context, s *seen, effect release.Effect, status flaggerv1.CanaryStatus) error {
	name, ok := stands(effect)
	if !ok {
		return r.one(ctx, s, effect, status)
	}
	key := client.ObjectKeyFromObject(s.object)
	now := toldOf(s, effect, status)
	last := r.memory.stood(key, name)
	if last.told == now && !slices.ContainsFunc(last.reads, func(r read) bool { return !r.still(ctx) }) {
		return nil
	}
	notes := &notes{}
	sees, cookies := now.sees(s)
	if err := r.one(context.WithValue(ctx, notesKey{}, notes), sees, effect, cookies); err != nil {
		return err
	}
	if notes.more || len(notes.reads) == 0 {
		return nil
	}
	r.memory.stands(key, name, stood{now, notes.reads})
	return nil
}

// notes are of one effect.
type notes struct {
	reads []read
	// more is true when it did more than read objects by name.
	more bool
}

type notesKey struct{}

func noteMore(ctx context.Context) {
	if notes, ok := ctx.Value(notesKey{}).(*notes); ok {
		notes.more = true
	}
}

// Noting is a client that notes what state effects read, so that they need not be applied again in every pass. The parts
// that apply effects must be given it; with another client they are right as well, and cost more.
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
		notes.more = true // another form of an object is another cache
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
