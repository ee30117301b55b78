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

// State is what is known while somebody watches.
type State struct {
	// Releases sorted by namespace, name and kind.
	Releases []explain.Seen
	// Controller that acts on them.
	Controller explain.Controller
	// Lost says what is not heard of at the moment and is asked for again, one sentence each.
	Lost []string
}

// Pauses between a change and the look at it, so that changes that come together are looked at once, and between
// attempts to reach a cluster that is away.
const (
	together   = 100 * time.Millisecond
	retryFirst = time.Second
	retryMost  = 15 * time.Second
)

// eventsKept bounds what is remembered of the events of one release.
const eventsKept = 100

// Follow looks at the selected releases whenever they or what is around them changes, and hands every state to emit,
// until the context is done or emit says no more. It polls nothing but for the end of another controller that Serin stands
// back for. A cluster that goes away is waited for, and that is part of the state; only what fails at the first look is an
// error: ErrNotFound, ErrAmbiguous, ErrUnreachable.
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
		objects: map[explain.Key]client.Object{}, seen: map[explain.Key]explain.Seen{},
		events: map[explain.Key]map[string]explain.Event{}, dirty: map[explain.Key]bool{},
		lost: map[string]error{}, streams: map[string]bool{}, listed: map[explain.Kind]bool{},
	}
	defer f.group.Wait() //nolint:errcheck // streams return no error
	defer cancel()
	f.who = s.findControllers(ctx, found.objects)
	f.controller = f.who.summary(found.objects, s.Clock.Now())
	for _, kind := range sel.Kinds {
		f.stream(ctx, plural(string(kind)), listOf(kind), client.InNamespace(sel.Namespace))
		f.stream(ctx, eventsOf+plural(string(kind)), &corev1.EventList{}, eventOptions(sel, kind)...)
	}
	f.streamTargets(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}) // what nearly all are
	if slices.Contains(sel.Kinds, explain.KindRollout) {
		f.streamOwned(ctx)
	}
	return f.run(ctx)
}

// eventsOf begins the names of streams of events.
const eventsOf = "Events of "

// streamOwned follows what belongs to Rollouts.
func (f *follower) streamOwned(ctx context.Context) {
	in := client.InNamespace(f.sel.Namespace)
	f.stream(ctx, "ReplicaSets", metadataList("apps", "v1", "ReplicaSet"), in, client.HasLabels{argov1.PodTemplateHashLabel})
	for _, kind := range []string{argov1.AnalysisRunKind, argov1.ExperimentKind} {
		f.stream(ctx, plural(kind), metadataList(argov1.SchemeGroupVersion.Group, argov1.SchemeGroupVersion.Version, kind), in)
	}
}

// follower is one watch by one person. Its maps belong to run alone; streams hand changes over.
type follower struct {
	*Session
	sel     Selection
	emit    func(State) bool
	changes chan change
	group   errgroup.Group
	// unread are the kinds of releases that the person may not list.
	unread []string

	objects map[explain.Key]client.Object
	seen    map[explain.Key]explain.Seen
	events  map[explain.Key]map[string]explain.Event
	dirty   map[explain.Key]bool
	// lost are the streams that are not heard of, with the reason; nil for those that are forbidden. heard is when the
	// first of them was lost.
	lost       map[string]error
	heard      time.Time
	streams    map[string]bool
	who        controllers
	controller explain.Controller
	// listed are the kinds that were.
	listed map[explain.Kind]bool
}

// synced is true once all releases were listed.
func (f *follower) synced() bool { return len(f.listed) == len(f.sel.Kinds) }

// change is what a stream tells.
type change struct {
	// of is the name of the stream.
	of string
	// all are all objects that there are, after a new beginning; nil for a single change.
	all []client.Object
	// object that changed, gone when it was deleted.
	object client.Object
	gone   bool
	// err is why nothing is heard at the moment; denied means that nothing will be.
	err    error
	denied bool
}

func (f *follower) run(ctx context.Context) error {
	var look <-chan time.Time
	wait := retryFirst
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-f.changes:
			if kind, is := releases(c.of); is && c.denied {
				return explained("watch "+c.of+inNamespace(f.sel.Namespace), c.err, kind)
			}
			if f.take(c) && f.synced() && !f.tell() {
				return nil
			}
			if len(f.dirty) > 0 && look == nil {
				look = f.Clock.After(together)
			}
		case <-look:
			look = nil
			if err := f.look(ctx); err != nil {
				if ctx.Err() != nil {
					return nil //nolint:nilerr // whoever ended it knows
				}
				if len(f.lost) == 0 {
					f.heard = f.Clock.Now()
				}
				f.lost["look"] = err
				look, wait = f.Clock.After(wait), min(2*wait, retryMost)
			} else {
				delete(f.lost, "look")
				wait = retryFirst
			}
			if !f.tell() {
				return nil
			}
			if look == nil && f.standsBack() {
				look = f.Clock.After(retryMost) // nothing tells when the other controller is gone
			}
		}
	}
}

// releases is the kind of release that a stream tells of.
func releases(stream string) (explain.Kind, bool) {
	i := slices.IndexFunc(kinds, func(k explain.Kind) bool { return plural(string(k)) == stream })
	if i < 0 {
		return "", false
	}
	return kinds[i], true
}

// standsBack is true while another controller acts on some release in Serin's stead.
func (f *follower) standsBack() bool {
	for _, seen := range f.seen {
		if seen.Surroundings().Peer.Sign != "" {
			return true
		}
	}
	return false
}

// tell hands the state over, once there is one of every release.
func (f *follower) tell() bool {
	state := State{Controller: f.controller}
	for key := range f.objects {
		seen, ok := f.seen[key]
		if !ok {
			return true // its first look is due
		}
		around := seen.Surroundings()
		around.Events = oldestFirst(f.events[key])
		state.Releases = append(state.Releases, seen.In(around))
	}
	slices.SortFunc(state.Releases, func(a, b explain.Seen) int { return a.Key().Compare(b.Key()) })
	state.Lost = f.losses()
	return f.emit(state)
}

// losses say what is not heard of: a cluster that is away once, not once for each kind.
func (f *follower) losses() []string {
	out := slices.Clone(f.unread)
	for _, name := range slices.Sorted(maps.Keys(f.lost)) {
		switch err := f.lost[name]; {
		case err == nil:
			out = append(out, name+" may not be watched, so that their changes show late.")
		case !slices.ContainsFunc(out, func(text string) bool { return strings.HasPrefix(text, away) }):
			out = append(out, fmt.Sprintf("%s since %s: %v", away, f.heard.UTC().Format(time.TimeOnly)+"Z", outbound.RedactError(err)))
		}
	}
	return out
}

// away begins the sentence about a cluster that cannot be reached.
const away = "The cluster does not answer"

// take records a change, and is true when it shall be told without a look at the cluster.
func (f *follower) take(c change) bool {
	if c.err != nil {
		if len(f.lost) == 0 {
			f.heard = f.Clock.Now()
		}
		before, known := f.lost[c.of]
		f.lost[c.of] = c.err
		if c.denied {
			f.lost[c.of] = nil
		}
		return !known || fmt.Sprint(before) != fmt.Sprint(f.lost[c.of])
	}
	_, was := f.lost[c.of]
	delete(f.lost, c.of)
	if kind, is := releases(c.of); is {
		return f.takeReleases(kind, c) || was
	}
	if strings.HasPrefix(c.of, eventsOf) {
		return f.takeEvents(c) || was
	}
	for _, object := range append(c.all, c.object) {
		if object != nil {
			f.affected(object)
		}
	}
	return was
}

func (f *follower) takeReleases(kind explain.Kind, c change) bool {
	removed := false
	if c.all != nil {
		f.listed[kind] = true
		there := map[explain.Key]bool{}
		for _, object := range c.all {
			there[keyOf(object)] = true
		}
		for key := range f.objects {
			if key.Kind == kind && !there[key] {
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
		if c.gone || !f.sel.takes(key, object.GetLabels()) {
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
			f.controller = explain.Controller{State: explain.Active, Message: fmt.Sprintf("%s wrote a status last at %s", by, at.UTC().Format(time.RFC3339))}
		}
	}
	return removed || c.all != nil && len(f.objects) == 0
}

func (f *follower) forget(key explain.Key) {
	delete(f.objects, key)
	delete(f.seen, key)
	delete(f.dirty, key)
}

func (f *follower) takeEvents(c change) bool {
	for _, object := range append(c.all, c.object) {
		event, ok := object.(*corev1.Event)
		if !ok || c.gone {
			continue
		}
		of := remember(f.events, event)
		if len(of) > eventsKept {
			dropOldest(of)
		}
		key := explain.Key{Kind: explain.Kind(event.InvolvedObject.Kind), Namespace: event.InvolvedObject.Namespace, Name: event.InvolvedObject.Name}
		if f.objects[key] != nil && stoodBack(oldestFirst(of)) != "" {
			f.dirty[key] = true // who acts is looked at with it
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

// affected marks the releases that an object belongs to: workloads and routes by their names, and what a Rollout owns.
func (f *follower) affected(object client.Object) {
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

// affects is true of a workload or a route of a Canary.
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
	return slices.ContainsFunc(routes(f.who.flags.Routers(), c, seen.Snapshot.Plan.Provider), func(ref traffic.Ref) bool {
		return ref.GVK.GroupKind() == kind && ref.Namespace == object.GetNamespace() && ref.Name == object.GetName()
	})
}

// belongs is true of what a Rollout owns, and of the workload that it refers to.
func belongs(object client.Object, r *argov1.Rollout) bool {
	if metav1.IsControlledBy(object, r) {
		return true
	}
	ref := r.Spec.WorkloadRef
	return ref != nil && object.GetObjectKind().GroupVersionKind().Kind == ref.Kind && object.GetNamespace() == r.Namespace && object.GetName() == ref.Name
}

// targets are the two workloads of a Canary.
func targets(c *flaggerv1.Canary) []workload.Object {
	kind := (&workload.Workloads{}).Of(c)
	if kind == nil {
		return nil
	}
	reads := kind.Reads(c)
	return slices.DeleteFunc(reads, func(read workload.Object) bool { return read.Kind != reads[0].Kind })
}

// streamTargets follows a kind of workload.
func (f *follower) streamTargets(ctx context.Context, kind schema.GroupVersionKind) {
	name := plural(kind.Kind)
	if kind.Group == flaggerv1.KnativeGroup {
		name = "Knative " + name // Kubernetes has some of that name, too
	}
	f.stream(ctx, name, metadataList(kind.Group, kind.Version, kind.Kind), client.InNamespace(f.sel.Namespace))
}

// look looks at the releases that changed, and at those that are left to another controller.
func (f *follower) look(ctx context.Context) error {
	if f.standsBack() || slices.ContainsFunc(slices.Collect(maps.Keys(f.dirty)), f.toldToStandBack) {
		all := slices.Collect(maps.Values(f.objects))
		f.who = f.findControllers(ctx, all)
		f.controller = f.who.summary(all, f.Clock.Now())
	}
	for key, seen := range f.seen {
		if seen.Surroundings().Peer.Sign != "" {
			f.dirty[key] = true
		}
	}
	var objects []client.Object
	for key := range f.dirty {
		objects = append(objects, f.objects[key])
	}
	seen, err := f.seeAll(ctx, objects, f.who.flags)
	if err != nil {
		return err
	}
	for _, one := range seen {
		key := one.Key()
		around := one.Surroundings()
		around.Peer = f.who.peerOf(ctx, objectOf(one), oldestFirst(f.events[key]), f.Clock.Now())
		f.seen[key] = one.In(around)
		delete(f.dirty, key)
		if c, is := one.(*explain.Canary); is {
			f.streamAround(ctx, c)
		}
	}
	return nil
}

func (f *follower) toldToStandBack(key explain.Key) bool {
	return stoodBack(oldestFirst(f.events[key])) != ""
}

// streamAround follows the kinds of what is around a Canary.
func (f *follower) streamAround(ctx context.Context, seen *explain.Canary) {
	for _, target := range targets(seen.Object) {
		f.streamTargets(ctx, target.Kind)
	}
	for _, ref := range routes(f.who.flags.Routers(), seen.Object, seen.Snapshot.Plan.Provider) {
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
		c.of = name
		select {
		case f.changes <- c:
		case <-ctx.Done():
		}
	}
	f.group.Go(func() error {
		wait := retryFirst
		for ctx.Err() == nil {
			version, err := f.begin(ctx, list, options, send)
			if err == nil {
				wait = retryFirst
				err = f.continued(ctx, list, version, options, send)
			}
			switch {
			case err == nil: // the API server ends every watch after a while
				continue
			case ctx.Err() != nil:
				return nil //nolint:nilerr // whoever ended it knows
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

// begin reads all objects of a kind.
func (f *follower) begin(ctx context.Context, of client.ObjectList, options []client.ListOption, send func(change)) (version string, err error) {
	list, ok := of.DeepCopyObject().(client.ObjectList)
	if !ok {
		return "", fmt.Errorf("%T is no list", of)
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
			all = append(all, typedAs(object, list))
		}
	}
	send(change{all: all})
	return list.GetResourceVersion(), nil
}

// typedAs gives an item of a list its kind, which lists leave out.
func typedAs(object client.Object, list client.ObjectList) client.Object {
	if gvk := object.GetObjectKind().GroupVersionKind(); gvk.Kind == "" {
		gvk = list.GetObjectKind().GroupVersionKind()
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		object.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return object
}

// continued hands on every change from that version on, until the watch ends. Nil: it ended as watches do.
func (f *follower) continued(ctx context.Context, of client.ObjectList, version string, options []client.ListOption, send func(change)) error {
	list, ok := of.DeepCopyObject().(client.ObjectList)
	if !ok {
		return fmt.Errorf("%T is no list", of)
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
				return errors.New("the connection ended at once")
			case !open:
				return nil
			case event.Type == watch.Error:
				if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
					return err
				}
				return nil // too old: begin anew
			case event.Type == watch.Bookmark:
				continue
			}
			if object, ok := event.Object.(client.Object); ok {
				send(change{object: typedAs(object, list), gone: event.Type == watch.Deleted})
			}
		}
	}
}
