package cluster

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/workload"
)

// State is the observed state of the selected releases at one time.
type State struct {
	// Releases are sorted by namespace, name and kind. A release that has not changed since the previous state has the same
	// observation.
	Releases []explain.Observation
	// Controller reports whether a controller acts on them.
	Controller explain.Controller
	// Interruptions has one sentence for each interrupted stream.
	Interruptions []string
	// Lost is true while the cluster does not respond, so that the state may be outdated.
	Lost bool
}

// The delays of observations and of connections.
const (
	// batchDelay is the delay between a change and the observation, so that simultaneous changes are observed once.
	batchDelay = 100 * time.Millisecond
	// minRetryDelay and maxRetryDelay are the first and the longest delay between attempts to connect.
	minRetryDelay = time.Second
	maxRetryDelay = 15 * time.Second
	// maxControllerAge is the age at which the state of the controllers is read again.
	maxControllerAge = 30 * time.Second
)

// maxEvents is the maximum number of events of one release.
const maxEvents = 100

// Follow observes the selected releases whenever they or related objects change, and passes every state to emit until the context
// is done or emit returns false. It polls only for the end of another controller, and during a release for that of its own. If the
// cluster becomes unreachable later, the state contains the interruption; only a failure of the first observation is an error:
// ErrNotFound, ErrAmbiguous, ErrUnreachable.
func (s *Session) Follow(ctx context.Context, sel Selection, emit func(State) (more bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	found, err := s.readObjects(ctx, sel)
	if err != nil {
		cancel()
		return err
	}
	sel.Kinds = found.kinds
	for i := range sel.Names {
		sel.Names[i].Kind = keyOf(found.objects[i]).Kind
	}
	f := &follower{
		Session: s, sel: sel, emit: emit, unread: found.unread, changes: make(chan streamChange, 64),
		objects: map[explain.Key]client.Object{}, observed: map[explain.Key]explain.Observation{},
		events: map[explain.Key]map[string]involvedEvent{}, changed: map[explain.Key]bool{}, related: newRelations(),
		interrupted: map[string]error{}, streams: map[string]context.CancelFunc{}, users: map[string]map[explain.Key]bool{}, listed: map[explain.Kind]bool{},
	}
	defer f.group.Wait() //nolint:errcheck // streams return no error
	defer cancel()
	f.searchControllers(ctx, found.objects)
	for _, kind := range sel.Kinds {
		f.stream(ctx, plural(string(kind)), newObjectList(kind), client.InNamespace(sel.Namespace))
		f.stream(ctx, eventStreamPrefix+plural(string(kind)), &corev1.EventList{}, eventOptions(sel, kind)...)
	}
	f.streamTargets(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}) // the kind of nearly all targets
	if slices.Contains(sel.Kinds, explain.KindRollout) {
		f.streamOwned(ctx)
	}
	return f.run(ctx)
}

// eventStreamPrefix is the prefix of the names of event streams.
const eventStreamPrefix = "Events of "

// streamOwned starts streams of the kinds of objects that Rollouts own.
func (f *follower) streamOwned(ctx context.Context) {
	in := client.InNamespace(f.sel.Namespace)
	f.stream(ctx, "ReplicaSets", metadataList("apps", "v1", "ReplicaSet"), in, client.HasLabels{argov1.PodTemplateHashLabel})
	for _, kind := range []string{argov1.AnalysisRunKind, argov1.ExperimentKind} {
		f.stream(ctx, plural(kind), metadataList(argov1.SchemeGroupVersion.Group, argov1.SchemeGroupVersion.Version, kind), in)
	}
}

// follower is the state of one call of Follow. Only the goroutine of run uses the maps; the goroutines of streams send their
// changes to it.
type follower struct {
	*Session
	sel     Selection
	emit    func(State) bool
	changes chan streamChange
	group   errgroup.Group
	// unread has one sentence for each kind of release that the user has no permission to list.
	unread []string

	objects map[explain.Key]client.Object
	// observed contains the observation of each release with its events.
	observed map[explain.Key]explain.Observation
	// events contains the events of each release by their names.
	events map[explain.Key]map[string]involvedEvent
	// changed contains the releases that must be observed again.
	changed map[explain.Key]bool
	// related are the objects that belong to each release.
	related relations
	// interrupted contains the errors of interrupted streams; nil: the user has no permission. interruptedSince is the start of
	// the first interruption.
	interrupted      map[string]error
	interruptedSince time.Time
	// streams end the streams, by their names. users are the releases for which a stream is open; none: it is open until the end.
	streams     map[string]context.CancelFunc
	users       map[string]map[explain.Key]bool
	controllers controllers
	controller  explain.Controller
	// controllersRead is the time at which the controllers were read. searched is the result of the last search of the cluster.
	controllersRead time.Time
	searched        explain.ControllerState
	// listed contains the kinds of releases whose stream has sent all existing objects.
	listed map[explain.Kind]bool
}

// synced reports whether all kinds of releases were listed.
func (f *follower) synced() bool { return len(f.listed) == len(f.sel.Kinds) }

// streamChange is a message of a stream.
type streamChange struct {
	// stream is the name of the stream.
	stream string
	// all contains all existing objects after the stream was opened; nil: the message is about a single object.
	all []client.Object
	// object is the object that changed; deleted is true if it was deleted.
	object  client.Object
	deleted bool
	// err is the error that interrupted the stream; denied is true if the stream does not reconnect.
	err    error
	denied bool
}

func (f *follower) run(ctx context.Context) error {
	var due, outdated <-chan time.Time
	wait := minRetryDelay
	for {
		if outdated == nil && f.hasProgress() { // no event reports that a controller has stopped
			outdated = f.Clock.After(maxControllerAge)
		}
		select {
		case <-ctx.Done():
			return nil
		case c := <-f.changes:
			if kind, ok := kindOf(c.stream); ok && c.denied {
				return describeError("watch "+c.stream+inNamespace(f.sel.Namespace), c.err, kind)
			}
			if f.record(c) && f.synced() && !f.emitState() {
				return nil
			}
			if len(f.changed) > 0 && due == nil {
				due = f.Clock.After(batchDelay)
			}
		case <-outdated:
			outdated = nil
			before := f.controller
			if f.refreshControllers(ctx); f.controller != before && !f.emitState() {
				return nil
			}
			if len(f.changed) > 0 && due == nil {
				due = f.Clock.After(batchDelay)
			}
		case <-due:
			due = nil
			if err := f.observe(ctx); err != nil {
				if ctx.Err() != nil {
					return nil //nolint:nilerr // the caller ended it
				}
				if len(f.interrupted) == 0 {
					f.interruptedSince = f.Clock.Now()
				}
				f.interrupted[observationStream] = err
				due, wait = f.Clock.After(wait), min(2*wait, maxRetryDelay)
			} else {
				delete(f.interrupted, observationStream)
				wait = minRetryDelay
			}
			if !f.emitState() {
				return nil
			}
			if due == nil && f.hasOtherController() {
				due = f.Clock.After(maxRetryDelay) // no event reports the end of the other controller
			}
		}
	}
}

// kindOf returns the kind of release that a stream follows; false: the stream follows other objects.
func kindOf(stream string) (explain.Kind, bool) {
	i := slices.IndexFunc(kinds, func(k explain.Kind) bool { return plural(string(k)) == stream })
	if i < 0 {
		return "", false
	}
	return kinds[i], true
}

// hasOtherController reports whether another controller acts on one of the releases.
func (f *follower) hasOtherController() bool {
	for _, observation := range f.observed {
		if observation.Shared().OtherController.Sign != "" {
			return true
		}
	}
	return false
}

// hasProgress reports whether one of the releases is in progress.
func (f *follower) hasProgress() bool {
	for _, observation := range f.observed {
		if observation.QueueEntry().InProgress {
			return true
		}
	}
	return false
}

// searchControllers finds the controllers of releases in the whole cluster.
func (f *follower) searchControllers(ctx context.Context, objects []client.Object) {
	f.useControllers(f.findControllers(ctx, objects), objects)
	f.searched = f.controller.State
}

// refreshControllers reads the controllers again if they were not read for a while, and searches for others if the result is another
// one. If they cannot be read, those that were found remain.
func (f *follower) refreshControllers(ctx context.Context) {
	if f.Clock.Since(f.controllersRead) < maxControllerAge {
		return
	}
	all := slices.Collect(maps.Values(f.objects))
	again, err := f.readControllersAgain(ctx, f.controllers, all)
	if err != nil {
		return
	}
	f.useControllers(again, all)
	if f.controller.State != f.searched {
		f.searchControllers(ctx, all)
	}
}

// useControllers replaces the controllers. If the acting one has other flags, all releases are observed again.
func (f *follower) useControllers(found controllers, objects []client.Object) {
	isSame := reflect.DeepEqual(f.controllers.flags, found.flags)
	f.controllers, f.controllersRead = found, f.Clock.Now()
	f.controller = found.summary(objects, f.controllersRead)
	for key := range f.objects {
		if !isSame {
			f.changed[key] = true
		}
	}
}

// emitState passes the state to the caller unless a release has not been observed yet. It reports whether the caller wants more.
func (f *follower) emitState() bool {
	state := State{Controller: f.controller}
	for key := range f.objects {
		observed, ok := f.observed[key]
		if !ok {
			return true // its first observation is due
		}
		state.Releases = append(state.Releases, observed)
	}
	slices.SortFunc(state.Releases, func(a, b explain.Observation) int { return a.Key().Compare(b.Key()) })
	state.Interruptions = f.interruptionSentences()
	state.Lost = slices.ContainsFunc(state.Interruptions, func(text string) bool { return strings.HasPrefix(text, unreachablePrefix) })
	return f.emit(state)
}

// interruptionSentences returns one sentence for each interrupted stream. A cluster that does not respond is reported only once.
func (f *follower) interruptionSentences() []string {
	out := slices.Clone(f.unread)
	for _, name := range slices.Sorted(maps.Keys(f.interrupted)) {
		switch err := f.interrupted[name]; {
		case err == nil:
			out = append(out, noPermission("watch "+name)+" Updates may be delayed.")
		case !slices.ContainsFunc(out, func(text string) bool { return strings.HasPrefix(text, unreachablePrefix) }):
			out = append(out, fmt.Sprintf("%s since %s: %v", unreachablePrefix, f.interruptedSince.UTC().Format(time.TimeOnly)+"Z", outbound.RedactError(err)))
		}
	}
	return out
}

// observationStream is the key of the observation among the interrupted streams.
const observationStream = "observation"

// unreachablePrefix is the beginning of the sentence about a cluster that does not respond.
const unreachablePrefix = "The cluster does not respond"

// record records a change, and reports whether it changes the state before the next observation.
func (f *follower) record(c streamChange) bool {
	if f.streams[c.stream] == nil {
		return false // it has ended
	}
	if c.err != nil {
		if len(f.interrupted) == 0 {
			f.interruptedSince = f.Clock.Now()
		}
		before, known := f.interrupted[c.stream]
		f.interrupted[c.stream] = c.err
		if c.denied {
			f.interrupted[c.stream] = nil
		}
		return !known || fmt.Sprint(before) != fmt.Sprint(f.interrupted[c.stream])
	}
	_, wasInterrupted := f.interrupted[c.stream]
	delete(f.interrupted, c.stream)
	if kind, isRelease := kindOf(c.stream); isRelease {
		return f.recordReleases(kind, c) || wasInterrupted
	}
	if strings.HasPrefix(c.stream, eventStreamPrefix) {
		return f.recordEvents(c) || wasInterrupted
	}
	for _, object := range append(c.all, c.object) {
		if object != nil {
			f.markAffected(object)
		}
	}
	return wasInterrupted
}

func (f *follower) recordReleases(kind explain.Kind, c streamChange) bool {
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
		if c.deleted || !f.sel.matches(key, object.GetLabels()) {
			_, existed := f.objects[key]
			f.forget(key)
			removed = removed || existed
			continue
		}
		if old := f.objects[key]; old != nil && old.GetResourceVersion() == object.GetResourceVersion() && old.GetUID() == object.GetUID() {
			continue
		}
		f.objects[key], f.changed[key] = object, true
		f.relate(key)
		if by, at := lastStatusWriter([]client.Object{object}); f.controller.State != explain.Running && isRecentWrite(at, f.Clock.Now()) {
			f.controller = explain.Controller{State: explain.Active, Message: fmt.Sprintf("%s last wrote a status at %s", by, at.UTC().Format(time.RFC3339))}
		}
	}
	return removed || c.all != nil && len(f.objects) == 0
}

func (f *follower) forget(key explain.Key) {
	delete(f.objects, key)
	delete(f.observed, key)
	delete(f.changed, key)
	delete(f.events, key)
	f.related.set(key, nil)
	for name, users := range f.users {
		if delete(users, key); len(users) == 0 {
			f.streams[name]()
			delete(f.streams, name)
			delete(f.users, name)
			delete(f.interrupted, name)
		}
	}
}

// streamFor starts a stream that ends when none of its releases remains.
func (f *follower) streamFor(ctx context.Context, key explain.Key, name string, list client.ObjectList, namespace string) {
	f.stream(ctx, name, list, client.InNamespace(namespace))
	if f.users[name] == nil {
		f.users[name] = map[explain.Key]bool{}
	}
	f.users[name][key] = true
}

// eventsOf returns the events of a release, without those of a former one with its name.
func (f *follower) eventsOf(key explain.Key) []explain.Event {
	object := f.objects[key]
	if object == nil {
		return nil
	}
	return oldestFirst(f.events[key], object.GetUID())
}

func (f *follower) recordEvents(c streamChange) bool {
	involved := map[explain.Key]bool{}
	for _, object := range append(c.all, c.object) {
		event, ok := object.(*corev1.Event)
		if !ok {
			continue
		}
		key := involvedKey(event)
		if c.deleted {
			if f.objects[key] == nil {
				delete(f.events, key)
			}
			continue
		}
		if own := addEvent(f.events, event); len(own) > maxEvents {
			dropOldest(own)
		}
		involved[key] = true
	}
	for key := range involved {
		events := f.eventsOf(key)
		if observed := f.observed[key]; observed != nil {
			shared := observed.Shared()
			shared.Events = events
			f.observed[key] = observed.WithShared(shared)
		}
		if f.objects[key] != nil && otherControllerInEvents(events) != "" {
			f.changed[key] = true // the acting controller is observed as well
		}
	}
	return true
}

func dropOldest(events map[string]involvedEvent) {
	oldest := ""
	for name, event := range events {
		if oldest == "" || event.At.Before(events[oldest].At) {
			oldest = name
		}
	}
	delete(events, oldest)
}

// markAffected marks the releases to which an object belongs: as their workload, as their route, or because a Rollout owns it.
func (f *follower) markAffected(object client.Object) {
	kind, namespace := object.GetObjectKind().GroupVersionKind().Kind, object.GetNamespace()
	if kind == podKind {
		for key := range f.related.releases[relatedObject{kind: podKind, namespace: namespace}] {
			if f.hasUnreadyPod(key, object) {
				f.changed[key] = true
			}
		}
		return
	}
	for key := range f.related.releases[relatedObject{kind: kind, namespace: namespace, name: object.GetName()}] {
		f.changed[key] = true
	}
	if owner := metav1.GetControllerOf(object); owner != nil {
		for key := range f.related.releases[relatedObject{owner: owner.UID}] {
			f.changed[key] = true
		}
	}
}

const podKind = "Pod"

// hasUnreadyPod reports whether a pod belongs to a revision of a release that was not ready when it was last observed.
func (f *follower) hasUnreadyPod(key explain.Key, pod client.Object) bool {
	return slices.ContainsFunc(f.observed[key].Shared().UnreadyPods, func(selector labels.Selector) bool { return selector.Matches(labels.Set(pod.GetLabels())) })
}

// relate records the objects whose changes affect a release: its workloads, its routes, the objects that a Rollout owns, and pods
// while some of its own are not ready.
func (f *follower) relate(key explain.Key) {
	var objects []relatedObject
	switch object := f.objects[key].(type) {
	case *flaggerv1.Canary:
		for _, target := range workloadsOf(object) {
			objects = append(objects, relatedObject{kind: target.Kind.Kind, namespace: key.Namespace, name: target.Name})
		}
		if observed, ok := f.observed[key].(*explain.Canary); ok {
			for _, ref := range routeRefs(f.controllers.flags.Routers(), object, observed.Snapshot.Plan.Provider) {
				objects = append(objects, relatedObject{kind: ref.GVK.Kind, namespace: ref.Namespace, name: ref.Name})
			}
		}
	case *argov1.Rollout:
		objects = append(objects, relatedObject{owner: object.UID})
		if ref := object.Spec.WorkloadRef; ref != nil {
			objects = append(objects, relatedObject{kind: ref.Kind, namespace: key.Namespace, name: ref.Name})
		}
	}
	if observed := f.observed[key]; observed != nil && len(observed.Shared().UnreadyPods) > 0 {
		objects = append(objects, relatedObject{kind: podKind, namespace: key.Namespace})
	}
	f.related.set(key, objects)
}

// workloadsOf returns the two workloads of a Canary.
func workloadsOf(c *flaggerv1.Canary) []workload.Object {
	kind := (&workload.Workloads{}).ForCanary(c)
	if kind == nil {
		return nil
	}
	reads := kind.Dependencies(c)
	return slices.DeleteFunc(reads, func(read workload.Object) bool { return read.Kind != reads[0].Kind })
}

// streamTargets starts a stream of a kind of workload.
func (f *follower) streamTargets(ctx context.Context, kind schema.GroupVersionKind) {
	name := plural(kind.Kind)
	if kind.Group == flaggerv1.KnativeGroup {
		name = "Knative " + name // the name is also that of a Kubernetes kind
	}
	f.stream(ctx, name, metadataList(kind.Group, kind.Version, kind.Kind), client.InNamespace(f.sel.Namespace))
}

// observe observes the changed releases, and those on which another controller acts.
func (f *follower) observe(ctx context.Context) error {
	if f.hasOtherController() || slices.ContainsFunc(slices.Collect(maps.Keys(f.changed)), f.eventNamesOtherController) {
		f.searchControllers(ctx, slices.Collect(maps.Values(f.objects)))
	}
	f.refreshControllers(ctx)
	for key, observation := range f.observed {
		if observation.Shared().OtherController.Sign != "" {
			f.changed[key] = true
		}
	}
	var objects []client.Object
	for key := range f.changed {
		objects = append(objects, f.objects[key])
	}
	observed, err := f.observeAll(ctx, objects, f.controllers.flags)
	if err != nil {
		return err
	}
	for _, one := range observed {
		key := one.Key()
		shared := one.Shared()
		shared.Events = f.eventsOf(key)
		shared.OtherController = f.controllers.otherControllerFor(ctx, objectOf(one), shared.Events, f.Clock.Now())
		f.observed[key] = one.WithShared(shared)
		f.relate(key)
		delete(f.changed, key)
		if len(shared.UnreadyPods) > 0 { // the reason may change without any change of the workload
			f.streamFor(ctx, key, "Pods"+inNamespace(key.Namespace), metadataList("", "v1", podKind), key.Namespace)
		}
		if c, is := one.(*explain.Canary); is {
			f.streamAround(ctx, c)
		}
	}
	return nil
}

// eventNamesOtherController reports whether the last event of a release names another controller.
func (f *follower) eventNamesOtherController(key explain.Key) bool {
	return otherControllerInEvents(f.eventsOf(key)) != ""
}

// streamAround starts streams of the kinds of workloads and routes of a Canary.
func (f *follower) streamAround(ctx context.Context, observed *explain.Canary) {
	for _, target := range workloadsOf(observed.Object) {
		f.streamTargets(ctx, target.Kind)
	}
	for _, ref := range routeRefs(f.controllers.flags.Routers(), observed.Object, observed.Snapshot.Plan.Provider) {
		f.streamFor(ctx, observed.Key(), plural(ref.GVK.Kind)+inNamespace(ref.Namespace), metadataList(ref.GVK.Group, ref.GVK.Version, ref.GVK.Kind), ref.Namespace)
	}
}

func metadataList(group, version, kind string) client.ObjectList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind + "List"})
	return list
}
