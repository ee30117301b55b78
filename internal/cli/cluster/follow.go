package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// State is the observed state during a watch.
type State struct {
	// Releases sorted by namespace, name and kind.
	Releases []explain.Observation
	// Controller that acts on them.
	Controller explain.Controller
	// Lost are the streams that are interrupted and reconnect, one sentence each.
	Lost []string
}

// Delays between a change and the observation, so that simultaneous changes are observed once, and between attempts to reach a
// cluster.
const (
	batchDelay = 100 * time.Millisecond
	retryFirst = time.Second
	retryMost  = 15 * time.Second
)

// maxEvents bounds the events of one release.
const maxEvents = 100

// Follow observes the selected releases whenever they or the objects around them change, and passes every state to emit, until the
// context is done or emit returns false. It polls only for the end of another controller. A cluster that becomes unreachable is part
// of the state; only a failure of the first observation is an error: ErrNotFound, ErrAmbiguous, ErrUnreachable.
func (s *Session) Follow(ctx context.Context, sel Selection, emit func(State) (more bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	found, err := s.objects(ctx, sel)
	if err != nil {
		cancel()
		return err
	}
	sel.Kinds = found.kinds
	for i := range sel.Names {
		sel.Names[i].Kind = keyOf(found.objects[i]).Kind
	}
	f := &follower{
		Session: s, sel: sel, emit: emit, unread: found.unread, changes: make(chan change, 64),
		objects: map[explain.Key]client.Object{}, seen: map[explain.Key]explain.Observation{},
		events: map[explain.Key]map[string]explain.Event{}, dirty: map[explain.Key]bool{},
		lost: map[string]error{}, streams: map[string]bool{}, listed: map[explain.Kind]bool{},
	}
	defer f.group.Wait() //nolint:errcheck // streams return no error
	defer cancel()
	f.controllers = s.findControllers(ctx, found.objects)
	f.controller = f.controllers.summary(found.objects, s.Clock.Now())
	for _, kind := range sel.Kinds {
		f.stream(ctx, plural(string(kind)), listOf(kind), client.InNamespace(sel.Namespace))
		f.stream(ctx, eventsOf+plural(string(kind)), &corev1.EventList{}, eventOptions(sel, kind)...)
	}
	f.streamTargets(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}) // nearly all targets
	if slices.Contains(sel.Kinds, explain.KindRollout) {
		f.streamOwned(ctx)
	}
	return f.run(ctx)
}

// eventsOf is the prefix of the names of streams of events.
const eventsOf = "Events of "

// streamOwned follows the objects that Rollouts own.
func (f *follower) streamOwned(ctx context.Context) {
	in := client.InNamespace(f.sel.Namespace)
	f.stream(ctx, "ReplicaSets", metadataList("apps", "v1", "ReplicaSet"), in, client.HasLabels{argov1.PodTemplateHashLabel})
	for _, kind := range []string{argov1.AnalysisRunKind, argov1.ExperimentKind} {
		f.stream(ctx, plural(kind), metadataList(argov1.SchemeGroupVersion.Group, argov1.SchemeGroupVersion.Version, kind), in)
	}
}

// follower is one watch. Only run uses its maps; streams pass changes to it.
type follower struct {
	*Session
	sel     Selection
	emit    func(State) bool
	changes chan change
	group   errgroup.Group
	// unread are the releases that the user has no permission to list.
	unread []string

	objects map[explain.Key]client.Object
	seen    map[explain.Key]explain.Observation
	events  map[explain.Key]map[string]explain.Event
	dirty   map[explain.Key]bool
	// lost are the interrupted streams, with their errors; nil for those without permission. lostSince is when the first of them
	// was lost.
	lost        map[string]error
	lostSince   time.Time
	streams     map[string]bool
	controllers controllers
	controller  explain.Controller
	// listed are the kinds that were listed.
	listed map[explain.Kind]bool
}

// synced is true once all releases were listed.
func (f *follower) synced() bool { return len(f.listed) == len(f.sel.Kinds) }

// change is a message of a stream.
type change struct {
	// stream is its name.
	stream string
	// all are all existing objects, after the stream was opened; nil for a single change.
	all []client.Object
	// object that changed; deleted is true when it was deleted.
	object  client.Object
	deleted bool
	// err is why the stream is interrupted; denied is true where it does not reconnect.
	err    error
	denied bool
}

func (f *follower) run(ctx context.Context) error {
	var due <-chan time.Time
	wait := retryFirst
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-f.changes:
			if kind, is := kindOf(c.stream); is && c.denied {
				return explained("watch "+c.stream+inNamespace(f.sel.Namespace), c.err, kind)
			}
			if f.record(c) && f.synced() && !f.emitState() {
				return nil
			}
			if len(f.dirty) > 0 && due == nil {
				due = f.Clock.After(batchDelay)
			}
		case <-due:
			due = nil
			if err := f.observe(ctx); err != nil {
				if ctx.Err() != nil {
					return nil //nolint:nilerr // the caller ended it
				}
				if len(f.lost) == 0 {
					f.lostSince = f.Clock.Now()
				}
				f.lost[observation] = err
				due, wait = f.Clock.After(wait), min(2*wait, retryMost)
			} else {
				delete(f.lost, observation)
				wait = retryFirst
			}
			if !f.emitState() {
				return nil
			}
			if due == nil && f.hasOtherController() {
				due = f.Clock.After(retryMost) // no event reports the end of the other controller
			}
		}
	}
}

// kindOf is the kind of release of a stream.
func kindOf(stream string) (explain.Kind, bool) {
	i := slices.IndexFunc(kinds, func(k explain.Kind) bool { return plural(string(k)) == stream })
	if i < 0 {
		return "", false
	}
	return kinds[i], true
}

// hasOtherController reports whether another controller acts on one of the releases.
func (f *follower) hasOtherController() bool {
	for _, seen := range f.seen {
		if seen.SharedContext().OtherController.Sign != "" {
			return true
		}
	}
	return false
}

// emitState passes the state to the caller, once every release was observed.
func (f *follower) emitState() bool {
	state := State{Controller: f.controller}
	for key := range f.objects {
		seen, ok := f.seen[key]
		if !ok {
			return true // its first observation is due
		}
		around := seen.SharedContext()
		around.Events = oldestFirst(f.events[key])
		state.Releases = append(state.Releases, seen.WithContext(around))
	}
	slices.SortFunc(state.Releases, func(a, b explain.Observation) int { return a.Key().Compare(b.Key()) })
	state.Lost = f.losses()
	return f.emit(state)
}

// losses are the interrupted streams, one sentence each; a cluster that does not respond is reported once, not for each kind.
func (f *follower) losses() []string {
	out := slices.Clone(f.unread)
	for _, name := range slices.Sorted(maps.Keys(f.lost)) {
		switch err := f.lost[name]; {
		case err == nil:
			out = append(out, noPermission("watch "+name)+" Changes are shown late.")
		case !slices.ContainsFunc(out, func(text string) bool { return strings.HasPrefix(text, unreachable) }):
			out = append(out, fmt.Sprintf("%s since %s: %v", unreachable, f.lostSince.UTC().Format(time.TimeOnly)+"Z", outbound.RedactError(err)))
		}
	}
	return out
}

// observation is the name of the last observation among the streams.
const observation = "observation"

// unreachable begins the sentence about a cluster that cannot be reached.
const unreachable = "The cluster does not respond"

// record records a change, and reports whether the state changes without an observation.
func (f *follower) record(c change) bool {
	if c.err != nil {
		if len(f.lost) == 0 {
			f.lostSince = f.Clock.Now()
		}
		before, known := f.lost[c.stream]
		f.lost[c.stream] = c.err
		if c.denied {
			f.lost[c.stream] = nil
		}
		return !known || fmt.Sprint(before) != fmt.Sprint(f.lost[c.stream])
	}
	_, was := f.lost[c.stream]
	delete(f.lost, c.stream)
	if kind, is := kindOf(c.stream); is {
		return f.recordReleases(kind, c) || was
	}
	if strings.HasPrefix(c.stream, eventsOf) {
		return f.recordEvents(c) || was
	}
	for _, object := range append(c.all, c.object) {
		if object != nil {
			f.markAffected(object)
		}
	}
	return was
}

func (f *follower) recordReleases(kind explain.Kind, c change) bool {
	removed := false
	if c.all != nil {
		f.listed[kind] = true
		existing := map[explain.Key]bool{}
		for _, object := range c.all {
			existing[keyOf(object)] = true
		}
		for key := range f.objects {
			if key.Kind == kind && !existing[key] {
				f.forget(key)
				removed = true
			}
		}
	}
	for _, object := range append(c.all, c.object) {
		if object == nil {
			continue
		}
		key := keyOf(object)
		if c.deleted || !f.sel.takes(key, object.GetLabels()) {
			_, had := f.objects[key]
			f.forget(key)
			removed = removed || had
			continue
		}
		if old := f.objects[key]; old != nil && old.GetResourceVersion() == object.GetResourceVersion() && old.GetUID() == object.GetUID() {
			continue
		}
		f.objects[key], f.dirty[key] = object, true
		if by, at := writer([]client.Object{object}); f.controller.State != explain.Running && wroteRecently(at, f.Clock.Now()) {
			f.controller = explain.Controller{State: explain.Active, Message: fmt.Sprintf("%s last wrote a status at %s", by, at.UTC().Format(time.RFC3339))}
		}
	}
	return removed || c.all != nil && len(f.objects) == 0
}

func (f *follower) forget(key explain.Key) {
	delete(f.objects, key)
	delete(f.seen, key)
	delete(f.dirty, key)
}

func (f *follower) recordEvents(c change) bool {
	for _, object := range append(c.all, c.object) {
		event, ok := object.(*corev1.Event)
		if !ok || c.deleted {
			continue
		}
		of := addEvent(f.events, event)
		if len(of) > maxEvents {
			dropOldest(of)
		}
		key := explain.Key{Kind: explain.Kind(event.InvolvedObject.Kind), Namespace: event.InvolvedObject.Namespace, Name: event.InvolvedObject.Name}
		if f.objects[key] != nil && otherControllerInEvents(oldestFirst(of)) != "" {
			f.dirty[key] = true // the acting controller is observed as well
		}
	}
	return true
}

func dropOldest(events map[string]explain.Event) {
	oldest := ""
	for name, event := range events {
		if oldest == "" || event.At.Before(events[oldest].At) {
			oldest = name
		}
	}
	delete(events, oldest)
}

// markAffected marks the releases that depend on an object: workloads and routes by their names, and objects that a Rollout owns.
func (f *follower) markAffected(object client.Object) {
	for key, release := range f.objects {
		switch of := release.(type) {
		case *flaggerv1.Canary:
			seen, _ := f.seen[key].(*explain.Canary)
			f.dirty[key] = f.dirty[key] || f.affects(object, of, seen)
		case *argov1.Rollout:
			f.dirty[key] = f.dirty[key] || belongs(object, of)
		}
		if !f.dirty[key] {
			delete(f.dirty, key)
		}
	}
}

// affects reports whether an object is a workload or a route of a Canary.
func (f *follower) affects(object client.Object, c *flaggerv1.Canary, seen *explain.Canary) bool {
	kind := object.GetObjectKind().GroupVersionKind().GroupKind()
	for _, target := range targets(c) {
		if target.Kind.GroupKind() == kind && object.GetNamespace() == c.Namespace && object.GetName() == target.Name {
			return true
		}
	}
	if seen == nil {
		return false
	}
	return slices.ContainsFunc(routes(f.controllers.flags.Routers(), c, seen.Snapshot.Plan.Provider), func(ref traffic.Ref) bool {
		return ref.GVK.GroupKind() == kind && ref.Namespace == object.GetNamespace() && ref.Name == object.GetName()
	})
}

// belongs reports whether a Rollout owns an object, or refers to it as its workload.
func belongs(object client.Object, r *argov1.Rollout) bool {
	if metav1.IsControlledBy(object, r) {
		return true
	}
	ref := r.Spec.WorkloadRef
	return ref != nil && object.GetObjectKind().GroupVersionKind().Kind == ref.Kind && object.GetNamespace() == r.Namespace && object.GetName() == ref.Name
}

// targets are the two workloads of a Canary.
func targets(c *flaggerv1.Canary) []workload.Object {
	kind := (&workload.Workloads{}).ForCanary(c)
	if kind == nil {
		return nil
	}
	reads := kind.Dependencies(c)
	return slices.DeleteFunc(reads, func(read workload.Object) bool { return read.Kind != reads[0].Kind })
}

// streamTargets follows a kind of workload.
func (f *follower) streamTargets(ctx context.Context, kind schema.GroupVersionKind) {
	name := plural(kind.Kind)
	if kind.Group == flaggerv1.KnativeGroup {
		name = "Knative " + name // Kubernetes has a kind of that name as well
	}
	f.stream(ctx, name, metadataList(kind.Group, kind.Version, kind.Kind), client.InNamespace(f.sel.Namespace))
}

// observe observes the releases that changed, and those that another controller acts on.
func (f *follower) observe(ctx context.Context) error {
	if f.hasOtherController() || slices.ContainsFunc(slices.Collect(maps.Keys(f.dirty)), f.eventNamesOtherController) {
		all := slices.Collect(maps.Values(f.objects))
		f.controllers = f.findControllers(ctx, all)
		f.controller = f.controllers.summary(all, f.Clock.Now())
	}
	for key, seen := range f.seen {
		if seen.SharedContext().OtherController.Sign != "" {
			f.dirty[key] = true
		}
	}
	var objects []client.Object
	for key := range f.dirty {
		objects = append(objects, f.objects[key])
	}
	observed, err := f.observeAll(ctx, objects, f.controllers.flags)
	if err != nil {
		return err
	}
	for _, one := range observed {
		key := one.Key()
		around := one.SharedContext()
		around.OtherController = f.controllers.otherControllerOf(ctx, objectOf(one), oldestFirst(f.events[key]), f.Clock.Now())
		f.seen[key] = one.WithContext(around)
		delete(f.dirty, key)
		if c, is := one.(*explain.Canary); is {
			f.streamAround(ctx, c)
		}
	}
	return nil
}

// eventNamesOtherController reports whether the last event of a release names another controller.
func (f *follower) eventNamesOtherController(key explain.Key) bool {
	return otherControllerInEvents(oldestFirst(f.events[key])) != ""
}

// streamAround follows the kinds of the objects around a Canary.
func (f *follower) streamAround(ctx context.Context, seen *explain.Canary) {
	for _, target := range targets(seen.Object) {
		f.streamTargets(ctx, target.Kind)
	}
	for _, ref := range routes(f.controllers.flags.Routers(), seen.Object, seen.Snapshot.Plan.Provider) {
		f.stream(ctx, plural(ref.GVK.Kind)+inNamespace(ref.Namespace), metadataList(ref.GVK.Group, ref.GVK.Version, ref.GVK.Kind), client.InNamespace(ref.Namespace))
	}
}

func metadataList(group, version, kind string) client.ObjectList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind + "List"})
	return list
}

// stream follows one kind for as long as the follower runs; a second call with the same name does nothing.
func (f *follower) stream(ctx context.Context, name string, list client.ObjectList, options ...client.ListOption) {
	if f.streams[name] {
		return
	}
	f.streams[name] = true
	send := func(c change) {
		c.stream = name
		select {
		case f.changes <- c:
		case <-ctx.Done():
		}
	}
	f.group.Go(func() error {
		wait := retryFirst
		for ctx.Err() == nil {
			version, err := f.list(ctx, list, options, send)
			if err == nil {
				wait = retryFirst
				err = f.watch(ctx, list, version, options, send)
			}
			switch {
			case err == nil: // the API server ends every watch after a while
				continue
			case ctx.Err() != nil:
				return nil //nolint:nilerr // the caller ended it
			case forbidden(err), meta.IsNoMatchError(err):
				send(change{err: err, denied: true})
				return nil
			}
			send(change{err: err})
			select {
			case <-ctx.Done():
			case <-f.Clock.After(wait):
			}
			wait = min(2*wait, retryMost)
		}
		return nil
	})
}

// list reads all objects of a kind.
func (f *follower) list(ctx context.Context, of client.ObjectList, options []client.ListOption, send func(change)) (version string, err error) {
	list, ok := of.DeepCopyObject().(client.ObjectList)
	if !ok {
		return "", fmt.Errorf("%T is not a list", of)
	}
	if err := f.Client.List(ctx, list, options...); err != nil {
		return "", err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return "", err
	}
	all := make([]client.Object, 0, len(items))
	for _, item := range items {
		if object, ok := item.(client.Object); ok {
			all = append(all, decoded(typedAs(object, list)))
		}
	}
	send(change{all: all})
	return list.GetResourceVersion(), nil
}

// typedAs sets the kind of an item of a list, which lists omit.
func typedAs(object client.Object, list client.ObjectList) client.Object {
	if gvk := object.GetObjectKind().GroupVersionKind(); gvk.Kind == "" {
		gvk = list.GetObjectKind().GroupVersionKind()
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		object.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return object
}

// watch passes on every change after that version, until the watch ends. Nil: it ended regularly.
func (f *follower) watch(ctx context.Context, of client.ObjectList, version string, options []client.ListOption, send func(change)) error {
	list, ok := of.DeepCopyObject().(client.ObjectList)
	if !ok {
		return fmt.Errorf("%T is not a list", of)
	}
	began := f.Clock.Now()
	w, err := f.Client.Watch(ctx, list, append(slices.Clone(options), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})...)
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-w.ResultChan():
			switch {
			case !open && f.Clock.Since(began) < retryFirst:
				return errors.New("the connection ended immediately")
			case !open:
				return nil
			case event.Type == watch.Error:
				if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
					return err
				}
				return nil // the version is too old: list again
			case event.Type == watch.Bookmark:
				continue
			}
			if object, ok := event.Object.(client.Object); ok {
				send(change{object: decoded(typedAs(object, list)), deleted: event.Type == watch.Deleted})
			}
		}
	}
}
