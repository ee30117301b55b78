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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/workload"
)

// State is what is known while somebody watches.
type State struct {
	// Releases sorted by namespace and name.
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
// until the context is done or emit says no more. It polls nothing. A cluster that goes away is waited for, and that is
// part of the state; only what fails at the first look is an error: ErrNotFound, ErrUnreachable.
func (s *Session) Follow(ctx context.Context, sel Selection, emit func(State) (more bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	canaries, err := s.canaries(ctx, sel)
	if err != nil {
		cancel()
		return err
	}
	f := &follower{
		Session: s, sel: sel, emit: emit, changes: make(chan change, 64),
		objects: map[types.NamespacedName]*flaggerv1.Canary{}, seen: map[types.NamespacedName]explain.Seen{},
		events: map[types.NamespacedName]map[string]explain.Event{}, dirty: map[types.NamespacedName]bool{},
		lost: map[string]error{}, streams: map[string]bool{},
	}
	defer f.group.Wait() //nolint:errcheck // streams return no error
	defer cancel()
	f.controller, f.flags = s.findController(ctx, canaries)
	f.stream(ctx, "Canaries", &flaggerv1.CanaryList{}, client.InNamespace(sel.Namespace))
	f.streamTargets(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}) // what nearly all are
	f.stream(ctx, "Events", &corev1.EventList{}, eventOptions(sel)...)
	return f.run(ctx)
}

// follower is one watch by one person. Its maps belong to run alone; streams hand changes over.
type follower struct {
	*Session
	sel     Selection
	emit    func(State) bool
	changes chan change
	group   errgroup.Group

	objects map[types.NamespacedName]*flaggerv1.Canary
	seen    map[types.NamespacedName]explain.Seen
	events  map[types.NamespacedName]map[string]explain.Event
	dirty   map[types.NamespacedName]bool
	// lost are the streams that are not heard of, with the reason; nil for those that are forbidden. heard is when the
	// first of them was lost.
	lost       map[string]error
	heard      time.Time
	streams    map[string]bool
	controller explain.Controller
	flags      flags
	// synced is true once the Canaries were listed.
	synced bool
}

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
			if c.denied && c.of == "Canaries" {
				return explained("watch Canaries"+inNamespace(f.sel.Namespace), c.err)
			}
			if f.take(c) && f.synced && !f.tell() {
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
		}
	}
}

// tell hands the state over, once there is one of every release.
func (f *follower) tell() bool {
	state := State{Controller: f.controller}
	for key := range f.objects {
		seen, ok := f.seen[key]
		if !ok {
			return true // its first look is due
		}
		seen.Events = oldestFirst(f.events[key])
		state.Releases = append(state.Releases, seen)
	}
	slices.SortFunc(state.Releases, func(a, b explain.Seen) int {
		return strings.Compare(a.Object.Namespace+"/"+a.Object.Name, b.Object.Namespace+"/"+b.Object.Name)
	})
	state.Lost = f.losses()
	return f.emit(state)
}

// losses say what is not heard of: a cluster that is away once, not once for each kind.
func (f *follower) losses() []string {
	var out []string
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
	switch c.of {
	case "Canaries":
		return f.takeCanaries(c) || was
	case "Events":
		return f.takeEvents(c) || was
	}
	for _, object := range append(c.all, c.object) {
		if object != nil {
			f.affected(object)
		}
	}
	return was
}

func (f *follower) takeCanaries(c change) bool {
	removed := false
	if c.all != nil {
		f.synced = true
		there := map[types.NamespacedName]bool{}
		for _, object := range c.all {
			there[client.ObjectKeyFromObject(object)] = true
		}
		for key := range f.objects {
			if !there[key] {
				f.forget(key)
				removed = true
			}
		}
	}
	for _, object := range append(c.all, c.object) {
		canary, ok := object.(*flaggerv1.Canary)
		if !ok {
			continue
		}
		key := client.ObjectKeyFromObject(canary)
		if c.gone || !f.sel.takes(canary) {
			_, had := f.objects[key]
			f.forget(key)
			removed = removed || had
			continue
		}
		if old := f.objects[key]; old != nil && old.ResourceVersion == canary.ResourceVersion && old.UID == canary.UID {
			continue
		}
		f.objects[key], f.dirty[key] = canary, true
		if by, at := writer([]flaggerv1.Canary{*canary}); f.controller.State != explain.Running && wroteRecently(at, f.Clock.Now()) {
			f.controller = explain.Controller{State: explain.Active, Message: fmt.Sprintf("%s wrote a status last at %s", by, at.UTC().Format(time.RFC3339))}
		}
	}
	return removed || c.all != nil && len(f.objects) == 0
}

func (f *follower) forget(key types.NamespacedName) {
	delete(f.objects, key)
	delete(f.seen, key)
	delete(f.dirty, key)
}

func (f *follower) takeEvents(c change) bool {
	for _, object := range append(c.all, c.object) {
		event, ok := object.(*corev1.Event)
		if !ok || c.gone || event.InvolvedObject.Kind != flaggerv1.CanaryKind {
			continue
		}
		if of := remember(f.events, event); len(of) > eventsKept {
			dropOldest(of)
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

// affected marks the Canaries that an object belongs to: the two workloads by their names, routes by their own.
func (f *follower) affected(object client.Object) {
	kind := object.GetObjectKind().GroupVersionKind().GroupKind()
	routers := f.flags.Routers()
	for key, canary := range f.objects {
		for _, target := range targets(canary) {
			if target.Kind.GroupKind() == kind && object.GetNamespace() == key.Namespace && object.GetName() == target.Name {
				f.dirty[key] = true
			}
		}
		for _, ref := range routes(routers, canary, f.seen[key].Snapshot.Plan.Provider) {
			if ref.GVK.GroupKind() == kind && ref.Namespace == object.GetNamespace() && ref.Name == object.GetName() {
				f.dirty[key] = true
			}
		}
	}
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

// look looks at the releases that changed.
func (f *follower) look(ctx context.Context) error {
	keys := slices.Collect(maps.Keys(f.dirty))
	seen := make([]explain.Seen, len(keys))
	group, looking := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, key := range keys {
		object := f.objects[key]
		group.Go(func() error {
			var err error
			seen[i], err = f.see(looking, object, f.flags)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	routers := f.flags.Routers()
	for i, key := range keys {
		f.seen[key] = seen[i]
		delete(f.dirty, key)
		for _, target := range targets(seen[i].Object) {
			f.streamTargets(ctx, target.Kind)
		}
		for _, ref := range routes(routers, seen[i].Object, seen[i].Snapshot.Plan.Provider) {
			f.stream(ctx, plural(ref.GVK.Kind)+inNamespace(ref.Namespace), metadataList(ref.GVK.Group, ref.GVK.Version, ref.GVK.Kind), client.InNamespace(ref.Namespace))
		}
	}
	return nil
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
