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
	generation int64  // changes with the spec of the Canary
	target     string // may be a former one, which the spec no longer names
	// annotations of the Canary, which some providers read: the generation does not change with them.
	annotations             string
	selector, selectorValue string
	// Cookies of the status that will be written; when a run starts they are newer than those of the Canary.
	session, primary, previous string
}

func inputsOf(s *observation, effect release.Effect, status flaggerv1.CanaryStatus) effectInputs {
	return effectInputs{
		effect: effect, canary: s.object.UID, generation: s.object.Generation, target: targetKey(s.object), annotations: annotationsOf(s.object),
		selector: s.selector, selectorValue: s.selectorValue,
		session: status.SessionAffinityCookie, primary: status.PrimarySessionAffinityCookie, previous: status.PreviousSessionAffinityCookie,
	}
}

// annotationsOf formats the annotations of a Canary except for commands, which do not affect its objects.
func annotationsOf(c *flaggerv1.Canary) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		if key != canary.CommandAnnotation && key != canary.CommandByAnnotation {
			fmt.Fprintf(&b, "%s=%q ", key, c.Annotations[key])
		}
	}
	return b.String()
}

// restrict returns the part of an observation, and of its status, that a steady-state effect depends on: its inputs, with the
// spec and the annotations that they identify. Nearly every reconciliation has another version of the Canary, and the effect
// does not depend on the rest of it.
func (i effectInputs) restrict(s *observation) (*observation, flaggerv1.CanaryStatus) {
	object := &flaggerv1.Canary{TypeMeta: s.object.TypeMeta, Spec: s.object.Spec}
	object.Namespace, object.Name, object.UID, object.Generation = s.object.Namespace, s.object.Name, i.canary, i.generation
	object.Annotations = s.object.Annotations
	part := &observation{object: object, renderer: s.renderer, target: s.target, selector: i.selector, selectorValue: i.selectorValue}
	part.target.Canary = object
	part.snapshot.Plan.Strategy = s.snapshot.Plan.Strategy
	return part, flaggerv1.CanaryStatus{
		SessionAffinityCookie: i.session, PrimarySessionAffinityCookie: i.primary, PreviousSessionAffinityCookie: i.previous,
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
	reader  client.Reader
	kind    schema.GroupVersionKind
	key     client.ObjectKey
	version version
}

// unchanged reports whether the object still has the version that was read.
func (r read) unchanged(ctx context.Context) bool {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": r.kind.GroupVersion().String(), "kind": r.kind.Kind}}
	err := r.reader.Get(ctx, r.key, object, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false
	}
	return versionOf(object) == r.version
}

// recordedEffectName returns the name under which the reads of an effect are recorded; false: the effect is applied in every
// reconciliation.
func recordedEffectName(effect release.Effect) (name string, ok bool) {
	switch e := effect.(type) {
	case canary.ServicesExist:
		return "services", true
	case canary.ScalerExists:
		if e.Update { // a promotion has both
			return "scaler-update", true
		}
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
	if _, ok := effect.(canary.ScalerExists); ok && s.object.Spec.AutoscalerRef == nil {
		return nil // without a read, there would be no record of it
	}
	name, ok := recordedEffectName(effect)
	if !ok {
		return a.applyEffect(ctx, s, effect, status)
	}
	key := client.ObjectKeyFromObject(s.object)
	inputs := inputsOf(s, effect, status)
	last := a.memory.lastApplied(key, name)
	if last.inputs == inputs && !slices.ContainsFunc(last.reads, func(r read) bool { return !r.unchanged(ctx) }) {
		return nil
	}
	reads := &effectReads{}
	part, cookies := inputs.restrict(s)
	if err := a.applyEffect(context.WithValue(ctx, effectReadsKey{}, reads), part, effect, cookies); err != nil {
		return err
	}
	if reads.incomplete || len(reads.reads) == 0 {
		return nil
	}
	a.memory.recordApplied(key, name, appliedEffect{inputs, reads.reads})
	return nil
}

// effectReads records the reads of one effect.
type effectReads struct {
	reads []read
	// incomplete is true if the effect did more than read objects by name, so that the reads alone do not determine its result.
	incomplete bool
}

type effectReadsKey struct{}

func markIncomplete(ctx context.Context) {
	if reads, ok := ctx.Value(effectReadsKey{}).(*effectReads); ok {
		reads.incomplete = true
	}
}

// RecordReads returns a client that records what steady-state effects read, so that they need not be applied in every
// reconciliation. Components that apply effects should use this client. With another one they are correct too, but send more
// requests.
func RecordReads(c client.Client) client.Client { return readRecorder{c} }

type readRecorder struct{ client.Client }

func (r readRecorder) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.Client.Get(ctx, key, object, options...)
	reads, ok := ctx.Value(effectReadsKey{}).(*effectReads)
	if !ok || client.IgnoreNotFound(err) != nil {
		return err
	}
	generic, ok := object.(*unstructured.Unstructured)
	if !ok {
		reads.incomplete = true // typed objects have another cache
		return err
	}
	entry := read{reader: r.Client, kind: generic.GroupVersionKind(), key: key}
	if err == nil {
		entry.version = versionOf(object)
	}
	reads.reads = append(reads.reads, entry)
	return err
}

func (r readRecorder) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	markIncomplete(ctx)
	return r.Client.List(ctx, list, options...)
}

func (r readRecorder) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	markIncomplete(ctx)
	return r.Client.Create(ctx, object, options...)
}

func (r readRecorder) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	markIncomplete(ctx)
	return r.Client.Update(ctx, object, options...)
}

func (r readRecorder) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	markIncomplete(ctx)
	return r.Client.Patch(ctx, object, patch, options...)
}

func (r readRecorder) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	markIncomplete(ctx)
	return r.Client.Apply(ctx, object, options...)
}

func (r readRecorder) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	markIncomplete(ctx)
	return r.Client.Delete(ctx, object, options...)
}
